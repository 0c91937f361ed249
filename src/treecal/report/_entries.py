"""What a report is made of: one entry for each forecaster on a stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal import streams
from treecal._checkpoints import checkpoints
from treecal._typing import Array
from treecal._validate import finite_array
from treecal.correctors import Corrector, GuardedCorrector
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecasters import AdaptiveTreeCal, Forecaster, Guarded, GuardReport, TreeCal
from treecal.geometry import ConvexSet, Norm, Simplex, as_norm, l1
from treecal.ledger import Ledger, Reading
from treecal.plots._tree import IntervalTree, interval_tree
from treecal.streams import Adversary
from treecal.streams._play import are_classes


class Curve(NamedTuple):
    """The error as rounds went by.

    Attributes
    ----------
    rounds
        Numbers of rounds, increasing.
    errors
        The calibration error per round after each.
    bounds
        The certified error after each; None where no certificate is known.
    """

    rounds: Array
    errors: Array
    bounds: Array | None = None


@dataclass(frozen=True, eq=False)
class Entry:
    """One forecaster on one stream; or a log of forecasts, of which only the ledger is known.

    Attributes
    ----------
    name
        Its name in the report.
    ledger
        Its forecasts and their outcomes. A reading must be of probabilities of classes.
    norm
        Norm of the error.
    curve
        Its error over time, in this norm.
    tree
        Its tree, by `plots.interval_tree`.
    made
        The code that makes the forecaster.
    guard
        What its guard did, if it has one.
    before
        For a corrector, the ledger of the model's forecasts, which the report compares with the corrected ones.
    note
        Why it is there, in a sentence.
    """

    name: str
    ledger: Ledger | Reading
    norm: Norm | str = l1
    curve: Curve | None = None
    tree: IntervalTree | None = None
    made: str | None = None
    guard: GuardReport | None = None
    before: Ledger | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", as_norm(self.norm))
        if self.ledger.rounds == 0:
            raise ParameterError(f"{self.name!r} has no rounds, so there is nothing to report.")
        if isinstance(self.ledger, Reading) and not self.space.contains(self.ledger.forecasts).all():
            raise ParameterError(
                f"the reading of {self.name!r} holds forecasts that are not probabilities.",
                hint="give the Ledger, which knows its set.",
            )

    @property
    def space(self) -> ConvexSet:
        """The set its forecasts lie in."""
        return self.ledger.space if isinstance(self.ledger, Ledger) else Simplex(self.ledger.forecasts.shape[1])

    @cached_property
    def exact(self) -> Reading:
        """The exact reading of the ledger."""
        return self.ledger.exact() if isinstance(self.ledger, Ledger) else self.ledger


def play(
    forecaster: Forecaster | Corrector,
    outcomes: ArrayLike | Adversary,
    *,
    rounds: int | None = None,
    forecasts: ArrayLike | None = None,
    name: str | None = None,
    note: str | None = None,
    norm: Norm | str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Entry:
    """Play a forecaster over outcomes, or a corrector over a model's forecasts, and return its entry in a report.

    Costs what `treecal.streams.play` costs, and a reading of the ledger ten times per decade of rounds.

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
    progress
        Called some 200 times, and at the end, with the number of rounds played so far and of all rounds.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> entry = play(tc.TreeCal(space, arity=4), np.eye(2)[rng.integers(2, size=1000)])
    >>> entry.made, entry.curve.rounds[-3:], entry.curve.errors[-3:].round(2)
    ('TreeCal(Simplex(2), arity=4)', array([ 640.,  800., 1000.]), array([0.24, 0.24, 0.23]))
    """
    ledger, curve = Ledger(forecaster.space), []
    ys: Array | Adversary
    if isinstance(outcomes, Adversary):
        ys, count = outcomes, rounds or 0
    else:
        rows = np.asarray(outcomes)
        ys = (rows if are_classes(rows, forecaster.space) else finite_array("outcomes", outcomes, ndim=2))[:rounds]
        count = len(ys)
    if forecaster.rounds:
        raise ParameterError(f"the forecaster has played {forecaster.rounds} rounds already, expected a new one.")
    norm = forecaster.space.default_norm if norm is None else as_norm(norm)
    marks, often = set(checkpoints(count).tolist()), range(0, count, max(1, count // 200))

    def mark(played: int, rounds: int) -> None:
        if played in marks:
            curve.append((played, ledger.error(norm)))
        if progress is not None:
            progress(played, rounds)

    streams.play(
        forecaster, ys, rounds=rounds, forecasts=forecasts, ledger=ledger, at=marks.union(often), progress=mark
    )
    at, errors = np.array(curve, dtype=np.float64).reshape(-1, 2).T
    return Entry(
        name=type(forecaster).__name__ if name is None else name,
        ledger=ledger,
        norm=norm,
        curve=Curve(at, errors, _bounds(forecaster, norm, at)),
        tree=None if isinstance(ys, Adversary) else _tree(forecaster, ys),
        made=re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(forecaster)),  # the same in every run
        guard=_guard(forecaster),
        before=None if forecasts is None or isinstance(ys, Adversary) else _before(forecaster.space, forecasts, ys),
        note=note,
    )


def _before(space: ConvexSet, forecasts: ArrayLike, outcomes: Array) -> Ledger:
    """Return the ledger of the model's forecasts, as they were."""
    ledger = Ledger(space)
    for b, y in zip(np.asarray(forecasts), outcomes, strict=False):
        ledger.record(b, np.eye(space.dim)[y] if np.ndim(y) == 0 else y)
    return ledger


def _bounds(forecaster: Forecaster | Corrector, norm: Norm, marks: Array) -> Array | None:
    """Return the certified error after each number of rounds; None where no certificate covers the forecaster."""
    if isinstance(forecaster, Corrector) and not isinstance(forecaster, GuardedCorrector):
        return None
    try:
        found = [forecaster.certificate(norm, rounds=int(t)) for t in marks]
    except UnsupportedError:
        return None
    return None if None in found else np.array([each.bound for each in found if each])


def _guard(forecaster: Forecaster | Corrector) -> GuardReport | None:
    if isinstance(forecaster, Guarded):
        return forecaster.report()
    return forecaster.guard() if isinstance(forecaster, GuardedCorrector) else None


def _tree(forecaster: Forecaster | Corrector, outcomes: Array) -> IntervalTree | None:
    if not isinstance(forecaster, TreeCal | AdaptiveTreeCal) or not isinstance(forecaster.space, Simplex):
        return None
    if forecaster.mix or forecaster.space.dim < 2 or not len(outcomes):
        return None
    start = forecaster.space.centre if forecaster.start is None else forecaster.start
    return interval_tree(outcomes, arity=forecaster.arity, depth=forecaster.depth, start=start)
