"""The loop of every forecaster: predict, record, update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._typing import Integers
from treecal._validate import whole_number
from treecal.correctors import Corrector
from treecal.exceptions import OutcomeError, ParameterError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster
from treecal.geometry import ConvexSet, Simplex
from treecal.ledger import Ledger
from treecal.streams._adversaries import Adversary


def checkpoints(rounds: int) -> Integers:
    """Return ten numbers of rounds a decade, evenly spaced on a logarithmic scale, from 1 on, and `rounds`.

    Examples
    --------
    >>> checkpoints(20)
    array([ 1,  2,  3,  4,  5,  6,  8, 10, 13, 16, 20])
    """
    found: list[int] = []
    mark = 0
    while mark < rounds:
        mark = min(next_checkpoint(mark), rounds)
        found.append(mark)
    return np.array(found, np.int64)


def next_checkpoint(rounds: int) -> int:
    """Return the first of ten numbers a decade that is greater.

    Examples
    --------
    >>> [next_checkpoint(n) for n in (0, 1, 2, 10, 11, 1000)]
    [1, 2, 3, 13, 13, 1259]
    """
    k = 0 if rounds < 1 else max(0, math.floor(10 * math.log10(rounds)) - 1)
    while (mark := round(10 ** (k / 10))) <= rounds:
        k += 1
    return mark


def are_classes(outcomes: NDArray[Any], space: ConvexSet) -> bool:
    """Return whether outcomes are indices of classes."""
    return outcomes.ndim == 1 and outcomes.dtype.kind in "iu" and isinstance(space, Simplex)


def check_classes(outcomes: NDArray[Any], space: ConvexSet) -> None:
    """Raise if an index is not that of a class of the simplex."""
    outside = (outcomes < 0) | (outcomes >= space.dim)
    if outside.any():
        first = int(np.argmax(outside))
        raise OutcomeError.at(first + 1, f"is class {outcomes[first]}, expected 0 to {space.dim - 1}.")


def play(
    forecaster: Forecaster | Corrector,
    stream: ArrayLike | Adversary,
    *,
    rounds: int | None = None,
    forecasts: ArrayLike | None = None,
    ledger: Ledger | None = None,
    at: Iterable[int] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Ledger:
    """Play a forecaster against outcomes or an adversary, and return the ledger of all rounds.

    Parameters
    ----------
    forecaster
        It resumes from the state it is in.
    stream
        Outcomes, one row per round; on a simplex also the index of the class of each round; or an adversary.
    rounds
        How many rounds: by default all outcomes. Required with an adversary.
    forecasts
        For a corrector, the model's forecasts, one row per round.
    ledger
        Where to record the rounds; by default a new one.
    at
        The rounds after which `progress` is called, such as `checkpoints(rounds)`; by default every round.
    progress
        Called with the number of rounds played so far and of all rounds.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import checkpoints, iid
    >>> space, ledger, errors = tc.Simplex(2), tc.Ledger(tc.Simplex(2)), []
    >>> outcomes = iid(space, 100, np.random.default_rng(0))
    >>> def note(played, rounds):
    ...     errors.append(round(ledger.error("l1"), 2))
    >>> play(tc.TreeCal(space), outcomes, ledger=ledger, at=checkpoints(100), progress=note).rounds
    100
    >>> errors[::4]
    [1.0, 0.67, 0.61, 0.47, 0.38]
    """
    if isinstance(stream, Adversary):
        if rounds is None:
            raise ParameterError("an adversary never runs out of outcomes: pass rounds=.")
        count = whole_number("rounds", rounds, least=0)
    elif callable(stream):
        hint = "a class with outcome(self, forecast), derived from treecal.streams.Adversary."
        raise ParameterError.expected("stream", stream, "outcomes or an Adversary", hint=hint)
    else:
        outcomes = np.asarray(stream)[:rounds]
        count = len(outcomes)
        if of_classes := are_classes(outcomes, forecaster.space):
            check_classes(outcomes, forecaster.space)
    if isinstance(forecaster, Corrector) != (forecasts is not None):
        raise ParameterError(
            "correctors need the model's forecasts, and forecasters take none.",
            hint="pass forecasts= to a corrector, one row per round.",
        )
    given = None if forecasts is None else np.asarray(forecasts)[:rounds]
    if given is not None and len(given) != count:
        raise ParameterError(f"forecasts holds {len(given)} forecasts for {count} rounds, expected one each.")
    ledger = Ledger(forecaster.space) if ledger is None else ledger
    marks = None if at is None else set(at)
    predict = cast("Callable[..., Forecast]", forecaster.predict)
    for t in range(count):
        x = predict() if given is None else predict(given[t])
        if isinstance(stream, Adversary):
            y = stream.outcome(x if isinstance(forecaster, Corrector) else forecaster.mixture)
        elif of_classes:
            y = np.zeros(forecaster.space.dim)
            y[outcomes[t]] = 1.0
        else:
            y = outcomes[t]
        ledger.record(x, y)
        forecaster.update(y)
        if progress is not None and (marks is None or t + 1 in marks):
            progress(t + 1, count)
    return ledger
