"""What an alarm says: since when, where, in which direction, how much."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from treecal._elementary import applied, exp, log
from treecal._states import check_count, check_names, check_number
from treecal._typing import Array, Saved
from treecal.exceptions import SnapshotError
from treecal.geometry import ConvexSet, Simplex
from treecal.monitor._bets import (
    BINS,
    CAPITAL,
    COVERAGES,
    EXCESS,
    LENGTH,
    LEVELS,
    MOST,
    RATES,
    RUN,
    SINCE,
    Family,
)

_OF_NUMBERS = ("shift", "spread", "interval", "level")
KINDS = (
    "temperature",
    "class",
    "base rate",
    "confidence",
    "coordinate",
    "slope",
    "direction",
    *_OF_NUMBERS,
)
_WIDE = (0.9, 0.8, 0.5)
"""Central intervals by which an alarm says that forecasts are too narrow or too wide."""
_PROOF = 1e200  # no forecast but one of 0 is ever as wrong in a round
_DIRECTIONS = (
    "too low",
    "too high",
    "too sure",
    "not sure enough",
    "too extreme",
    "not extreme enough",
    "too narrow",
    "too wide",
)


@dataclass(frozen=True)
class Alarm:
    """The first alarm of a monitor: what convicts the forecasts, and since when.

    Attributes
    ----------
    round
        The round after whose outcome it was raised.
    onset
        The round in which the error most likely began: of all starts and all bets those that have won most. An
        estimate, early or late by as much as chance makes it.
    kind
        The bet that holds most of the evidence: "temperature"; "class", of one class; "base rate", of several at once;
        "confidence", of the most likely class, where it has a certain probability. For outcomes that are not classes
        "coordinate", "slope" or "direction"; for numbers "shift", "spread", "interval", of one central interval, or
        "level", of one quantile.
    where
        The class, the coordinate, the lower end of a range of confidence of width 0.1, the coverage of an interval
        that shows it or the level of a quantile; None for "temperature" and "shift", and where there is one coordinate.
    direction
        The forecasts are "too low" or "too high" for that class; "too sure" or "not sure enough"; of the slope "too
        extreme", too far from the set's centre, or "not extreme enough"; of numbers "too narrow" or "too wide".
    size
        For classes, the logits to add; for "temperature", the number to divide all logits by. It comes from a grid, so
        it is rough. For other sets the same as `gap`.
    gap
        Mean outcome less mean forecast since the error began, as the bets of this kind see it: of the class or
        coordinate, or the most likely class. (For "slope", as a share of the most it can be.) For numbers, the share of
        outcomes less that forecast: inside the interval, below the quantile, or above the median for "shift".
    e_value
        The evidence at the alarm.
    group
        The group that convicts; None for the whole stream.
    """

    round: int
    onset: int
    kind: str
    where: str | int | float | None
    direction: str
    size: float
    gap: float
    e_value: float
    group: Hashable = None

    @property
    def movement(self) -> str | None:
        """What revisions do if they are what convicts: "reverts" if too sure, "runs on" if not sure enough; or None."""
        sure = {"too sure": "reverts", "too extreme": "reverts"}
        return (sure | {"not sure enough": "runs on", "not extreme enough": "runs on"}).get(self.direction)

    def __str__(self) -> str:
        return self._words(f"round {self.round:,}", f"round {self.onset:,}")

    def in_outcomes(self) -> str:
        """Return the same words where outcomes are counted as they arrive, and rounds are another count."""
        return self._words(f"{self.round:,} outcome{'s' * (self.round != 1)}", f"outcome {self.onset:,}")

    def _words(self, now: str, onset: str) -> str:
        group = "" if self.group is None else f" in group {self.group}"
        number = self.kind in _OF_NUMBERS
        if self.e_value > _PROOF:
            which = "a number" if number else "another class" if self.direction == "too high" else str(self.where)
            return f"alarm after {now}{group}: the outcome was {which}, to which the forecast gave the probability 0"
        if number:
            return (
                f"alarm after {now}, since about {onset}{group}: forecasts are {self.direction}: {self._share()} "
                f"(evidence {self.e_value:.3g} to 1)"
            )
        coordinate = "" if self.where is None else f" of coordinate {self.where}"
        what = {
            "temperature": f"forecasts are {self.direction}: a temperature of about {self.size:.2g}",
            "confidence": f"forecasts of about {self._confidence():.0%} are {self.direction}",
            "slope": f"forecasts are {self.direction}",
            **dict.fromkeys(("coordinate", "direction"), f"forecasts{coordinate} are {self.direction}"),
        }.get(self.kind, f"forecasts of {self.where} are {self.direction}")
        logits = f" ({self.size:+.2g} logits)" * (self.kind in ("class", "base rate", "confidence"))
        gap = "" if self.kind == "slope" else f", by {abs(self.gap):.3g} on average"
        return f"alarm after {now}, since about {onset}{group}: {what}{logits}{gap} (evidence {self.e_value:.3g} to 1)"

    def _share(self) -> str:
        """Return what was counted of numbers, in words."""
        if self.kind == "shift":
            return f"{0.5 + self.gap:.0%} of the outcomes were above the median".replace("%", " %")
        level = self.where if isinstance(self.where, float) else 0.9
        found = f"{min(max(level + self.gap, 0.0), 1.0):.0%}"
        if self.kind == "level":
            return f"{found} of the outcomes were below the {level:.0%} quantile".replace("%", " %")
        return f"the {level:.0%} interval held {found}".replace("%", " %")

    def _confidence(self) -> float:
        return self.where + 0.05 if isinstance(self.where, float) else 0.0


def read_alarm(
    family: Family, space: ConvexSet, cells: Array, learned: Array, *, number: int, value: float, group: Hashable
) -> Alarm:
    """Return the alarm that a stream's evidence, one row of it, amounts to."""
    held = family.table.shares * cells[:, CAPITAL]
    kind, where, size = family.bets[int(held.argmax())]
    of_kind = [i for i, bet in enumerate(family.bets) if (bet.kind, bet.where) == (kind, where)]
    gap = _gap(_best_run(cells[of_kind]))
    place: str | int | float | None = None
    if kind == "temperature":
        size = exp(_mean(held[of_kind], [log(family.bets[i].size) for i in of_kind]))
        direction = "too sure" if size > 1 else "not sure enough"
    elif kind == "class":
        size = _mean(held[of_kind], [family.bets[i].size for i in of_kind])
        place = _name(space, where)
        direction = "too low" if size > 0 else "too high"
    elif kind == "base rate":
        logits = applied(log, _learned(learned, size, space.dim)[: space.dim])
        where = int(np.abs(logits).argmax())
        size = float(logits[where])
        gap = _class_gap(family, cells, where, math.copysign(1.0, logits[where]))
        place = _name(space, where)
        direction = "too low" if size > 0 else "too high"
    elif kind == "confidence":
        logits = applied(log, _learned(learned, size, space.dim)[space.dim : space.dim + BINS])
        where = int(np.abs(logits).argmax())
        size = float(logits[where])
        place = where / BINS
        direction = "not sure enough" if size > 0 else "too sure"
    elif kind in _OF_NUMBERS:
        gap = _gap(_best_run(cells[[i for i in of_kind if family.bets[i].size * size > 0]]))
        if kind == "level":
            place = LEVELS[where]
        elif kind != "shift":
            shares = _WIDE if kind == "spread" else (COVERAGES[where], *_WIDE)
            place, gap = _counted(family, cells, shares, narrow=(size > 0) == (kind == "spread")) or (shares[0], gap)
        words = {
            "shift": ("too low", "too high"),
            "level": ("too high", "too low"),
            "spread": ("too narrow", "too wide"),
            "interval": ("too wide", "too narrow"),
        }
        direction = words[kind][size < 0]
        size = gap
    elif kind == "direction":
        row = learned[RATES.index(size) * (space.dim + 1) :][: space.dim]
        place = int(np.abs(row).argmax())
        size = gap = float(row[place])
        direction = "too low" if gap > 0 else "too high"
        place = place if space.dim > 1 else None
    else:
        place, up = (None, ("not extreme enough", "too extreme")) if kind == "slope" else (where, _DIRECTIONS[:2])
        direction = up[size < 0]
        place = place if space.dim > 1 else None
        size = gap
    # The start and the bet that win most together: most likely, if any start and any of these errors may be. What holds
    # most of the evidence is often a timid bet, whose run goes on for long after chance began it; and it has won from
    # starts that weigh more, as they are earlier.
    onset = min(int(_best_run(cells)[SINCE]), number)
    return Alarm(number, onset, kind, place, direction, float(size), float(gap), value, group)


def _learned(learned: Array, rate: float, dim: int) -> Array:
    """Return what was learned at one rate."""
    return learned[RATES.index(rate) * (2 * dim + BINS) :]


def _mean(weights: Array, sizes: list[float]) -> float:
    return math.fsum(weights * np.array(sizes)) / math.fsum(weights)


def _best_run(cells: Array) -> Array:
    """Return the bet whose run has won most."""
    return np.asarray(cells[int(cells[:, RUN].argmax())])


def _gap(cell: Array) -> float:
    return float(cell[EXCESS] / cell[LENGTH]) if cell[LENGTH] else 0.0


def _counted(family: Family, cells: Array, shares: tuple[float, ...], *, narrow: bool) -> tuple[float, float] | None:
    """Return the first central interval of which every outcome is known to be inside or not, and how many more it held.

    Of the quantiles 10, 50 and 90 % nobody knows what an interval of 90 % held: that of 80 % speaks for it.
    """
    for share in shares:
        place = COVERAGES.index(share)
        bets = enumerate(family.bets)
        own = [i for i, bet in bets if (bet.kind, bet.where, bet.size < 0) == ("interval", place, narrow)]
        run = _best_run(cells[own])
        held = float(run[EXCESS] + share * run[LENGTH])
        if run[LENGTH] and (run[EXCESS] < 0) == narrow and abs(held - round(held)) < 1e-6:
            return share, _gap(run)
    return None


def _class_gap(family: Family, cells: Array, where: int, sign: float) -> float:
    """Return mean outcome less mean forecast of a class, since the error most likely began in which it is too low."""
    watched = {bet.where for bet in family.bets if bet.kind == "class"}
    if where not in watched:  # of two classes the other one is
        return -_class_gap(family, cells, 1 - where, -sign)
    own = [i for i, bet in enumerate(family.bets) if (bet.kind, bet.where) == ("class", where) and bet.size * sign > 0]
    return _gap(_best_run(cells[own]))


def _name(space: ConvexSet, where: int) -> str | int:
    names = space.classes if isinstance(space, Simplex) else None
    return where if names is None else names[where]


def alarm_state(alarm: Alarm | None, groups: list[Hashable]) -> Saved:
    """Return an alarm as data, its group by number; {} for none."""
    if alarm is None:
        return {}
    return asdict(alarm) | {"group": -1 if alarm.group is None else groups.index(alarm.group)}


def checked_alarm(state: Any, groups: list[Hashable], *, rounds: int, threshold: float) -> Alarm:
    """Return the alarm of a state, or raise unless it can have come in so many rounds."""
    check_names("the alarm", state, [field.name for field in fields(Alarm)])
    check_count("the alarm's round", state["round"], most=rounds)
    check_count("the alarm's onset", state["onset"], most=state["round"])
    check_number("the alarm's group", state["group"], least=-1, most=len(groups) - 1)
    at = int(state["group"])
    words = isinstance(state["kind"], str) and isinstance(state["direction"], str)
    if not words or state["kind"] not in KINDS or state["direction"] not in _DIRECTIONS:
        raise SnapshotError("the alarm's kind or direction is not known.")
    if not isinstance(state["where"], str | int | float | None):
        raise SnapshotError("the alarm's place is neither text nor a number.")
    for name in ("size", "gap"):
        check_number(f"the alarm's {name}", state[name], least=-MOST, most=MOST)
    check_number("the alarm's evidence", state["e_value"], least=threshold, most=2 * MOST)
    return Alarm(**state | {"group": None if at < 0 else groups[at]})
