"""Late outcomes: forecasts and outcomes matched by id, in whatever order outcomes arrive."""

from treecal.late._late import Late

# For the other rooms.
# isort: off
from treecal.late._arrivals import (
    VOID as VOID,
    Arrival as Arrival,
    Outcome as Outcome,
    Standing as Standing,
    briefs as briefs,
)
from treecal.late._pool import (
    Opening as Opening,
    Pool as Pool,
    Thing as Thing,
    announce as announce,
    ask as ask,
    divided as divided,
    lessons as lessons,
)
from treecal.late._snapshot import packed as packed, unpacked as unpacked
# isort: on

__all__ = ["Late"]
