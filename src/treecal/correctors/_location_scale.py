"""LocationScale: forecasts of a number, moved and stretched as their outcomes ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treecal._elementary import LN2, applied, exp
from treecal._states import MOST_ROUNDS, State, check_array, check_number
from treecal._typing import Array, Changes
from treecal.correctors import _forgetting as forgetting, _number_kernels as kernels
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._batch import Batch
from treecal.correctors._number_kernels import FARTHEST, WIDEST, Grid, Moves
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import Cdf, ConvexSet

HALF_LIVES = (4, 16, 64, 256, 1024, 4096)
"""In rounds, of the memories that fade.

Chosen on half of the series of `benchmarks/distributions.py`. With 16 as the shortest the score of seasonal naive
forecasts, whose errors last, is 6 to 15 % higher; of forecasts whose errors do not last it is the same.
"""


def checked_numbers(space: ConvexSet, what: str) -> Cdf:
    """Return the set if its outcomes are numbers, or raise."""
    if not isinstance(space, Cdf):
        raise ParameterError.expected("space", space, f"a Cdf, because {what}", hint="tc.Cdf(low, high).")
    return space


def grid_of(space: Cdf) -> Grid:
    """Return what kernels need of the set: arrays of their own, so that one kernel is compiled."""
    return Grid(np.array(space.knots), np.array(space.widths))


def extents_of(forecasts: Array, grid: Grid) -> Array:
    """Return mean and unit of each forecast."""
    found = np.empty((len(forecasts), 2))
    kernels.extents.for_rows(len(found))(np.array(forecasts), grid, found)
    return found


@dataclass(eq=False)
class Moved(State):
    """What is learned, for the memory that never fades and for those that do."""

    theta: Array  # (memories, 2): shift in spreads, and the logarithm of the stretch
    curvature: Array  # (memories, 3)
    weight: Array  # (memories,)
    trust: Array  # (memories,)
    seen: float

    def copied(self) -> Moved:
        """Return one whose arrays may be changed."""
        return Moved(self.theta.copy(), self.curvature.copy(), self.weight.copy(), self.trust.copy(), self.seen)


class LocationScale(Corrector):
    """Announces `F(μ + (z − μ − a·s)/b)`: a forecast of a number, shifted by `a` of its spreads and `b` times as wide.

    `μ` is the forecast's mean and `s = ∫F(1 − F)` its spread, half the mean distance of two draws from it. So the
    correction is the same in any unit and with any origin, which that of the plain form `F((z − a)/b)` is not, and
    follows forecasts that are sure of one day and not of another. (A forecast that is sure of a number has no spread: a
    fiftieth of the range stands for it.)

    Each round takes one Gauss–Newton step on the continuous ranked probability score: with the derivatives `J` of the
    announced function by `a` and `ln b`, `A += JᵀwJ` and `θ −= A⁻¹·Jᵀw(F' − y)`, with `w` the widths of the cells. It
    learns from the forecast as the model gave it, never from its own.

    Seven memories do so at once: one that keeps all rounds, and others with half-lives of 4, 16, …, 4096 rounds. Of
    `a` and `ln b` the means by trust are used; trust is `exp(−Σ score/s)`, with fixed share.

    It is for rounds in order: where outcomes come late, `tc.Late` deals the rounds that overlap to copies of it, each
    with outcomes that were known.

    There is no guarantee: the score is not convex in `b`. `tc.AutoCorrector`, which contains this one, has one, and
    `tc.Gated` lets it in where it has proved to be better. A round costs `O(dim)`, for each memory.

    Parameters
    ----------
    space
        A `Cdf`.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    A model that is 3 too low, and half as unsure as it should be.

    >>> import treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> f = tc.LocationScale(tc.Cdf(0, 100))
    >>> means = rng.uniform(30, 70, size=5000)
    >>> x = f.update_many({"mean": means, "sd": np.full(5000, 5.0)}, rng.normal(means + 3, 10).clip(0, 100))
    >>> x = f.predict({"mean": 50, "sd": 5})
    >>> round(x.quantile(0.5)), round(x.interval(0.9)[1] - x.interval(0.9)[0])
    (53, 33)

    References
    ----------
    Gneiting, Raftery, Westveld and Goldman, "Calibrated Probabilistic Forecasting Using Ensemble Model Output
    Statistics and Minimum CRPS Estimation", 2005.
    """

    name = "location-scale"
    space: Cdf
    _state: Moved

    def __init__(self, space: ConvexSet, *, scores: Scored | None = "binned", tolerance: float = 1e-6) -> None:
        space = checked_numbers(space, "it moves distributions of a number")
        super().__init__(space, scores=scores, tolerance=tolerance)
        self._grid = grid_of(space)
        self._kept = np.append(1.0, applied(exp, -LN2 / np.array(HALF_LIVES)))
        count = len(self._kept)
        trust = np.array(forgetting.start(count))
        self._state = Moved(np.zeros((count, 2)), np.zeros((count, 3)), np.zeros(count), trust, 0.0)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the only one there is, on distributions of numbers."""
        if isinstance(space, Cdf):
            yield cls(space)

    @property
    def shift(self) -> float:
        """By how many of its spreads a forecast is shifted now."""
        return float(np.add.reduce(self._state.trust * self._state.theta[:, 0]))

    @property
    def stretch(self) -> float:
        """How many times as wide a forecast is made now."""
        return exp(float(np.add.reduce(self._state.trust * self._state.theta[:, 1])))

    @property
    def ordered(self) -> bool:
        """True, for another reason than certificates: a memory of four rounds is of use for the next ones only.

        A day ahead, the errors of the last hours mislead, and yet they would be trusted, since trust is judged when
        outcomes come. So `tc.Late` deals rounds that overlap to copies, each of which knows the outcomes of its own.
        """
        return True

    def _moves(self, state: Moved) -> Moves:
        return Moves(state.theta, state.curvature, state.weight, state.trust, self._kept)

    def _announce(self, forecast: Array) -> Forecast:
        return self._point(self._announce_many(forecast[None], None)[0])

    def _announce_many(self, forecasts: Array, groups: Any) -> Array:
        rows = np.array(forecasts)
        found = np.empty(rows.shape)
        moves = self._moves(self._state)
        kernels.move.for_rows(len(rows))(rows, self._grid, extents_of(rows, self._grid), moves, found)
        return found

    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> Changes:
        return self._played(Batch(forecast[None], outcome[None], weights=np.array([weight])))[1]

    def _played(self, batch: Batch) -> tuple[Array, Changes]:
        now = self._state.copied()
        rows = np.array(batch.forecasts)
        outcomes = np.array(batch.outcomes)
        weights = np.array(batch.all_weights())
        found = np.empty(rows.shape)
        extents = extents_of(rows, self._grid)
        learn = kernels.learn_moves.for_rows(len(rows))
        seen = learn(rows, outcomes, weights, self._grid, extents, self._moves(now), now.seen, found)
        return found, {"_state": replace(now, seen=seen)}

    def _fit(self, batch: Batch) -> None:
        """Learn the rows of a log in order."""
        vars(self).update(self._played(batch)[1], **self._counted(len(batch)))

    def _check(self, state: Moved, rounds: int) -> None:
        own = self._state
        for name in ("theta", "curvature", "weight", "trust"):
            check_array(f"the {name}", getattr(state, name), getattr(own, name).shape)
        check_number("the weight of all rounds", state.seen, least=0.0, most=MOST_ROUNDS * 1e12)
        reach = np.array([FARTHEST, WIDEST])
        spread = (np.abs(state.theta) > reach).any() or (state.weight < 0).any() or (state.curvature[:, :2] < 0).any()
        if spread or (state.trust < 0).any() or abs(state.trust.sum() - 1) > 1e-9:
            raise SnapshotError("the state is not that of shifts and stretches.")
