"""IsotonicCalibration: a nondecreasing map for each class, of everything so far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._states import State, check_array
from treecal._typing import Array, Integers
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._batch import Batch
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex

CELLS = 100
START = 0.1
"""What a cell weighs before the first round, with its own middle as forecast and outcome: the identity."""


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
        middles = _squared_sines(np.arange(0.5, CELLS))
        cells = START * np.column_stack([np.ones(CELLS), middles, middles])
        self._state = Tally(np.tile(cells, (space.dim, 1, 1)))
        self._maps: tuple[Tally | None, list[tuple[Array, Array]]] = None, []

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the only one there is."""
        with suppress(ParameterError):
            yield cls(space)

    def _places(self, forecasts: Array) -> Integers:
        """Return the cell of each probability: its arcsine is cut into equal parts."""
        return np.asarray(np.searchsorted(_squared_sines(np.arange(1, CELLS)), forecasts, "right"), np.int64)

    def _fitted(self) -> list[tuple[Array, Array]]:
        """Return for each class the forecasts of its cells, and what the map makes of them."""
        from scipy.optimize import isotonic_regression

        now, found = self._maps
        if now is not self._state:
            now = self._state
            weights = np.ascontiguousarray(now.cells[..., 0])
            means = now.cells[..., 1:] / now.cells[..., :1]
            found = [
                (np.maximum.accumulate(mean[:, 0]), isotonic_regression(mean[:, 1], weights=weight).x)
                for mean, weight in zip(means, weights, strict=True)
            ]
            self._maps = now, found
        return found

    def _announce(self, forecast: Array) -> Forecast:
        return self._point(self._means(forecast[None])[0])

    def _announce_many(self, forecasts: Array, groups: Any) -> Array:
        return self._means(forecasts)

    def _means(self, forecasts: Array) -> Array:
        found = [_interpolated(forecasts[:, k], *line) for k, line in enumerate(self._fitted())]
        # Row by row in one order, however many rows there are.
        shares = np.column_stack([np.empty((len(forecasts), 0)), *found])
        return np.asarray(shares / np.add.accumulate(shares, axis=1)[:, -1:])

    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> dict[str, Any]:
        cells = self._state.cells.copy()
        amounts = np.column_stack([np.ones(len(forecast)), forecast, outcome])
        cells[np.arange(len(forecast)), self._places(forecast)] += weight * amounts
        return {"_state": Tally(cells)}

    def _fit(self, batch: Batch) -> None:
        cells, (b, y) = self._state.cells.copy(), (batch.forecasts, batch.outcomes)
        amounts = np.stack([np.ones_like(b), b, y], axis=-1) * batch.all_weights()[:, None, None]
        np.add.at(cells, (np.arange(self.space.dim), self._places(b)), amounts)
        vars(self).update(_state=Tally(cells), **self._counted(len(batch)))

    def _check(self, state: Tally, rounds: int) -> None:
        check_array("cells", state.cells, (self.space.dim, CELLS, 3))
        if (state.cells[..., 0] <= 0).any():
            raise SnapshotError("the cells' weights are not more than 0.")


def _squared_sines(places: Array | Integers) -> Array:
    """Return `sin²` of the angles at these places, of which a right angle has `CELLS`; the same on every processor."""
    x = places * (math.pi / CELLS)  # twice the angle; sin²(x/2) = (1 − cos x)/2
    term = x * x / 4
    total = np.zeros_like(term)
    for n in range(1, 18):
        total = total + term
        term = -term * (x * x) / ((2 * n + 1) * (2 * n + 2))
    return np.asarray(total)


def _interpolated(x: Array, knots: Array, values: Array) -> Array:
    """Return the line through the knots at each `x`: NumPy's, in an order of operations that processors keep."""
    at = np.clip(np.searchsorted(knots, x, side="right"), 1, len(knots) - 1)
    left, right = knots[at - 1], knots[at]
    share = np.clip((x - left) / np.where(right > left, right - left, 1.0), 0.0, 1.0)
    return np.asarray(values[at - 1] + (values[at] - values[at - 1]) * share)
