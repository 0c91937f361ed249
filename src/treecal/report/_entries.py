"""What a report is made of: forecasters on streams, and what their ledgers hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array
from treecal.correctors._base import Corrector
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecasters import AdaptiveTreeCal, Forecaster, TreeCal
from treecal.geometry import ConvexSet, Norm, Simplex, as_norm, l1
from treecal.ledger import Ledger, Reading
from treecal.plots._tree import IntervalTree, interval_tree

if TYPE_CHECKING:
    from treecal.auditing import Calibration


class Curve(NamedTuple):
    """The error as rounds went by.

    Attributes
    ----------
    rounds
        Numbers of rounds, increasing.
    errors
        The calibration error per round after each.
    bounds
        What it could not have exceeded, whatever had happened; None where no certificate is known.
    """

    rounds: Array
    errors: Array
    bounds: Array | None = None


@dataclass(frozen=True, eq=False)
class Entry:
    """One forecaster on one stream; or one log of forecasts, of which only the ledger is known.

    Attributes
    ----------
    name
        What it is called.
    ledger
        What it said and what came of it. A reading must be one of probabilities of classes.
    norm
        What its error is counted in.
    curve
        Its error over time, in this norm.
    tree
        The tree it stands on, by `plots.interval_tree`.
    made
        How it was made, as one would type it.
    """

    name: str
    ledger: Ledger | Reading
    norm: Norm | str = l1
    curve: Curve | None = None
    tree: IntervalTree | None = None
    made: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", as_norm(self.norm))
        if self.ledger.rounds == 0:
            raise ParameterError(f"{self.name!r} has no rounds, so there is nothing to report.")
        if isinstance(self.ledger, Reading) and not self.space.contains(self.ledger.forecasts).all():
            raise ParameterError(
                f"the reading of {self.name!r} is not one of probabilities.",
                hint="give the Ledger, which knows its set.",
            )

    @property
    def space(self) -> ConvexSet:
        """The set its forecasts lie in."""
        return self.ledger.space if isinstance(self.ledger, Ledger) else Simplex(self.ledger.forecasts.shape[1])


@dataclass(frozen=True, eq=False)
class Section:
    """One stream, and everybody who forecast it.

    Attributes
    ----------
    title
        What the stream is.
    entries
        The forecasters, all judged in one norm.
    classes
        Names of the coordinates.
    """

    title: str
    entries: Sequence[Entry]
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not self.entries:
            raise ParameterError(f"the section {self.title!r} has no entries, expected one or more.")
        first, names = self.entries[0], [entry.name for entry in self.entries]
        if len(set(names)) < len(names):
            raise ParameterError(f"entries are named {names}, expected each name once.")
        for entry in self.entries:
            if (entry.space, entry.norm) != (first.space, first.norm):
                raise ParameterError(
                    f"{entry.name!r} is judged on {entry.space!r} in {entry.norm!r}, and {first.name!r} on "
                    f"{first.space!r} in {first.norm!r}.",
                    hint="one section, one set, one norm.",
                )
        if self.classes is not None and len(self.classes) != first.space.dim:
            raise ParameterError(f"{len(self.classes)} classes were named, expected {first.space.dim}.")


def audited(found: Calibration, *, title: str) -> Section:
    """Return what `treecal.auditing.audit` found as a section: an entry for each class, against all others.

    The error of a class is twice its expected calibration error, as what it has too much the others have too little. Of
    more than eight classes, the eight that happened most.

    Parameters
    ----------
    found
        The whole of an audit, or one of its groups.
    title
        What the log is.

    Examples
    --------
    >>> from treecal.auditing import audit
    >>> log = {"p": np.array([0.8, 0.8, 0.8, 0.8, 0.2]), "rain": np.array([1, 1, 1, 0, 0])}
    >>> section = audited(audit(log, forecast="p", outcome="rain").whole, title="Rain")
    >>> [(entry.name, entry.ledger.rounds) for entry in section.entries]
    [('1', 5), ('0', 5)]
    """
    most = sorted(found.classes, key=lambda name: -found.classes[name].mean_outcome)[:8]
    if len(most) < len(found.classes):
        title = f"{title} (the {len(most)} most frequent of {len(found.classes)} classes)"
    entries = []
    for name in most:
        bins, full = found.classes[name], found.classes[name].weight > 0
        forecasts, outcomes = (np.column_stack([1 - p, p])[full] for p in (bins.forecast, bins.outcome))
        reading = Reading(forecasts, bins.weight[full].astype(np.float64), outcomes, found.rounds, 1 / len(bins.weight))
        entries.append(Entry(name, reading))
    return Section(title, entries, ("any other", "this class"))


def play(
    forecaster: Forecaster | Corrector,
    outcomes: ArrayLike,
    *,
    said: ArrayLike | None = None,
    name: str | None = None,
    norm: Norm | str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Entry:
    """Play a forecaster, or a corrector of what a model said, over outcomes, and note all that a report shows.

    Costs what predict, update and the ledger cost, and a reading of the ledger eight times a decade of rounds.

    Parameters
    ----------
    forecaster
        A fresh one: its rounds are those of the stream.
    outcomes
        One row a round.
    said
        For a corrector, what the model said before each round.
    name
        What it is called; by default the name of its class.
    norm
        What the error is counted in: by default ℓ1 on the simplex, ℓ2 elsewhere.
    progress
        Called now and then with the number of rounds played so far, and at the end.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> entry = play(tc.TreeCal(space, arity=4), np.eye(2)[rng.integers(2, size=1000)])
    >>> entry.made, entry.curve.rounds[-3:], entry.curve.errors[-3:].round(2)
    ('TreeCal(Simplex(2), arity=4)', array([ 575.,  759., 1000.]), array([0.25, 0.24, 0.23]))
    """
    ys, space = finite_array("outcomes", outcomes, ndim=2), forecaster.space
    if forecaster.rounds:
        raise ParameterError(f"the forecaster has played {forecaster.rounds} rounds already, expected a fresh one.")
    if isinstance(forecaster, Corrector) != (said is not None):
        raise ParameterError("a corrector, and nobody else, needs what the model said.", hint="said=, one row a round.")
    given = None if said is None else finite_array("said", said, ndim=2)
    if given is not None and len(given) != len(ys):
        raise ParameterError(f"{len(given)} forecasts came with {len(ys)} outcomes, expected one each.")
    norm = space.default_norm if norm is None else as_norm(norm)
    ledger, marks = Ledger(space), set(checkpoints(len(ys)))
    curve, often = [], max(1, len(ys) // 200)
    for t, (y, b) in enumerate(zip(ys, repeat(None) if given is None else given, strict=False), 1):
        x = forecaster.predict() if isinstance(forecaster, Forecaster) else forecaster.predict(b)
        ledger.record(x, y)
        forecaster.update(y)
        if t in marks:
            curve.append((t, ledger.error(norm)))
        if progress is not None and (t % often == 0 or t == len(ys)):
            progress(t)
    rounds, errors = np.array(curve, dtype=np.float64).reshape(-1, 2).T
    return Entry(
        name=type(forecaster).__name__ if name is None else name,
        ledger=ledger,
        norm=norm,
        curve=Curve(rounds, errors, _bounds(forecaster, norm, rounds)),
        tree=_tree(forecaster, ys),
        made=re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(forecaster)),  # nothing that changes from run to run
    )


def checkpoints(rounds: int) -> list[int]:
    """Return about eight numbers of rounds a decade, up to and with the last.

    Examples
    --------
    >>> checkpoints(20)
    [1, 2, 3, 4, 5, 7, 9, 12, 15, 20]
    """
    if rounds < 2:
        return [1] * rounds
    return sorted({round(mark) for mark in np.geomspace(1, rounds, int(8 * np.log10(rounds)) + 2)})


def _bounds(forecaster: Forecaster | Corrector, norm: Norm, marks: Array) -> Array | None:
    """Return the certified error after each number of rounds, where a certificate covers the forecaster."""
    if isinstance(forecaster, Corrector):
        return None
    try:
        found = [forecaster.certificate(norm, rounds=int(t)) for t in marks]
    except UnsupportedError:  # a set or a norm that no certificate covers
        return None
    bounds = [c.bound for c in found if c is not None]
    return np.array(bounds) if bounds else None


def _tree(forecaster: Forecaster | Corrector, outcomes: Array) -> IntervalTree | None:
    if not isinstance(forecaster, TreeCal | AdaptiveTreeCal) or not isinstance(forecaster.space, Simplex):
        return None
    if forecaster.mix or forecaster.space.dim < 2 or not len(outcomes):
        return None
    return interval_tree(outcomes, arity=forecaster.arity, depth=forecaster.depth, start=forecaster.start)
