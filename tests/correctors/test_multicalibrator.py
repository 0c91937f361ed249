"""Multicalibrator: its bound against adversaries, its forecast against the definition, and overlapping groups."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import treecal as tc
from tests.correctors.models import some_rounds
from treecal._typing import Array
from treecal.correctors import multicalibration_bound
from treecal.correctors._multicalibrator import FLOOR, STEP, balance
from treecal.exceptions import ParameterError, SnapshotError
from treecal.state import dumps, loads
from treecal.streams import new_york_flights_model

NAMES = ("JFK", "LGA", "winter", 7, ("nested", 1))
few = st.floats(-3, 3).map(lambda x: round(x, 1))  # so that ties and zeros are met


@given(st.lists(st.tuples(few, few), min_size=1, max_size=6), st.sampled_from([1e-9, 1.0, 1e9]))
def test_no_outcome_is_favoured(pairs: list[tuple[float, float]], scale: float) -> None:
    height, curve = np.array(pairs).T * scale
    p = balance(height, curve)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-12)
    h = height - curve * p
    assert h.max() - h @ p <= 1e-9 * scale  # ⟨h, y − p⟩ is greatest at a vertex


@given(st.integers(2, 6), st.integers(0, 99))
def test_with_equal_curves_it_is_a_projection(dim: int, seed: int) -> None:
    point = np.random.default_rng(seed).normal(size=dim)
    assert_allclose(balance(3.0 * point, np.full(dim, 3.0)), tc.Simplex(dim).project(point), atol=1e-12)


Round = tuple[Array, Array, Array, Any]
"""The model's forecast, the one announced, what is learned as the outcome, and the groups."""


def literal(past: list[Round], b: Array, group: Any) -> Array:
    """Return the forecast from the definition, with every sum added up anew."""
    height, curve = b.copy(), np.ones(len(b))
    for name in {None, *group}:
        for k in range(len(b)):
            terms = [(y - p)[k] * np.array([1, p[k], c[k]]) for c, p, y, its in past if name in {None, *its}]
            S, V = (np.sum([v**e for v in terms] or [np.zeros(3)], axis=0) for e in (1, 2))
            alpha, beta, gamma = S * STEP / np.sqrt(1 + V)
            height[k] += alpha + gamma * b[k]
            curve[k] -= beta
    part = min(FLOOR, 1 / math.sqrt(1 + len(past)))
    return part * b + (1 - part) * balance(height - curve * part * b, (1 - part) * curve)


def learned(p: Array, b: Array, y: Array, rounds: float) -> Array:
    """Return what is learned as the outcome: the floors' share of it goes to the classes that are held there."""
    floors = min(FLOOR, 1 / math.sqrt(1 + rounds)) * b
    held = np.where(p <= floors * (1 + 1e-12), floors, 0.0)
    return np.asarray(y + held - held.sum() * y)


def against_the_mean(f: tc.Multicalibrator, b: Array, p: Array, group: Any) -> int:
    return int(p.argmin())


def against_a_group(f: tc.Multicalibrator, b: Array, p: Array, group: Any) -> int:
    """Return the class that its first group has seen too often already."""
    name = group[0] if group else None
    if name not in f.groups:
        return 0
    return int((f._tested.read()[name].sums[0] - p).argmax())


def what_is_held(f: tc.Multicalibrator, b: Array, p: Array, group: Any) -> int:
    """Return the class of which least is announced, beside the model's probability: one at its floor, if any is."""
    return int((p / np.maximum(b, 1e-300)).argmin())


ADVERSARIES: dict[str, Callable[..., int] | None] = {
    "random": None,
    "against the mean": against_the_mean,
    "against a group": against_a_group,
    "what is held": what_is_held,
}


@pytest.mark.parametrize("adversary", ADVERSARIES.values(), ids=ADVERSARIES)
@settings(max_examples=25, deadline=None)
@given(
    dim=st.integers(2, 4),
    groups=st.lists(st.lists(st.sampled_from(NAMES), max_size=3).map(tuple), min_size=1, max_size=40),
    model=st.sampled_from(["drawn", "sure", "uniform"]),
    heavy=st.booleans(),
    seed=st.integers(0, 999),
)
def test_every_group_is_within_its_bound(
    adversary: Any, dim: int, groups: list[Any], model: str, heavy: bool, seed: int
) -> None:
    rng, f = np.random.default_rng(seed), tc.Multicalibrator(tc.Simplex(dim))
    weights: list[float] = []
    past: list[Round] = []
    played: list[Round] = []
    held = 0.0
    for group in groups:
        b = {"drawn": rng.dirichlet(np.ones(dim)), "sure": np.eye(dim)[0], "uniform": np.full(dim, 1 / dim)}[model]
        p = f.predict(b, group=group).mean
        if not heavy:
            assert_allclose(p, literal(past, b, group), atol=1e-7)
        y = np.eye(dim)[rng.integers(dim) if adversary is None else adversary(f, b, p, group)]
        assert p @ y >= min(FLOOR, 1 / math.sqrt(1 + sum(weights))) * (b @ y)  # the log score is bounded, too
        seen = learned(p, b, y, sum(weights))
        weights.append(float(rng.choice([0.1, 1.0, 20.0])) if heavy else 1.0)
        f.update(y, weight=weights[-1])
        held += weights[-1] * float(np.abs(y - seen).max())
        past.append((b, p, seen, group))
        played.append((b, p, y, group))
    met = {None, *(name for group in groups for name in group)}
    assert set(f.groups) == met
    for name in met:
        own = [(w, y - p) for w, (_, p, y, group) in zip(weights, played, strict=True) if name is None or name in group]
        error = np.abs(np.sum([w * e for w, e in own], axis=0)).sum() / sum(w for w, _ in own)
        assert f.error(name) == pytest.approx(error, abs=1e-9)
        assert error <= f.bound(name) + 1e-9
        if not heavy:
            most = max(len(set(group)) for group in groups)
            args = {"classes": dim, "groups": len(met) - 1, "each": most}
            assert f.bound(name) <= multicalibration_bound(len(groups), **args, size=len(own)) + 1e-9
    gains = [w * (((y - p) ** 2).sum() - ((y - b) ** 2).sum()) for w, (b, p, y, _) in zip(weights, played, strict=True)]
    assert sum(gains) <= 2 * f._spent + 2 * held + 1e-9  # no worse than the model by more


def test_no_class_is_excluded_that_the_model_allows() -> None:
    """A class that is rare in a group was given 0 there, and the log score was infinite when it was the outcome."""
    f = tc.Multicalibrator(tc.Simplex(3), scores=None)
    for _ in range(300):
        f.learn([0.6, 0.3, 0.1], [1, 0, 0], group="winter")
    p = f.predict([0.6, 0.3, 0.1], group="winter").mean
    assert_allclose(p[1:], 0.03 * np.array([0.3, 0.1]))
    assert p.sum() == pytest.approx(1, abs=1e-15)
    f.update([0, 0, 1])
    assert f.error("winter") < f.bound("winter")


def test_the_floor_sinks_as_rounds_go_by() -> None:
    f = tc.Multicalibrator(tc.Simplex(2), scores=None)
    for rounds in (1000, 2000):
        f.update_many(np.full((1000, 2), 0.5), np.tile([1, 0], (1000, 1)))
        assert f.predict([0.5, 0.5]).mean[1] == pytest.approx(0.5 * min(0.03, 1 / math.sqrt(1 + rounds)))
        f.cancel()


@pytest.mark.parametrize("rounds", [200, 1500])
def test_the_error_of_a_group_falls_as_one_over_the_root(rounds: int) -> None:
    """The class that is forecast least is the outcome: nobody can be right, and no group is biased."""
    f, rng = tc.Multicalibrator(tc.Simplex(3), scores=None), np.random.default_rng(0)
    for _ in range(rounds):
        group = tuple(name for name in "abcd" if rng.random() < 0.5)
        p = f.predict([0.8, 0.1, 0.1], group=group).mean
        f.update(np.eye(3)[p.argmin()])
    assert max(f.error(name) for name in f.groups) < 3 / math.sqrt(rounds)
    assert f.bound() < 30 / math.sqrt(rounds)


def test_overlapping_groups_against_correctors_that_know_none() -> None:
    rng, rounds, space = np.random.default_rng(0), 2000, tc.Simplex(3)
    groups = [(f"a{rng.integers(3)}", f"b{rng.integers(4)}", f"c{rng.integers(2)}") for _ in range(rounds)]
    tilt = {name: rng.normal(size=3) for name in sorted({name for each in groups for name in each})}
    scores = np.array([sum(tilt[name] for name in each) for each in groups]) / 2
    truth = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    Y = np.eye(3)[[rng.choice(3, p=p) for p in truth]]
    P = rng.dirichlet(np.ones(3), rounds)

    def worst(announced: Array) -> float:
        at = {name: [i for i, each in enumerate(groups) if name in each] for name in tilt}
        return max(float(np.abs((Y - announced)[rows].mean(axis=0)).sum()) for rows in at.values())

    f = tc.Multicalibrator(space, scores=None)
    announced = f.update_many(P, Y, groups=groups)
    assert worst(announced) == pytest.approx(max(f.error(name) for name in tilt))
    plain = tc.VectorScaling(space, scores=None).update_many(P, Y)
    assert worst(announced) < worst(plain) / 5
    assert ((Y - announced) ** 2).sum() < ((Y - P) ** 2).sum()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.sampled_from(NAMES), max_size=3).map(tuple), min_size=1, max_size=12), st.integers(0, 9))
def test_batches_are_the_loop_and_snapshots_resume(groups: list[Any], seed: int) -> None:
    P, Y = some_rounds(3, len(groups), seed)
    one, many = tc.Multicalibrator(tc.Simplex(3)), tc.Multicalibrator(tc.Simplex(3))
    means = []
    for t, (b, y, group) in enumerate(zip(P, Y, groups, strict=True)):
        means.append(one.predict(b, group=group).mean)
        one = loads(dumps(one)) if t == seed else one  # with its open round
        assert_array_equal(one.predict(b, group=group).mean, means[-1])
        one.update(y)
    assert_array_equal(many.update_many(P, Y, groups=groups), means)
    assert dumps(many) == dumps(one)
    fitted = tc.Multicalibrator(tc.Simplex(3)).fit(P, Y, groups=groups, in_order=True)
    assert_array_equal(fitted.predict_many(P, groups=groups), one.predict_many(P, groups=groups))


def test_a_name_counts_once_and_text_is_one_name() -> None:
    f, g = tc.Multicalibrator(tc.Simplex(2)), tc.Multicalibrator(tc.Simplex(2))
    f.learn([0.5, 0.5], [1, 0], group="JFK")
    g.learn([0.5, 0.5], [1, 0], group=("JFK", None, "JFK"))
    assert f.groups == g.groups == (None, "JFK")
    assert dumps(f) == dumps(g)


@pytest.mark.parametrize("group", [["JFK"], {"JFK"}, (np.nan,), object()])
def test_groups_that_cannot_be(group: Any) -> None:
    f = tc.Multicalibrator(tc.Simplex(2))
    with pytest.raises(ParameterError, match="group is"):
        f.predict([0.5, 0.5], group=group)
    assert f.rounds == 0
    assert not f.groups


def test_a_group_that_was_not_met_has_no_error() -> None:
    f = tc.Multicalibrator(tc.Simplex(2))
    for ask in (f.error, f.bound):
        with pytest.raises(ParameterError, match="was not met"):
            ask()
    with pytest.raises(ParameterError, match="Simplex"):
        tc.Multicalibrator(tc.Ball(2))


def test_states_that_cannot_be() -> None:
    f = tc.Multicalibrator(tc.Simplex(3))
    P, Y = some_rounds(3, 6, 0)
    f.update_many(P, Y, groups=[("a", "b"), ("a",), (), ("b",), ("a", "b"), ("b",)])
    good = f.get_state()
    own = good["own"]
    for changed in (
        {"names": ["a", "b", "c"]},
        {"names": [None, "a", "a"]},
        {"names": [None, "a"]},
        {"weight": -own["weight"]},
        {"sums": own["sums"][:, :1]},
        {"squares": -own["squares"]},
        {"squares": own["squares"] * np.nan},
        {"lifted": own["lifted"][:1]},
        {"spent": -1.0},
    ):
        with pytest.raises(SnapshotError):
            f.set_state(good | {"own": own | changed})
    f.set_state(good)


@pytest.mark.heavy
def test_on_flights_the_worst_of_25_groups_is_less_than_half_of_the_plain_correctors() -> None:
    from examples.groups import LARGE, correct, correctors, errors

    stream = new_york_flights_model()
    found = {name: errors(stream, correct(stream, each)) for name, each in correctors(stream.space).items()}
    assert all(len(each) == 25 for each in found.values())
    worst = {name: max(error for _, error, _ in each.values()) for name, each in found.items()}
    binned = {name: max(b for n, _, b in each.values() if n >= LARGE) for name, each in found.items()}
    for of in (worst, binned):
        assert of["Multicalibrator"] < min(of["VectorScaling"], of["Recalibrator"]) / 2
