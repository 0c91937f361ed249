"""What a report is made of: one entry for each forecaster on a stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal import streams
from treecal._typing import Array
from treecal._validate import finite_array
from treecal.auditing import Calibration
from treecal.correctors import Corrector, GuardedCorrector
from treecal.engine import GuardedRun, Run, can_replay, replay
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecasters import AdaptiveTreeCal, Forecaster, Guarded, GuardReport, TreeCal
from treecal.geometry import Cdf, ConvexSet, Norm, Simplex, as_column, as_norm, l1, read_outcome_rows
from treecal.ledger import Brier, Ledger, Reading
from treecal.plots import IntervalTree, interval_tree
from treecal.streams import Adversary, are_classes, checkpoints


class Curve(NamedTuple):
    """The error as rounds went by.

    Attributes
    ----------
    rounds
        Numbers of rounds, increasing.
    errors
        After each, the error of the verdict: class-wise ECE; on sets without classes the exact error.
    exact
        The exact calibration error per round after each, in the entry's norm.
    bounds
        The certified exact error after each; None where no certificate is known.
    """

    rounds: Array
    errors: Array
    exact: Array
    bounds: Array | None = None


@dataclass(frozen=True, eq=False)
class Entry:
    """One forecaster on one stream; or a log of forecasts, of which only the ledger or the audit is known.

    Attributes
    ----------
    name
        Its name in the report.
    ledger
        Its forecasts and their outcomes; what `tc.replay` returns; or a part of an audit. A reading must be of
        probabilities of classes.
    norm
        Norm of the exact error.
    curve
        Its error over time.
    tree
        Its tree, by `plots.interval_tree`.
    made
        The code that makes the forecaster.
    guard
        What its guard did, if it has one.
    ahead
        A number of rounds to come, and what is guaranteed of the exact error of these and all before.
    before
        For a corrector, the entry of the model's forecasts, which the report compares with the corrected ones.
    note
        Why it is there, in a sentence.
    advice
        What to do if it is off; by default what its gaps suggest.
    squares
        The sum of `‖y‖₂²` over all rounds, which the Brier score needs: for classes, the number of rounds.
    """

    name: str
    ledger: Ledger | Reading | Run | GuardedRun | Calibration
    norm: Norm | str = l1
    curve: Curve | None = None
    tree: IntervalTree | None = None
    made: str | None = None
    guard: GuardReport | None = None
    ahead: tuple[int, float] | None = None
    before: Entry | None = None
    note: str | None = None
    advice: str | None = None
    squares: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", as_norm(self.norm))
        if self.ledger.rounds == 0:
            raise ParameterError(f"{self.name!r} has no rounds, so there is nothing to report.")
        if isinstance(self.ledger, Reading) and not self.space.contains(self.ledger.forecasts).all():
            raise ParameterError(
                f"the reading of {self.name!r} holds forecasts that are not probabilities.",
                hint="pass the Ledger, which knows its set.",
            )

    @property
    def space(self) -> ConvexSet:
        """The set its forecasts lie in."""
        if isinstance(self.ledger, Calibration):
            return Simplex(len(self.ledger.classes))
        return Simplex(self.ledger.forecasts.shape[1]) if isinstance(self.ledger, Reading) else self.ledger.space

    @property
    def audited(self) -> Calibration | None:
        """The part of an audit, if it is one."""
        return self.ledger if isinstance(self.ledger, Calibration) else None

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.ledger.rounds

    @cached_property
    def exact(self) -> Reading:
        """The exact reading of the ledger."""
        assert not isinstance(self.ledger, Calibration)
        return self.ledger if isinstance(self.ledger, Reading) else self.ledger.exact()

    @cached_property
    def scores(self) -> Brier | None:
        """The Brier score and its parts, where they are known."""
        if isinstance(self.ledger, Calibration):
            found = self.ledger
            calibration = found.brier - found.uncertainty + found.resolution
            return Brier(found.brier, calibration, found.resolution, found.uncertainty)
        return None if self.squares is None else self.exact.brier(self.squares)


def play(
    forecaster: Forecaster | Corrector,
    outcomes: ArrayLike | Adversary,
    *,
    rounds: int | None = None,
    forecasts: ArrayLike | None = None,
    name: str | None = None,
    note: str | None = None,
    norm: Norm | str | None = None,
    at_once: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> Entry:
    """Play a forecaster over outcomes, or a corrector over a model's forecasts, and return its entry in a report.

    Trees and `Guarded` on outcomes that no adversary chooses are replayed at once; all others cost what
    `treecal.streams.play` costs, and a reading of the ledger ten times per decade of rounds.

    Parameters
    ----------
    forecaster
        A new one: its rounds are those of the stream.
    outcomes
        One row per round; on a simplex also the index of the class of each round, which takes less memory; or an
        adversary.
    rounds
        How many rounds: by default all outcomes. Required with an adversary.
    forecasts
        For a corrector, the model's forecasts, one row per round.
    name
        Its name in the report; by default that of its class.
    note
        Why it is there, in a sentence.
    norm
        Norm of the error: by default ℓ1 on the simplex, ℓ2 elsewhere.
    at_once
        Whether to replay what can be replayed at once. Not to is sooner done for up to some 20,000 rounds if nothing
        has been compiled yet.
    progress
        Called some 200 times, and at the end, with the number of rounds played so far and of all rounds.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> entry = play(tc.TreeCal(space, arity=4), np.eye(2)[rng.integers(2, size=1000)])
    >>> entry.made, entry.curve.rounds[-3:], entry.curve.exact[-3:].round(2)
    ('TreeCal(Simplex(2), arity=4)', array([ 251.,  501., 1000.]), array([0.3 , 0.26, 0.23]))
    """
    space = forecaster.space
    ys: Array | Adversary
    if isinstance(outcomes, Adversary):
        ys = outcomes
        count = rounds or 0
    else:
        rows = read_outcome_rows(space, outcomes) if isinstance(space, Cdf) else np.asarray(outcomes)
        if not are_classes(rows, space):
            rows = finite_array("outcomes", as_column(space, rows), ndim=2)
        ys = rows[:rounds]
        count = len(ys)
    if forecaster.rounds:
        raise ParameterError(f"the forecaster has played {forecaster.rounds} rounds already, expected a new one.")
    norm = space.default_norm if norm is None else as_norm(norm, space)
    seen = _Seen(space, norm)
    ledger: Ledger | Run | GuardedRun
    if at_once and isinstance(ys, np.ndarray) and count and forecasts is None and can_replay(forecaster):
        ledger = _replayed(forecaster, ys, seen, progress)
    else:
        ledger = _played(forecaster, ys, rounds, count, forecasts, seen, progress)
    label = type(forecaster).__name__ if name is None else name
    after = ledger.forecaster if isinstance(ledger, GuardedRun) else forecaster
    squares = None if isinstance(ys, Adversary) else float(count if ys.ndim == 1 else np.square(ys).sum())
    entry = Entry(
        name=label,
        ledger=ledger,
        norm=norm,
        curve=seen.curve(forecaster),
        tree=None if isinstance(ys, Adversary) else _tree(forecaster, ys),
        made=re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(forecaster)),  # the same in every run
        guard=_guard(after),
        ahead=_ahead(after, norm, ledger),
        note=note,
        advice=_advice(forecaster),
        squares=squares,
    )
    if forecasts is None or isinstance(ys, Adversary):
        return entry
    return replace(entry, before=_before(space, forecasts, ys, norm, squares))


@dataclass
class _Seen:
    """Errors as rounds go by."""

    space: ConvexSet
    norm: Norm
    marks: list[tuple[float, float, float]] = field(default_factory=list)

    def read(self, rounds: int, record: Ledger | Run | GuardedRun) -> None:
        """Read the errors after this many rounds."""
        reading = record.exact()
        exact = reading.error(self.norm)
        error = reading.verdict().views[1].luck.value if isinstance(self.space, Simplex) else exact
        self.marks.append((rounds, error, exact))

    def curve(self, forecaster: Forecaster | Corrector | None = None) -> Curve:
        """Return what was read."""
        at, errors, exact = np.array(self.marks, dtype=np.float64).reshape(-1, 3).T
        return Curve(at, errors, exact, None if forecaster is None else _bounds(forecaster, self.norm, at))


def _replayed(
    forecaster: Any, outcomes: Array, seen: _Seen, progress: Callable[[int, int], object] | None
) -> Run | GuardedRun:
    """Replay the stream at once, and its beginnings: three a decade, which together take less than the whole."""
    count = len(outcomes)
    marks = checkpoints(len(outcomes))
    for mark in sorted({*marks[-1::-3].tolist()} - {count}):
        seen.read(mark, replay(outcomes[:mark], copy(forecaster)))
        if progress is not None:
            progress(mark // 2, count)
    run: Run | GuardedRun = replay(outcomes, forecaster)
    seen.read(count, run)
    if progress is not None:
        progress(count, count)
    return run


def _played(
    forecaster: Forecaster | Corrector,
    outcomes: Array | Adversary,
    rounds: int | None,
    count: int,
    forecasts: ArrayLike | None,
    seen: _Seen,
    progress: Callable[[int, int], object] | None,
) -> Ledger:
    """Play the stream round by round."""
    ledger = Ledger(forecaster.space)
    marks = set(checkpoints(count).tolist())
    often = range(0, count, max(1, count // 200))

    def mark(played: int, rounds: int) -> None:
        if played in marks:
            seen.read(played, ledger)
        if progress is not None:
            progress(played, rounds)

    streams.play(
        forecaster, outcomes, rounds=rounds, forecasts=forecasts, ledger=ledger, at=marks.union(often), progress=mark
    )
    return ledger


def _before(space: ConvexSet, forecasts: ArrayLike, outcomes: Array, norm: Norm, squares: float | None) -> Entry:
    """Return the entry of the model's forecasts, as they were."""
    ledger = Ledger(space)
    seen = _Seen(space, norm)
    points = np.asarray(forecasts)
    begin = 0
    for mark in checkpoints(len(outcomes)).tolist():
        ledger.record_many(points[begin:mark], outcomes[begin:mark])
        seen.read(mark, ledger)
        begin = mark
    return Entry("before", ledger, norm, seen.curve(), squares=squares)


def _bounds(forecaster: Forecaster | Corrector, norm: Norm, marks: Array) -> Array | None:
    """Return the certified error after each number of rounds; None where no certificate covers the forecaster."""
    if isinstance(forecaster, Corrector) and not isinstance(forecaster, GuardedCorrector):
        return None
    try:
        found = [forecaster.certificate(norm, rounds=int(t)) for t in marks]
    except UnsupportedError:
        return None
    return None if None in found else np.array([each.bound for each in found if each])


def _ahead(
    forecaster: Forecaster | Corrector, norm: Norm, record: Ledger | Run | GuardedRun
) -> tuple[int, float] | None:
    """Return what a guard guarantees if the stream goes on for a tenth of the rounds so far."""
    if not isinstance(forecaster, Guarded | GuardedCorrector) or isinstance(record, Run):
        return None
    rounds = max(1, record.rounds // 10)
    ledger = record.ledger() if isinstance(record, GuardedRun) else record
    try:
        found = forecaster.certificate(norm, rounds=rounds, after=ledger)
    except UnsupportedError:
        return None
    return None if found is None else (rounds, found.bound)


def _advice(forecaster: Forecaster | Corrector) -> str | None:
    """Return what to do if a forecaster without a model is off: it knows no more than it did."""
    if isinstance(forecaster, Corrector):
        return None
    if isinstance(forecaster, Guarded):
        return "It knows past outcomes only. A model that knows more, corrected by tc.AutoCorrector, may do better."
    return "Try tc.Guarded, the default: it follows the stream, within a guarantee."


def _guard(forecaster: Forecaster | Corrector) -> GuardReport | None:
    if not isinstance(forecaster, Guarded | GuardedCorrector) or forecaster.losses is not None:
        return None  # the regret of advice is no error of forecasts
    return forecaster.report() if isinstance(forecaster, Guarded) else forecaster.guard()


def _tree(forecaster: Forecaster | Corrector, outcomes: Array) -> IntervalTree | None:
    if not isinstance(forecaster, TreeCal | AdaptiveTreeCal) or not isinstance(forecaster.space, Simplex):
        return None
    if forecaster.mix or forecaster.space.dim < 2 or not len(outcomes):
        return None
    start = forecaster.space.centre if forecaster.start is None else forecaster.start
    return interval_tree(outcomes, arity=forecaster.arity, depth=forecaster.depth, start=start)
