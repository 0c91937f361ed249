"""Forecasters on a fixed grid: for two outcomes they beat every tree, for a few they are still worth their price."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ForecastError, ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster
from treecal.geometry import ConvexSet, Simplex, l2

MOST_POINTS = 10_000
"""The largest grid that one linear program a round is asked to solve."""


class BinaryGrid(Forecaster):
    """Two outcomes, and a grid of `bins + 1` probabilities: the forecaster of choice where there are only two.

    Each grid point `g_i = i/bins` keeps its bias `V_i = Σ_t x_t(i)·(y_t − g_i)`, `y` the second coordinate. A point
    without bias is played; if there is none, two neighbours with `V_i > 0 > V_{i+1}` share the round so that, whatever
    happens, their biases grow against each other. Of several such choices the one nearest to the middle is taken, and
    half of each where two are equally near. Outcomes may be any point between the two.

    After `T` rounds `Σ_i |V_i|/T`, the error in one coordinate, is at most `binary_grid_bound(T, bins=bins)`; the ℓ1
    error is twice that. Costs `O(bins)` a round and in memory.

    Parameters
    ----------
    space
        `Simplex(2)`, and nothing else.
    bins
        Cells of the grid. The bound is least near `√(T/8)` for `T` rounds.

    Examples
    --------
    >>> import treecal as tc
    >>> f, ledger = tc.BinaryGrid(bins=10), tc.Ledger(tc.Simplex(2))
    >>> for k in np.random.default_rng(0).integers(2, size=1000):
    ...     ledger.record(f.predict(), np.eye(2)[k])
    ...     f.update(np.eye(2)[k])
    >>> round(ledger.error("l1"), 3), round(2 * binary_grid_bound(1000, bins=10), 3)
    (0.122, 0.444)

    References
    ----------
    Foster, "A proof of calibration via Blackwell's approachability theorem", 1999.
    """

    _fields = ("space", "bins")

    def __init__(self, space: ConvexSet | None = None, *, bins: int = 30) -> None:
        self.space = space = Simplex(2) if space is None else space
        if not isinstance(space, Simplex) or space.dim != 2:
            raise ParameterError.expected("space", space, "Simplex(2)", hint="for more classes, AdaptiveTreeCal.")
        self.bins = whole_number("bins", bins, least=1)
        steps = np.arange(self.bins + 1)
        self._grid = np.column_stack([steps[::-1], steps]) / self.bins
        self._bias = np.zeros(self.bins + 1)
        self._rounds = 0

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._rounds

    def _announce(self) -> Forecast:
        self._rows, weights = self._choice()
        weights.setflags(write=False)
        return Forecast.trusted(self._grid[self._rows], weights, None, self.space)

    def _choice(self) -> tuple[Integers, Array]:
        """Return the grid points to play, and their weights."""
        bias = self._bias
        level = np.flatnonzero(bias == 0)
        if level.size:
            rows = _middlemost(level, self.bins)
            return rows, np.full(len(rows), 1 / len(rows))
        # V_0 >= 0 >= V_N by construction, so the sign falls somewhere.
        left = _middlemost(np.flatnonzero((bias[:-1] > 0) & (bias[1:] < 0)), self.bins - 1)
        rows = np.column_stack([left, left + 1])
        shares = np.abs(bias[rows[:, ::-1]])  # each by the other's bias
        return rows.ravel(), (shares / shares.sum(axis=1, keepdims=True)).ravel() / len(left)

    def _learn(self, outcome: Array) -> None:
        x = self.predict()
        point = x.points
        # Both coordinates count alike, so that neither class is rounded otherwise than the other; an outcome that is a
        # rounding outside the set is brought back, without which the ends could lose their sign.
        gap = ((outcome[1] - point[:, 1]) - (outcome[0] - point[:, 0])) / 2
        np.add.at(self._bias, self._rows, x.weights * np.clip(gap, -point[:, 1], point[:, 0]))
        self._rounds += 1

    def get_state(self) -> dict[str, Any]:
        """Return the number of rounds and each point's bias."""
        return {"rounds": self._rounds, "bias": self._bias}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self._rounds, self._bias = state["rounds"], np.array(state["bias"])
        self._announced = None


def _middlemost(rows: Integers, last: int) -> Integers:
    """Return those of the rows 0 … last that are nearest to the middle: one, or two at equal distance."""
    distance = np.abs(2 * rows - last)
    nearest: Integers = rows[distance == distance.min()]
    return nearest


def binary_grid_bound(rounds: int, *, bins: int) -> float:
    """Return the certificate of `BinaryGrid`: its error per round in one coordinate, at most; in ℓ1 twice that.

    `√((bins+1)/T) + √(bins+1) / (2√2·bins)`. For the potential `Φ = ΣV_i²`: the two points played push on it with
    `x_i·V_i = −x_{i+1}·V_{i+1} <= √(Φ/8)` over a distance of `1/bins`, so a round adds at most `1 + √(Φ/2)/bins`; hence
    `√Φ <= √T + T/(2√2·bins)`, and `Σ|V_i| <= √((bins+1)·Φ)`.

    Examples
    --------
    >>> round(binary_grid_bound(20_000, bins=50), 3)
    0.101
    """
    rounds, bins = whole_number("rounds", rounds, least=1), whole_number("bins", bins, least=1)
    return math.sqrt((bins + 1) / rounds) + math.sqrt((bins + 1) / 8) / bins


class SimplexGrid(Forecaster):
    """A few classes, and all probability vectors whose entries are multiples of `1/resolution`.

    Each grid point `p` keeps its bias `V_p = Σ_t x_t(p)·(y_t − p)`. The forecast is the minimax play against all
    outcomes at once, `min_x max_{y vertex} Σ_p x(p)·⟨V_p, y − p⟩ / √(‖V_p‖² + β²)`, with `β = √(2t/n)` in round `t` and
    `n` the number of points: a linear program. While there are points without bias, the one nearest to the centre is
    played instead.

    The ℓ2 error after `T` rounds is at most `simplex_grid_bound(T, ...)`: the grid's width and `√(8n/T)`. (With `V_p`
    itself in the program, unscaled, the potential is `Σ_p ‖V_p‖²`; its bound has a factor `√n` on the width of the
    grid, and says nothing from three classes on.)

    Costs one linear program in `n` variables a round, 2 ms at a hundred points and 6 ms at a thousand, and `O(n·dim)`
    memory. `n` is `(resolution + dim − 1 choose dim − 1)`: beyond four or five classes take `AdaptiveTreeCal`.

    Parameters
    ----------
    space
        The simplex that outcomes lie in.
    resolution
        Steps of the grid along each edge.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.SimplexGrid(tc.Simplex(3), resolution=6)
    >>> f.predict().points
    array([[0.33333333, 0.33333333, 0.33333333]])
    >>> tc.SimplexGrid(tc.Simplex(10), resolution=10)
    Traceback (most recent call last):
    ...
    treecal.exceptions.ParameterError: a grid of resolution 10 on Simplex(10) has 92378 points, ...

    References
    ----------
    Foster and Vohra, "Asymptotic calibration", 1998; Hart, "Calibrated forecasts: the minimax proof", 2021.
    """

    _fields = ("space", "resolution")
    symmetric = False  # which of several minimax plays the solver finds depends on the order of the classes

    def __init__(self, space: Simplex, *, resolution: int) -> None:
        if not isinstance(space, Simplex):
            raise ParameterError.expected("space", space, "a Simplex", hint="on other sets, AdaptiveTreeCal.")
        self.space: Simplex = space
        self.resolution = whole_number("resolution", resolution, least=1)
        self._grid = _simplex_grid(space, self.resolution)
        self._bias = np.zeros_like(self._grid)
        self._rounds = 0

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._rounds

    def _announce(self) -> Forecast:
        sizes = l2.square(self._bias)
        level = np.flatnonzero(sizes == 0)
        if level.size:
            nearest = level[np.argmin(l2.square(self._grid[level] - self.space.centre))]
            self._rows, weights = nearest[None], uniform(1)
        else:
            slope = self._bias / np.sqrt(sizes + 2 * (self._rounds + 1) / len(self._grid))[:, None]
            everywhere = _minimax(slope - np.sum(slope * self._grid, axis=1, keepdims=True))
            self._rows = np.flatnonzero(everywhere)
            weights = everywhere[self._rows]
            weights.setflags(write=False)
        return Forecast.trusted(self._grid[self._rows], weights, None, self.space)

    def _learn(self, outcome: Array) -> None:
        x = self.predict()
        self._bias[self._rows] += x.weights[:, None] * (outcome - x.points)
        self._rounds += 1

    def get_state(self) -> dict[str, Any]:
        """Return the number of rounds and each point's bias."""
        return {"rounds": self._rounds, "bias": self._bias}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self._rounds, self._bias = state["rounds"], np.array(state["bias"])
        self._announced = None


def grid_width(dim: int, resolution: int) -> float:
    """Return the greatest ℓ2 distance of a probability vector from the grid, `√(⌊d/2⌋·⌈d/2⌉/d)/resolution`.

    Examples
    --------
    >>> grid_width(2, 10) == math.sqrt(2) / 20
    True
    """
    half = dim // 2
    return math.sqrt(half * (dim - half) / dim) / resolution


def simplex_grid_bound(rounds: int, *, dim: int, resolution: int) -> float:
    """Return the certificate of `SimplexGrid`: its ℓ2 error per round, at most; in ℓ1 `√dim` times that.

    `ε + √(8n/T)` with `ε = grid_width(dim, resolution)` and `n` points. To first order the play adds at most `ε` to the
    potential `Σ_p √(‖V_p‖² + β²)`: its gradients are shorter than 1, so against a known mean outcome the grid point
    nearest to it would, and minimax is maximin. The second order adds at most `1/β` a round, the growth of `β` at most
    `n·β` in all, and `β = √(2t/n)` makes both `√(2nT)` in total.

    Examples
    --------
    >>> round(simplex_grid_bound(10**6, dim=3, resolution=20), 3)
    0.084
    """
    rounds, points = whole_number("rounds", rounds, least=1), math.comb(resolution + dim - 1, dim - 1)
    return grid_width(dim, resolution) + math.sqrt(8 * points / rounds)


def _simplex_grid(space: Simplex, resolution: int) -> Array:
    """Return all vectors of the simplex whose entries are multiples of `1/resolution`."""
    dim = space.dim
    count = math.comb(resolution + dim - 1, dim - 1)
    if count > MOST_POINTS:
        finest = max((r for r in range(1, resolution) if math.comb(r + dim - 1, dim - 1) <= MOST_POINTS), default=None)
        raise ParameterError(
            f"a grid of resolution {resolution} on {space!r} has {count} points, expected at most {MOST_POINTS}: each "
            "round solves a linear program with one variable for each.",
            hint=(f"resolution={finest} is the finest that fits; " if finest else "")
            + "AdaptiveTreeCal needs no grid.",
        )
    # Stars and bars: dim − 1 bars among resolution stars.
    bars = np.array(list(itertools.combinations(range(resolution + dim - 1), dim - 1)), np.int64).reshape(
        count, dim - 1
    )
    edges = np.column_stack([np.full(count, -1), bars, np.full(count, resolution + dim - 1)])
    grid: Array = (np.diff(edges, axis=1) - 1) / resolution
    return grid


def _minimax(costs: Array) -> Array:
    """Return the distribution over rows whose largest expected cost over the columns is least."""
    from scipy.optimize import linprog

    count, columns = costs.shape
    solution = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.column_stack([costs.T, np.full(columns, -1.0)]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(count), 0.0)[None],
        b_eq=np.ones(1),
        bounds=[(0, None)] * count + [(None, None)],
        method="highs-ds",
        options={"presolve": False},  # which takes longer than the solver
    )
    if solution.x is None:
        raise ForecastError(f"the round's linear program could not be solved: {solution.message}")
    weights = np.maximum(solution.x[:-1], 0.0)
    return np.asarray(weights / weights.sum())
