"""The arena: race forecasters × streams × sets × seeds, and collect calibration errors and scores in one table.

All forecasters meet the same streams, except that an adversary answers each one separately. An interrupted race can be
resumed, since each finished run is kept in its own file. Tables need pyarrow: the extra `arena`.
"""

from treecal.arena._race import race
from treecal.arena._real import CHOSEN, HELD_OUT, hindsight
from treecal.arena._run import Maker
from treecal.arena._streams import REAL, STREAMS, Fixed, Recorded, Source
from treecal.arena._tables import Rank, Standing, final, rank, show, standings, summary

__all__ = [
    "CHOSEN",
    "HELD_OUT",
    "REAL",
    "STREAMS",
    "Fixed",
    "Maker",
    "Rank",
    "Recorded",
    "Source",
    "Standing",
    "final",
    "hindsight",
    "race",
    "rank",
    "show",
    "standings",
    "summary",
]
