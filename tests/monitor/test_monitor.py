"""Monitor against a literal oracle; its bets are bets; alarms, groups, states, and everything that is refused."""

from __future__ import annotations

import copy
import math
import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.monitor import oracle
from treecal import state
from treecal._states import Entries
from treecal.exceptions import (
    ForecastError,
    OutcomeError,
    ParameterError,
    SnapshotError,
    TreeCalError,
    UnsupportedError,
)
from treecal.monitor import Alarm, Watched, discoveries
from treecal.monitor._bets import CAPITAL, family
from treecal.testing import check_corrector, sample_outcomes


def stream(dim: int, rounds: int, seed: int = 0, *, sure: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rounds, dim))
    truth, model = (np.exp(s * z) / np.exp(s * z).sum(axis=1, keepdims=True) for s in (1.0, sure))
    return model, (rng.random((rounds, 1)) > truth.cumsum(axis=1)).sum(axis=1).clip(max=dim - 1)


@given(dim=st.integers(1, 5), rounds=st.integers(1, 40), seed=st.integers(0, 10**6), soft=st.booleans())
@settings(max_examples=25, deadline=None)
def test_equals_the_oracle(dim: int, rounds: int, seed: int, soft: bool) -> None:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(dim, 0.5), rounds)
    Y = rng.dirichlet(np.ones(dim), rounds) if soft else np.eye(dim)[rng.integers(dim, size=rounds)]
    P = np.where(P < 1e-200, 1e-200, P)
    P /= P.sum(axis=1, keepdims=True)
    m, found = tc.Monitor(tc.Simplex(dim)), []
    for p, y in zip(P, Y, strict=True):
        m.update(p, y)
        found.append(m.e_value)
    np.testing.assert_allclose(found, oracle.e_values(P, Y), rtol=1e-9)
    assert m.peak == max(1.0, *found)
    crossed = np.flatnonzero(np.array(found) >= 20)
    assert (m.alarm is None) == (len(crossed) == 0)
    if m.alarm is not None:
        assert m.alarm.round == crossed[0] + 1
        assert m.alarm.e_value == found[crossed[0]]
        assert 1 <= m.alarm.onset <= m.alarm.round


@pytest.mark.parametrize(
    "p", [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.0, 1e-300, 1.0], [0.5, 0.5, 0.0], [1e-9, 0.4, 0.6 - 1e-9]]
)
def test_no_bet_on_classes_gains_on_average(p: list[float]) -> None:
    """One round after any past: each capital, less what starts next, has at most its expectation before."""
    space, before = tc.Simplex(3), tc.Monitor(tc.Simplex(3))
    before.update_many(*stream(3, 50, sure=2.0))
    was, mean = before._now.evidence.cells[0, :, CAPITAL], np.zeros(len(family(tc.Simplex(3)).bets))
    for k in range(3):
        if p[k] > 0:
            m = copy.deepcopy(before)
            m.update(p, np.eye(3)[k])
            mean = mean + p[k] * (m._now.evidence.cells[0, :, CAPITAL] - 1 / (52 * 53))
    assert (mean <= was * (1 + 1e-12)).all()
    assert space == before.space


@pytest.mark.parametrize(
    "space", [tc.Box(0, 1, dim=2), tc.Box(-3, [1, 5], dim=2), tc.Polytope(vertices=[[0, 0], [4, 0], [0, 1]])]
)
def test_no_bet_on_points_gains_on_average_nor_goes_bankrupt(space: tc.ConvexSet) -> None:
    rng = np.random.default_rng(0)
    before = tc.Monitor(space)
    for _ in range(40):
        before.update(space.sample(rng), space.minimise(rng.normal(size=2)))
    was = before._now.evidence.cells[0, :, CAPITAL]
    corners = np.unique([space.minimise(v) for v in product([-1.0, 0.1, 1.0], repeat=2) if any(v)], axis=0)
    weights = rng.dirichlet(np.ones(len(corners)))
    mean = np.zeros_like(was)
    for weight, y in zip(weights, corners, strict=True):
        m = copy.deepcopy(before)
        m.update(weights @ corners, y)
        after = m._now.evidence.cells[0, :, CAPITAL] - 1 / (42 * 43)
        assert (after >= 0.19 * was).all()  # the largest stake is 0.8
        mean += weight * after
    np.testing.assert_allclose(mean, was, rtol=1e-9)


@pytest.mark.parametrize("space", [tc.Simplex(2), tc.Simplex(4), tc.Box(0, 1, dim=3), tc.Ball(2)])
@pytest.mark.parametrize("options", [{}, {"arl": 30.0}, {"by_group": True}, {"by_group": True, "arl": 30.0}])
def test_many_at_once_equal_one_by_one(space: tc.ConvexSet, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    P, Y = (sample_outcomes(space, 300, rng) for _ in range(2))
    if isinstance(space, tc.Simplex):
        P = 0.9 * P + 0.1 / space.dim
    groups = [[None, "a", "b", 3, ("c", 1)][i] for i in rng.integers(5, size=300)] if "by_group" in options else None
    one, many = tc.Monitor(space, **options), tc.Monitor(space, **options)
    for i in range(300):
        one.update(P[i], Y[i], group=None if groups is None else groups[i])
    for part in (slice(0, 1), slice(1, 120), slice(120, 300)):
        many.update_many(P[part], Y[part], groups=None if groups is None else groups[part])
    assert state.dumps(one) == state.dumps(many)
    assert one.alarm == many.alarm is not None
    assert one.statistic == many.statistic <= many.peak


@pytest.mark.parametrize("kind", ["too sure", "too low", "exchanged"])
def test_the_onset_is_near_the_change(kind: str) -> None:
    """Not long before it: of what wins, a timid bet may have begun by chance hundreds of rounds earlier."""
    streams, change, rounds = 200, 1000, 2500
    late, delays = list[int](), list[int]()
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet([4, 3, 2], rounds)
        y = (rng.random(rounds)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
        off = p[change:]
        if kind == "too sure":
            off = off**1.8
        elif kind == "too low":
            off = off * [1.0, 1.0, 0.35]
        else:
            off = off[:, [1, 0, 2]]
        p[change:] = off / off.sum(axis=1, keepdims=True)
        m = tc.Monitor(tc.Simplex(3))
        m.update_many(p, y)
        assert m.alarm is not None
        if m.alarm.round > change:
            late.append(m.alarm.onset - change - 1)
            delays.append(m.alarm.round - change)
    delay = np.median(delays)
    assert len(late) > 0.9 * streams  # the others are false alarms
    assert np.median(np.abs(late)) < 0.2 * delay
    assert abs(np.median(late)) < 0.05 * delay
    assert np.mean(np.array(late) < -delay) < 0.05


def test_temperature_class_and_onset_are_named() -> None:
    model, y = stream(3, 400, sure=3.0)
    right, right_y = stream(3, 1000, seed=5)
    m = tc.Monitor(tc.Simplex(3))
    m.update_many(np.vstack([right, model]), np.append(right_y, y))
    assert m.alarm is not None
    assert (m.alarm.kind, m.alarm.direction) == ("temperature", "too sure")
    assert 1.7 < m.alarm.size < 3.1
    assert m.alarm.gap < -0.1
    assert 950 < m.alarm.onset < 1040 < m.alarm.round < 1200
    rng = np.random.default_rng(0)
    m = tc.Monitor(tc.Simplex(classes=["a", "b", "c"]))
    m.update_many(np.tile([0.6, 0.3, 0.1], (500, 1)), rng.choice(["a", "b", "c"], p=[0.45, 0.25, 0.3], size=500))
    assert m.alarm is not None
    assert (m.alarm.kind, m.alarm.where, m.alarm.direction) == ("class", "c", "too low")
    assert 0.9 < m.alarm.size < 2.4
    assert "forecasts of c are too low" in str(m.alarm)


def test_two_classes_are_one_number() -> None:
    """Which of the two is first makes no difference but for the name."""
    model, y = stream(2, 500, seed=3)
    model = 0.8 * model + [0.0, 0.2]
    one, other = tc.Monitor(tc.Simplex(2)), tc.Monitor(tc.Simplex(2))
    one.update_many(model, y)
    other.update_many(model[:, ::-1], 1 - y)
    assert one.alarm is not None
    assert other.alarm is not None
    assert abs(one.alarm.round - other.alarm.round) < 30
    assert one.alarm.where == other.alarm.where == 1
    assert one.alarm.direction != other.alarm.direction
    assert one.alarm.gap * other.alarm.gap < 0


@pytest.mark.parametrize("dim", [2, 3])
def test_what_was_excluded_is_proof(dim: int) -> None:
    for k in range(dim):
        m = tc.Monitor(tc.Simplex(dim), alpha=1e-100)
        p = np.full(dim, 1 / (dim - 1))
        p[k] = 0.0
        m.update(p, k)
        assert m.alarm is not None
        assert m.alarm.round == 1
        assert "probability 0" in str(m.alarm)
        m.update(p, (k + 1) % dim)  # and goes on
        assert math.isfinite(m.e_value)


def test_tiny_probabilities_and_long_bad_streams_stay_finite() -> None:
    m = tc.Monitor(tc.Simplex(3))
    m.update_many(np.tile([5e-324, 1e-300, 1.0], (2000, 1)), np.resize([0, 1, 2], 2000))
    m.update_many(np.tile([0.0, 1.0, 0.0], (2000, 1)), np.resize([0, 1, 2], 2000))
    assert math.isfinite(m.e_value)
    assert math.isfinite(m.peak)
    tc.Monitor(tc.Simplex(3)).set_state(m.get_state())
    one = tc.Monitor(tc.Simplex(1))
    one.update_many(np.ones((100, 1)), np.zeros(100, int))
    assert one.alarm is None
    assert one.peak <= 1 + 1e-9


def test_distributions_are_watched_by_their_means() -> None:
    x = tc.Forecast([[1, 0], [0, 1]], weights=[0.3, 0.7], space=tc.Simplex(2))
    one, other = tc.Monitor(tc.Simplex(2)), tc.Monitor(tc.Simplex(2))
    one.update(x, 1)
    one.update_many([x, x], [1, 0])
    other.update_many([[0.3, 0.7]] * 3, [1, 1, 0])
    assert one.e_value == other.e_value


def test_groups_have_evidence_of_their_own() -> None:
    rng = np.random.default_rng(0)
    m = tc.Monitor(tc.Simplex(2), by_group=True)
    groups = rng.choice(["north", "south", "east"], size=3000).tolist()
    P = np.tile([0.5, 0.5], (3000, 1))
    rate = [0.8 if group == "south" else 0.4 for group in groups]  # right on the whole
    m.update_many(P, (rng.random(3000) < rate).astype(int), groups=groups)
    assert m.alarm is not None
    assert m.alarm.group == "south"
    assert "in group south" in str(m.alarm)
    assert "south" in discoveries(m.e_values)
    alone = tc.Monitor(tc.Simplex(2))
    rng = np.random.default_rng(0)
    rng.choice(["north", "south", "east"], size=3000)
    y = (rng.random(3000) < rate).astype(int)
    alone.update_many(P[[g == "east" for g in groups]], y[[g == "east" for g in groups]])
    assert m.e_values["east"] == alone.e_value
    with pytest.raises(UnsupportedError, match="by_group=True"):
        tc.Monitor(tc.Simplex(2)).update([0.5, 0.5], 1, group="north")


def test_arl_has_no_e_value_and_restarts_everywhere() -> None:
    m = tc.Monitor(tc.Simplex(2), arl=200)
    with pytest.raises(UnsupportedError, match="no e-value"):
        m.e_value  # noqa: B018
    assert m.statistic == 0
    P, y = stream(2, 60)
    m.update_many(P, y)
    f, shares = oracle.factors(P, np.eye(2)[y], np.ones(len(P)))
    products = np.array([np.prod(f[k:], axis=0) for k in range(60)]).sum(axis=0)
    assert m.statistic == pytest.approx(shares @ products, rel=1e-9)


def test_saved_copied_pickled_and_reset() -> None:
    m = tc.Monitor(tc.Simplex(3), alpha=0.2, by_group=True)
    P, y = stream(3, 200, sure=2.0)
    m.update_many(P, y, groups=[("a", i % 7) for i in range(200)])
    assert m.alarm is not None
    for twin in (state.loads(state.dumps(m)), copy.copy(m), pickle.loads(pickle.dumps(m))):
        assert state.dumps(twin) == state.dumps(m)
        assert twin.alarm == m.alarm
        twin.update(P[0], y[0], group="new")
        assert twin.rounds == m.rounds + 1
    assert m.rounds == 200
    m.reset()
    assert state.dumps(m) == state.dumps(tc.Monitor(tc.Simplex(3), alpha=0.2, by_group=True))


@pytest.mark.parametrize(
    "path",
    [
        ("rounds",), ("peak",), ("evidence", "rounds"), ("evidence", "cells"), ("evidence", "learned"),
        ("groups", "cells"), ("names",), ("alarm", "round"), ("alarm", "kind"), ("alarm", "group"),
        ("alarm", "e_value"),
    ],
)  # fmt: skip
def test_states_that_cannot_be_are_refused(path: tuple[str, ...]) -> None:
    m = tc.Monitor(tc.Simplex(3), alpha=0.5, by_group=True)
    P, y = stream(3, 100, sure=3.0)
    m.update_many(P, y, groups=["ab"[i % 2] for i in range(100)])
    before = state.dumps(m)
    wrong: Any
    for wrong in (-7, 10**6, math.nan, math.inf, "x", None, [], np.full((1, 3), np.nan)):
        given_ = m.get_state()
        part = given_
        for name in path[:-1]:
            part = part[name]
        own = part[path[-1]]
        if path[-1] in ("e_value", "peak") and isinstance(wrong, int) and wrong > 0:
            continue  # it can be
        if path[-1] == "rounds" and isinstance(own, np.ndarray):
            wrong = np.array([3])
        elif isinstance(own, np.ndarray) and isinstance(wrong, int | float):
            wrong = np.where(np.arange(own.size).reshape(own.shape) == own.size - 1, wrong, own).astype(own.dtype)
        part[path[-1]] = wrong
        if (
            path[-1] == "cells"
            and isinstance(wrong, np.ndarray)
            and np.isfinite(wrong).all()
            and wrong.shape == own.shape
        ):
            wrong[0, 0, CAPITAL] = -1.0
        with np.errstate(invalid="ignore"), pytest.raises(TreeCalError):
            m.set_state(given_)
        assert state.dumps(m) == before


def test_invalid_input_changes_nothing() -> None:
    m = tc.Monitor(tc.Simplex(2), by_group=True)
    m.update([0.5, 0.5], 1, group="a")
    before = state.dumps(m)
    calls: dict[Any, Any] = {
        ForecastError: lambda: m.update([0.5, 0.6], 1),
        OutcomeError: lambda: m.update([0.5, 0.5], 2),
        ParameterError: lambda: m.update([0.5, 0.5], 1, group=object()),
    }
    for error, call in calls.items():
        with pytest.raises(error):
            call()
    for call in (
        lambda: m.update_many([[0.5, 0.5], [math.nan, 1]], [0, 1]),
        lambda: m.update_many([[0.5, 0.5]], [0, 1]),
        lambda: m.update_many([[0.5, 0.5]] * 2, [0, 1], groups=["a"]),
        lambda: m.update_many([[0.5, 0.5]] * 2, [0, 1], groups=["a", math.nan]),
        lambda: m.update([0.5, 0.5], 1, group=["a"]),  # type: ignore[arg-type]
    ):
        with pytest.raises(TreeCalError):
            call()
    assert state.dumps(m) == before
    options: dict[str, Any]
    for options in ({"alpha": 0}, {"alpha": 1}, {"alpha": math.nan}, {"arl": 0.5}, {"arl": math.inf}, {"by_group": 1}):
        with pytest.raises(ParameterError):
            tc.Monitor(tc.Simplex(2), **options)


def test_interrupted_between_groups_and_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is learned at once: what is still to be put in its place is put there by the next call."""
    m, plain = (tc.Monitor(tc.Simplex(2), by_group=True) for _ in range(2))
    P, y = stream(2, 20)
    read = Entries.read
    calls = iter(range(10**6))

    def interrupted(self: Entries[Any, Any]) -> object:
        if self is m._groups and next(calls) % 3 == 2:
            raise KeyboardInterrupt
        return read(self)

    monkeypatch.setattr(Entries, "read", interrupted)
    for i in range(20):
        while m.rounds == i:
            try:
                m.update(P[i], y[i], group=i % 3)
            except KeyboardInterrupt:
                continue
        plain.update(P[i], y[i], group=i % 3)
    monkeypatch.undo()
    assert state.dumps(m) == state.dumps(plain)


def test_watched_is_a_corrector_that_changes_nothing() -> None:
    for space in (tc.Simplex(3), tc.Box(0, 1, dim=2)):
        for example in Watched.examples(space):
            check_corrector(lambda example=example: copy.deepcopy(example))  # type: ignore[misc]
    P, y = stream(3, 300, sure=2.0)
    w, m = Watched(tc.Monitor(tc.Simplex(3))), tc.Monitor(tc.Simplex(3))
    assert np.array_equal(w.update_many(P, y), P)
    m.update_many(P, y)
    assert state.dumps(w.monitor) == state.dumps(m)
    assert state.loads(state.dumps(w)).monitor.alarm == m.alarm is not None
    with pytest.raises(UnsupportedError):
        w.predict(P[0], group="a")


def test_by_ids_the_order_of_arrival_counts() -> None:
    P, y = stream(3, 200, sure=2.0)
    rng = np.random.default_rng(0)
    late, order = tc.Late(Watched(tc.Monitor(tc.Simplex(3)))), []
    waiting: list[int] = []
    for i in range(200):
        late.predict(P[i], id=i)
        waiting.append(i)
        while len(waiting) > 10:
            order.append(waiting.pop(int(rng.integers(len(waiting)))))
            late.update(order[-1], int(y[order[-1]]))
    m = tc.Monitor(tc.Simplex(3))
    m.update_many(P[order], y[order])
    watched = late.thing
    assert isinstance(watched, Watched)
    assert state.dumps(watched.monitor) == state.dumps(m)


@given(st.dictionaries(st.integers(), st.floats(0, 1e6), max_size=12), st.floats(0.01, 0.5))
def test_discoveries_are_the_largest_set_that_agrees(e_values: dict[int, float], alpha: float) -> None:
    n = len(e_values)
    sizes = [k for k in range(1, n + 1) if sum(k * e * alpha >= n for e in e_values.values()) >= k]
    most = max(sizes, default=0)
    found = discoveries(e_values, alpha)
    assert len(found) == most
    assert all(most * e_values[name] * alpha >= n for name in found)


def test_discoveries_refuse_what_are_no_e_values() -> None:
    for wrong in ({"a": -1.0}, {"a": math.nan}, {"a": "x"}, [1.0]):
        with pytest.raises(ParameterError):
            discoveries(wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError):
        discoveries({}, alpha=0)
    assert discoveries({}) == []


def test_shares_add_up_and_alarms_compare() -> None:
    for space in (tc.Simplex(2), tc.Simplex(7), tc.Box(0, 1, dim=2)):
        assert family(space).table.shares.sum() == pytest.approx(1)
    with pytest.raises(SnapshotError):
        tc.Monitor(tc.Simplex(2)).set_state(tc.Monitor(tc.Simplex(3)).get_state())
    assert Alarm(1, 1, "slope", None, "too extreme", 0.1, 0.1, 30.0) != Alarm(
        2, 1, "slope", None, "too extreme", 0, 0, 1
    )
