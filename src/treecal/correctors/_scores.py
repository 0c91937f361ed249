"""What a corrector keeps of its rounds for `report`: sums in bins, class by class, which never grow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._elementary import log_losses
from treecal._evidence import FLOOR as FLOOR
from treecal._states import MOST_ROUNDS, check_array, check_count, check_like, check_number
from treecal._typing import Array, Integers
from treecal.correctors._batch import Batch
from treecal.correctors._report import ROLES, Scores
from treecal.exceptions import UnsupportedError
from treecal.forecast import Forecast
from treecal.geometry import LARGEST, ConvexSet, Simplex

BINS = 10
"""Cells of a coordinate, between the least and the greatest value it can have; their centres are 11 equal steps."""
BATCH = 64
"""Rounds that may wait to be added."""


class Round(NamedTuple):
    """A round that is learned."""

    before: Array
    announced: Forecast
    outcome: Array
    weight: float


class Sums(NamedTuple):
    """Sums that are replaced, never changed; rounds that wait to be added; and cells that may not be written yet."""

    rounds: int = 0
    weight: float = 0.0
    totals: tuple[tuple[float, float], ...] = ((0.0, 0.0),) * len(ROLES)
    waiting: tuple[Round, ...] = ()
    due: tuple[Integers, Array] | None = None


class Tallies:
    """Sums of the model's forecasts, of those announced, and of their means.

    The Brier score is a sum over coordinates, `‖y − p‖² = Σ_k (y_k − p_k)²`, so each coordinate is binned by itself and
    memory is `O(dim)`. `cells` holds weight, forecasts and outcomes by role, coordinate and bin. Rounds are added some
    at once, each cell's in their order, so that it makes no difference when they are added.
    """

    def __init__(self, space: ConvexSet) -> None:
        self.space = space
        self._low, self._width = binning(space)
        self._offsets = np.arange(space.dim) * (BINS + 1)
        self.cells = np.zeros((len(ROLES) * space.dim * (BINS + 1), 3))

    def after(self, sums: Sums, learned: Round) -> Sums:
        """Return the sums after one more round; change nothing."""
        sums = sums._replace(rounds=sums.rounds + 1, waiting=(*sums.waiting, learned))
        return self.added(sums) if len(sums.waiting) >= BATCH else sums

    def added(self, sums: Sums) -> Sums:
        """Return the sums with the rounds that wait added; change nothing."""
        if not sums.waiting:
            return sums
        points = []
        shares = list[Any]()
        roles = []
        places = []
        for place, (before, announced, _, weight) in enumerate(sums.waiting):
            points += [before[None], announced.points, announced.mean[None]]
            shares += [(weight,), weight * announced.weights, (weight,)]
            roles += [0, *[1] * len(announced), 2]
            places += [place] * (len(announced) + 2)
        weights = np.array([learned.weight for learned in sums.waiting])
        y = np.array([learned.outcome for learned in sums.waiting])[places]
        return self._plus(sums, weights, np.array(roles), np.concatenate(points), np.concatenate(shares), y)

    def after_rows(self, sums: Sums, batch: Batch, announced: Array) -> Sums:
        """Return written sums, for which no round waits, after many in which points were announced; change nothing."""
        if not len(batch):
            return sums
        points = np.concatenate([batch.forecasts, announced, announced])
        weights = batch.all_weights()
        roles = np.repeat(range(3), len(batch))
        shares = np.tile(weights, 3)
        y = np.tile(batch.outcomes, (3, 1))
        sums = sums._replace(rounds=sums.rounds + len(batch))
        return self._plus(sums, weights, roles, points, shares, y)

    def _plus(self, sums: Sums, weights: Array, roles: Integers, points: Array, shares: Array, y: Array) -> Sums:
        """Return the sums with points added, those of each role in the order of their rounds."""
        costs = np.zeros((len(points), 2))
        # Accumulated, so that compiled code can add in the same order.
        costs[:, 0] = np.add.accumulate((y - points) ** 2, axis=1)[:, -1]
        if isinstance(self.space, Simplex):
            log_losses.now(points, y, FLOOR, costs[:, 1])
        totals = np.array(sums.totals)
        np.add.at(totals, roles, costs * shares[:, None])
        weight = float(np.add.accumulate(np.append(sums.weight, weights))[-1])
        found = [(float(brier), float(log)) for brier, log in totals]
        return Sums(sums.rounds, weight, tuple(found), (), self._due(roles, points, shares, y))

    def _due(self, roles: Integers, points: Array, shares: Array, outcomes: Array) -> tuple[Integers, Array]:
        """Return the cells that change, and their new values."""
        bins = np.clip(np.rint((points - self._low) / self._width), 0, BINS).astype(np.intp)
        where, place = np.unique(
            roles[:, None] * len(self._offsets) * (BINS + 1) + self._offsets + bins, return_inverse=True
        )
        values = self.cells[where].ravel()
        amounts = np.stack(np.broadcast_arrays(1.0, points, outcomes), axis=-1) * shares[:, None, None]
        np.add.at(values, (3 * place.reshape(points.shape)[..., None] + np.arange(3)).ravel(), amounts.ravel())
        return where, values.reshape(-1, 3)

    def write(self, sums: Sums) -> Sums:
        """Write the cells that are due: again, if that was interrupted."""
        if sums.due is not None:
            where, values = sums.due
            self.cells[where] = values
        return sums._replace(due=None)

    def scores(self, sums: Sums) -> list[Scores]:
        """Return the scores of each role, per unit of weight."""
        found = []
        cells = self.cells.reshape(len(ROLES), -1, 3)
        for role, (brier, log) in enumerate(sums.totals):
            brier = brier / sums.weight
            log = log / sums.weight
            calibration = float(squared_gaps(cells[role])) / sums.weight
            calibration = min(calibration, brier)  # Jensen; rounding may say otherwise
            found.append(
                Scores(brier, calibration, brier - calibration, log if isinstance(self.space, Simplex) else None)
            )
        return found

    def state(self, sums: Sums) -> dict[str, Any]:
        """Return the state of written sums."""
        return {
            "rounds": sums.rounds,
            "weight": sums.weight,
            "totals": np.array(sums.totals),
            "cells": self.cells.copy(),
        }

    def checked(self, state: dict[str, Any], rounds: int) -> tuple[Sums, Array]:
        """Return the sums and cells of a state, or raise unless so many rounds can have given them."""
        check_like(self.state(Sums()), state, "the scores")
        check_count("the scores' rounds", state["rounds"], most=rounds)
        check_number("the scores' weight", state["weight"], least=0.0, most=LARGEST * MOST_ROUNDS)
        check_array("the scores' totals", state["totals"], (len(ROLES), 2))
        check_array("the scores' cells", state["cells"], self.cells.shape)
        weight = state["weight"]
        totals = tuple((float(b), float(log)) for b, log in state["totals"])
        return Sums(int(state["rounds"]), float(weight), totals), state["cells"].copy()


def squared_gaps(cells: Array) -> Array:
    """Return the sum over cells, `(…, cells, 3)`, of weight times squared gap: mean outcome less mean forecast."""
    weight, forecasts, outcomes = np.moveaxis(cells, -1, 0)
    shares = np.divide((outcomes - forecasts) ** 2, weight, out=np.zeros(weight.shape), where=weight > 0)
    return np.asarray(np.add.accumulate(shares, axis=-1)[..., -1])


def binning(space: ConvexSet) -> tuple[Array, Array]:
    """Return the least value of each coordinate, and the width of its bins."""
    try:
        low, high = space.bounds()
    except UnsupportedError:  # a set that does not know its size: all in one bin
        low = np.zeros(space.dim)
        high = np.full(space.dim, LARGEST)
    return np.array(low, float), np.where(high > low, high - low, 1.0) / BINS
