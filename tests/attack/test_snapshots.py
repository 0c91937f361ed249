"""Crafted snapshots, with the checksum recomputed: refused, or objects that do no harm. In another process.

Who can forge a checksum can forge numbers that no stream gave: forecasts are then as wrong as they are. But nothing may
crash, hang, or read outside of its arrays; and what is not numbers at all is refused.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load as unpack, save as pack

import treecal as tc
from treecal import state
from treecal.correctors import Cells, Centroids, TopClass
from treecal.exceptions import SnapshotError, TreeCalError
from treecal.testing import check_forecaster, sample_outcomes

MEMORY = 3 * 2**30  # of the address space, most of it libraries
SECONDS = 20  # for one file

# Crafting


def read(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["treecal"]), dict(unpack(content))


def crafted(header: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """A file that is right in all that a checksum can tell."""
    text = json.dumps({**header, "sha256": "0" * 64})
    content = pack({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata={"treecal": text})
    return state._with_digest(content, hashlib.sha256(content).hexdigest().encode())


def used(thing: Any, rng: np.random.Generator, rounds: int) -> Any:
    outcomes, forecasts = (sample_outcomes(thing.space, rounds, rng) for _ in range(2))
    for y, b in zip(outcomes, forecasts, strict=True):
        if isinstance(thing, tc.Ledger):
            thing.record(tc.Forecast([b, y], space=thing.space), y)
        elif isinstance(thing, tc.Bank):
            thing.update([int(rng.integers(len(thing)))], y[None])
        else:
            thing.predict(*[b] * isinstance(thing, tc.Corrector))
            thing.update(y)
    return thing


def examples() -> Iterator[Any]:
    """Yield one of every class and kind that can be saved."""
    spaces = [tc.Simplex(2), tc.Simplex(classes=["a", "b", "c"]), tc.Ball(2, centre=[0.5, 1.0])]
    spaces += [tc.Box([0, -1], [1, 1]), tc.Cdf(0, 1, points=3), tc.Product(tc.Simplex(2), tc.Box(0, 1, dim=1))]
    spaces.append(tc.Polytope(vertices=[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    for space in spaces:
        for kind in tc.forecasters.REGISTRY.values():
            if kind.__module__.startswith("treecal."):
                yield from kind.examples(space)
        yield from (tc.Ledger(space), tc.Bank(tc.TreeCal(space, arity=2), streams=3))
        yield tc.Bank(tc.AdaptiveTreeCal(space, arity=2, depth=5), streams=2)
        yield from (tc.Bank(tc.RunningMean(space), streams=2), tc.Bank(tc.Guarded(space), streams=2))
        for corrector in (tc.Recalibrator, tc.PlattScaling, tc.TemperatureScaling, tc.VectorScaling, tc.Chain):
            yield from corrector.examples(space)
    yield tc.Bank(tc.BinaryGrid(), streams=2)
    yield tc.Recalibrator(tc.Simplex(2), groups=TopClass(bins=3), make="shift")
    yield tc.Chain([tc.PlattScaling(tc.Simplex(2)), tc.Recalibrator(tc.Simplex(2), groups=Centroids(count=3))])


class Saved(NamedTuple):
    thing: Any
    header: dict[str, Any]
    arrays: dict[str, Any]


def saved() -> list[Saved]:
    rng = np.random.default_rng(0)
    things = [used(copy.deepcopy(thing), rng, rounds) for thing in examples() for rounds in (0, 13)]
    return [Saved(thing, *read(state.dumps(thing))) for thing in things]


NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    63,
    64,
    10**3,
    10**6,
    10**9,
    10**12,
    2**31,
    2**62,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    -(2**63),
]
FLOATS = [
    0.0,
    0.5,
    1.0,
    -1.0,
    1e-9,
    1e-300,
    5e-324,
    1e9,
    1e150,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e-17,
]
JUNK: list[Any] = [None, True, False, "", "x", "rain", [], {}, [1], ["a", ["b"]], {"a": 1}, {"class": "TreeCal"}, "0"]
KINDS = [
    "TreeCal",
    "Bank",
    "Ledger",
    "Harmonic",
    "Simplex",
    "Chain",
    "Forecaster",
    "Lp",
    "Product",
    "Nobody",
    "Recalibrator",
]
TAGS: list[Any] = [
    {"float": "nan"},
    {"float": "inf"},
    {"float": "x"},
    {"array": [1.0, 2.0]},
    {"array": [[1.0], [2.0, 3.0]]},
    {"array": "x"},
    {"tuple": [1, 2]},
    {"tuple": 5},
    {"custom": "Disc"},
    {"rng": {"bit_generator": "PCG64", "state": {"state": 0, "inc": 0}, "has_uint32": 0, "uinteger": 0}},
    {"rng": {"bit_generator": "MT19937", "state": {"key": [0] * 624, "pos": 10**6}}},
    {"rng": {"bit_generator": "os"}},
    {"class": "Simplex", "arguments": {"dim": 10**9}},
    {"class": "Simplex", "arguments": {"dim": 2**18}},
    {"class": "Ball", "arguments": {"dim": 10**10}},
    {"class": "Product", "arguments": {"sets": {"tuple": [{"class": "Simplex", "arguments": {"dim": 2**19}}] * 300}}},
    {"class": "Centroids", "arguments": {"count": 10**10}},
    {"class": "TreeCal", "arguments": {"space": {"class": "Simplex", "arguments": {"dim": 2}}, "depth": 10**9}},
]


def places(code: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(code, dict | list):
        for key in code if isinstance(code, dict) else range(len(code)):
            yield from places(code[key], (*path, key))


def nested(draw: random.Random) -> Any:
    code: Any = 1
    for _ in range(draw.choice([5, 30, 150])):
        code = draw.choice([[code], {"tuple": [code]}])
    return code


def mutated_header(header: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    header = copy.deepcopy(header)
    *path, last = draw.choice([place for place in places(header) if place and place != ("sha256",)])
    inner: Any = header
    for key in path:
        inner = inner[key]
    old = inner[last]
    how = draw.randrange(8)
    if how == 0 and isinstance(inner, dict):
        del inner[last]
    elif how == 1 and isinstance(inner, dict):
        inner[draw.choice(["extra", "name", "space", "rounds", "a/b", *inner])] = draw.choice([*JUNK, *NUMBERS])
    elif how == 2:
        inner[last] = draw.choice(JUNK)
    elif how == 3:
        inner[last] = copy.deepcopy(draw.choice(TAGS)) if draw.random() < 0.8 else nested(draw)
    elif how == 4 and isinstance(old, str):
        inner[last] = draw.choice([*KINDS, "l1", "block", "shift", "mean", old[:-1], old * 3])
    elif how == 5 and isinstance(old, int | float) and not isinstance(old, bool):
        inner[last] = draw.choice([old + 1, old - 1, -old, 2 * old, old + 0.5, str(old), float(old)])
    else:
        inner[last] = draw.choice([*NUMBERS, *FLOATS])
    return header


def mutated_arrays(arrays: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    arrays = {name: np.array(array) for name, array in arrays.items()}
    if not arrays:
        return {"extra": np.zeros(3)}
    name = draw.choice(sorted(arrays))
    array, how = arrays[name], draw.randrange(10)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[draw.choice(["extra", "rounds", "sums/x", f"{name}/x", name + "x"])] = array
    elif how == 2:
        kind = draw.choice([np.float32, np.int32, np.uint8, np.bool_, np.float64, np.int64, np.float16])
        arrays[name] = array.astype(kind)
    elif how == 3:
        shape = [*array.shape]
        if shape:
            shape[draw.randrange(len(shape))] = draw.choice([0, 1, 2, 64])
        arrays[name] = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    elif how == 4:
        arrays[name] = draw.choice([array[None], array.reshape(-1), array[..., None], array.T, array.sum()])
    elif array.size:
        at = draw.randrange(array.size)
        values = [0, 1, -1, 2, 3, 100] if array.dtype.kind == "i" else FLOATS
        flat = array.astype(np.float64).reshape(-1) if array.dtype.kind not in "if" else array.reshape(-1)
        with np.errstate(all="ignore"):
            if how == 5:
                flat[at] = draw.choice(values)
            elif how == 6:
                flat[:] = draw.choice(values)
            elif how == 7:
                flat[:] = flat * draw.choice([-1, 2, 3])
            elif how == 8:
                flat[at] = flat[at] + draw.choice([-1, 1, 1000])
            else:
                flat[:] = draw.sample(list(flat), flat.size)
        arrays[name] = flat.reshape(array.shape)
    return arrays


def craft(base: list[Saved], draw: random.Random) -> Saved:
    thing, header, arrays = draw.choice(base)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        if draw.random() < 0.5:
            header = mutated_header(header, draw)
        else:
            arrays = mutated_arrays(arrays, draw)
    if draw.random() < 0.05:  # the state of another object
        arrays = draw.choice(base).arrays
    return Saved(thing, header, arrays)


# What a loaded object must do


def check_forecast(x: tc.Forecast, space: tc.ConvexSet) -> None:
    assert x.points.shape == (len(x.weights), space.dim)


def exercise(thing: Any) -> None:
    """Play some rounds."""
    space, before = thing.space, copy.copy(thing.rounds)
    y, *rounds = sample_outcomes(space, 4, np.random.default_rng(0))
    if isinstance(thing, tc.Ledger):
        thing.record(y, rounds[0])
        errors = thing.error("l1"), thing.error("l2", per_node=True), thing.binned(resolution=0.1).error("l2")
        assert thing.rounds == before + 1
        assert all(0 <= error <= (1 + 1e-5) * space.diameter("l1") + 1e-5 for error in errors), errors
        return
    try:
        for b in rounds:
            if isinstance(thing, tc.Bank):
                for x in thing.predict():
                    check_forecast(x, space)
                thing.update(np.arange(len(thing)), np.tile(y, (len(thing), 1)))
            else:
                check_forecast(thing.predict(*[b] * isinstance(thing, tc.Corrector)), space)
                thing.update(y)
    except tc.exceptions.HorizonError:
        return
    assert np.array_equal(thing.rounds, before + 3)
    if isinstance(thing, tc.Corrector) and thing.scores:
        thing.report()
    state.loads(state.dumps(thing))  # and what was loaded can be saved and loaded


def outcome(content: bytes) -> str:
    try:
        thing = state.loads(content)
    except SnapshotError:
        return "refused"
    except BaseException as error:  # anything else is a failure, and named
        return f"raised at load: {type(error).__name__}: {error}"
    try:
        with np.errstate(all="ignore"):
            exercise(thing)
    except (TreeCalError, ArithmeticError, ValueError):  # as numbers fail that are infinite, or no matrix of a kind
        return "works"
    except BaseException as error:
        return f"{thing!r:.200} failed in use: {type(error).__name__}: {str(error)[:200]}"
    return "works"


def misused(thing: Any, header: dict[str, Any], arrays: dict[str, Any]) -> str | None:
    """Give the state by hand to one that is in use; return what is wrong then."""
    try:
        given = state._nested(copy.deepcopy(header["state"]), arrays)
    except Exception:  # not a dictionary of names
        return None
    thing = copy.deepcopy(thing)
    before = plain(thing.get_state())
    try:
        thing.set_state(given)
    except TreeCalError:
        return None if plain(thing.get_state()) == before else f"{thing!r:.200}: a state that was refused changed it"
    except BaseException as error:
        return f"{thing!r:.200}: set_state raised {type(error).__name__}: {str(error)[:200]}"
    return None


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def child(count: int, seed: int, seconds: float) -> None:
    """Load crafted files, one after the other; say of each what became of it."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    base, draw, end = saved(), random.Random(seed), time.monotonic() + seconds
    tc.Bank(tc.AdaptiveTreeCal(tc.Simplex(2)), streams=1).update([0], [[1.0, 0.0]])  # compiled before memory is short
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in range(count):
        if time.monotonic() > end:
            break
        thing, header, arrays = craft(base, draw)
        signal.alarm(SECONDS)  # without a handler: also a kernel that is deaf to Ctrl-C dies of it
        found = outcome(crafted(header, arrays))
        found = misused(thing, header, arrays) or found
        signal.alarm(0)
        print(json.dumps([number, found]), flush=True)


def run(count: int, seed: int, seconds: float = 600.0) -> Counter[str]:
    """Craft and load so many files; return how often each thing happened. What fails is printed."""
    command = [
        sys.executable,
        "-c",
        f"from tests.attack.test_snapshots import child; child({count}, {seed}, {seconds})",
    ]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    counts: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        number, found = json.loads(line)
        counts[found if found in ("refused", "works") else "failures"] += 1
        if found not in ("refused", "works"):
            print(f"seed {seed}, file {number}: {found}")
    if done.returncode:
        counts["failures"] += 1
        print(f"seed {seed}: the process died of {done.returncode} after {counts.total()} files\n{done.stderr[-2000:]}")
    return counts


def test_crafted_snapshots_are_refused_or_work() -> None:
    counts = run(75, seed=1)
    assert counts["failures"] == 0
    assert counts["refused"] + counts["works"] == 75
    assert min(counts["refused"], counts["works"]) > 10


@pytest.mark.attack
def test_ten_thousand_crafted_snapshots(attack_seed: int, attack_seconds: float, capsys: Any) -> None:
    counts = run(10_000, attack_seed, attack_seconds)
    with capsys.disabled():
        tried = counts.total()
        print(
            f"\ncrafted snapshots, seed {attack_seed}: {tried} tried, {counts['refused']} refused, "
            f"{counts['works']} work, {counts['failures']} failures"
        )
    assert counts["failures"] == 0
    assert tried


# One by one


def bank_header(**arguments: Any) -> dict[str, Any]:
    space = {"class": "Simplex", "arguments": {"dim": 3}}
    tree = {"class": "TreeCal", "arguments": {"space": space, "arity": 8, "depth": None, "mix": 0.0, **arguments}}
    return {"class": "Bank", "arguments": {"thing": tree}, "state": {}, "version": 2}


def test_sums_of_one_stream_for_sixty_four_are_refused() -> None:
    """They once let kernels read and write foreign memory."""
    arrays = {"rounds": np.full(64, 1), "sums": np.zeros((1, 1, 3))}
    with pytest.raises(
        SnapshotError, match=r"sums is float64 of shape \(1, 1, 3\), expected float64 of shape \(64, 1, 3\)"
    ):
        state.loads(crafted(bank_header(), arrays))
    bank = tc.Bank(tc.TreeCal(tc.Simplex(3)), streams=2)
    with pytest.raises(SnapshotError, match=r"expected float64 of shape \(64, 1, 3\)"):
        bank.set_state(arrays)
    assert len(bank) == 2


@pytest.mark.parametrize("rounds", [-1, -(2**63), 2**63 - 1, 2**62 + 1])
def test_rounds_that_no_stream_has_are_refused(rounds: int) -> None:
    """They once made the next update loop for ever, deaf to Ctrl-C."""
    arrays = {"rounds": np.array([rounds]), "sums": np.zeros((1, 1, 3))}
    with pytest.raises(SnapshotError, match=r"rounds are .*, expected 0 to"):
        state.loads(crafted(bank_header(), arrays))
    with pytest.raises(SnapshotError, match="rounds are"):
        tc.TreeCal(tc.Simplex(3)).set_state(arrays)


@pytest.mark.parametrize("version", [0, -1, 0.5, 2.0, True, None, "2", [2], 10**4000, 3])
def test_only_our_version_is_read(version: Any) -> None:
    header = {**bank_header(), "version": version}
    content = crafted(header, {"rounds": np.array([0]), "sums": np.zeros((1, 1, 3))})
    with pytest.raises(SnapshotError, match="and this treecal reads version 2"):
        state.loads(content)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [70, 900, 100_000])
def test_nesting_is_bounded(opening: str, depth: int) -> None:
    text = json.dumps({**bank_header(), "sha256": "0" * 64, "state": "HERE"})
    deep = opening * depth + "1" + {"[": "]", '{"a":': "}"}[opening] * depth
    content = pack({"rounds": np.array([0])}, metadata={"treecal": text.replace('"HERE"', deep)})
    content = state._with_digest(content, hashlib.sha256(content).hexdigest().encode())
    with pytest.raises(SnapshotError):
        state.loads(content)


SIMPLEX = {"class": "Simplex", "arguments": {"dim": 2**20 - 1}}
TWO = {"class": "Simplex", "arguments": {"dim": 2}}
LARGE: list[tuple[str, dict[str, Any]]] = [
    ("Ledger", {"space": {"class": "Simplex", "arguments": {"dim": 10**11}}}),
    ("Ledger", {"space": {"class": "Ball", "arguments": {"dim": 10**11}}}),
    ("Ledger", {"space": {"class": "Product", "arguments": {"sets": {"tuple": [SIMPLEX] * 50}}}}),
    ("TreeCal", {"space": SIMPLEX, "arity": 2, "depth": 60}),
    ("TreeCal", {"space": TWO, "depth": 10**12}),
    ("TreeCal", {"space": TWO, "arity": 10**18, "depth": 10**9}),
    ("Harmonic", {"space": SIMPLEX}),
    ("VectorScaling", {"space": {"class": "Simplex", "arguments": {"dim": 10**5}}}),
    ("BinaryGrid", {"space": TWO, "bins": 10**11}),
    ("SimplexGrid", {"space": {"class": "Simplex", "arguments": {"dim": 10**5}}, "resolution": 10**5}),
    ("SimplexGrid", {"space": {"class": "Simplex", "arguments": {"dim": 9999}}, "resolution": 1}),
    ("SimplexGrid", {"space": {"class": "Simplex", "arguments": {"dim": 5}}, "resolution": 10**18}),
    ("Recalibrator", {"space": TWO, "groups": {"class": "Centroids", "arguments": {"count": 10**11}}}),
    ("SampleTreeCal", {"space": TWO, "block": 10**400}),
]


@pytest.mark.parametrize(("kind", "arguments"), LARGE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_small_file_takes_little_memory(kind: str, arguments: dict[str, Any]) -> None:
    header = {"class": kind, "arguments": arguments, "state": {}, "version": 2}
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError):
            state.loads(crafted(header, {"rounds": np.array([0])}))
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("MT19937", {"pos": 625}),
        ("MT19937", {"pos": -1}),
        ("MT19937", {"key": [0] * 624}),
        ("MT19937", {"key": [5] + [0] * 623}),
        ("MT19937", {"key": [2**32] * 624}),
        ("MT19937", {"key": [1]}),
        ("PCG64", {"inc": 0, "state": 0}),
        ("PCG64", {"inc": 2**128 + 1}),
        ("PCG64DXSM", {"inc": -1}),
        ("Philox", {"counter": [1, 2, 3]}),
        ("Philox", {"buffer_pos": -1}),
        ("Philox", {"buffer_pos": 9}),
        ("SFC64", {"uinteger": 2**32}),
        ("SFC64", {"state": None}),
    ],
)
def test_generators_that_read_foreign_memory_or_are_stuck_are_refused(kind: str, change: dict[str, Any]) -> None:
    """NumPy does not check their states: a place beyond the buffer is read, and a stuck one never finishes a draw."""
    f = used(
        tc.SampleTreeCal(tc.Simplex(3), rng=np.random.Generator(getattr(np.random, kind)(3))),
        np.random.default_rng(0),
        20,
    )
    before = plain(f.get_state())
    given = f.get_state()
    inner = given["rng"] if given["rng"].keys() & change.keys() and kind != "PCG64" else given["rng"]["state"]
    inner.update(change)
    with pytest.raises(SnapshotError, match="random generator is not one of"):
        f.set_state(given)
    assert plain(f.get_state()) == before
    header, arrays = read(state.dumps(f))
    header["arguments"]["rng"]["rng"] = given["rng"]
    with pytest.raises(SnapshotError, match="random generator is not one of"):
        state.loads(crafted(header, arrays))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cells(width=1e-300),
        lambda: tc.Recalibrator(tc.Simplex(2), prior=1e308),
        lambda: tc.SampleTreeCal(tc.Simplex(2), block=10**30),
        lambda: tc.TreeCal(tc.Simplex(2), depth=10**12),
        lambda: tc.SimplexGrid(tc.Simplex(10**5), resolution=10**5),
    ],
)
def test_arguments_beyond_all_arithmetic_are_refused_at_once(make: Any) -> None:
    with pytest.raises(tc.exceptions.ParameterError):
        make()


def test_what_a_rule_of_groups_hands_out_never_changes() -> None:
    groups = Centroids(count=2).fresh(tc.Simplex(2))
    groups.learn(np.array([0.2, 0.8]))
    held = groups.get_state()
    groups.learn(np.array([0.9, 0.1]))
    assert held["met"].tolist() == [1, 0]
    with pytest.raises(SnapshotError, match="counted in whole numbers, the first ones first"):
        groups.set_state({"sums": held["sums"][::-1], "met": held["met"][::-1]})
    assert groups.get_state()["met"].tolist() == [1, 1]


def test_a_resumed_forecaster_draws_the_same() -> None:
    f = tc.Sampled(tc.AdaptiveTreeCal(tc.Simplex(3)), block=2, rng=np.random.default_rng(5))
    used(f, np.random.default_rng(0), 9)
    again = tc.Sampled(tc.AdaptiveTreeCal(tc.Simplex(3)), block=2, rng=np.random.default_rng(77))
    again.set_state(f.get_state())
    for y in np.eye(3)[[0, 1, 2, 1, 1, 0] * 20]:
        assert again.predict() == f.predict()
        for each in (f, again):
            each.update(y)


def test_a_draw_that_is_none_of_the_points_is_refused() -> None:
    f = used(tc.SampleTreeCal(tc.Simplex(2), arity=2, block=2), np.random.default_rng(0), 9)
    points = len(f.mixture)
    f.set_state(f.get_state() | {"drawn": points - 1})
    before = plain(f.get_state())
    with pytest.raises(SnapshotError, match="the draw is"):
        f.set_state(f.get_state() | {"drawn": points})
    assert plain(f.get_state()) == before


@pytest.mark.parametrize("last", [None, 1.0, True, -1, 2, "1"])
def test_the_last_class_is_a_class(last: Any) -> None:
    f = used(tc.Tracker(tc.Simplex(2)), np.random.default_rng(0), 5)
    with pytest.raises(SnapshotError):
        f.set_state(f.get_state() | {"last": last})


def test_states_are_equal_when_their_arrays_are() -> None:
    for kind in tc.forecasters.REGISTRY.values():
        for f in kind.examples(tc.Simplex(2)):
            if not hasattr(f, "_state"):  # its state is that of its parts
                continue
            again = copy.deepcopy(f)
            assert f._state == again._state
            used(again, np.random.default_rng(0), 5)
            assert f._state != again._state
            assert f._state != 3
    one, other = tc.PlattScaling(tc.Simplex(2)), tc.PlattScaling(tc.Simplex(2))
    assert one._state == other._state


def test_a_users_class_may_have_the_name_of_one_of_ours() -> None:
    registry = tc.forecasters.REGISTRY
    mine = type("TreeCal", (tc.RunningMean,), {"name": "my-tree", "__module__": __name__})
    try:
        for f in (tc.TreeCal(tc.Simplex(2)), mine(tc.Simplex(2)), tc.Sampled(mine(tc.Simplex(2)), block=2)):
            used(f, np.random.default_rng(0), 5)
            again = state.loads(state.dumps(f))
            assert type(again) is type(f)
            assert again.predict() == f.predict()
            assert state.describe(again) == state.describe(f)
        assert state.describe(mine(tc.Simplex(2))) != state.describe(tc.TreeCal(tc.Simplex(2)))
    finally:
        del registry["my-tree"]


@dataclass
class Loose:
    """As a user would write it: numbers that start whole, and what is not there yet."""

    rounds: int = 0
    score: float = 0
    last: Any = None
    seen: dict[str, int] = field(default_factory=dict)


def test_users_classes_need_no_code_for_states_and_parts() -> None:
    space, registry = tc.Simplex(2), tc.forecasters.REGISTRY

    class Own(tc.Forecaster):
        name = "own-in-an-attack"

        def __init__(self, space: tc.ConvexSet) -> None:
            super().__init__(space)
            self._state = Loose()

        def _announce(self) -> tc.Forecast:
            return tc.Forecast([self.space.centre if self._state.last is None else self._state.last], space=self.space)

        def _learn(self, outcome: Any) -> None:
            past = self._state
            key = str(outcome.argmax())
            seen = past.seen | {key: past.seen.get(key, 0) + 1}
            self._state = Loose(past.rounds + 1, past.score + 0.5, outcome.copy(), seen)

    class Both(tc.Forecaster):
        """A forecaster of two others."""

        name = "both-in-an-attack"
        _fields = ("first", "second")
        _parts = ("first", "second")

        def __init__(self, first: tc.Forecaster, second: tc.Forecaster) -> None:
            super().__init__(first.space)
            self.first, self.second, self._state = copy.deepcopy(first), copy.deepcopy(second), Loose()

        def _announce(self) -> tc.Forecast:
            points = [self.first.predict().mean, self.second.predict().mean]
            return tc.Forecast(points, space=self.space)

        def _learn(self, outcome: Any) -> None:
            self.first.update(outcome)
            self.second.update(outcome)
            self._state = Loose(self.rounds + 1)

    try:
        check_forecaster(lambda: Own(space))
        check_forecaster(lambda: Both(tc.TreeCal(space, arity=2), Both(tc.Sampled(Own(space)), tc.Harmonic(space))))
        f = used(Both(tc.TreeCal(space, arity=2), tc.RunningMean(space)), np.random.default_rng(0), 5)
        before = plain(f.get_state())
        for part, key in (("first", "sums"), ("second", "lost")):
            bad = f.get_state()
            bad[part][key] *= np.nan
            with pytest.raises(SnapshotError, match="not finite"):
                f.set_state(bad)
            assert plain(f.get_state()) == before  # neither part
    finally:
        for name in ("own-in-an-attack", "both-in-an-attack"):
            registry.pop(name, None)
