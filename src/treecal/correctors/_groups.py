"""Rules that put forecasts into groups, inside which a recalibrator learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import ClassVar

import numpy as np

from treecal._states import check_array, check_names
from treecal._typing import Array, Integers, Saved
from treecal._validate import positive_number, whole_number
from treecal.exceptions import ParameterError, SnapshotError
from treecal.geometry import LARGEST, ConvexSet, Simplex, Value, l2


class Groups(Value, ABC):
    """A rule that puts each forecast into a group, before its outcome is known.

    A rule that learns keeps what it has learned in the object that `fresh` returns.
    """

    name: ClassVar[str | None] = None
    """What `treecal recalibrate --groups` calls the rule, if it can be made without arguments."""

    @abstractmethod
    def key(self, forecast: Array) -> Hashable:
        """Return the group's name; the same for the same forecast until the next `learn`."""

    def keys(self, forecasts: Array) -> list[Hashable]:
        """Return the groups' names of rows of forecasts. A rule may know a faster way than one by one."""
        return [self.key(forecast) for forecast in forecasts]

    def fresh(self, space: ConvexSet) -> Groups:
        """Return the rule in its initial state on this set; raises if the set does not suit it."""
        return self

    def learn(self, forecast: Array) -> None:
        """Learn from a forecast whose round is over. Most rules have nothing to learn."""

    def get_state(self) -> Saved:
        """Return what was learned, as arrays and JSON values."""
        return {}

    def set_state(self, state: Saved) -> None:
        """Resume from such a state; any other should raise and change nothing."""
        check_names("the groups' state", state, ())


class TopClass(Groups):
    """By the most likely class and its probability: the groups of a reliability diagram.

    Parameters
    ----------
    bins
        Equal bins of the confidence, which lies between 1/classes and 1.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> TopClass(bins=5).fresh(Simplex(2)).key(np.array([0.31, 0.69]))  # second of the bins of [0.5, 1]
    (1, 1)
    """

    _fields = ("bins",)
    name = "top-class"

    def __init__(self, *, bins: int = 10) -> None:
        self.bins = whole_number("bins", bins, least=1)

    def fresh(self, space: ConvexSet) -> Groups:
        """Return the rule; it needs classes."""
        if not isinstance(space, Simplex):
            raise ParameterError(
                f"{self!r} needs classes, and {space!r} has none.", hint="treecal.correctors.Cells(width=...)."
            )
        return self

    def key(self, forecast: Array) -> Hashable:
        """Return the class and the bin."""
        top = int(forecast.argmax())
        least = 1 / len(forecast)
        share = (float(forecast[top]) - least) / (1 - least) if least < 1 else 1.0
        return top, min(max(int(share * self.bins), 0), self.bins - 1)

    def keys(self, forecasts: Array) -> list[Hashable]:
        """Return the classes and the bins."""
        top, bins = self.places(forecasts)
        return list(zip(top.tolist(), bins.tolist(), strict=True))

    def places(self, forecasts: Array) -> tuple[Integers, Integers]:
        """Return the classes and the bins of rows of forecasts, as arrays."""
        top = forecasts.argmax(axis=1)
        least = 1 / forecasts.shape[1]
        share = np.ones(len(top))
        if least < 1:
            share = (np.take_along_axis(forecasts, top[:, None], axis=1)[:, 0] - least) / (1 - least)
        return top, np.clip((share * self.bins).astype(np.int64), 0, self.bins - 1)


class Cells(Groups):
    """By the cell of a grid: for few dimensions, because there are about `(1/width)^dim` cells.

    Parameters
    ----------
    width
        Width of a cell in every coordinate; cell boundaries lie halfway between multiples of it.

    Examples
    --------
    >>> Cells(width=0.1).key(np.array([0.31, 0.69]))
    (3, 7)
    """

    _fields = ("width",)
    name = "cells"

    def __init__(self, *, width: float = 0.1) -> None:
        self.width = positive_number("width", width)
        if self.width < 1 / LARGEST:
            raise ParameterError.expected("width", width, f"at least {1 / LARGEST:.2g}, so that cells can be numbered")

    def key(self, forecast: Array) -> Hashable:
        """Return the cell's place in the grid."""
        return tuple(int(place) for place in np.rint(forecast / self.width))


class Centroids(Groups):
    """By the nearest of a few centroids that follow the forecasts: for many dimensions.

    The first `count` distinct forecasts become the centroids. After that each forecast belongs to the nearest centroid,
    which moves to the mean of its forecasts (MacQueen's online k-means). `O(count·dim)` a round.

    Parameters
    ----------
    count
        Number of centroids.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> groups = Centroids(count=2).fresh(Simplex(2))
    >>> for b in np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]):
    ...     print(groups.key(b), end=" ")
    ...     groups.learn(b)
    (0,) (1,) (0,)

    References
    ----------
    MacQueen, "Some methods for classification and analysis of multivariate observations", 1967.
    """

    _fields = ("count",)
    _sums: Array  # (count, dim): of the forecasts of each centroid
    _met: Array  # (count,): how many those are
    _space: ConvexSet
    name = "centroids"

    def __init__(self, *, count: int = 16) -> None:
        self.count = whole_number("count", count, least=1)

    def fresh(self, space: ConvexSet) -> Groups:
        """Return the rule with no centroid yet."""
        groups = Centroids(count=self.count)
        groups._sums = np.zeros((self.count, space.dim))
        groups._met = np.zeros(self.count)
        groups._space = space
        return groups

    def key(self, forecast: Array) -> tuple[int]:
        """Return the number of the nearest centroid, or of the one that this forecast would start."""
        found = int(np.count_nonzero(self._met))
        if not found:
            return (0,)
        distances = l2(self._sums[:found] / self._met[:found, None] - forecast)
        nearest = int(distances.argmin())
        return (found if found < self.count and distances[nearest] > 0 else nearest,)

    def learn(self, forecast: Array) -> None:
        """Move the nearest centroid, or start one."""
        (at,) = self.key(forecast)
        self._sums[at] += forecast
        self._met[at] += 1

    def get_state(self) -> Saved:
        """Return each centroid's number of forecasts and their sum."""
        return {"sums": self._sums.copy(), "met": self._met.copy()}

    def set_state(self, state: Saved) -> None:
        """Resume from such a state. Any other raises a `SnapshotError` and changes nothing."""
        check_names("the centroids' state", state, ("sums", "met"))
        sums = state["sums"]
        met = state["met"]
        check_array("sums", sums, self._sums.shape)
        check_array("met", met, self._met.shape)
        if (met != np.rint(met)).any() or not met[: np.count_nonzero(met)].all():
            raise SnapshotError("the centroids' forecasts are not counted in whole numbers, the first ones first.")
        self._sums = sums.copy()
        self._met = met.copy()


class ByKey(Groups):
    """By a function. It cannot be saved: a snapshot holds data, not code.

    Parameters
    ----------
    function
        Takes a forecast, `(dim,)` and read-only, and returns the group's name, anything hashable.

    Examples
    --------
    >>> ByKey(lambda b: "sure" if b.max() > 0.9 else "unsure").key(np.array([0.5, 0.5]))
    'unsure'
    """

    _fields = ("function",)

    def __init__(self, function: Callable[[Array], Hashable]) -> None:
        if not callable(function):
            raise ParameterError.expected("function", function, "a function of a forecast")
        self.function = function

    def key(self, forecast: Array) -> Hashable:
        """Return what the function returns."""
        name = self.function(forecast)
        if not isinstance(name, Hashable):
            raise ParameterError(f"the groups' function returned {name!r}, expected something hashable.")
        return name
