"""Late outcomes: forecasts and outcomes matched by id, in whatever order outcomes arrive."""

from treecal.late._late import Late
from treecal.late._revisions import Lead

# For the other rooms.
# isort: off
from treecal.late._arrivals import VOID, Arrival, Outcome, Standing, briefs
from treecal.late._pool import Opening, Pool, Thing, announce, ask, divided, lessons
from treecal.late._revisions import Revisions
from treecal.late._snapshot import packed, unpacked
# isort: on

__all__ = ["Late", "Lead"]
