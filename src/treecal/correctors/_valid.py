"""Correctors whose rounds are kept in `treecal.late` or `treecal.serve`: arguments are checked once, there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treecal._typing import Array
from treecal.correctors._base import Corrector
from treecal.correctors._batch import Batch, Group
from treecal.correctors._kept import Opened
from treecal.correctors._scores import Correction, Sums, Tallies
from treecal.forecast import Forecast


def valid_forecast(corrector: Corrector, forecast: Any) -> Array:
    """Return a forecast as the corrector takes it, read-only, or raise."""
    return corrector._read(forecast)


def valid_forecasts(corrector: Corrector, forecasts: Any) -> Array:
    """Return forecasts as the corrector takes them, in read-only rows, or raise."""
    return corrector._read_many(forecasts)


def valid_groups(corrector: Corrector, groups: Any, count: int) -> Sequence[Group]:
    """Return the groups of so many rounds, or raise unless the corrector can learn them."""
    return corrector._checked_groups(groups, count, 1.0) or ()


def check_weight(corrector: Corrector, weight: float) -> None:
    """Raise unless the corrector can learn a round of this weight."""
    corrector._check_given(None, weight)


def announce_valid(corrector: Corrector, forecast: Array, group: Group) -> Forecast:
    """Return what the corrector announces now; no round is opened."""
    with corrector._lock:
        corrector._finish()
        return corrector._announced(forecast, group)


def announce_many_valid(corrector: Corrector, forecasts: Array, groups: Sequence[Group]) -> list[Forecast]:
    """Return what the corrector announces now in place of each forecast; no round is opened."""
    with corrector._lock:
        corrector._finish()
        return corrector._forecasts(forecasts, groups)


def learn_valid(
    corrector: Corrector, forecast: Array, outcome: Array, announced: Forecast | None, group: Group, weight: float
) -> None:
    """Let the corrector learn a round in which it announced this, on its own set; None if it would do so again now."""
    with corrector._lock:
        corrector._finish()
        if announced is None:
            announced = corrector._announced(forecast, group)
        corrector._commit(Opened(corrector._rounds, forecast, group, announced), outcome, weight)


def learn_many_valid(corrector: Corrector, batch: Batch) -> None:
    """Let the corrector learn rounds in order."""
    with corrector._lock:
        corrector._finish()
        corrector._learn_many(batch)


def learns_at_once(corrector: Corrector) -> bool:
    """Return whether many rounds are learned at once: without scores, what was announced in them is not needed."""
    return type(corrector)._played is not Corrector._played


def merged_report(parts: Sequence[Corrector]) -> Correction:
    """Return the scores of all rounds of correctors of one kind: all are sums."""
    tallies = Tallies(parts[0].space)
    sums = tallies.new()
    for part in parts:
        with part._lock:
            part._settle()
            if part._sums is None:
                return part.report()  # which says that none are kept
            own = part._sums
            rounds = sums.rounds + own.rounds
            sums = Sums(rounds, sums.weight + own.weight, sums.totals + own.totals, sums.cells + own.cells)
    return tallies.report(sums)
