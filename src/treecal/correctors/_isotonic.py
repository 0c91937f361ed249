"""IsotonicCalibration: a nondecreasing map for each class, of everything so far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._compile import strict
from treecal._states import State, check_array
from treecal._typing import Array, Changes, Integers
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._batch import Batch
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex

CELLS = 100
START = 0.1
"""What a cell weighs before the first round, with its own middle as forecast and outcome: the identity."""


def squared_sines(places: Array | Integers) -> Array:
    """Return `sin²` of the angles at these places, of which a right angle has `CELLS`; the same on every processor."""
    x = places * (math.pi / CELLS)  # twice the angle; sin²(x/2) = (1 − cos x)/2
    term = x * x / 4
    total = np.zeros_like(term)
    for n in range(1, 18):
        total = total + term
        term = -term * (x * x) / ((2 * n + 1) * (2 * n + 2))
    return np.asarray(total)


EDGES = squared_sines(np.arange(1, CELLS))
"""Between the cells."""


@dataclass(eq=False)
class Tally(State):
    """What each class has seen."""

    cells: Array  # (dim, CELLS, 3): weight, forecasts, outcomes


class IsotonicCalibration(Corrector):
    """Isotonic regression, online: for each class the nondecreasing map of its probability that fits all rounds best.

    A class's outcomes, 0 or 1, are regressed on its probabilities: least squares among nondecreasing maps, linear
    between the points; then the classes' values are divided by their sum. It assumes that more of a model's
    probability means more of the truth, and no shape. The rounds are kept in 100 cells of each class, narrow where
    probabilities are near 0 or 1, in which the mean forecast stands for all: so memory is bounded, and what is
    announced is the batch fit to everything so far, from `fit` or from rounds, up to the width of a cell. It starts as
    the identity.

    It does not forget; `Chain([IsotonicCalibration(space), Recalibrator(space, make="shift")])` does. A weight counts
    as exactly so many rounds. Costs `O(100·dim)` a round.

    Parameters
    ----------
    space
        A simplex.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, f = np.random.default_rng(0), tc.IsotonicCalibration(tc.Simplex(2))
    >>> p = rng.random(2000)
    >>> happened = rng.random(2000) < np.where(p < 0.5, 0.1, 0.9)  # the model only knows which side it is
    >>> f.fit(np.column_stack([1 - p, p]), np.eye(2)[happened.astype(int)]).predict([0.6, 0.4]).mean.round(1)
    array([0.9, 0.1])

    References
    ----------
    Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002.
    """

    name = "isotonic"
    _state: Tally

    def __init__(self, space: ConvexSet, *, scores: Scored | None = "binned", tolerance: float = 1e-6) -> None:
        if not isinstance(space, Simplex):
            raise ParameterError.expected("space", space, "a Simplex, because it needs probabilities")
        super().__init__(space, scores=scores, tolerance=tolerance)
        middles = squared_sines(np.arange(0.5, CELLS))
        cells = START * np.column_stack([np.ones(CELLS), middles, middles])
        self._state = Tally(np.tile(cells, (space.dim, 1, 1)))

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the only one there is."""
        with suppress(ParameterError):
            yield cls(space)

    def _places(self, forecasts: Array) -> Integers:
        """Return the cell of each probability: its arcsine is cut into equal parts."""
        return np.asarray(np.searchsorted(EDGES, forecasts, "right"), np.int64)

    def _announce(self, forecast: Array) -> Forecast:
        return self._point(self._mean(forecast))

    def _mean(self, forecast: Array) -> Array:
        return np.asarray(self._announce_rows(forecast[None])[0])

    def _announce_many(self, forecasts: Array, groups: Any) -> Array:
        return self._announce_rows(forecasts)

    def _announce_rows(self, forecasts: Array) -> Array:
        batch = Batch(forecasts, np.zeros_like(forecasts), weights=np.zeros(len(forecasts)))
        return self._play(batch)[0]

    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> Changes:
        cells = self._state.cells.copy()
        amounts = np.array([np.ones_like(forecast), forecast, outcome]).T
        cells[np.arange(len(cells)), self._places(forecast)] += weight * amounts
        return {"_state": Tally(cells)}

    def _played(self, batch: Batch) -> tuple[Array, Changes]:
        return self._play(batch)

    def _play(self, batch: Batch) -> tuple[Array, Changes]:
        cells = self._state.cells.copy()
        means = np.empty(batch.forecasts.shape)
        places = self._places(batch.forecasts)
        rows = np.array(batch.forecasts), np.array(batch.outcomes), np.array(batch.all_weights())
        play.for_rows(len(means))(cells, places, *rows, means)
        return means, {"_state": Tally(cells)}

    def _fit(self, batch: Batch) -> None:
        cells, (b, y) = self._state.cells.copy(), (batch.forecasts, batch.outcomes)
        amounts = np.stack([np.ones_like(b), b, y], axis=-1) * batch.all_weights()[:, None, None]
        np.add.at(cells, (np.arange(self.space.dim), self._places(b)), amounts)
        vars(self).update(_state=Tally(cells), **self._counted(len(batch)))

    def _check(self, state: Tally, rounds: int) -> None:
        check_array("cells", state.cells, (self.space.dim, CELLS, 3))
        if (state.cells[..., 0] <= 0).any():
            raise SnapshotError("the cells' weights are not more than 0.")


@strict
def fit(cells: Array, ratios: Array, knots: Array, values: Array) -> None:
    """Write the nondecreasing map of each class: the mean forecasts of its cells, and what becomes of them.

    The means of the cells' forecasts and outcomes are given. Neighbours whose mean outcomes fall are pooled, from left
    to right (pool adjacent violators).
    """
    count = cells.shape[1]
    weights = np.empty(count)
    sums = np.empty(count)
    means = np.empty(count)
    starts = np.empty(count, np.int64)
    for k in range(len(cells)):
        pools = 0
        top = -math.inf
        for i in range(count):
            top = max(top, ratios[k, i, 0])
            knots[k, i] = top
            weight = cells[k, i, 0]
            total = cells[k, i, 2]
            mean = ratios[k, i, 1]
            start = i
            while pools > 0 and means[pools - 1] >= mean:
                pools -= 1
                weight += weights[pools]
                total += sums[pools]
                mean = total / weight
                start = starts[pools]
            weights[pools] = weight
            sums[pools] = total
            means[pools] = mean
            starts[pools] = start
            pools += 1
        end = count
        for pool in range(pools - 1, -1, -1):
            for i in range(starts[pool], end):
                values[k, i] = means[pool]
            end = starts[pool]


@strict
def announce(knots: Array, values: Array, forecasts: Array, means: Array) -> None:
    """Write what the maps make of rows: each class on the line between its knots, then all divided by their sum."""
    last = knots.shape[1] - 1
    for row in range(len(forecasts)):
        total = 0.0
        for k in range(forecasts.shape[1]):
            x = forecasts[row, k]
            low = 0
            high = last  # the first knot above is among those from 1 to the last
            while low + 1 < high:
                middle = (low + high) // 2
                if knots[k, middle] > x:
                    high = middle
                else:
                    low = middle
            left = knots[k, high - 1]
            right = knots[k, high]
            share = (x - left) / (right - left) if right > left else x - left
            share = min(max(share, 0.0), 1.0)
            means[row, k] = values[k, high - 1] + (values[k, high] - values[k, high - 1]) * share
            total += means[row, k]
        for k in range(forecasts.shape[1]):
            means[row, k] /= total


@strict
def play(cells: Array, places: Integers, forecasts: Array, outcomes: Array, weights: Array, means: Array) -> None:
    """Announce and learn rounds in order; one of weight 0 is only announced."""
    knots = np.empty(cells.shape[:2])
    values = np.empty(cells.shape[:2])
    ratios = cells[:, :, 1:] / cells[:, :, :1]
    changed = True
    for row in range(len(forecasts)):
        if changed:
            fit(cells, ratios, knots, values)
        announce(knots, values, forecasts[row : row + 1], means[row : row + 1])
        weight = weights[row]
        changed = weight > 0.0
        if not changed:
            continue
        for k in range(len(cells)):
            place = places[row, k]
            cells[k, place, 0] += weight
            cells[k, place, 1] += weight * forecasts[row, k]
            cells[k, place, 2] += weight * outcomes[row, k]
            ratios[k, place, 0] = cells[k, place, 1] / cells[k, place, 0]
            ratios[k, place, 1] = cells[k, place, 2] / cells[k, place, 0]
