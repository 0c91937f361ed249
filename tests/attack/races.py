"""Calls whose arrays another thread, or another process by shared memory, writes to meanwhile. Run by test_races.

Each race ends with an answer or with a `TreeCalError`; what must not happen is that a kernel follows a key, a class or
a forecast that nobody has checked, out of its arrays. So this runs in a process of its own, which a signal may end.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

import treecal as tc
from treecal.auditing import audit_labels
from treecal.exceptions import TreeCalError

ROWS = 2000
STREAMS = 50
THREE = tc.Simplex(3)
WILD: dict[str, list[float]] = {"i": [2**40, -(2**40), 2**62, -1], "f": [np.nan, -1e300, 1e300, -1.0]}


class Race:
    """A call and the array that is written to while it runs: every other moment it is as it should be."""

    def __init__(self, sound: Any, call: Callable[[Any], object]) -> None:
        self.sound, self.call = np.ascontiguousarray(sound), call


def forecasters(thing: tc.Forecaster, keys: Any, classes: Any) -> Iterator[Race]:
    bank = tc.Bank(thing, streams=STREAMS)
    yield Race(keys, lambda keys: bank.update(keys, classes))
    yield Race(classes, lambda y: bank.update(keys, y))
    yield Race(np.eye(thing.space.dim)[classes], lambda Y: bank.update(keys, Y))
    yield Race(keys, bank.predict)


def correctors(thing: tc.Corrector, keys: Any, classes: Any, P: Any) -> Iterator[Race]:
    bank = tc.Bank(thing, streams=STREAMS)
    yield Race(keys, lambda keys: bank.update(keys, classes, forecasts=P))
    yield Race(P, lambda P: bank.update(keys, classes, forecasts=P))
    yield Race(P, lambda P: bank.predict(keys, forecasts=P))


def banks(rng: np.random.Generator) -> Iterator[Race]:
    keys, classes = rng.integers(STREAMS, size=ROWS), rng.integers(3, size=ROWS)
    P = rng.dirichlet(np.ones(3), ROWS)
    for thing in (tc.TreeCal(THREE), tc.AdaptiveTreeCal(THREE), tc.RunningMean(THREE), tc.BinaryGrid()):
        yield from forecasters(thing, keys, classes % thing.space.dim)
    for corrector in (tc.TemperatureScaling(THREE), tc.Recalibrator(THREE, forget=False)):
        yield from correctors(corrector, keys, classes, P)
    watched = tc.Bank(tc.TemperatureScaling(THREE), streams=STREAMS, scores=True, monitor=tc.Monitor(THREE))
    yield Race(P, lambda P: watched.update(keys, classes, forecasts=P))
    yield Race(np.eye(3)[classes], lambda Y: watched.update(keys, Y, forecasts=P))


def others(rng: np.random.Generator) -> Iterator[Race]:
    classes, P = rng.integers(3, size=ROWS), rng.dirichlet(np.ones(3), ROWS)
    many = rng.integers(3, size=50 * ROWS)
    yield Race(many, lambda y: tc.replay(y, THREE).error("l1"))
    yield Race(many, lambda y: tc.replay(y, tc.TreeCal(THREE, arity=4), threads=2).exact())
    yield Race(many.astype(np.uint8), lambda y: tc.replay(y, tc.AdaptiveTreeCal(THREE)).error("l1", per_node=True))
    yield Race(np.eye(3)[many], lambda Y: tc.replay(Y, THREE).exact())
    yield Race(P, lambda P: tc.Monitor(THREE).update_many(P, classes))
    yield Race(np.eye(3)[classes], lambda Y: tc.Monitor(THREE, arl=100).update_many(P, Y))
    yield Race(P, lambda P: tc.VectorScaling(THREE).update_many(P, classes))
    yield Race(P, lambda P: tc.Recalibrator(THREE).update_many(P, classes))
    yield Race(P, lambda P: tc.audit(P, classes))
    yield Race(classes, lambda y: tc.audit(P, y))
    try:
        from treecal.torch import CalibrationError, Monitor, Recalibrate
    except ImportError:
        return
    metric, monitor, module = CalibrationError(3), Monitor(3), Recalibrate(3, method="temperature")
    for learn in (metric.update, monitor.update, module.observe):
        yield Race(classes, partial(_learn, learn, np.log(P)))
        yield Race(np.log(P), partial(_learn, learn, outcomes=classes))


def things(rng: np.random.Generator) -> Iterator[Race]:
    """What learns keeps no NaN, whoever wrote to the rows and vectors that it was given."""
    classes, P = rng.integers(3, size=200), rng.dirichlet(np.ones(3), 200)
    Y = np.eye(3)[classes]
    for corrector in (tc.AutoCorrector, tc.Multicalibrator, tc.IsotonicCalibration, tc.GuardedCorrector):
        make: Callable[[], Any] = partial(corrector, THREE)
        yield Race(P, _sound(make, lambda c, P: c.update_many(P, classes)))
        yield Race(Y, _sound(make, lambda c, Y: c.update_many(P, Y)))
        yield Race(P, _sound(make, lambda c, P: c.fit(P, classes)))
        yield Race(P[0], _sound(make, lambda c, p: [(c.predict(p), c.update(0)) for _ in range(20)]))
    for forecaster in (tc.Guarded, tc.Harmonic, tc.Tracker, tc.TreeCal):
        yield Race(Y[0], _sound(partial(forecaster, THREE), lambda f, y: [f.update(y) for _ in range(50)]))
    late = partial(tc.Late, tc.VectorScaling(THREE))
    yield Race(P[0], _sound(late, lambda c, p: [c.predict(p, id=str(i)) for i in range(50)]))
    yield Race(P[0], _sound(partial(tc.Monitor, THREE), lambda m, p: [m.update(p, 0) for _ in range(50)]))


def numbers(rng: np.random.Generator) -> Iterator[Race]:
    """Forecasts of a number in all their forms, and labels."""
    space, rows = tc.Cdf(0, 10, points=20), 200
    y, q = rng.uniform(1, 9, rows), np.sort(rng.uniform(1, 9, (rows, 5)), axis=1)
    forms: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "values": (space.steps(y), lambda P: P),
        "quantiles": (q[:, 2], lambda middle: {0.1: q[:, 0] - 1, 0.5: middle, 0.9: q[:, 4] + 1}),
        "members": (q, lambda members: {"members": members}),
        "mean": (q[:, 2], lambda mean: {"mean": mean, "sd": q[:, 0]}),
        "sd": (q[:, 0], lambda sd: {"mean": q[:, 2], "sd": sd}),
    }
    make: Callable[[], Any] = partial(tc.AutoCorrector, space)
    for given, form in forms.values():
        for learner in (make, partial(tc.Monitor, space)):
            yield Race(given, _sound(learner, partial(_learn_laws, form, y)))
    bank = tc.Bank(tc.LocationScale(space), streams=STREAMS)
    keys = rng.integers(STREAMS, size=rows)
    laws: Any = {"mean": y, "sd": q[:, 0]}
    yield Race(keys, lambda keys: bank.update(keys, y, forecasts=laws))
    yield Race(y, _sound(make, lambda c, y: c.update_many(laws, y)))
    p, came = rng.random((rows, 3)), rng.random((rows, 3)) < 0.5
    labels = partial(tc.Labels, ["a", "b", "c"])
    yield Race(p, _sound(labels, lambda found, p: found.update(p, came)))
    yield Race(came * 1.0, _sound(labels, lambda found, came: found.update(p, came)))
    yield Race(p, lambda p: audit_labels(p, came))


def _sound(make: Callable[[], Any], learn: Callable[[Any, Any], object]) -> Callable[[Any], object]:
    """Return a call that learns anew, and sees that no NaN is kept."""

    def call(array: Any) -> None:
        thing = make()
        try:
            learn(thing, array)
        finally:
            assert not holds_nan(thing.get_state()), thing

    return call


def holds_nan(state: Any) -> bool:
    """Return whether there is a NaN in a state."""
    if isinstance(state, dict | list | tuple):
        return any(map(holds_nan, state.values() if isinstance(state, dict) else state))
    return isinstance(state, float | np.ndarray) and np.asarray(state).dtype.kind == "f" and bool(np.isnan(state).any())


def _learn(learn: Callable[[Any, Any], object], logits: Any, outcomes: Any) -> object:
    """Learn from tensors whose memory is that of the arrays."""
    import torch

    return learn(torch.from_numpy(logits), torch.from_numpy(outcomes))


def _learn_laws(form: Callable[[Any], Any], outcomes: Any, thing: Any, given: Any) -> object:
    return thing.update_many(form(given), outcomes)


def spoil(array: Any, sound: Any, stop: Callable[[], bool]) -> None:
    """Write what no check lets through, and what it does, by turns, until it is enough."""
    wild = itertools.cycle(WILD["f" if array.dtype.kind == "f" else "i"])
    flat, places = array.reshape(-1), np.random.default_rng(0).integers(array.size, size=64)
    while not stop():
        with np.errstate(all="ignore"):
            flat[places] = np.array(next(wild)).astype(array.dtype)
        time.sleep(1e-5)
        array[...] = sound
        time.sleep(1e-4)


def _in_process(name: str, sound: Any, done: Any) -> None:
    memory = SharedMemory(name)
    try:
        spoil(np.ndarray(sound.shape, sound.dtype, memory.buf), sound, done.is_set)
    finally:
        memory.close()


@contextmanager
def writer(sound: Any, *, process: bool) -> Iterator[Any]:
    """Yield an array to which a thread, or another process, writes."""
    if not process:
        array, done = sound.copy(), threading.Event()
        thread = threading.Thread(target=spoil, args=(array, sound, done.is_set))
        thread.start()
        try:
            yield array
        finally:
            done.set()
            thread.join()
        return
    context = multiprocessing.get_context("spawn")
    memory, over = SharedMemory(create=True, size=sound.nbytes), context.Event()
    try:
        array = np.ndarray(sound.shape, sound.dtype, memory.buf)
        array[...] = sound
        other = context.Process(target=_in_process, args=(memory.name, sound, over))
        other.start()
        try:
            yield array
        finally:
            over.set()
            other.join()
            del array
    finally:
        memory.close()
        memory.unlink()


def run(count: int, seed: int, seconds: float, *, processes: int = 4) -> dict[str, int]:
    """Run so many races, the last few of them against another process; return how they ended."""
    found = {"races": 0, "answered": 0, "refused": 0}
    stop = time.monotonic() + seconds
    rng = np.random.default_rng(seed)
    kinds = (banks, others, things, numbers)
    races = itertools.chain.from_iterable(kind(rng) for _ in itertools.count() for kind in kinds)
    for number, race in zip(range(count), races, strict=False):
        race.call(race.sound)  # compiled before the race
        with writer(race.sound, process=number >= count - processes) as array:
            for _ in range(10):
                try:
                    race.call(array)
                    found["answered"] += 1
                except TreeCalError:
                    found["refused"] += 1
        found["races"] += 1
        if time.monotonic() > stop:
            break
    return found


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
