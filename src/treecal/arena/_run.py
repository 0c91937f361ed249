"""One run of the arena: one forecaster on one stream."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.arena._streams import Fixed, Recorded, Source
from treecal.engine import GuardedRun, Run, can_replay, replay
from treecal.exceptions import TreeCalError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster, Harmonic, harmonic_rows
from treecal.geometry import ConvexSet, Norm
from treecal.ledger import Ledger
from treecal.streams import Adversary, play

Maker = Callable[..., Forecaster]
"""A function from a set, and `rng` if it has such an argument, to a new forecaster."""
Rows = list[dict[str, Any]]

STREAMED = 1_000
"""Rounds that are always played one by one, to measure their time; more only where there is no faster way."""


@dataclass(frozen=True)
class Entry:
    """One forecaster on one stream with one seed."""

    forecaster: str
    stream: str
    space: ConvexSet
    seed: int
    rounds: int
    norms: tuple[Norm, ...]
    marks: tuple[int, ...]

    def rng(self, what: str) -> np.random.Generator:
        """Return a generator: that of the stream is the same for all forecasters."""
        digest = hashlib.sha256(f"{what}/{self.space!r}/{self.seed}".encode()).digest()
        return np.random.default_rng(list(digest))

    def row(self, rounds: int, norm: Norm, **figures: Any) -> dict[str, Any]:
        """Return a row of the table."""
        head = {"forecaster": self.forecaster, "stream": self.stream, "space": repr(self.space), "dim": self.space.dim}
        return head | {"seed": self.seed, "length": self.rounds, "rounds": rounds, "norm": repr(norm)} | figures

    def refusal(self, note: str, *, rounds: int | None = None) -> Rows:
        """Return rows without figures that say why."""
        return [self.row(self.rounds if rounds is None else rounds, norm, note=note) for norm in self.norms]


def draws(make: Maker) -> bool:
    """Return whether the forecaster draws at random: whether its maker has an argument `rng`."""
    try:
        return "rng" in signature(make).parameters
    except ValueError:  # a callable that does not say
        return False


def chance(make: Maker, source: Source) -> bool:
    """Return whether another seed makes another run."""
    return draws(make) or not isinstance(source, Fixed | Recorded)


def made(entry: Entry, make: Maker) -> Forecaster:
    """Return a new forecaster for the run."""
    if draws(make):
        return make(entry.space, rng=entry.rng(f"{entry.forecaster}/{entry.stream}"))
    return make(entry.space)


class TooSlowError(Exception):
    """The run would take longer than allowed."""


class _Timed:
    """A forecaster, the time spent in its predict and update, and the sum of the squares of the outcomes."""

    def __init__(self, forecaster: Forecaster) -> None:
        self._forecaster = forecaster
        self.space = forecaster.space
        self.seconds = 0.0
        self.squares = 0.0

    def predict(self) -> Any:
        return self._timed(self._forecaster.predict)

    def update(self, outcome: Array) -> None:
        self._timed(self._forecaster.update, outcome)
        self.squares += float(outcome @ outcome)

    @property
    def mixture(self) -> Forecast:
        return self._forecaster.mixture

    def _timed(self, act: Callable[..., Any], *given: Array) -> Any:
        begin = time.perf_counter()
        result = act(*given)
        self.seconds += time.perf_counter() - begin
        return result


@dataclass(frozen=True)
class Shared:
    """A stream of one race, known by a token, so that a worker makes outcomes once for several forecasters."""

    token: str
    source: Source = field(compare=False)

    def outcomes(self, entry: Entry) -> Array | Adversary:
        """Return the outcomes of a run, or a new adversary."""
        kept = _outcomes(self, replace(entry, forecaster=""))
        return self._new(entry) if kept is None else kept

    def _new(self, entry: Entry) -> Array | Adversary:
        return self.source(entry.space, entry.rounds, entry.rng(entry.stream))


@lru_cache(maxsize=5)  # the seeds of one stream
def _outcomes(shared: Shared, entry: Entry) -> Array | None:
    made = shared._new(entry)
    return None if isinstance(made, Adversary) else made


def play_entry(entry: Entry, make: Maker, shared: Shared, limit: float | None) -> tuple[Rows, bool]:
    """Play a run; return a row for each mark and norm, and whether it was played to the end.

    A refusal is a row without an error. Those of a run that is stopped say how long it would have taken.
    """
    try:
        forecaster = made(entry, make)
    except TreeCalError as refusal:
        return entry.refusal(str(refusal)), True
    stream = shared.outcomes(entry)
    rows = Rows()
    try:
        for row in _played(entry, forecaster, stream, limit):
            rows.append(row)  # what there is when it is stopped
    except TooSlowError as slow:
        return rows + entry.refusal(str(slow)), False
    return rows, True


def _played(
    entry: Entry, forecaster: Forecaster, stream: Array | Adversary, limit: float | None
) -> Iterator[dict[str, Any]]:
    whole = None if isinstance(stream, Adversary) else at_once(forecaster)
    first = copy(forecaster)  # what is compiled or loaded at first use does not count
    first.update(entry.space.centre)
    first.predict()
    timed = _Timed(forecaster)
    ledger = Ledger(entry.space)
    played = 0
    begin = time.process_time()

    def check(more: int, _: int) -> None:
        spent = time.process_time() - begin
        needed = spent / (played + more) * entry.rounds
        if limit is not None and spent > limit / 10 and needed > limit:
            raise TooSlowError(
                f"too slow: {entry.rounds:,} rounds would take {needed:,.0f} s or more, the limit is {limit:g} s."
            )

    for mark in entry.marks:
        if whole is None or mark <= STREAMED:
            rest = stream if isinstance(stream, Adversary) else stream[played:]
            play(timed, rest, rounds=mark - played, ledger=ledger, progress=check)  # type: ignore[arg-type]
            played = mark
            yield from _read(entry, mark, ledger, timed.squares, timed.seconds)
        else:
            outcomes = np.asarray(stream)[:mark]
            yield from _read(entry, mark, whole(outcomes), float(np.square(outcomes).sum()), None)


def _read(
    entry: Entry, rounds: int, record: Ledger | Run | GuardedRun, squares: float, seconds: float | None
) -> Iterator[dict[str, Any]]:
    reading = record.exact()
    brier = reading.brier(squares)
    for norm in entry.norms:
        yield entry.row(
            rounds,
            norm,
            error=reading.error(norm),
            per_node=record.error(norm, per_node=True),
            brier=brier.score,
            resolution=brier.resolution,
            uncertainty=brier.uncertainty,
            forecasts=len(reading),
            seconds=seconds,
        )


def at_once(forecaster: Forecaster) -> Callable[[Array], Ledger | Run | GuardedRun] | None:
    """Return a function from outcomes to the record of the whole run, where that is faster than round by round."""
    if type(forecaster) is Harmonic:
        start = forecaster.start
        space = forecaster.space

        def convolved(outcomes: Array) -> Ledger:
            # Points that are equal round by round may differ here by roundings, and so count as several.
            points, weights, sums = harmonic_rows(outcomes, start)
            nodes = np.column_stack([np.zeros(len(points), np.int64), np.arange(-1, len(points) - 1)])
            return Ledger.from_rows(space, points, weights, sums, rounds=len(outcomes), nodes=nodes, parts=0)

        return convolved
    if not can_replay(forecaster):
        return None
    fresh = copy(forecaster)
    return lambda outcomes: replay(outcomes, copy(fresh), threads=1)
