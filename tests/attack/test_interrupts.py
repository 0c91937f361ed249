"""An interrupt inside `update`, `record` or `observe` leaves the round learned or not, never half of it.

CPython runs signal handlers after a call, at the start of a function and when a loop jumps back: the tracer raises
there, at each such place in turn.
"""

from __future__ import annotations

import copy
import dis
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.attack.subjects import Subject, subjects
from treecal import ledger

HOME = str(Path(tc.__file__).parent)
CHECKS = ("RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "FOR_ITER")


class Interrupt(BaseException):
    """As KeyboardInterrupt."""


class Tracer:
    """Raises at the n-th place in our own code where a signal handler could run."""

    def __init__(self, place: int) -> None:
        self.left = place
        self._names: dict[CodeType, dict[int, str]] = {}

    def call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        names = self._names.get(frame.f_code)
        if names is None:
            names = self._names[frame.f_code] = {i.offset: i.opname for i in dis.get_instructions(frame.f_code)}
        frame.f_trace_opcodes, before = True, "RESUME"

        def step(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
            nonlocal before
            if event == "opcode":
                if before in CHECKS:
                    self.left -= 1
                    if self.left < 0:
                        raise Interrupt
                before = names[frame.f_lasti]
            return step

        return step


def interrupted(act: Callable[[], Any], place: int) -> bool:
    """Run with an interrupt at this place; return whether there was one."""
    old = sys.gettrace()
    sys.settrace(Tracer(place).call)
    try:
        act()
    except Interrupt:
        return True
    finally:
        sys.settrace(old)
    return False


def run(count: int, seed: int, seconds: float = 1e9) -> dict[str, int]:
    """Interrupt `count` calls at random places; return counts."""
    rng, stop = np.random.default_rng(seed), time.monotonic() + seconds
    found = {"tried": 0, "before": 0, "after": 0, "refused": 0, "failures": 0}
    everything = [s for s in subjects() if not s.name.endswith("RecalibratedClassifier")]  # models are not ours
    while found["tried"] < count and time.monotonic() < stop:
        subject = everything[int(rng.integers(len(everything)))]
        _attack(subject, rng, found, min(count, found["tried"] + 20))
    return found


def _attack(subject: Subject, rng: np.random.Generator, found: dict[str, int], until: int) -> None:
    """Interrupt one round at places from its start to its end."""
    played = int(rng.integers(20))
    *past, (given, last) = subject.rounds(rng, played + 1)
    base = subject.make()
    for a, b in past:
        subject.first(base, a)
        subject.last(base, b)
    subject.first(base, given)
    done = copy.deepcopy(base)
    before = subject.state(copy.deepcopy(base))
    subject.last(done, last)
    after = subject.state(done)
    place = int(rng.integers(10))
    while found["tried"] < until:
        trial = copy.deepcopy(base)
        if not interrupted(lambda trial=trial: subject.last(trial, last), place):  # type: ignore[misc]
            return
        found["tried"] += 1
        place += int(rng.integers(1, 25))
        try:
            state = subject.state(trial)
            if state == before:
                subject.first(trial, given)
                subject.last(trial, last)
        except tc.TreeCalError as error:
            found["refused" if "interrupted halfway" in str(error) else "failures"] += 1
            continue
        if state != after and state != before:
            found["failures"] += 1
            print(f"half a round: {subject.name} after {played} rounds, at {place}")
        elif subject.state(trial) != after:
            found["failures"] += 1
            print(f"not usable: {subject.name} after {played} rounds, at {place}")
        found["before" if state == before else "after"] += 1


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_BATCH", 12)  # so that ledgers add up often


def test_interrupts() -> None:
    found = run(200, 0)
    assert not found["failures"], found
    assert min(found["before"], found["after"]) > 0


@pytest.mark.attack
def test_many_interrupts(attack_seed: int, attack_seconds: float) -> None:
    found = run(40_000, attack_seed, attack_seconds)
    print(f"interrupts, seed {attack_seed}: {found}")
    assert not found["failures"], found
