"""Late outcomes: forecasts and outcomes matched by id, in whatever order outcomes come."""

from treecal.late._late import Late

__all__ = ["Late"]
