"""Tracker: the forecaster of streams that repeat themselves, drift or change abruptly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecal._elementary import power
from treecal._states import State, check_array, check_count
from treecal._typing import Array
from treecal.exceptions import SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space, reach
from treecal.geometry import ConvexSet, Simplex

HALF_LIVES = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, np.inf)
SHARE = 0.002
LONGEST = 10**15  # no stream has more rounds
CLASSES = 100  # up to which the law given the last class is kept: it has a row for each


@dataclass(eq=False)
class Experts(State):
    """What each expert would forecast, and how far it is trusted."""

    rounds: int
    weights: Array
    """Of each expert, with sum 1."""
    means: Array
    """The moving averages, `(half-lives, d)`."""
    followed: Array
    """For each class the sum of the outcomes that followed it, from a uniform start; no rows where it is not kept."""
    counts: Array
    """The number of those outcomes, and 1 for the start."""
    last: int
    """The last class: the largest entry of the last outcome; -1 before the first."""


class Tracker(Forecaster):
    """Follows a stream: a mixture of moving averages and of the law given the last class, trusted by past success.

    Each expert is a rule that suits some streams: averages with half-lives of 3 to 3,000 rounds and of all rounds, and,
    for up to 100 classes, the outcomes that followed the last class so far. All start at the set's centre. A round
    multiplies an expert's weight by the probability it gave the outcome `y`, then every expert gets the share
    `γ = 0.002` of the weight in equal parts, so that a change is followed quickly (fixed share). With `N` experts, the
    log score exceeds that of any sequence of experts with `k` changes by at most
    `ln N + k·ln(N/γ) − (T−1−k)·ln(1−γ)`. Where the outcome is not a class, the factor is `1 − ‖y − q‖²/(2D²)`, `D` the
    set's ℓ2 diameter: concave in the forecast `q` too, so the same bound holds for its logarithm.

    A sharp forecaster without a certificate: its points hardly repeat, and an adversary makes its error large.
    `Codebook` makes them repeat, `Guarded` adds the certificate. Costs `O(N·d)` a round.

    Parameters
    ----------
    space
        The set outcomes lie in.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.Tracker(tc.Simplex(2))
    >>> for k in [0, 1] * 50:  # alternating: the law given the last class wins
    ...     f.update(np.eye(2)[k])
    >>> f.mean_forecast.round(2)
    array([0.99, 0.01])

    References
    ----------
    Herbster and Warmuth, "Tracking the Best Expert", 1998.
    """

    name = "tracker"
    symmetric = False  # squares are added in the order of coordinates, and of equal ones the first is the last class
    ordered = False

    def __init__(self, space: ConvexSet) -> None:
        self.space = checked_space(space)
        dim, start = space.dim, space.centre
        chain = dim if isinstance(space, Simplex) and dim <= CLASSES else 0
        experts = len(HALF_LIVES) + bool(chain)
        self._rates = np.array([1 - power(0.5, 1 / each) for each in HALF_LIVES])
        self._scale = 2 * reach(space, "l2") ** 2
        means = np.tile(start, (len(HALF_LIVES), 1))
        weights = np.full(experts, 1 / experts)
        self._asked: tuple[Experts | None, Array] = None, means  # the experts' forecasts, and the state they are of
        self._state = Experts(0, weights, means, np.tile(start, (chain, 1)), np.ones(chain), -1)

    @property
    def mean_forecast(self) -> Array:
        """The point forecast for the coming round, `(d,)`."""
        now = self._state
        # Accumulated, so that compiled code can add in the same order.
        return np.asarray(np.add.accumulate(now.weights[:, None] * self._experts(now), axis=0)[-1])

    def _experts(self, now: Experts) -> Array:
        """Return the forecast of each expert."""
        if not len(now.followed):
            return now.means
        if self._asked[0] is not now:
            points = np.empty((len(now.weights), self.space.dim))
            points[:-1] = now.means
            points[-1] = self.space.centre if now.last < 0 else now.followed[now.last] / now.counts[now.last]
            self._asked = now, points
        return self._asked[1]

    def _announce(self) -> Forecast:
        return Forecast.trusted(self.mean_forecast[None], uniform(1), None, self.space)

    def _after(self, now: Experts, outcome: Array) -> Experts:
        top, points = int(outcome.argmax()), self._experts(now)
        if len(outcome) > 1 and isinstance(self.space, Simplex) and outcome[top] == 1:
            success = points[:, top]
        else:
            success = 1 - np.add.accumulate((outcome - points) ** 2, axis=1)[:, -1] / self._scale
        weights = now.weights * success
        weights /= np.add.accumulate(weights)[-1]
        weights *= 1 - SHARE
        weights += SHARE / len(weights)
        means = outcome - now.means
        means *= np.maximum(self._rates, 1 / (now.rounds + 2))[:, None]  # the start counts as one outcome
        means += now.means
        followed, counts = now.followed, now.counts
        if len(followed) and now.last >= 0:
            followed, counts = followed.copy(), counts.copy()
            since = followed[now.last]
            since += outcome
            counts[now.last] += 1
        return Experts(now.rounds + 1, weights, means, followed, counts, top)

    _fork = Forecaster._light_fork

    def _check(self, state: Experts) -> None:
        check_count("rounds", state.rounds, most=LONGEST)
        if state.rounds:
            check_count("the last class", state.last, most=self.space.dim - 1)
        elif state.last != -1 or not isinstance(state.last, int):
            raise SnapshotError(f"the last class is {state.last} before the first round, expected -1.")
        kept, experts, dim = len(self._state.followed), len(self._state.weights), self.space.dim
        shapes = (experts,), (len(HALF_LIVES), dim), (kept, dim), (kept,)
        arrays = {"weights": state.weights, "means": state.means, "followed": state.followed, "counts": state.counts}
        for (name, array), shape in zip(arrays.items(), shapes, strict=True):
            check_array(name, array, shape)
        if (state.counts < 1).any():
            raise SnapshotError("the counts of the classes are less than 1.")
