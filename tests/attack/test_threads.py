"""One writer and two readers, and two writers: no round is lost, counted twice or mixed with another."""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.attack.subjects import Subject, subjects
from treecal.exceptions import OutcomeError


@pytest.fixture(autouse=True)
def eager_threads() -> Iterator[None]:
    """Switch threads as often as Python can."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(old)


def together(*works: Callable[[], object]) -> list[BaseException]:
    """Run the works in threads that start at once; return what they raised."""
    raised: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def go(work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=go, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def readers_beside_a_writer(subject: Subject, rng: np.random.Generator, count: int) -> list[str]:
    """Return what went wrong: the writer's state must be that of the same rounds alone, and readers must not fail."""
    rounds = subject.rounds(rng, count)
    alone, shared = subject.make(), subject.make()
    for given, last in rounds:
        subject.first(alone, given)
        subject.last(alone, last)
    done = threading.Event()

    def write() -> None:
        try:
            for given, last in rounds:
                subject.first(shared, given)
                subject.last(shared, last)
        finally:
            done.set()

    def read() -> None:
        others = [given for given, _ in rounds]
        for t in range(10**9):
            if done.is_set():
                return
            x = subject.first(shared, others[-1 - t % len(others)])
            if isinstance(x, tc.Forecast):
                assert abs(x.weights.sum() - 1) < 1e-9
                assert x.space is None or x.space.contains(x.points).all()
            if t % 5 == 0:
                subject.state(shared)

    problems = [f"{subject.name}: {error!r}" for error in together(write, read, read)]
    # What a reader asked and got no outcome for is not part of the past.
    for thing in (alone, shared):
        subject.first(thing, rounds[0][0])
    if not problems and _without_draws(subject.state(alone)) != _without_draws(subject.state(shared)):
        problems.append(f"{subject.name}: readers changed the state")
    return problems


def _without_draws(state: Any) -> Any:
    return {k: v for k, v in state.items() if k not in ("drawn", "open")} if isinstance(state, dict) else state


def two_writers(subject: Subject, rng: np.random.Generator, count: int) -> list[str]:
    """Return what went wrong: every round counts once, and the state can go on; what is refused is not counted."""
    shared, halves = subject.make(), (subject.rounds(rng, count), subject.rounds(rng, count))
    learned = [0, 0]

    def write(who: int) -> None:
        for given, last in halves[who]:
            try:
                subject.first(shared, given)
                subject.last(shared, last)
            except OutcomeError:
                continue
            learned[who] += 1

    problems = [f"{subject.name}: {error!r}" for error in together(lambda: write(0), lambda: write(1))]
    if problems or not hasattr(shared, "rounds"):
        return problems
    if isinstance(shared, tc.Bank):
        total, expected = int(shared.rounds.sum()), sum(len(keys) for half in halves for _, (keys, _) in half)
    else:
        total, expected = shared.rounds, sum(learned)
    if total != expected:
        problems.append(f"{subject.name}: {expected} rounds were learned, {total} counted")
    x = subject.first(copy.deepcopy(shared), halves[0][0][0])
    if isinstance(x, tc.Forecast) and not (x.space is None or x.space.contains(x.points).all()):
        problems.append(f"{subject.name}: forecasts outside the set")
    return problems


def run(count: int, seed: int, seconds: float = 1e9) -> dict[str, Any]:
    """Run games of all kinds of things between threads; return counts."""
    rng, stop, problems, played = np.random.default_rng(seed), time.monotonic() + seconds, [], 0
    everything = [s for s in subjects() if not s.name.startswith(("river.", "sklearn."))]  # models are not made for it
    while played < count and time.monotonic() < stop:
        subject = everything[int(rng.integers(len(everything)))]
        game = (readers_beside_a_writer, two_writers)[played % 2]
        problems += game(subject, rng, 14 if "depth" in subject.name else 40)
        played += 1
    for problem in problems:
        print(problem)
    return {"tried": played, "failures": len(problems)}


def test_threads() -> None:
    assert not run(12, 0)["failures"]


def test_two_writers_lose_no_round_of_a_ledger() -> None:
    space = tc.Simplex(3)
    ledger, x = tc.Ledger(space), tc.Forecast(np.eye(3), space=space)

    def write(k: int) -> None:
        for _ in range(3000):
            ledger.record(x, np.eye(3)[k])

    assert not together(
        lambda: write(0), lambda: write(1), lambda: [ledger.error(total=True) for _ in range(20)] and None
    )
    assert ledger.rounds == 6000
    assert ledger.table().weight.sum() == 6000


def test_two_writers_lose_no_round_of_a_forecaster() -> None:
    f = tc.TreeCal(tc.Simplex(2), arity=3)

    def write() -> None:
        for _ in range(5000):
            f.update(np.array([1.0, 0.0]))

    assert not together(write, write)
    assert f.rounds == 10_000
    alone = tc.TreeCal(tc.Simplex(2), arity=3)
    for _ in range(10_000):
        alone.update([1, 0])
    assert f.predict() == alone.predict()


def test_each_thread_closes_its_own_forecast() -> None:
    space = tc.Simplex(2)
    c = tc.Recalibrator(space, groups=lambda b: int(b[0] > 0.5), scores="exact")
    c.predict([0.9, 0.1])
    together(lambda: c.predict([0.2, 0.8]))  # a reader
    c.update([1, 0])
    assert c.ledgers["before"].table().forecast.tolist() == [[0.9, 0.1]]


def test_one_forecast_may_be_closed_by_another_thread() -> None:
    c = tc.Recalibrator(tc.Simplex(2))
    c.predict([0.9, 0.1])
    assert not together(lambda: c.update([1, 0]))
    assert c.rounds == 1
    together(lambda: c.predict([0.9, 0.1]), lambda: c.predict([0.2, 0.8]))
    with pytest.raises(OutcomeError, match="in a thread that made no forecast"):
        c.update([1, 0])
    assert c.rounds == 1


@pytest.mark.attack
def test_many_threads(attack_seed: int, attack_seconds: float) -> None:
    found = run(1000, attack_seed, attack_seconds)
    print(f"threads, seed {attack_seed}: {found}")
    assert not found["failures"], found
