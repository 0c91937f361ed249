"""Random calls with valid and invalid input: what is refused is refused by a `TreeCalError` and changes nothing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.attack.subjects import Subject, subjects
from treecal.exceptions import HorizonError
from treecal.testing import bad_outcomes

_HUGE = [1e300, -1e300, 1e160, np.finfo(np.float64).max, 2.0**70]


def invalid(rng: np.random.Generator, dim: int) -> Any:
    """Return something that is not a point of any of the sets, or is by chance."""
    match int(rng.integers(12)):
        case 0:
            return rng.normal(size=dim) * 3
        case 1:
            return np.full(dim, rng.choice(_HUGE))
        case 2:
            return rng.normal(size=int(rng.integers(0, 7)))
        case 3:
            return rng.normal(size=(int(rng.integers(0, 3)), dim))
    kinds = _fixed(dim)
    return kinds[int(rng.integers(len(kinds)))]


@cache
def _fixed(dim: int) -> list[Any]:
    return [
        *bad_outcomes(tc.Box(-1, 1, dim=dim)).values(),
        np.full(dim, np.nan),
        [float("inf")] * dim,
        np.array(["a"] * dim),
        np.zeros(dim, dtype="datetime64[s]"),
        np.zeros(dim, dtype=bool),
        np.zeros(dim, dtype=object),
        [[1.0]] * dim,
        -1,
        10**30,
        True,
        object(),
        set(),
        iter([1.0]),
        lambda: 0,
        {"a": 1},
        np.float32(0.5),
        np.ma.masked,
        slice(0, 1),
        type,
    ]


def spoiled(rng: np.random.Generator, given: Any, dim: int) -> Any:
    """Return the input of a call with a part of it spoiled."""
    if not isinstance(given, tuple):
        return invalid(rng, dim)
    parts = list(given)
    parts[int(rng.integers(len(parts)))] = invalid(rng, dim)
    return tuple(parts)


def run(count: int, seed: int, seconds: float = 1e9) -> dict[str, int]:
    """Make `count` calls; return counts."""
    rng, stop = np.random.default_rng(seed), time.monotonic() + seconds
    found = {"tried": 0, "refused": 0, "failures": 0}
    everything = subjects()
    while found["tried"] < count and time.monotonic() < stop:
        _attack(everything[int(rng.integers(len(everything)))], rng, found)
    return found


def _attack(subject: Subject, rng: np.random.Generator, found: dict[str, int]) -> None:
    """Mix invalid calls into some rounds: refused, they change nothing; valid by chance, a twin makes them too."""
    thing, twin = subject.make(), subject.make()
    dim = thing.space.dim if hasattr(thing, "space") else 2
    for given, last in subject.rounds(rng, 12):
        before = subject.state(thing)
        for _ in range(int(rng.integers(3, 12))):
            first = given is not None and bool(rng.random() < 0.3)
            call = subject.first if first else subject.last
            bad = invalid(rng, dim) if first else spoiled(rng, last, dim)
            found["tried"] += 1
            problem = _refusal(call, thing, bad)
            if problem and subject.name.startswith("sklearn."):
                problem = ""  # what scikit-learn says of its own input is its own
            if problem is None:
                call(twin, bad)
                before = subject.state(thing)
                continue
            found["refused"] += 1
            if problem:
                found["failures"] += 1
                print(f"{subject.name}: {bad!r} raised {problem}")
            if subject.state(thing) != before:
                found["failures"] += 1
                print(f"{subject.name}: {bad!r} changed the state")
                return
        try:
            for each in (thing, twin):
                subject.first(each, given)
                subject.last(each, last)
        except HorizonError:  # invalid calls that were valid have filled the tree
            return
    if subject.state(thing) != subject.state(twin):
        found["failures"] += 1
        print(f"{subject.name}: refused calls changed what came later")


def _refusal(call: Callable[[Any, Any], Any], thing: Any, bad: Any) -> str | None:
    """Return None if the call is accepted, "" if it is refused as it should be, or else what it raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(thing, bad)
    except tc.TreeCalError:
        return ""
    except TypeError as error:  # where Python itself says so: a call with `*arguments` that are not
        return "" if "argument" in str(error) or "mapping" in str(error) else repr(error)
    except Exception as error:
        return repr(error)
    return None


def test_calls() -> None:
    found = run(1000, 0)
    assert not found["failures"], found
    assert found["refused"] > 500


@pytest.mark.parametrize("ridge", [1e-320, 1e-15, 0.0, float("nan")])
def test_a_ridge_or_rate_too_small_for_floats_is_refused(ridge: float) -> None:
    with pytest.raises(tc.TreeCalError, match="ridge"):
        tc.PlattScaling(tc.Simplex(2), ridge=ridge)
    with pytest.raises(tc.TreeCalError, match="rate"):
        tc.PlattScaling(tc.Simplex(2), rate=ridge)


def test_the_least_ridge_and_rate_never_give_nan() -> None:
    space, rng = tc.Simplex(3), np.random.default_rng(0)
    for kind in (tc.VectorScaling, tc.TemperatureScaling):
        f = kind(space, ridge=1e-9, rate=1e-9, radius=1e9, scores=None)
        for y in np.eye(3)[rng.integers(3, size=300)]:
            b = rng.dirichlet([0.01, 0.01, 0.01])
            x = f.predict(np.where(rng.random() < 0.3, [1.0, 0, 0], b / b.sum()))
            assert np.isfinite(x.points).all()
            f.update(y)


@pytest.mark.parametrize("make", [lambda: tc.TreeCal(tc.Simplex(2)), lambda: tc.Harmonic(tc.Simplex(2))])
def test_nobody_can_make_a_forecast_writable(make: Any) -> None:
    f = make()
    for y in ([1, 0], [0, 1], [1, 0]):
        f.update(y)
    x = f.predict()
    with pytest.raises(ValueError, match="WRITEABLE"):
        x.points.setflags(write=True)
    other = make().predict()
    before = other.weights.copy()
    weights = x.weights  # its own, so that what other libraries write to it reaches nobody
    weights.setflags(write=True)
    weights *= 0.5
    assert (other.weights == before).all()
    assert make().predict().weights.sum() == 1
    g = make()
    for y in ([1, 0], [0, 1], [1, 0]):
        g.update(y)
    assert g.predict().weights.sum() == pytest.approx(1)


@pytest.mark.attack
def test_many_calls(attack_seed: int, attack_seconds: float) -> None:
    found = run(1_000_000, attack_seed, attack_seconds)
    print(f"calls, seed {attack_seed}: {found}")
    assert not found["failures"], found
