"""A stream as it stands, copied: what is in memory belongs to the writer's thread, and others look at pictures."""

from __future__ import annotations

from typing import NamedTuple

from treecal.auditing._counts import Cells
from treecal.monitor import Alarm
from treecal.serve._player import CurvePoint, Player
from treecal.serve._replay import StreamRow


class Standing(NamedTuple):
    """Where a monitor stands."""

    value: float
    peak: float
    threshold: float
    alarm: Alarm | None


class Picture(NamedTuple):
    """A copy of what is in memory of a stream, to be looked at by any thread."""

    kept: StreamRow
    rounds: int
    learned: int
    late: int
    void: int
    pending: int
    amended: int
    state: str
    last: float
    played: str
    cells: dict[str, Cells]
    monitors: dict[str, Standing]
    marks: list[CurvePoint]


def picture_of(kept: StreamRow, player: Player) -> Picture:
    """Return a copy of what is in memory of a stream."""
    player.catch_up()
    marks = list(player.marks)
    if player.learned and (not marks or marks[-1].rounds < player.learned):
        marks.append(player.mark())
    return Picture(
        kept,
        player.rounds,
        player.learned,
        player.late,
        player.void,
        player.pending,
        player.amended,
        player.state.hex(),
        player.last,
        "the model's forecasts, as they are" if player.thing is None else repr(player.thing),
        {role: Cells(*(each.copy() for each in cells)) for role, cells in player.cells.items()},
        {
            name: Standing(each.statistic, each.peak, each.threshold, each.alarm)
            for name, each in player.monitors.items()
        },
        marks,
    )
