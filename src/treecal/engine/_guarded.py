"""A whole stream of a guarded forecaster at once."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from treecal._sums import Totals
from treecal._typing import Array, Integers, Outcomes
from treecal._validate import whole_number
from treecal.engine._outcomes import read_outcomes
from treecal.engine._run import Run
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters import Guarded, GuardStreams, TreeCal
from treecal.geometry import ConvexSet, Distance, as_distance
from treecal.ledger import Ledger, Reading, Table

_AT_ONCE = 1 << 16  # rounds that are added to a ledger


def guarded_run(forecaster: Guarded, outcomes: Any) -> GuardedRun:
    """Return the run of a new guarded forecaster whose eager part compiled code can play."""
    if not forecaster.usual:
        raise ParameterError.expected(
            "forecaster",
            forecaster,
            "a Guarded of Codebook(Tracker(space)) and of Harmonic, BinaryGrid or a growing TreeCal, in ℓ1, ℓ2 or CRPS",
            hint="treecal.streams.play takes any forecaster, a round at a time.",
        )
    if forecaster.rounds:
        raise ParameterError.expected("forecaster", forecaster, "a new one", hint="this one has seen outcomes.")
    return GuardedRun(forecaster, outcomes)


class GuardedRun:
    """A replayed stream of a guarded forecaster. Made by `replay`.

    Attributes
    ----------
    rounds
        Number of outcomes.
    points
        The distinct points that the eager part announced, `(n, d)`.
    announced
        For each round the row of `points` that was announced; -1 where the safe part forecast.

    Examples
    --------
    >>> import treecal as tc
    >>> classes = np.random.default_rng(0).choice(3, size=10_000, p=[0.6, 0.3, 0.1])
    >>> run = tc.replay(classes, tc.Guarded(tc.Simplex(3)))
    >>> round(run.error("l1"), 3), len(run.points), int((run.announced < 0).sum())
    (0.076, 6, 0)
    >>> run.forecaster.predict() == run.forecast(10_000)  # ready for the next outcome
    True
    """

    def __init__(self, forecaster: Guarded, outcomes: Any) -> None:
        self.space, self._new = forecaster.space, forecaster
        self._rows = _read(self.space, outcomes)
        self.rounds = len(self._rows)
        self._after = GuardStreams(forecaster, 1)
        self.announced = self._after.slots(np.zeros(self.rounds, np.int64), self._rows)
        self.points = self._after.announced(0)

    def ledger(self) -> Ledger:
        """Return the ledger that recording every round would have made."""
        eager = np.flatnonzero(self.announced >= 0)
        sums = Totals(np.empty((0, 1), np.int64), np.empty((0, 2, 1 + self.space.dim)))
        for start in range(0, len(eager), _AT_ONCE):
            part = eager[start : start + _AT_ONCE]
            rows, totals = sums.added(
                self.announced[part, None], np.column_stack([np.ones(len(part)), self._dense(part)])
            )
            sums.totals[rows] = totals
        slots, totals = sums.rows()
        weights = totals[:, 0, 0]
        ledger = Ledger.from_rows(
            self.space, self.points[slots[:, 0]], weights, totals[:, 0, 1:], rounds=len(eager), parts=1
        )
        ledger._table.totals[:, 1] = totals[:, 1]
        return ledger.merge(self._safe_ledger)

    def _dense(self, rounds: Integers) -> Array:
        """Return the outcomes of some rounds as points."""
        rows = self._rows[rounds]
        return rows if rows.ndim == 2 else np.eye(self.space.dim)[rows]

    @cached_property
    def _safe_ledger(self) -> Ledger:
        """The ledger of the safe part's rounds."""
        safe, rounds = self._new.safe, np.flatnonzero(self.announced < 0)
        if isinstance(safe, TreeCal):
            return Run(safe, self._rows[rounds]).ledger()
        own, ledger = deepcopy(safe), Ledger(self.space)
        for y in self._dense(rounds):
            ledger.record(own.predict(), y)
            own.update(y)
        return ledger

    @cached_property
    def _reading(self) -> Reading:
        return self.ledger().exact()

    def exact(self) -> Reading:
        """Read the run with forecasts distinguished exactly, by point."""
        return self._reading

    def error(self, distance: Distance | str = "l1", *, per_node: bool = False, total: bool = False) -> float:
        """Return the calibration error, per round unless `total`, as `Ledger.error` does."""
        return (self.ledger().exact(per_node=True) if per_node else self.exact()).error(
            as_distance(distance, self.space), total=total
        )

    def table(self, distance: Distance | str = "l1") -> Table:
        """Return one row for each distinct forecast, the largest share of the error first."""
        return self.exact().table(as_distance(distance, self.space))

    def forecast(self, t: int) -> Forecast:
        """Return the forecast of `outcomes[t]`; for `t = rounds`, of the outcome that would come next."""
        if not 0 <= whole_number("t", t, least=0) <= self.rounds:
            raise ParameterError.expected("t", t, f"0 to {self.rounds}")
        if t == self.rounds:
            return self.forecaster.predict()
        if self.announced[t] >= 0:
            return Forecast.trusted(self.points[self.announced[t]][None], uniform(1), None, self.space)
        safe = deepcopy(self._new.safe)
        rounds = np.flatnonzero(self.announced[:t] < 0)
        if isinstance(safe, TreeCal):
            return Run(safe, self._rows[rounds]).forecast(len(rounds))
        for y in self._dense(rounds):
            safe.update(y)
        return safe.predict()

    @cached_property
    def forecaster(self) -> Guarded:
        """The forecaster after the last outcome, ready to go on."""
        forecaster: Guarded = self._after.forecaster(0)
        return forecaster

    def __repr__(self) -> str:
        return f"GuardedRun({self.rounds} rounds of {self._new!r})"


def _read(space: ConvexSet, outcomes: Any) -> Outcomes:
    """Return all outcomes; those of an iterator are put together."""
    if not isinstance(outcomes, Iterator):
        return read_outcomes(space, outcomes)
    chunks: list[Outcomes] = []
    for chunk in outcomes:
        chunks.append(read_outcomes(space, chunk, before=sum(map(len, chunks))))
    if len({chunk.ndim for chunk in chunks}) > 1:  # classes and rows
        chunks = [np.eye(space.dim)[chunk] if chunk.ndim == 1 else chunk for chunk in chunks]
    return np.concatenate(chunks) if chunks else np.empty((0, space.dim))
