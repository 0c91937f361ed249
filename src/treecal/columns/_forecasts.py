"""The forecasts of many streams, as arrays or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from treecal._typing import Array, Integers
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.geometry import ConvexSet


class Forecasts:
    """The forecasts of many streams. `forecasts[i]` is the `Forecast` that the i-th stream alone would announce.

    Attributes
    ----------
    points
        The points of each forecast, `(streams, most, d)`; beyond a forecast's own size they have no weight. On a tree
        they are those of the path, lowest height first.
    weights
        Their weights, `(streams, most)`.
    sizes
        The number of points of each forecast, `(streams,)`; on a tree, the heights of the path.
    uniform
        Whether the weights of each forecast are known to be equal.
    mean
        The mean forecast of each stream, `(streams, d)`.
    """

    uniform = False

    def __init__(self, points: Array, weights: Array, sizes: Integers, space: ConvexSet) -> None:
        self.points = points
        self.weights = weights
        self.sizes = sizes
        self._space = space
        for array in (points, weights, sizes):
            array.setflags(write=False)

    @property
    def mean(self) -> Array:
        """The mean forecast of each stream, `(streams, d)`."""
        means = np.empty((len(self), self.points.shape[2]))
        for size in np.unique(self.sizes):  # those of one size together
            at = np.flatnonzero(self.sizes == size)
            means[at] = np.add.accumulate(self.weights[at, :size, None] * self.points[at, :size], axis=1)[:, -1]
        return means

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Forecast:
        size = int(self.sizes[index])
        return Forecast.trusted(self.points[index, :size], self.weights[index, :size], None, self._space)

    def __iter__(self) -> Iterator[Forecast]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Forecasts({len(self)} streams in R^{self.points.shape[2]})"


class TreeForecasts(Forecasts):
    """Those of streams on a tree."""

    def __init__(
        self, points: Array, weights: Array | None, heights: Integers, rounds: Integers, arity: int, space: ConvexSet
    ) -> None:
        self.uniform = weights is None
        self._rounds = rounds
        self._arity = arity
        if weights is None:
            weights = (np.arange(points.shape[1]) < heights[:, None]) / heights[:, None]
        super().__init__(points, weights, heights, space)

    def __getitem__(self, index: int) -> Forecast:
        height = int(self.sizes[index])
        weights = uniform(height) if self.uniform else self.weights[index, :height]
        points = self.points[index, :height]
        rounds = int(self._rounds[index])
        return TreeForecast(points, weights, rounds, self._arity, self._space)


class ListedForecasts(Forecasts):
    """Those that streams announced one by one."""

    def __init__(self, forecasts: Sequence[Forecast], space: ConvexSet) -> None:
        sizes = np.array([len(x) for x in forecasts], np.int64)
        points = np.zeros((len(sizes), int(sizes.max(initial=1)), space.dim))
        weights = np.zeros(points.shape[:2])
        for i, x in enumerate(forecasts):
            points[i, : len(x)] = x.points
            weights[i, : len(x)] = x.weights
        self._listed = tuple(forecasts)
        super().__init__(points, weights, sizes, space)

    def __getitem__(self, index: int) -> Forecast:
        return self._listed[index]


def joined(parts: Sequence[Forecasts], places: Sequence[Integers], space: ConvexSet) -> Forecasts:
    """Return the forecasts of all places, given those of some at a time; points on trees are points like others."""
    if len(parts) == 1:
        return parts[0]
    count = sum(map(len, places))
    most = max((part.points.shape[1] for part in parts), default=1)
    points = np.zeros((count, most, space.dim))
    weights = np.zeros((count, most))
    sizes = np.zeros(count, np.int64)
    for part, at in zip(parts, places, strict=True):
        own = part.points.shape[1]
        points[at, :own] = part.points
        weights[at, :own] = part.weights
        sizes[at] = part.sizes
    return Forecasts(points, weights, sizes, space)
