"""A round of `AutoCorrector` on numbers: the kernels of its parts, called together.

Each part by itself asks Python a dozen times in a round; together they do three times. No rule has a second body here:
a row of a batch and a round by itself run the same kernels, on the same numbers.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._typing import Array, Integers
from treecal.correctors._frames import LocationSpread
from treecal.correctors._group_kernels import GroupArrays, GroupState, Rule, Visits, corrected, visits
from treecal.correctors._location_scale import LocationScale, grid_of
from treecal.correctors._mixing import Mixing, Weights, weigh
from treecal.correctors._number_kernels import (
    Grid,
    Moves,
    cells,
    extents,
    from_levels,
    from_residuals,
    into_levels,
    into_residuals,
    learn_moves,
    move,
    pool_one,
)
from treecal.correctors._recalibrator import Recalibrator
from treecal.geometry import Cdf


class Frames(NamedTuple):
    """The coordinates of residuals and of levels, and how many outcomes a group's first forecast counts for in each."""

    residuals: Array
    levels: Array
    priors: tuple[float, float]
    ends: tuple[float, float]


Parts = tuple[LocationScale, Recalibrator, Recalibrator, Recalibrator, Recalibrator]
"""What moves a forecast, what recalibrates it and that in cells, and what maps the levels of that and of the pool."""


class Asked(NamedTuple):
    """What the parts announce in a round, and their groups."""

    inner: Array  # (5, dim): the model; it moved; both recalibrated in cells; it moved, with its levels mapped
    outer: Array  # (3, dim): the model, the pool of these, and that with its levels mapped
    mean: Array  # the pool of these
    scales: Array  # (2,): the units in which the scores of both pools count
    places: Array  # (2, 2): mean and unit of the model's forecast, and of that moved
    keys: tuple[Hashable, ...]
    groups: tuple[GroupState, ...]  # of both in cells, and of both maps of levels


@strict
def place(inner: Array, grid: Grid, moves: Moves, locations: int, places: Array, found: Integers) -> None:
    """Write the model's forecast moved, the mean and the unit of both, and the cells that they lie in."""
    dim = inner.shape[1]
    model = inner[0].reshape((1, dim))
    moved = inner[1].reshape((1, dim))
    extents(model, grid, places[0].reshape((1, 2)))
    move(model, grid, places[0].reshape((1, 2)), moves, moved)
    extents(moved, grid, places[1].reshape((1, 2)))
    cells(places, grid, locations, found)


@strict
def announce(
    inner: Array,
    outer: Array,
    places: Array,
    grid: Grid,
    frames: Frames,
    groups: tuple[GroupArrays, ...],
    weights: tuple[Array, ...],
    mean: Array,
    scales: Array,
) -> None:
    """Write what all parts announce, given the model's forecast and that moved: a group not met leaves it as it is."""
    dim = inner.shape[1]
    residuals = np.empty((1, len(frames.residuals)))
    levels = np.empty((1, len(frames.levels)))
    for i in range(2):
        copy_into(inner[2 + i], inner[i])
        if groups[i].sums[0, 0] > 0.0:
            corrected(groups[i], frames.priors[0], frames.ends[0], residuals[0])
            own = inner[i].reshape((1, dim))
            extent = places[i].reshape((1, 2))
            from_residuals(residuals, own, grid, extent, frames.residuals, inner[2 + i].reshape((1, dim)))
    copy_into(inner[4], inner[1])
    if groups[2].sums[0, 0] > 0.0:
        corrected(groups[2], frames.priors[1], frames.ends[1], levels[0])
        from_levels(levels, inner[1].reshape((1, dim)), frames.levels, inner[4].reshape((1, dim)))
    copy_into(outer[0], inner[0])
    scales[0] = pool_one(inner, weights[0], grid.widths, outer[1])
    copy_into(outer[2], outer[1])
    if groups[3].sums[0, 0] > 0.0:
        corrected(groups[3], frames.priors[1], frames.ends[1], levels[0])
        from_levels(levels, outer[1].reshape((1, dim)), frames.levels, outer[2].reshape((1, dim)))
    scales[1] = pool_one(outer, weights[1], grid.widths, mean)


@strict
def learn(
    inner: Array,
    outer: Array,
    places: Array,
    grid: Grid,
    frames: Frames,
    moves: Moves,
    groups: tuple[GroupArrays, ...],
    rules: tuple[Rule, ...],
    weights: tuple[Array, ...],
    mixings: tuple[Mixing, ...],
    scales: Array,
    seen: tuple[float, int, int],
    outcome: Array,
    weight: float,
) -> None:
    """Let all parts learn a round of weight 1 or less, and weigh them."""
    dim = inner.shape[1]
    y = outcome.reshape((1, dim))
    row_weight = np.full(1, weight)
    row = np.zeros(1, np.int64)
    room = np.empty((1, dim))
    learn_moves(inner[0].reshape((1, dim)), y, row_weight, grid, places[0].reshape((1, 2)), moves, seen[0], room)
    for i in range(4):
        size = len(groups[i].first)
        forecast = np.empty((1, size))
        outcomes = np.empty((1, size))
        if i < 2:
            extent = places[i].reshape((1, 2))
            into_residuals(inner[i].reshape((1, dim)), grid, extent, frames.residuals, forecast)
            into_residuals(y, grid, extent, frames.residuals, outcomes)
        else:
            own = inner[1].reshape((1, dim)) if i == 2 else outer[1].reshape((1, dim))
            into_levels(own, own, frames.levels, forecast)
            into_levels(y, own, frames.levels, outcomes)
        visits(groups[i], rules[i], Visits(forecast, outcomes, row, row_weight), 0, np.empty((1, size)))
    weigh(inner, outcome, weight, scales[0], outer[1], weights[0], seen[1], mixings[0])
    weigh(outer, outcome, weight, scales[1], outer[2], weights[1], seen[2], mixings[1])


class Rounds:
    """Asks all parts at once, and lets them learn."""

    def __init__(self, space: Cdf, parts: Parts) -> None:
        self._grid = grid_of(space)
        self._dim = space.dim
        cells, levels = (part._frame for part in (parts[1], parts[4]))
        assert cells is not None
        assert levels is not None
        self._frames = Frames(cells.at, levels.at, (cells.prior, levels.prior), (cells.ends, levels.ends))
        self._locations = LocationSpread().locations

    def ask(self, parts: Parts, forecast: Array, weights: tuple[Array, Array]) -> Asked:
        """Return what is announced in place of a forecast, with the weights of both pools."""
        inner = np.empty((5, self._dim))
        outer = np.empty((3, self._dim))
        mean = np.empty(self._dim)
        places, scales = np.empty((2, 2)), np.empty(2)
        found = np.empty((2, 2), np.int64)
        inner[0] = forecast
        place.now(inner, self._grid, parts[0]._moves(parts[0]._state), self._locations, places, found)
        keys = (*map(tuple, found.tolist()), 0, 0)
        groups = tuple([part._group(key) for part, key in zip(parts[1:], keys, strict=True)])
        arrays = tuple([group.arrays for group in groups])
        announce.now(inner, outer, places, self._grid, self._frames, arrays, weights, mean, scales)
        return Asked(inner, outer, mean, scales, places, keys, groups)

    def learned(
        self,
        parts: Parts,
        asked: Asked,
        outcome: Array,
        weight: float,
        weights: tuple[Weights, Weights],
        mixings: tuple[Mixing, Mixing],
    ) -> Parts:
        """Return the parts after a round of weight 1 or less, and weigh it: the weights are changed."""
        first = parts[0]
        now = first._state.copied()
        groups = [group.copied() for group in asked.groups]
        rules = tuple([p._rule_of_visits(len(g.trust), True) for p, g in zip(parts[1:], groups, strict=True)])
        arrays = tuple([group.arrays for group in groups])
        learn.now(
            asked.inner,
            asked.outer,
            asked.places,
            self._grid,
            self._frames,
            first._moves(now),
            arrays,
            rules,
            (weights[0].weights, weights[1].weights),
            mixings,
            asked.scales,
            (now.seen, weights[0].seen, weights[1].seen),
            outcome,
            weight,
        )
        now.seen += weight
        moved = first._with({"_state": now}, 1)
        own = zip(parts[1:], asked.keys, groups, strict=True)
        return (moved, *[part._with(part._met(key, group), 1) for part, key, group in own])  # type: ignore[return-value]
