"""What a corrector keeps of its rounds for `report`: sums in bins, class by class, which never grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._elementary import log, log_losses
from treecal._evidence import FLOOR as FLOOR
from treecal._states import MOST_ROUNDS, check_array, check_count, check_like, check_number
from treecal._typing import Array, Integers, Saved
from treecal.correctors._batch import Batch
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecast import Forecast, uniform
from treecal.geometry import LARGEST, Cdf, ConvexSet, Simplex
from treecal.ledger import Ledger

ROLES = ("before", "after", "mean")


@dataclass(frozen=True)
class Scores:
    """Scores of one sequence of forecasts, per round; lower is better in all four.

    Attributes
    ----------
    brier
        `Σ_p x(p)·‖y − p‖₂²`: for a distribution, the expected score of a draw from it.
    calibration
        Of each class by itself, in bins of a tenth: the squared distance of the mean forecast of a bin from its mean
        outcome, summed over the classes. It is what renaming the forecasts of each class could have saved.
    refinement
        The rest of the Brier score: how much outcomes vary within a bin (Murphy's decomposition, class by class).
    log
        `Σ_p x(p)·Σ_i −y_i ln p_i`, with probabilities below 1e-9 read as 1e-9; None off the simplex.
    """

    brier: float
    calibration: float
    refinement: float
    log: float | None


@dataclass(frozen=True)
class Correction:
    """Before and after, side by side. Printed, it is a table.

    Attributes
    ----------
    rounds
        Rounds scored.
    before
        Scores of the model's forecasts.
    after
        Scores of the distributions announced.
    mean
        Scores of the means of these distributions, each read as one point: sharper, and not what is calibrated.
    groups
        Number of groups met, where there are groups.
    group_refinement
        The Brier score of the best constant forecast for each group, chosen with hindsight.
    shift_refinement
        The Brier score of the model's forecasts, each group's moved by the best constant, chosen with hindsight.
    score
        What scores of other sets than classes are: "CRPS" for distributions of a number, else "square".
    """

    rounds: int
    before: Scores
    after: Scores
    mean: Scores
    groups: int | None = None
    group_refinement: float | None = None
    shift_refinement: float | None = None
    score: str = "square"

    def __str__(self) -> str:
        classes = self.before.log is not None
        what, score, last = ("class", "Brier", "   log score") if classes else ("coordinate", self.score, "")
        what = "threshold" if score == "CRPS" else what
        lines = [
            f"{self.rounds:,} round{'s' * (self.rounds != 1)}, each {what} in bins of a tenth",
            f"{'':8}{score:>8} = calibration + refinement{last}",
        ]
        for role in ROLES:
            s: Scores = getattr(self, role)
            log = "" if s.log is None else f"{s.log:.4f}"
            lines.append(f"{role:8}{s.brier:8.4f}{s.calibration:14.4f}{s.refinement:13.4f}{log:>12}".rstrip())
        if self.group_refinement is not None:
            best = f"constants {self.group_refinement:.4f}, shifts {self.shift_refinement:.4f}"
            lines.append(f"{score.capitalize()} scores of the best in {self.groups} groups: {best}")
        return "\n".join(lines)


BINS = 10
"""Cells of a coordinate, between the least and the greatest value it can have; their centres are 11 equal steps."""
BATCH = 64
"""Rounds that may wait to be added."""
_MANY = 4096  # points that are worth a kernel, which takes a while to compile


class Round(NamedTuple):
    """A round that is learned."""

    before: Array
    announced: Forecast
    outcome: Array
    weight: float


class Sums(NamedTuple):
    """Sums, and rounds that wait: replaced by one assignment with the round that they count, and never changed."""

    rounds: int
    weight: float
    totals: Array
    """The Brier and log scores of each role, added up."""
    cells: Array
    """Weight, forecasts and outcomes by role, coordinate and bin, a row for each."""
    waiting: tuple[Round, ...] = ()
    unrecorded: tuple[tuple[int, Round], ...] = ()
    """Rounds, by number, that may not be in the ledgers yet."""


class Tallies:
    """How the model's forecasts, those announced, and their means are scored: in sums, and on demand in ledgers.

    The Brier score is a sum over coordinates, `‖y − p‖² = Σ_k (y_k − p_k)²`, so each coordinate is binned by itself and
    memory is `O(dim)`. Rounds are added some at once, each cell's in their order, so that it makes no difference when
    they are added.

    Parameters
    ----------
    space
        The set of the forecasts.
    exact
        Whether there are ledgers.
    """

    def __init__(self, space: ConvexSet, *, exact: bool = False) -> None:
        self.space = space
        self.ledgers = {role: Ledger(space) for role in ROLES} if exact else {}
        self._low, self._width = binning(space)
        self._offsets = np.arange(space.dim) * (BINS + 1)
        self._widths = np.array(space.widths) if isinstance(space, Cdf) else np.ones(space.dim)

    def new(self) -> Sums:
        """Return the sums of no rounds."""
        return Sums(0, 0.0, np.zeros((len(ROLES), 2)), np.zeros((len(ROLES) * self.space.dim * (BINS + 1), 3)))

    def after(self, sums: Sums, learned: Round) -> Sums:
        """Return the sums after one more round; change nothing."""
        number = sums.rounds + 1
        unrecorded = (*sums.unrecorded, (number, learned)) if self.ledgers else ()
        sums = sums._replace(rounds=number, waiting=(*sums.waiting, learned), unrecorded=unrecorded)
        return self.added(sums) if len(sums.waiting) >= BATCH else sums

    def recorded(self, sums: Sums) -> Sums:
        """Write rounds to the ledgers, and return the sums with none due. To do it twice is as good as once."""
        for number, (b, x, y, weight) in sums.unrecorded:
            for role, each in zip(ROLES, (self._point(b), x, self._point(x.mean)), strict=True):
                self.ledgers[role]._record_as(number, each, y, weight)
        return sums._replace(unrecorded=())

    def _point(self, point: Array) -> Forecast:
        return Forecast.trusted(point[None], uniform(1), None, self.space)

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
        """Return sums, for which no round waits, after many in which points were announced; change nothing."""
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
        totals = sums.totals.copy()
        cells = sums.cells.copy()
        weight = float(np.add.accumulate(np.append(sums.weight, weights))[-1])
        if isinstance(self.space, Cdf) or len(points) >= _MANY:
            rows = np.ascontiguousarray(points), np.ascontiguousarray(y), np.asarray(roles, np.int64), np.array(shares)
            rule = Binned(self._widths, self._low, self._width, isinstance(self.space, Simplex))
            tally.for_rows(len(points) // 256)(*rows, rule, totals, cells)
            return Sums(sums.rounds, weight, totals, cells, (), sums.unrecorded)
        costs = np.zeros((len(points), 2))
        # Accumulated, so that compiled code can add in the same order.
        costs[:, 0] = np.add.accumulate((y - points) ** 2, axis=1)[:, -1]
        if isinstance(self.space, Simplex):
            log_losses.now(points, y, FLOOR, costs[:, 1])
        np.add.at(totals, roles, costs * shares[:, None])
        bins = np.clip(np.rint((points - self._low) / self._width), 0, BINS).astype(np.intp)
        place = roles[:, None] * len(self._offsets) * (BINS + 1) + self._offsets + bins
        amounts = np.stack(np.broadcast_arrays(1.0, points, y), axis=-1) * shares[:, None, None]
        np.add.at(cells.reshape(-1), (3 * place[..., None] + np.arange(3)).ravel(), amounts.ravel())
        return Sums(sums.rounds, weight, totals, cells, (), sums.unrecorded)

    def report(self, sums: Sums) -> Correction:
        """Return the scores of sums for which no round waits."""
        if not sums.rounds:
            raise ParameterError("no round is scored, so there are no scores.")
        before, after, mean = self._scores(sums)
        return Correction(sums.rounds, before, after, mean, score="CRPS" if isinstance(self.space, Cdf) else "square")

    def _scores(self, sums: Sums) -> list[Scores]:
        """Return the scores of each role, per unit of weight."""
        found = []
        cells = sums.cells.reshape(len(ROLES), -1, 3)
        for role, (brier, loss) in enumerate(sums.totals.tolist()):
            brier = brier / sums.weight
            loss = loss / sums.weight
            widths = np.repeat(self._widths, BINS + 1)
            calibration = float(squared_gaps(cells[role], widths)) / sums.weight
            calibration = min(calibration, brier)  # Jensen; rounding may say otherwise
            found.append(
                Scores(brier, calibration, brier - calibration, loss if isinstance(self.space, Simplex) else None)
            )
        return found

    def state(self, sums: Sums) -> Saved:
        """Return the state of sums for which no round waits."""
        return {"rounds": sums.rounds, "weight": sums.weight, "totals": sums.totals, "cells": sums.cells}

    def resumed(self, ledgers: Saved) -> Tallies:
        """Return tallies with ledgers of these states."""
        twin = Tallies(self.space, exact=bool(self.ledgers))
        for role, ledger in twin.ledgers.items():
            ledger.set_state(ledgers[role])
        return twin

    def checked(self, state: Saved, rounds: int) -> Sums:
        """Return the sums of a state, or raise unless they are those of so many rounds."""
        new = self.new()
        check_like(self.state(new), state, "the scores")
        check_count("the scores' rounds", state["rounds"], most=rounds)
        check_number("the scores' weight", state["weight"], least=0.0, most=LARGEST * MOST_ROUNDS)
        check_array("the scores' totals", state["totals"], new.totals.shape)
        check_array("the scores' cells", state["cells"], new.cells.shape)
        return Sums(int(state["rounds"]), float(state["weight"]), state["totals"].copy(), state["cells"].copy())


class Binned(NamedTuple):
    """How points are scored: the widths of coordinates, the bins of each, and whether there are log scores."""

    widths: Array
    low: Array
    step: Array
    logs: bool


@strict
def tally(points: Array, y: Array, roles: Integers, shares: Array, bins: Binned, totals: Array, cells: Array) -> None:
    """Add points to the sums, in order, as `_plus` does where there are few."""
    dim = len(bins.widths)
    for i in range(len(points)):
        cost = 0.0
        loss = 0.0
        for k in range(dim):
            p = points[i, k]
            cost += bins.widths[k] * (y[i, k] - p) * (y[i, k] - p)
            if bins.logs and y[i, k] != 0.0:
                loss -= log(max(p, FLOOR)) * y[i, k]
            nearest = np.rint((p - bins.low[k]) / bins.step[k])
            place = (roles[i] * dim + k) * (BINS + 1) + int(min(max(nearest, 0.0), BINS))
            cells[place, 0] += shares[i]
            cells[place, 1] += p * shares[i]
            cells[place, 2] += y[i, k] * shares[i]
        totals[roles[i], 0] += cost * shares[i]
        totals[roles[i], 1] += loss * shares[i]


def squared_gaps(cells: Array, widths: Array | float = 1.0) -> Array:
    """Return the sum over cells, `(…, cells, 3)`, of weight times squared gap: mean outcome less mean forecast."""
    weight, forecasts, outcomes = np.moveaxis(cells, -1, 0)
    shares = np.divide((outcomes - forecasts) ** 2, weight, out=np.zeros(weight.shape), where=weight > 0)
    return np.asarray(np.add.accumulate(widths * shares, axis=-1)[..., -1])


def binning(space: ConvexSet) -> tuple[Array, Array]:
    """Return the least value of each coordinate, and the width of its bins."""
    try:
        low, high = space.bounds()
    except UnsupportedError:  # a set that does not know its size: all in one bin
        low = np.zeros(space.dim)
        high = np.full(space.dim, LARGEST)
    return np.array(low, float), np.where(high > low, high - low, 1.0) / BINS
