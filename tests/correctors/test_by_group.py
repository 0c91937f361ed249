"""ByGroup: as many separate correctors as there are groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

import treecal as tc
from tests.correctors.models import some_rounds
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.state import dumps, loads

NAMES: tuple[Any, ...] = ("JFK", 7, ("LGA", "winter"), None, 0.5)
MAKERS = {
    "means": lambda: tc.Recalibrator(tc.Simplex(3)),
    "vector": lambda: tc.VectorScaling(tc.Simplex(3)),
    "chain": lambda: tc.Chain([tc.TemperatureScaling(tc.Simplex(3)), tc.Recalibrator(tc.Simplex(3))]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@settings(max_examples=15, deadline=None)
@given(groups=st.lists(st.sampled_from(NAMES), min_size=1, max_size=15), seed=st.integers(0, 9))
def test_it_is_a_corrector_for_each_group(make: Any, groups: list[Any], seed: int) -> None:
    P, Y = some_rounds(3, len(groups), seed)
    f, alone = tc.ByGroup(make()), {name: make() for name in NAMES}
    for t, (b, y, group) in enumerate(zip(P, Y, groups, strict=True)):
        x = alone[group].predict(b)
        assert f.predict(b, group=group) == x
        f = loads(dumps(f)) if t == seed else f
        f.update(y)
        alone[group].update(y)
    assert f.groups == tuple(dict.fromkeys(groups)) == tuple(f)
    assert {name: f[name].rounds for name in f.groups} == {name: alone[name].rounds for name in f.groups}


@settings(max_examples=20, deadline=None)
@given(groups=st.lists(st.sampled_from(NAMES), min_size=1, max_size=15))
def test_batches_are_the_loop(groups: list[Any]) -> None:
    P, Y = some_rounds(3, len(groups), 0)
    one, many = tc.ByGroup(tc.Recalibrator(tc.Simplex(3))), tc.ByGroup(tc.Recalibrator(tc.Simplex(3)))
    means = []
    for b, y, group in zip(P, Y, groups, strict=True):
        means.append(one.predict(b, group=group).mean)
        one.update(y)
    assert_array_equal(many.update_many(P, Y, groups=groups), means)
    assert dumps(many) == dumps(one)
    again = [one.predict_many(b[None], groups=[group])[0] for b, group in zip(P, groups, strict=True)]
    assert_array_equal(many.predict_many(P, groups=groups), again)


def test_a_new_group_starts_from_a_fitted_corrector() -> None:
    P, Y = some_rounds(3, 50, 1)
    fitted = tc.VectorScaling(tc.Simplex(3)).fit(P, Y)
    f = tc.ByGroup(fitted)
    fitted.update_many(P, Y)  # which it does not see
    x = tc.VectorScaling(tc.Simplex(3)).fit(P, Y).predict(P[0])
    assert f.predict(P[0], group="new") == x
    f.update(Y[0])
    assert f["new"].rounds == 51
    assert f.rounds == 1
    again = loads(dumps(f))
    assert again.predict(P[0], group="another") == x


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_fit_with_groups(make: Any) -> None:
    P, Y = some_rounds(3, 40, 2)
    f = tc.ByGroup(make()).fit(P, Y, groups=["a", "b"] * 20, in_order=True).fit(P[:3], Y[:3], groups=["c"] * 3)
    assert (f.rounds, f.groups) == (43, ("a", "b", "c"))
    assert_array_equal(f.predict_many(P, groups=["a"] * 40), make().fit(P[::2], Y[::2], in_order=True).predict_many(P))
    f.learn(P[0], Y[0], group="a")
    assert loads(dumps(f))["a"].rounds == 21


def test_what_is_shown_is_a_copy() -> None:
    f = tc.ByGroup(tc.Recalibrator(tc.Simplex(2)))
    f.learn([0.5, 0.5], [1, 0], group="a")
    f["a"].learn([0.5, 0.5], [1, 0])
    assert f["a"].rounds == 1
    assert "a" in f
    assert "b" not in f
    with pytest.raises(ParameterError, match="'b' was not met"):
        f["b"]


@pytest.mark.parametrize("group", [["a"], {"a"}, np.nan, float("inf"), b"a", ("a", ["b"]), object()])
def test_names_that_no_snapshot_could_hold(group: Any) -> None:
    f = tc.ByGroup(tc.Recalibrator(tc.Simplex(2)))
    before = dumps(f)
    for call in (lambda: f.predict([0.5, 0.5], group=group), lambda: f.learn([0.5, 0.5], [1, 0], group=group)):
        with pytest.raises(ParameterError, match="group is"):
            call()
    assert dumps(f) == before


def test_names_of_numpy_are_those_of_python() -> None:
    f = tc.ByGroup(tc.Recalibrator(tc.Simplex(2)))
    for group in (np.int64(3), 3, np.str_("a"), "a", (np.float64(0.5), "a")):
        f.learn([0.5, 0.5], [1, 0], group=group)
    assert f.groups == (3, "a", (0.5, "a"))
    assert loads(dumps(f)).groups == f.groups


def test_nodes_of_two_groups_differ() -> None:
    space = tc.Simplex(2)
    f = tc.ByGroup(tc.Recalibrator(space, make=lambda: tc.TreeCal(space)))
    assert f.ordered
    seen: dict[str, set[tuple[int, int]]] = {"a": set(), "b": set()}
    for t in range(20):
        group = "ab"[t % 2]
        x = f.predict([0.1, 0.9], group=group)
        if x.nodes is not None:
            seen[group] |= set(map(tuple, x.nodes.tolist()))
        f.update([1, 0])
    assert seen["a"]
    assert seen["b"]
    assert not seen["a"] & seen["b"]


def test_what_the_corrector_does_not_take_is_refused() -> None:
    f = tc.ByGroup(tc.GuardedCorrector(tc.Simplex(2)))
    before = dumps(f)
    with pytest.raises(UnsupportedError, match="weights"):
        f.learn([0.5, 0.5], [1, 0], group="a", weight=2.0)
    assert dumps(f) == before


def test_states_that_cannot_be() -> None:
    f = tc.ByGroup(tc.Recalibrator(tc.Simplex(2)))
    f.learn([0.5, 0.5], [1, 0], group="a")
    f.learn([0.5, 0.5], [1, 0], group="b")
    good = f.get_state()
    for names, match in (
        (["a", "a"], "different"),
        (["a"], "expected only"),
        ([{"a": 1}, "b"], "names"),
        ("ab", "list"),
    ):
        with pytest.raises(SnapshotError, match=match):
            f.set_state(good | {"own": good["own"] | {"names": names}})
    assert dumps(f) == dumps(loads(dumps(f)))
    with pytest.raises(ParameterError, match="corrector"):
        tc.ByGroup(tc.Simplex(2))  # type: ignore[arg-type]
