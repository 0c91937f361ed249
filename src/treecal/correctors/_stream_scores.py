"""Scores of many streams, in the sums that a corrector keeps of one."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from treecal._compile import strict
from treecal._elementary import log_losses
from treecal._states import check_names
from treecal._typing import Array, Integers, Outcomes, Saved
from treecal.columns import Columns, Field, Forecasts, Schema, add_outcome
from treecal.correctors._scores import BINS, FLOOR, binning, squared_gaps
from treecal.exceptions import SnapshotError
from treecal.geometry import ConvexSet, Simplex


class StreamScores(NamedTuple):
    """Scores of one sequence of forecasts for each stream, per round, `(streams,)`; lower is better in all of them.

    Streams without rounds have NaN.

    Attributes
    ----------
    brier
        `Σ_p x(p)·‖y − p‖₂²`: for a distribution, the expected score of a draw from it.
    calibration
        Of each coordinate by itself, in bins of a tenth: the squared distance of the mean forecast of a bin from its
        mean outcome, summed over the coordinates.
    refinement
        The rest of the Brier score.
    log
        `Σ_p x(p)·Σ_i −y_i ln p_i`, with probabilities below 1e-9 read as 1e-9; None off the simplex.
    error
        The ℓ1 calibration error in the same bins: distances instead of their squares.

    Examples
    --------
    >>> import treecal as tc
    >>> bank = tc.Bank(tc.Simplex(2), streams=2, scores=True)
    >>> bank.update([0, 0, 1], [0, 0, 1])
    >>> bank.scores().after.brier  # (0.5 + 0.0)/2 for the first, 0.5 for the second
    array([0.25, 0.5 ])
    """

    brier: Array
    calibration: Array
    refinement: Array
    log: Array | None
    error: Array


class BankScores(NamedTuple):
    """What each stream of a bank scored, in the order of `keys`.

    Attributes
    ----------
    keys
        The streams.
    rounds
        Outcomes of each.
    before
        Scores of the model's forecasts; None for forecasters.
    after
        Scores of what was announced.
    mean
        Scores of the means of the distributions announced, each read as one point.

    Examples
    --------
    >>> import treecal as tc
    >>> bank = tc.Bank(tc.PlattScaling(tc.Simplex(2)), streams=1, scores=True)
    >>> for _ in range(50):
    ...     x = bank.update([0], [1], forecasts=[[0.5, 0.5]])
    >>> found = bank.scores()
    >>> found.rounds, found.before.brier, found.after.brier.round(2)
    (array([50]), array([0.5]), array([0.2]))
    """

    keys: Any
    rounds: Integers
    before: StreamScores | None
    after: StreamScores
    mean: StreamScores


class Points(NamedTuple):
    """Forecasts of rounds: points `(n, most, d)`, their weights, how many they are, and their log scores."""

    points: Array
    weights: Array
    sizes: Integers
    logs: Array


@strict
def add_scores(
    rows: Integers, forecasts: Points, outcomes: Any, low: Array, width: Array, totals: Array, cells: Array
) -> None:
    """Add rounds to the sums of their streams: `totals[row]`, and `cells[row, coordinate, bin]`."""
    y = np.empty(len(low))
    bins = cells.shape[2] - 1
    for i in range(len(rows)):
        y[:] = 0.0
        add_outcome(y, outcomes, i)
        own = cells[rows[i]]
        sums = totals[rows[i]]
        for c in range(forecasts.sizes[i]):
            point = forecasts.points[i, c]
            share = forecasts.weights[i, c]
            miss = 0.0
            for j in range(len(y)):
                miss += (y[j] - point[j]) ** 2
                place = np.rint((point[j] - low[j]) / width[j])
                at = 0  # also of NaN, which another thread may have written since the check
                if place > 0.0:
                    at = int(min(place, float(bins)))
                own[j, at, 0] += 1.0 * share
                own[j, at, 1] += point[j] * share
                own[j, at, 2] += y[j] * share
            sums[0] += miss * share
            sums[1] += forecasts.logs[i, c] * share


class ScoredRows:
    """The sums of one role of many streams, a row for each: as `Tallies` keeps them, in `O(dim)` memory a stream."""

    def __init__(self, space: ConvexSet) -> None:
        self._space = space
        self._low, self._width = binning(space)
        self.schema = Schema((Field("totals", (2,)), Field("cells", (space.dim, BINS + 1, 3))))
        self.columns = Columns(self.schema)

    def reserve(self, rows: int) -> None:
        """Make room for more rows, which are new streams."""
        self.columns.reserve(rows)

    def clear(self, rows: Integers) -> None:
        """Make new streams of these rows."""
        self.columns.clear(rows)

    def learn(self, rows: Integers, points: Array, weights: Array, sizes: Integers, outcomes: Outcomes) -> None:
        """Learn the points, `(n, most, d)`, that rows announced, and their outcomes, in order."""
        # Copies, which compiled code may write to: so it is compiled once.
        given = Points(np.array(points), np.array(weights), np.array(sizes), self._logs(points, outcomes))
        add_scores(rows, given, outcomes, self._low, self._width, self.columns["totals"], self.columns["cells"])

    def _logs(self, points: Array, outcomes: Outcomes) -> Array:
        """Return the log score of each point; 0 off the simplex."""
        found = np.zeros(points.shape[:2])
        if isinstance(self._space, Simplex):
            rows = np.eye(self._space.dim)[outcomes] if outcomes.ndim == 1 else outcomes
            each = np.repeat(rows, points.shape[1], axis=0)
            log_losses(np.array(points).reshape(-1, self._space.dim), each, FLOOR, found.reshape(-1))
        return found

    def scores(self, rows: Integers, rounds: Integers) -> StreamScores:
        """Return the scores of these rows, which have learned so many rounds."""
        cells = self.columns["cells"][rows].reshape(len(rows), -1, 3)
        totals = self.columns["totals"][rows]
        weight = np.where(rounds > 0, rounds, np.nan)
        brier = totals[:, 0] / weight
        log = totals[:, 1] / weight
        calibration = np.minimum(squared_gaps(cells) / weight, brier)
        error = np.add.accumulate(np.abs(cells[..., 2] - cells[..., 1]), axis=1)[:, -1] / weight
        simplex = isinstance(self._space, Simplex)
        return StreamScores(brier, calibration, brier - calibration, log if simplex else None, error)

    def state(self, rows: Integers) -> Saved:
        """Return the state of these rows, in this order."""
        return self.columns.state(rows)

    def resumed(self, state: Any, rounds: Integers) -> Self:
        """Return rows with this state after so many rounds each, or raise; this one does not change."""
        twin = type(self)(self._space)
        twin.columns = Columns.read(self.schema, state, "the scores")
        if len(twin.columns) != len(rounds):
            raise SnapshotError(f"the scores are those of {len(twin.columns)} streams, expected {len(rounds)}.")
        return twin


class Scorecards:
    """What streams announce, and for correctors the model's forecasts, scored."""

    def __init__(self, space: ConvexSet, *, corrector: bool) -> None:
        self.roles = {name: ScoredRows(space) for name in (("before", "after") if corrector else ("after", "mean"))}

    def reserve(self, rows: int) -> None:
        """Make room for more rows, which are new streams."""
        for role in self.roles.values():
            role.reserve(rows)

    def clear(self, rows: Integers) -> None:
        """Make new streams of these rows."""
        for role in self.roles.values():
            role.clear(rows)

    def learn(
        self, rows: Integers, announced: Forecasts | Array, means: Array, outcomes: Outcomes, forecasts: Array | None
    ) -> None:
        """Learn what rows announced, in place of the model's forecasts if there are any, and their outcomes."""
        one = np.ones(len(rows), np.int64)
        sure = np.ones((len(rows), 1))
        for name, role in self.roles.items():
            if name == "after" and isinstance(announced, Forecasts):
                role.learn(rows, announced.points, announced.weights, announced.sizes, outcomes)
            else:
                points = forecasts if name == "before" else means
                assert points is not None
                role.learn(rows, points[:, None], sure, one, outcomes)

    def scores(self, rows: Integers, keys: Any, rounds: Integers) -> BankScores:
        """Return the scores of these rows, which have these keys and rounds."""
        found = {name: role.scores(rows, rounds) for name, role in self.roles.items()}
        return BankScores(keys, rounds, found.get("before"), found["after"], found.get("mean", found["after"]))

    def state(self, rows: Integers) -> Saved:
        """Return the state of these rows, in this order."""
        return {name: role.state(rows) for name, role in self.roles.items()}

    def resumed(self, state: Any, rounds: Integers) -> Self:
        """Return scores with this state, or raise; this one does not change."""
        check_names("the scores", state, self.roles)
        twin = object.__new__(type(self))
        twin.roles = {name: role.resumed(state[name], rounds) for name, role in self.roles.items()}
        return twin
