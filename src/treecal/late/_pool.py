"""The pool: copies of a certified forecaster or corrector, each of which sees its own rounds in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array
from treecal.correctors import Corrector, Group, GuardedCorrector, announce_valid, learn_valid
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster, Guarded, Sampled, as_measure, largest_error
from treecal.geometry import Norm
from treecal.late._guard import LateGuard, LateSafe
from treecal.measures import Losses
from treecal.theory import Certificate

Thing = Forecaster | Corrector
Front = Forecaster | Corrector | LateGuard
Id = str | int | tuple[str | int, ...]
"""What names a round."""
FINE = 16
"""Numbers of rounds at which a bound is computed: all up to this one, then each greater by this share of it."""


def divided(thing: Thing) -> tuple[Front | None, Thing | None]:
    """Return the part that learns outcomes as they come, and the one that is copied; either may be None.

    Of a `Guarded` the first has the eager part and the guard, and safe parts are copied. Of a `GuardedCorrector` the
    copies share the corrector, and each has its own guard, codebook and safe part: the theorem holds for any rule of
    forecasting under it.
    """
    if not thing.ordered:
        return deepcopy(thing), None
    if type(thing) is GuardedCorrector and thing.corrector is not None:
        inner = thing.corrector
        if not inner.ordered and "scores" in (given := inner.arguments()):
            shared = type(inner)(**deepcopy(given | {"scores": thing.scores}))  # it scores what the copies announce
            return shared, GuardedCorrector(**thing.arguments() | {"corrector": None, "scores": None})
    if type(thing) is Guarded and not thing.eager.ordered:
        return LateGuard(thing), LateSafe(thing)
    return None, deepcopy(thing)


def announce(part: Thing, forecast: Array | None, group: Group) -> Forecast:
    """Return what a part announces; it changes nothing that lasts."""
    if isinstance(part, Corrector):
        assert forecast is not None
        return announce_valid(part, forecast, group)
    return part.predict()


def redrawn(copy: Thing) -> Thing:
    """Return the copy to ask after a void round: `Sampled` promises a fresh draw, which nobody has seen."""
    return copy.redrawn() if isinstance(copy, Sampled) else copy


class Opening(NamedTuple):
    """What is announced when a round opens.

    `inner` is what a copy was asked to correct, if that is not the model's forecast but what a shared corrector made of
    it; `copy` is the copy that announces, with its number.
    """

    forecast: Forecast
    inner: Array | None = None
    number: int | None = None
    copy: Thing | None = None


def ask(front: Front | None, pool: Pool | None, forecast: Array | None, group: Group, leaving: int | None) -> Opening:
    """Return what the parts of a divided thing announce; nothing changes until the pool takes the copy."""
    if pool is None:
        assert front is not None
        assert not isinstance(front, LateGuard)
        return Opening(announce(front, forecast, group))
    number = pool.best(leaving)
    copy = pool.copies[number] if number < len(pool.copies) else pool.new()
    if number == leaving:
        copy = redrawn(copy)
    inner = None
    if isinstance(front, LateGuard):
        assert isinstance(copy, LateSafe)
        copy = copy.announcing(front.offer(partial(pool.open_points, leaving), max(len(pool.copies), number + 1)))
    elif front is not None:
        inner = announce(front, forecast, group).mean
    return Opening(announce(copy, forecast if inner is None else inner, group), inner, number, copy)


class Lesson(NamedTuple):
    """A part, and what lets it learn a round."""

    part: Front
    act: Callable[[], object]


def lessons(
    front: Front | None,
    copy: Thing | None,
    opening: Opening,
    forecast: Array | None,
    outcome: Array,
    group: Group,
    weight: float = 1.0,
) -> list[Lesson]:
    """Return the parts that learn a round; all arguments are valid. A copy knows itself what it announced."""
    found = []
    inner = forecast if opening.inner is None else opening.inner
    if isinstance(front, LateGuard):
        found.append(Lesson(front, partial(front.learn, copy, outcome)))
        front = None
    for part, given, announced in ((front, forecast, opening.forecast), (copy, inner, None)):
        if isinstance(part, Corrector) and given is not None:
            found.append(Lesson(part, partial(learn_valid, part, given, outcome, announced, group, weight)))
        elif part is not None:
            found.append(Lesson(part, partial(part.update, outcome)))
    return found


class Pool:
    """Copies of one thing. A forecast is asked of a free copy, the one with most rounds; if none is free, of a new one.

    So a copy learns each outcome before it forecasts again, and its certificate holds for its own rounds. Most rounds
    first, because a bound on the error per round falls with the rounds.
    """

    def __init__(self, thing: Thing) -> None:
        self.thing = thing
        self.copies: list[Thing] = []
        self.holders: dict[int, Id] = {}  # the round that each busy copy awaits
        self._free: list[tuple[int, int]] = []  # a heap of -rounds and number; those no longer true are skipped

    def new(self) -> Thing:
        """Return a new copy. All copies draw from one random generator, or they would draw alike."""
        return deepcopy(self.thing, {id(rng): rng for rng in _generators(self.thing)})

    def best(self, leaving: int | None) -> int:
        """Return the number of the copy to ask; that of a round about to be void is free, too."""
        while self._free and not self._is_free(*self._free[0]):
            heappop(self._free)
        if leaving is None:
            return self._free[0][1] if self._free else len(self.copies)
        rank = -self.copies[leaving].rounds, leaving
        return min(rank, self._free[0])[1] if self._free else leaving

    def open_points(self, leaving: int | None) -> list[Array]:
        """Return the points of the eager part that await their outcomes, but for a round about to be void."""
        held = (self.copies[number] for number in self.holders if number != leaving)
        return [copy.point for copy in held if isinstance(copy, LateSafe) and copy.point is not None]

    def _is_free(self, negative: int, number: int) -> bool:
        return number not in self.holders and self.copies[number].rounds == -negative

    def take(self, number: int, copy: Thing, holder: Id) -> None:
        """Let a copy await the outcome of a round. Doing it twice does no harm."""
        if number == len(self.copies):
            self.copies.append(copy)
        else:
            self.copies[number] = copy
        self.holders[number] = holder

    def release(self, number: int, *, void: bool = False) -> None:
        """Make a copy free, its round learned or void. Doing it twice does no harm."""
        if void:
            self.copies[number] = redrawn(self.copies[number])
        self.holders.pop(number, None)
        heappush(self._free, (-self.copies[number].rounds, number))

    def certify(self, norm: Norm | str | Losses) -> Certificate | None:
        """Return the bound for the rounds so far, `Σ_c U(n_c)/n`; under a guard with what it may add."""
        learned = sum(copy.rounds for copy in self.copies)
        own = [copy.safe.rounds if isinstance(copy, LateSafe) else copy.rounds for copy in self.copies]
        copies = Counter(rounds for rounds in own if rounds)
        total = 0.0
        why = ""
        if isinstance(self.thing, LateSafe) and learned:
            found = self.thing.certificate(norm, rounds=learned)
            if found is None:
                return None
            total = self.thing.guard.may_err(learned, learned - sum(own), len(self.copies))
            why = found.why
        for rounds, count in copies.items():
            found = _bound(self.thing, as_measure(norm, self.thing.space), rounds)
            if found is None:
                return None
            total += count * rounds * found.bound
            why = found.why
        if not learned:
            raise ParameterError("no round is learned, so there is no error to bound.", hint="pass rounds=.")
        total = min(total, learned * self._worst(as_measure(norm, self.thing.space)))
        return Certificate(total / learned, f"{len(self.copies)} copies: {why}")

    def foresee(self, norm: Norm | str | Losses, rounds: int, outstanding: int) -> Certificate | None:
        """Return the bound for so many rounds, whoever of so many copies gets them.

        The worst division of the rounds is at most `k·Û(rounds/k)`, with `Û` the least concave function above `U`.
        `U` is read at some numbers of rounds and is taken to be non-decreasing, as every guard takes it to be.
        """
        norm = as_measure(norm, self.thing.space)
        copies = min(outstanding, rounds)
        found = _bound(self.thing, norm, rounds)
        if found is None:
            return None
        guard = self.thing.guard.may_err(rounds, 0, copies) if isinstance(self.thing, LateSafe) else 0.0
        if copies == 1:
            return replace(found, bound=min(found.bound + guard / rounds, self._worst(norm)))
        total = guard + self._divided(norm, rounds, copies)
        return Certificate(min(total / rounds, self._worst(norm)), f"{copies} copies: {found.why}")

    def certify_more(
        self, norm: Norm | str | Losses, rounds: int, front: Front | None, outstanding: int = 1
    ) -> Certificate | None:
        """Return the bound for the rounds so far and so many more, if no more are open at once than these or were."""
        norm = as_measure(norm, self.thing.space)
        copies = max(outstanding, len(self.copies))
        every = sum(copy.rounds for copy in self.copies) + rounds
        whole = self.foresee(norm, every, copies)
        if whole is None or not isinstance(front, LateGuard):
            return whole
        safe = rounds + sum(copy.safe.rounds for copy in self.copies if isinstance(copy, LateSafe))
        total = front.may_err(rounds, len(self.open_points(None)), copies) + self._divided(norm, safe, copies)
        return replace(whole, bound=min(whole.bound, total / every))

    def _divided(self, norm: Norm | Losses, rounds: int, copies: int) -> float:
        """Return the most that the total error of so many copies can be whose rounds add up to these."""
        at = [rounds] if copies == 1 else [1]
        while at[-1] < rounds:
            at.append(min(rounds, at[-1] + max(1, at[-1] // FINE)))
        totals = [each.bound * count for count in at if (each := _bound(self.thing, norm, count)) is not None]
        if copies == 1:
            return totals[0]
        # From the number after the last one on, U is at most what it is at this one.
        least = [1.0, *(count + 1.0 for count in at[:-1])]
        hull = np.array(_concave([(0.0, 0.0), *zip(least, np.maximum.accumulate(totals).tolist(), strict=True)]))
        return copies * float(np.interp(rounds / copies, hull[:, 0], hull[:, 1]))

    def _worst(self, norm: Norm | Losses) -> float:
        return largest_error(self.thing.space, norm)


def _bound(thing: Thing, norm: Norm | Losses, rounds: int) -> Certificate | None:
    if isinstance(thing, Forecaster | GuardedCorrector):
        return thing.certificate(norm, rounds=rounds)
    return None


def _concave(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the least concave function above some points, which are in order."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull


def _generators(thing: Any) -> Iterator[np.random.Generator]:
    for value in thing.arguments().values():
        if isinstance(value, np.random.Generator):
            yield value
        elif isinstance(value, Thing):
            yield from _generators(value)
