"""SimplexGrid: for a few classes, minimax play on a grid of probability vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from treecal._states import check_array
from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ForecastError, ParameterError
from treecal.forecast import uniform
from treecal.forecasters._binary_grid import Biases, Grid
from treecal.geometry import ConvexSet, Mahalanobis, Norm, Simplex, l2
from treecal.theory import Certificate, euclidean

MOST_POINTS = 10_000
"""The largest grid, since each round solves a linear program over it."""

USUAL_RESOLUTION = 30
USUAL_POINTS = 128
"""The finest and the largest grid by default. Of those tried over 2,000 rounds of the arena's streams, 4 to 20 steps
at three classes and 2 to 10 at four, 12 (91 points) and 7 (120) had the least errors."""


class SimplexGrid(Grid):
    """A few classes, and all probability vectors whose entries are multiples of `1/resolution`.

    Each grid point `p` keeps its bias `V_p = Σ_t x_t(p)·(y_t − p)`. The forecast is the minimax play against all
    outcomes at once, `min_x max_{y vertex} Σ_p x(p)·⟨V_p, y − p⟩ / √(‖V_p‖² + β²)`, with `β = √(2t/n)` in round `t` and
    `n` the number of points: a linear program. While there are points without bias, the one nearest to the centre is
    played instead.

    The ℓ2 error after `T` rounds is at most `ε + √(8n/T)`, `ε` the width of the grid. (With `V_p` unscaled the
    potential is `Σ_p ‖V_p‖²`; its bound has a factor `√n` on the width, and says nothing from three classes on.)

    Costs one linear program in `n` variables a round, 2 ms at a hundred points and 6 ms at a thousand, and `O(n·dim)`
    memory. `n` is `(resolution + dim − 1 choose dim − 1)`: beyond four or five classes take `AdaptiveTreeCal`.

    Parameters
    ----------
    space
        The simplex that outcomes lie in.
    resolution
        Steps of the grid along each edge; by default 30, or fewer so that there are at most 128 points.

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

    name = "simplex-grid"
    _fields = ("space", "resolution")
    symmetric = False  # which of several minimax plays the solver finds depends on the order of the classes

    def __init__(self, space: ConvexSet, *, resolution: int | None = None) -> None:
        if not isinstance(space, Simplex):
            raise ParameterError.expected("space", space, "a Simplex", hint="on other sets, AdaptiveTreeCal.")
        self.space: Simplex = space
        if resolution is None:
            resolution = min(USUAL_RESOLUTION, finest(space.dim, USUAL_POINTS) or 1)
        self.resolution = whole_number("resolution", resolution, least=1)
        self._grid = _simplex_grid(space, self.resolution)
        self._state = Biases(0, np.zeros_like(self._grid))

    def _choose(self, state: Biases) -> tuple[Integers, Array]:
        sizes = l2.square(state.bias)
        level = np.flatnonzero(sizes == 0)
        if level.size:
            nearest = level[np.argmin(l2.square(self._grid[level] - self.space.centre))]
            return nearest[None], uniform(1)
        slope = state.bias / np.sqrt(sizes + 2 * (state.rounds + 1) / len(self._grid))[:, None]
        everywhere = _minimax(slope - np.sum(slope * self._grid, axis=1, keepdims=True))
        rows = np.flatnonzero(everywhere)
        return rows, everywhere[rows]

    def _after(self, state: Biases, outcome: Array) -> Biases:
        rows, weights = self._choice(state)
        bias = state.bias.copy()
        bias[rows] += weights[:, None] * (outcome - self._grid[rows])
        return Biases(state.rounds + 1, bias)

    def _check(self, state: Biases) -> None:
        super()._check(state)
        check_array("bias", state.bias, self._grid.shape)

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        """Certify the norms that are within a known factor of ℓ2 on zero-sum vectors.

        To first order the play adds at most `ε` to the potential `Σ_p √(‖V_p‖² + β²)`: its gradients are shorter than
        1, so against a known mean outcome the grid point nearest to it would, and minimax is maximin. The second order
        adds at most `1/β` a round, the growth of `β` at most `n·β` in all, and `β = √(2t/n)` makes both `√(2nT)` in
        total.
        """
        factor = _from_l2(self.space, norm)
        if factor is None:
            return None
        return Certificate(factor * _bound(rounds, self.space.dim, self.resolution), "grid certificate")

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> SimplexGrid:
        """Return the grid of least certified error."""
        last = finest(space.dim, MOST_POINTS) if isinstance(space, Simplex) else None
        return cls(space, resolution=min(range(1, (last or 1) + 1), key=lambda r: _bound(rounds, space.dim, r)))

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[SimplexGrid]:
        """Yield a grid of few points, for few classes."""
        if isinstance(space, Simplex) and 2 <= space.dim <= 5:
            yield cls(space, resolution=6)


def points(dim: int, resolution: int) -> int:
    """Return the number of points of a grid."""
    return math.comb(resolution + dim - 1, dim - 1)


def finest(dim: int, most: int) -> int | None:
    """Return the greatest resolution with at most `most` points; None if even the vertices are more."""
    return next((r - 1 for r in range(2, most + 2) if dim > 1 and points(dim, r) > most), 1) if dim <= most else None


def grid_width(dim: int, resolution: int) -> float:
    """Return the greatest ℓ2 distance of a probability vector from the grid, `√(⌊d/2⌋·⌈d/2⌉/d)/resolution`."""
    half = dim // 2
    return math.sqrt(half * (dim - half) / dim) / resolution


def _bound(rounds: int, dim: int, resolution: int) -> float:
    """Return the bound on the ℓ2 error per round: the grid's width and `√(8n/T)`."""
    return grid_width(dim, resolution) + math.sqrt(8 * points(dim, resolution) / rounds)


def _from_l2(space: Simplex, norm: Norm) -> float | None:
    """Return the greatest ratio of the norm to ℓ2 on zero-sum vectors, where it is known."""
    if space.dim == 1 or isinstance(norm, Mahalanobis):
        return None
    gap = euclidean(space, norm)
    return None if gap is None else math.sqrt(gap.value / (1 - 1 / space.dim))


def _simplex_grid(space: Simplex, resolution: int) -> Array:
    """Return all vectors of the simplex whose entries are multiples of `1/resolution`."""
    dim = space.dim
    # Twenty choices among forty or more are too many already, and to count those among millions takes for ever.
    endless = min(dim - 1, resolution) >= 20
    count = MOST_POINTS + 1 if endless else points(dim, resolution)
    if count > MOST_POINTS:
        fits = finest(dim, MOST_POINTS)
        has = f"more than {MOST_POINTS} points" if endless else f"{count} points, expected at most {MOST_POINTS}"
        raise ParameterError(
            f"a grid of resolution {resolution} on {space!r} has {has}: each round solves a linear program with one "
            "variable for each.",
            hint=(f"resolution={fits} is the finest that fits; " if fits else "") + "AdaptiveTreeCal needs no grid.",
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
