"""BinaryGrid: for two outcomes, better than every tree."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from treecal._compile import strict
from treecal._states import State, check_array
from treecal._typing import Array, Integers, Outcomes
from treecal._validate import whole_number
from treecal.columns import ROUNDS, ColumnStreams, Field, Forecasts, Schema, add_outcome
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.forecasters._base import Forecaster
from treecal.geometry import ConvexSet, Lp, Norm, Simplex
from treecal.theory import Certificate


@dataclass(eq=False)
class Biases(State):
    """The number of outcomes, and the bias of each point of a grid: the weighted sum of outcome less forecast."""

    rounds: int
    bias: Array


class Grid(Forecaster):
    """A grid of points, some of which are played by their biases."""

    _grid: Array
    _state: Biases
    _chosen: tuple[Biases, Integers, Array] | None = None  # what was chosen, after the state it was chosen in

    @abstractmethod
    def _choose(self, state: Biases) -> tuple[Integers, Array]:
        """Return the numbers of the points to play in this state, and their weights."""

    def _choice(self, state: Biases) -> tuple[Integers, Array]:
        if self._chosen is None or self._chosen[0] is not state:
            self._chosen = state, *self._choose(state)
        return self._chosen[1:]

    def _announce(self) -> Forecast:
        rows, weights = self._choice(self._state)
        return Forecast.trusted(self._grid[rows], weights.copy(), None, self.space)

    _fork = Forecaster._light_fork


class BinaryGrid(Grid):
    """Two outcomes, and a grid of `bins + 1` probabilities: the forecaster of choice where there are only two.

    Each grid point `g_i = i/bins` keeps its bias `V_i = Σ_t x_t(i)·(y_t − g_i)`, `y` the second coordinate. A point
    without bias is played; otherwise two neighbours with `V_i > 0 > V_{i+1}` share the round so that, whatever the
    outcome, their biases grow in opposite directions. Of several such choices the one nearest to the middle is taken,
    and half of each where two are equally near. Outcomes may be any point between the two.

    After `T` rounds `Σ_i |V_i|/T`, the error in one coordinate, is at most `√((bins+1)/T) + √((bins+1)/8) / bins`;
    the ℓ1 error is twice that. Costs `O(bins)` a round and in memory.

    Parameters
    ----------
    space
        `Simplex(2)`.
    bins
        Cells of the grid. The bound is least near `√(T/8)` for `T` rounds.

    Examples
    --------
    >>> import treecal as tc
    >>> f, ledger = tc.BinaryGrid(bins=10), tc.Ledger(tc.Simplex(2))
    >>> for k in np.random.default_rng(0).integers(2, size=1000):
    ...     ledger.record(f.predict(), np.eye(2)[k])
    ...     f.update(np.eye(2)[k])
    >>> round(ledger.error("l1"), 3), round(f.certificate("l1", rounds=1000).bound, 3)
    (0.122, 0.444)

    References
    ----------
    Foster, "A proof of calibration via Blackwell's approachability theorem", 1999.
    """

    name = "binary-grid"
    _fields = ("space", "bins")

    def __init__(self, space: ConvexSet | None = None, *, bins: int = 30) -> None:
        self.space = space = Simplex(2) if space is None else space
        if not isinstance(space, Simplex) or space.dim != 2:
            raise ParameterError.expected("space", space, "Simplex(2)", hint="for more classes, AdaptiveTreeCal.")
        self.bins = whole_number("bins", bins, least=1)
        steps = np.arange(self.bins + 1)
        self._grid = np.column_stack([steps[::-1], steps]) / self.bins
        self._state = Biases(0, np.zeros(self.bins + 1))

    def _choose(self, state: Biases) -> tuple[Integers, Array]:
        chosen = np.empty(self.bins + 4, np.int64)
        weights = np.empty(4)
        count = choose_points.now(state.bias, chosen, weights)
        return chosen[:count], weights[:count]

    def _after(self, state: Biases, outcome: Array) -> Biases:
        bias = state.bias.copy()
        push.now(bias, *self._choice(state), np.array(outcome))
        return Biases(state.rounds + 1, bias)

    def _check(self, state: Biases) -> None:
        super()._check(state)
        check_array("bias", state.bias, (self.bins + 1,))
        self.check_bias(state.bias)

    def check_bias(self, bias: Array) -> None:
        """Raise unless one of two neighbouring points can be found to play, in each row of biases `(…, bins + 1)`.

        The first point, 0, has a bias of 0 or more, and the last, 1, of 0 or less.
        """
        if (bias[..., 0] < 0).any() or (bias[..., -1] > 0).any():
            raise SnapshotError("the biases of the ends of the grid have the wrong signs.")

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        """Certify ℓp norms, by the potential `Φ = ΣV_i²`.

        The two points played push on it with `x_i·V_i = −x_{i+1}·V_{i+1} <= √(Φ/8)` over a distance of `1/bins`, so a
        round adds at most `1 + √(Φ/2)/bins`; hence `√Φ <= √T + T/(2√2·bins)`, and `Σ|V_i| <= √((bins+1)·Φ)`. An error
        of δ in one coordinate is `(δ, −δ)`.
        """
        if not isinstance(norm, Lp):
            return None
        return Certificate(2 ** (1 / norm.p) * self._bound(rounds), "grid certificate")

    def _bound(self, rounds: int) -> float:
        """Return the bound on the error in one coordinate."""
        return math.sqrt((self.bins + 1) / rounds) + math.sqrt((self.bins + 1) / 8) / self.bins

    def _rate(self, norm: Norm) -> float:
        return 2 ** (1 / norm.p) * math.sqrt((self.bins + 1) / 8) / self.bins if isinstance(norm, Lp) else 0.0

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> BinaryGrid:
        """Return the grid of least certified error."""
        # √(n+1)·(a + b/n), the bound of n bins, is least where a·n² = b·(n + 2).
        a = 1 / math.sqrt(rounds)
        b = 1 / math.sqrt(8)
        least = int((b + math.sqrt(b * b + 8 * a * b)) / (2 * a))
        return min((cls(space, bins=n) for n in (least, least + 1)), key=lambda f: f._bound(rounds))

    def _streams(self) -> GridStreams:
        return GridStreams(self)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[BinaryGrid]:
        """Yield an even and an odd grid, for two outcomes."""
        if isinstance(space, Simplex) and space.dim == 2:
            yield from (cls(space, bins=10), cls(space, bins=7))


class GridStreams(ColumnStreams):
    """Many grids: of each stream the biases of its points."""

    def __init__(self, thing: BinaryGrid) -> None:
        super().__init__(thing, Schema((ROUNDS, Field("bias", (thing.bins + 1,)))))

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        points = np.zeros((len(rows), 4, 2))
        weights = np.zeros((len(rows), 4))
        sizes = np.empty(len(rows), np.int64)
        announce_grids(rows, self.columns["bias"], points, weights, sizes)
        most = int(sizes.max(initial=1))
        return Forecasts(points[:, :most], weights[:, :most], sizes, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        play_grids(rows, outcomes, self.columns["bias"], self.rounds)  # which nothing interrupts

    def with_rows(self, columns: Any) -> Self:
        twin = super().with_rows(columns)
        self.thing.check_bias(twin.columns["bias"])
        return twin


@strict
def _keep_middlemost(rows: Integers, count: int, last: int) -> int:
    """Keep those rows that are nearest to the middle, one or two; return how many."""
    least = abs(2 * rows[0] - last)
    for i in range(1, count):
        least = min(least, abs(2 * rows[i] - last))
    kept = 0
    for i in range(count):
        if abs(2 * rows[i] - last) == least:
            rows[kept] = rows[i]
            kept += 1
    return kept


@strict
def choose_points(bias: Array, chosen: Integers, weights: Array) -> int:
    """Write the points of a grid to play, and their weights; return how many. `chosen` has room for all points."""
    bins = len(bias) - 1
    found = 0
    for i in range(bins + 1):
        if bias[i] == 0:
            chosen[found] = i
            found += 1
    if found:
        count = _keep_middlemost(chosen, found, bins)
        for c in range(count):
            weights[c] = 1 / count
        return count
    for i in range(bins):  # bias[0] >= 0 >= bias[bins] by construction, so the sign falls somewhere
        if bias[i] > 0 and bias[i + 1] < 0:
            chosen[found] = i
            found += 1
    cells = _keep_middlemost(chosen, found, bins - 1)
    for c in range(cells - 1, -1, -1):  # each by the other's bias
        i = chosen[c]
        both = abs(bias[i + 1]) + abs(bias[i])
        chosen[2 * c] = i
        chosen[2 * c + 1] = i + 1
        weights[2 * c] = abs(bias[i + 1]) / both / cells
        weights[2 * c + 1] = abs(bias[i]) / both / cells
    return 2 * cells


@strict
def announce_grids(rows: Integers, biases: Array, points: Array, weights: Array, sizes: Integers) -> None:
    """Write the points of each stream's forecast, their weights, and how many there are."""
    bins = biases.shape[1] - 1
    chosen = np.empty(bins + 4, np.int64)
    for i in range(len(rows)):
        sizes[i] = choose_points(biases[rows[i]], chosen, weights[i])
        for c in range(sizes[i]):
            points[i, c, 0] = (bins - chosen[c]) / bins
            points[i, c, 1] = chosen[c] / bins


@strict
def push(bias: Array, chosen: Integers, weights: Array, outcome: Array) -> None:
    """Add what a round gives to the biases of the points that were played.

    It is the mean over both coordinates, so that both classes are rounded in the same way; clipped, because an outcome
    that lies outside the set by a rounding error could flip the sign at the ends.
    """
    bins = len(bias) - 1
    for c in range(len(chosen)):
        high = chosen[c] / bins
        low = (bins - chosen[c]) / bins
        gap = ((outcome[1] - high) - (outcome[0] - low)) / 2
        bias[chosen[c]] += weights[c] * min(max(gap, -high), low)


@strict
def play_grids(rows: Integers, outcomes: Any, biases: Array, rounds: Integers) -> None:
    """Play a round of each row's stream, in order."""
    bins = biases.shape[1] - 1
    chosen = np.empty(bins + 4, np.int64)
    weights = np.empty(4)
    outcome = np.empty(2)
    for i in range(len(rows)):
        bias = biases[rows[i]]
        count = choose_points(bias, chosen, weights)
        outcome[:] = 0.0
        add_outcome(outcome, outcomes, i)
        push(bias, chosen[:count], weights, outcome)
        rounds[rows[i]] += 1
