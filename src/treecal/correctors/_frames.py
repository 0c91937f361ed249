"""Coordinates in which forecasts of a number are alike, so that what one taught helps the next; and their groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

import numpy as np

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.correctors import _number_kernels as kernels
from treecal.correctors._groups import Groups
from treecal.correctors._location_scale import extents_of, grid_of
from treecal.exceptions import ParameterError
from treecal.geometry import Cdf, ConvexSet

REACH = 6.0
"""Units on both sides of the mean in which residuals are told apart: of a normal law, 3.4 standard deviations."""
RESIDUALS = 61
TAIL = (0.0005, 0.001, 0.0025, 0.005, 0.01)
LEVELS = 39
"""Evenly spaced; those of the tails come on top, so that forecasts that are far too narrow can be corrected."""

ENDS = 0.5
"""Where forgetting is fast, few outcomes are remembered, and the next one is outside of `n` of them with the
probability `2/(n + 1)`: below or above all. A copy of weight `W` has the memory of about `n = 2W` outcomes, each of
which weighs ½ on average. Without it, where an autoregression of 0.99 makes short memories trusted, intervals of 80 and
90 % hold 77 and 88 % of the outcomes, and with it 79 and 90 (`tests/correctors/test_numbers.py`)."""


class Frame(ABC):
    """Other coordinates: distribution functions of numbers, forecasts and outcomes, as functions of what is alike."""

    at: Array
    dim: int
    prior: float
    """For how many outcomes a group's first forecast counts, unless the caller says."""
    ends: float
    """The weight of one more outcome in a copy that forgets, half of it at each end."""
    scale: float
    """What scores in these coordinates are divided by where trust is weighed: about twice that of a right forecast."""

    @abstractmethod
    def enter(self, rows: Array, forecasts: Array) -> Array:
        """Return forecasts or outcomes in the coordinates that these forecasts define."""

    @abstractmethod
    def leave(self, rows: Array, forecasts: Array) -> Array:
        """Return what stands in these coordinates as distribution functions of numbers."""


class Residuals(Frame):
    """The number less the forecast's mean, in units of its spread."""

    def __init__(self, space: Cdf) -> None:
        self._grid = grid_of(space)
        self.at = np.linspace(-REACH, REACH, RESIDUALS)
        self.dim = RESIDUALS
        self.prior = 10.0
        self.ends = 0.0
        self.scale = (RESIDUALS - 1) / REACH

    def enter(self, rows: Array, forecasts: Array) -> Array:
        found = np.empty((len(rows), self.dim))
        extents = extents_of(forecasts, self._grid)
        kernels.into_residuals.for_rows(len(rows))(np.array(rows), self._grid, extents, self.at, found)
        return found

    def leave(self, rows: Array, forecasts: Array) -> Array:
        found = np.empty(forecasts.shape)
        extents = extents_of(forecasts, self._grid)
        leave = kernels.from_residuals.for_rows(len(rows))
        leave(np.array(rows), np.array(forecasts), self._grid, extents, self.at, found)
        return found


class Levels(Frame):
    """The forecast's own distribution function of the number: its probability integral transform."""

    def __init__(self) -> None:
        tail = np.array(TAIL)
        self.at = np.concatenate([tail, np.arange(1, LEVELS + 1) / (LEVELS + 1), 1 - tail[::-1]])
        self.dim = len(self.at)
        self.prior = 50.0
        self.ends = ENDS
        self.scale = (LEVELS + 1) / 3

    def enter(self, rows: Array, forecasts: Array) -> Array:
        found = np.empty((len(rows), self.dim))
        kernels.into_levels.for_rows(len(rows))(np.array(rows), np.array(forecasts), self.at, found)
        return found

    def leave(self, rows: Array, forecasts: Array) -> Array:
        found = np.empty(forecasts.shape)
        kernels.from_levels.for_rows(len(rows))(np.array(rows), np.array(forecasts), self.at, found)
        return found


class LocationSpread(Groups):
    """By where a forecast of a number lies and how wide it is: its mean in equal parts of the range, and its spread.

    The spread, `∫F(1 − F)`, is told apart by powers of two.

    Parameters
    ----------
    locations
        Equal parts of the interval.

    Examples
    --------
    >>> import treecal as tc
    >>> load = tc.Cdf(0, 100, points=4)
    >>> LocationSpread(locations=4).fresh(load).key(np.array([0.0, 0.0, 0.5, 1.0]))  # the mean is 62.5
    (2, -3)
    """

    _fields = ("locations",)
    name = "location-spread"
    _grid: kernels.Grid

    def __init__(self, *, locations: int = 8) -> None:
        self.locations = whole_number("locations", locations, least=1)

    def fresh(self, space: ConvexSet) -> Groups:
        """Return the rule on this set, whose outcomes must be numbers."""
        if not isinstance(space, Cdf):
            raise ParameterError(f"{self!r} needs distributions of a number, and {space!r} has none.")
        groups = LocationSpread(locations=self.locations)
        groups._grid = grid_of(space)
        return groups

    def key(self, forecast: Array) -> Hashable:
        """Return the part of the range, and the power of two of the spread as a share of it."""
        return self.keys(forecast[None])[0]

    def keys(self, forecasts: Array) -> list[Hashable]:
        """Return the same of many."""
        grid = self._grid
        found = np.empty((len(forecasts), 2), np.int64)
        kernels.cells.for_rows(len(found))(extents_of(forecasts, grid), grid, self.locations, found)
        return list(map(tuple, found.tolist()))


class Together(Groups):
    """All forecasts in one group.

    Examples
    --------
    >>> Together().key(np.array([0.5, 0.5]))
    0
    """

    _fields = ()

    def key(self, forecast: Array) -> Hashable:
        """Return 0."""
        return 0
