"""The family of bets: which errors are looked for, how large, how much is put on each, and what they come to.

Each bet multiplies its capital by a factor that is at least 0 and has an expectation of 1, at most, if the forecast is
right. Most of them bet on an error of one size, the same in every round, so nothing has to be learned before they win,
and after a change nothing has to be forgotten. The others learn what is wrong, with two memories.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._elementary import applied, expm1
from treecal._typing import Array, Integers
from treecal.columns import ROUNDS, Columns, Field, Schema
from treecal.exceptions import SnapshotError
from treecal.forecasters import reach
from treecal.geometry import Cdf, ConvexSet, Simplex

TWELFTHS = (4, 6, 8, 10, 11, 13, 15, 18, 24, 36)
"""Of the powers to which forecasts are raised, the inverses of temperatures: from 3 to 1/3."""
OFFSETS = (0.3, 0.6, 1.2, 2.4)
STAKES = (0.05, 0.1, 0.2, 0.4, 0.8)
RATES = (0.02, 0.1)
BINS = 10
FARTHEST = 50.0
"""The largest factor that is learned, of odds."""
_SHARES = {"temperature": 0.4, "class": 0.4, "base rate": 0.1, "confidence": 0.1}
_POINT_SHARES = {"coordinate": 0.6, "slope": 0.2, "direction": 0.2}
_NUMBER_SHARES = {"shift": 0.3, "spread": 0.3, "interval": 0.2, "level": 0.2}
SPREADS = (-0.9, -0.6, -0.3, 0.3, 0.6, 1.2)
"""Stakes on the square of the distance from the median, in levels: above 0 forecasts are too narrow."""
COVERAGES = (0.5, 0.8, 0.9, 0.98)
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


class Bets(NamedTuple):
    """What the kernel needs: of classes, of the points of another set, or of numbers; what is of others is empty."""

    classes: bool
    twelfths: Integers
    odds: Array
    """Offsets, as odds less 1."""
    watched: Integers
    """Classes."""
    ranges: Array
    """The sides of the box around the set."""
    centre: Array
    diameter: float
    spread: float
    """No forecast is farther from the centre."""
    stakes: Array
    rates: Array
    shares: Array
    """Of all that is put on bets."""
    spreads: Array
    shares_held: Array
    """Of central intervals and then of single levels: the probability that an outcome is inside, or below."""
    restarts: bool = False
    """Whether every start counts as much as the first: Shiryaev and Roberts."""


class Bet(NamedTuple):
    """One bet: the error it is on, where, and of what size."""

    kind: str
    where: int
    size: float


class Family(NamedTuple):
    """All bets on a set, in order; what their kernel needs; and how many numbers they learn."""

    bets: tuple[Bet, ...]
    table: Bets
    learned: int


def family(space: ConvexSet, *, restarts: bool = False) -> Family:
    """Return the bets on the forecasts of a set, and whether every start of them counts as much as the first.

    Examples
    --------
    >>> {bet.kind for bet in family(Simplex(3)).bets} == set(_SHARES)
    True
    """
    if isinstance(space, Cdf):
        found = _of_numbers()
    else:
        found = _of_classes(space.dim) if isinstance(space, Simplex) else _of_points(space)
    return found._replace(table=found.table._replace(restarts=restarts))


def _of_classes(dim: int) -> Family:
    offsets = np.array([*(-size for size in reversed(OFFSETS)), *OFFSETS])
    watched = np.arange(dim) if dim != 2 else np.array([1])  # of two, one is too low where the other is too high
    bets = [Bet("temperature", -1, 12 / n) for n in TWELFTHS]
    bets += [Bet("class", int(k), float(size)) for k in watched for size in offsets]
    bets += [Bet(kind, -1, rate) for kind in ("base rate", "confidence") for rate in RATES]
    odds = applied(expm1, offsets)
    none = np.zeros(0)
    table = Bets(
        True,
        np.array(TWELFTHS),
        odds,
        watched,
        none,
        none,
        0.0,
        0.0,
        none,
        np.array(RATES),
        _shares(bets, _SHARES),
        none,
        none,
    )
    return Family(tuple(bets), table, len(RATES) * (2 * dim + BINS))


def _of_points(space: ConvexSet) -> Family:
    stakes = np.array([*(-stake for stake in reversed(STAKES)), *STAKES])
    low, high = space.bounds()
    diameter = reach(space, "l2")
    bets = [Bet("coordinate", k, float(stake)) for k in range(space.dim) for stake in stakes]
    bets += [Bet("slope", -1, float(stake)) for stake in stakes]
    bets += [Bet("direction", -1, rate) for rate in RATES]
    centre = np.array(space.centre, np.float64)
    spread = float(np.sqrt(np.sum(np.maximum(high - centre, centre - low) ** 2)))
    none = np.zeros(0)
    nobody = np.zeros(0, np.int64)
    shares = _shares(bets, _POINT_SHARES)
    reach_ = high - low, centre, diameter, spread
    table = Bets(False, nobody, none, nobody, *reach_, stakes, np.array(RATES), shares, none, none)
    return Family(tuple(bets), table, len(RATES) * (space.dim + 1))


def _of_numbers() -> Family:
    stakes = np.array([*(-stake for stake in reversed(STAKES)), *STAKES])
    offsets = np.array([*(-size for size in reversed(OFFSETS[:3])), *OFFSETS[:3]])
    bets = [Bet("shift", -1, float(stake)) for stake in stakes]
    bets += [Bet("spread", -1, stake) for stake in SPREADS]
    bets += [Bet("interval", k, float(size)) for k in range(len(COVERAGES)) for size in offsets]
    bets += [Bet("level", k, float(size)) for k in range(len(LEVELS)) for size in offsets]
    none = np.zeros(0)
    nobody = np.zeros(0, np.int64)
    held = np.array(COVERAGES + LEVELS)
    shares = _shares(bets, _NUMBER_SHARES)
    odds = applied(expm1, offsets)
    table = Bets(False, nobody, odds, nobody, none, none, 0.0, 0.0, stakes, none, shares, np.array(SPREADS), held)
    return Family(tuple(bets), table, 0)


def _shares(bets: list[Bet], parts: dict[str, float]) -> Array:
    """Return how much is put on each bet: the part of its kind, divided among all of that kind."""
    kinds: Any = [bet.kind for bet in bets]
    return np.array([parts[kind] / kinds.count(kind) for kind in kinds])


MOST = 1e280
"""Of a capital: what exceeds it stands for infinity."""
CAPITAL, RUN, SINCE, LENGTH, EXCESS = range(5)
_ROUNDED = 1 + 1e-6


class Evidence(NamedTuple):
    """The state of some streams: one row for each. `cells[row, bet]` holds five numbers.

    `CAPITAL` is what the starts so far have and the next one gets; `RUN` the largest product of factors that ends now,
    or 1 (Page's CUSUM), `SINCE` the round in which it begins, `LENGTH` how many rounds of the stream that are, and
    `EXCESS` the sum in them of what the bet is on: outcome less forecast.
    """

    rounds: Integers
    cells: Array
    learned: Array

    def of(self, rows: Any) -> Evidence:
        """Return a copy of some streams'."""
        return Evidence(*(np.array(column[rows]) for column in self))

    def values(self, bets: Bets) -> Array:
        """Return the value of each stream, bit for bit as the kernel finds it: from left to right."""
        base = 1.0 if bets.restarts else 0.0
        totals = np.add.accumulate((self.cells[:, :, CAPITAL] - base) * bets.shares, axis=1)[:, -1]
        return np.asarray(totals if bets.restarts else totals + 1 / (self.rounds + 2))


def evidence_schema(family: Family) -> Schema:
    """Return what is kept of a stream's evidence."""
    bets = family.table
    cell = np.array([1.0 if bets.restarts else 0.5, 1.0, 1.0, 0.0, 0.0])
    learned = np.ones(family.learned)
    least = 1 / FARTHEST / _ROUNDED
    most = FARTHEST * _ROUNDED
    if not bets.classes and len(learned):  # for each rate a direction, and the mean square of what it is off
        learned[:] = 0.0
        learned[len(bets.centre) :: len(bets.centre) + 1] = bets.diameter**2 / 4
        most = max(bets.diameter, bets.diameter**2) * _ROUNDED
        least = -most
    return Schema(
        (
            ROUNDS,
            Field("cells", (len(family.bets), 5), new=cell),
            Field("learned", (family.learned,), new=learned, least=least, most=most),
        )
    )


def fresh(schema: Schema) -> Evidence:
    """Return the evidence of a new stream."""
    return evidence_of(Columns(schema, 1))


def evidence_of(columns: Columns) -> Evidence:
    """Return the evidence that columns hold, not copied."""
    return Evidence(*(columns[name] for name in Evidence._fields))


def stacked(parts: list[Evidence]) -> Evidence:
    """Return the rows of several as one."""
    return Evidence(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def read_columns(schema: Schema, state: Any, where: str = "the evidence") -> Columns:
    """Return columns with a copy of a state, or raise unless it can be that of streams."""
    columns = Columns.read(schema, state, where)
    cells = columns["cells"]
    if (cells[:, :, CAPITAL] < 0).any() or (cells[:, :, RUN] < 1).any() or (cells[:, :, SINCE] < 1).any():
        raise SnapshotError(f"{where} is not that of capitals.")
    return columns
