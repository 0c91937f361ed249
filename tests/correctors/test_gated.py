"""The gate leaves a model that is right alone, lets a better one through, and never does more harm than it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal._typing import Array
from treecal.correctors import Switch
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.state import dumps, loads


def softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def stream(classes: int, rounds: int, rng: np.random.Generator, *, temperature: float = 1.0) -> tuple[Array, Array]:
    """Return a model's forecasts, whose logits are so many times too large, and outcomes."""
    z = 1.5 * rng.normal(size=(rounds, classes))
    drawn = (rng.random((rounds, 1)) > softmax(z).cumsum(axis=1)).sum(axis=1)
    return softmax(temperature * z), np.eye(classes)[np.minimum(drawn, classes - 1)]


def brier(forecasts: Array, outcomes: Array) -> Array:
    return np.asarray(((outcomes - forecasts) ** 2).sum(axis=-1))


def log_score(forecasts: Array, outcomes: Array) -> Array:
    return np.asarray(-(np.log(np.maximum(forecasts, 1e-9)) * outcomes).sum(axis=-1))


class Rival(tc.Corrector):
    """Announces what a list says, round by round: a corrector in the hands of an adversary."""

    def __init__(self, space: tc.ConvexSet, points: Array) -> None:
        super().__init__(space, scores=None)
        self.points = points

    def _announce(self, forecast: Array) -> tc.Forecast:
        return self._point(np.array(self.points[self.rounds]))

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        return {}


def literal(p: Array, q: Array, Y: Array, alpha: float, scale: float) -> tuple[list[bool], list[tuple[int, str]]]:
    """Return in which rounds q is announced, and the switches: the definition, sum by sum, in quadratic time."""
    spoke, switches, is_open = [], [], False
    bets: list[float] = []
    for t, (a, b, y) in enumerate(zip(p, q, Y, strict=True), 1):
        spoke.append(is_open)
        better = scale * float(brier(a, y) - brier(b, y))
        bets.append(-better if is_open else better)
        n = len(bets)
        e = sum(math.exp(math.fsum(bets[k - 1 :])) / (k * (k + 1)) for k in range(1, n + 1)) + 1 / (n + 1)
        if e >= 1 / alpha:
            is_open, bets = not is_open, []
            switches.append((t, "corrector" if is_open else "model"))
    return spoke, switches


@pytest.mark.parametrize("space", [tc.Simplex(3), tc.Box(-1, 1, dim=2)], ids=str)
def test_it_is_the_definition(space: tc.ConvexSet) -> None:
    rng = np.random.default_rng(0)
    p, q, Y = space.sample(rng, 400), space.sample(rng, 400), np.array(space.sample(rng, 400))
    Y[:] = np.where(rng.random((400, 1)) < 0.2, Y, np.where(np.arange(400)[:, None] % 80 < 40, q, p))
    f = tc.Gated(Rival(space, q), alpha=0.1)
    announced = f.update_many(p, Y)
    spoke, switches = literal(p, q, Y, 0.1, 2 / float(space.diameter("l2")) ** 2)
    assert np.array_equal(announced, np.where(np.array(spoke)[:, None], q, p))
    assert [(s.round, s.to) for s in f.switches] == switches
    assert len(switches) > 4


def harm(f: tc.Gated, p: Array, q: Array, Y: Array, score: Callable[[Array, Array], Array]) -> Array:
    """Play; return the excess of the total score over the better one in each stretch, less the bound, by round."""
    found, model, corrector, paid = [], 0.0, 0.0, 0.0
    for a, b, y in zip(p, q, Y, strict=True):
        before = f.switch_count
        x = f.predict(a).mean
        f.update(y)
        model, corrector = model + float(score(a, y)), corrector + float(score(b, y))
        paid += float(score(x, y))
        found.append(paid - min(model, corrector) - f.excess())
        if f.switch_count > before:
            paid -= min(model, corrector)  # what later stretches add to
            model = corrector = 0.0
    return np.array(found)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.001, 0.05, 0.5, 0.99]), st.integers(2, 4), st.booleans())
def test_harm_is_within_the_bound_on_every_sequence(seed: int, alpha: float, classes: int, log: bool) -> None:
    rng, space = np.random.default_rng(seed), tc.Simplex(classes)
    sharpness = rng.choice([0.05, 0.5, 3.0])
    p, q = rng.dirichlet(np.full(classes, sharpness), (2, 120))
    score = log_score if log else brier
    f = tc.Gated(Rival(space, q), alpha=alpha, by="log" if log else "brier")
    # Half of the outcomes are the worst for what is announced, as far as the other is better there.
    Y = np.eye(classes)[rng.integers(classes, size=120)]
    twin = tc.Gated(Rival(space, q), alpha=alpha, by="log" if log else "brier")
    for t in np.flatnonzero(rng.random(120) < rng.choice([0.0, 0.5, 1.0])):
        while twin.rounds < t:
            twin.learn(p[twin.rounds], Y[twin.rounds])
        pair = (q[t], p[t]) if twin.open else (p[t], q[t])
        Y[t] = max(np.eye(classes), key=lambda y: float(score(pair[0], y) - score(pair[1], y)))
    assert harm(f, p, q, Y, score).max() <= 1e-9


def test_the_bound_is_nearly_reached() -> None:
    # The worst there is: everything on the wrong class in the last round, and the evidence just short of enough before.
    space, rounds = tc.Simplex(2), 200
    edge = np.tile([0.5 - 0.02, 0.5 + 0.02], (rounds, 1))
    p, q, Y = np.tile([0.5, 0.5], (rounds, 1)), edge, np.tile([0.0, 1.0], (rounds, 1))
    ready = tc.Gated(Rival(space, q), alpha=0.05)
    while ready.e_value < 19:
        ready.learn(p[ready.rounds], Y[ready.rounds])
    p[ready.rounds], q[ready.rounds] = [1.0, 0.0], [0.0, 1.0]
    f = tc.Gated(Rival(space, q), alpha=0.05)
    played = slice(ready.rounds + 1)
    found = f.update_many(p[played], Y[played])
    assert f.switch_count == 1
    lost = brier(found, Y[played]).sum() - brier(q[played], Y[played]).sum()
    assert 0.7 * f.excess() < lost + math.log(40) <= f.excess()


@pytest.mark.parametrize("by", ["brier", "log"])
def test_a_rule_that_announces_one_of_two_pays_for_every_switch(by: Any) -> None:
    # Why the bound has the number of switches in it: here both are better than any such rule, round after round.
    f = tc.Gated(Rival(tc.Simplex(2), np.tile([0.0, 1.0], (300, 1))), by=by)
    for _ in range(300):
        x = f.predict([1.0, 0.0])
        f.update(np.eye(2)[int(x.mean[0])])
    assert f.report().after.brier == 2  # and the better of the two has 1 at most
    assert f.switch_count > 30


MAKERS: dict[str, Callable[[tc.ConvexSet], tc.Corrector]] = {
    "vector": lambda space: tc.VectorScaling(space, scores=None),
    "means": lambda space: tc.Recalibrator(space, scores=None),
}


def left_alone(make: Callable[[tc.ConvexSet], tc.Corrector], classes: int, streams: int, rounds: int, by: Any) -> int:
    """Return in how many streams a model that is right was announced unchanged from the first round to the last."""
    kept, rng = 0, np.random.default_rng(classes)
    for _ in range(streams):
        P, Y = stream(classes, rounds, rng)
        f = tc.Gated(make(tc.Simplex(classes)), by=by, scores=None)
        announced = f.update_many(P, Y)
        kept += np.array_equal(announced, P)
        ours, theirs = brier(announced, Y).sum(), brier(P, Y).sum()
        if by == "brier":
            assert ours - theirs <= f.excess()
    return kept


@pytest.mark.parametrize("by", ["brier", "log"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_model_that_is_right_is_left_alone(make: Callable[[tc.ConvexSet], tc.Corrector], by: Any) -> None:
    assert left_alone(make, 3, 10, 300, by) >= 9


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("make", "by", "classes"),
    [("vector", "brier", 2), ("vector", "brier", 3), ("vector", "brier", 10), ("vector", "log", 3)],
)
def test_in_200_streams_of_5000_rounds(make: str, by: Any, classes: int) -> None:
    # By the log score evidence is nearly a martingale, so as many as alpha may switch: two standard deviations more.
    assert left_alone(MAKERS[make], classes, 200, 5000, by) >= (190 if by == "brier" else 184)


def test_false_switches_are_not_far_rarer_than_alpha() -> None:
    # An opponent that bets as well as one can: the test above is not passed by a gate that never opens.
    rng, opened = np.random.default_rng(1), 0
    for _ in range(60):
        q = np.tile([0.55, 0.45], (200, 1))
        f = tc.Gated(Rival(tc.Simplex(2), q), alpha=0.3, scores=None)
        f.update_many(np.full((200, 2), 0.5), np.eye(2)[rng.integers(2, size=200)])
        opened += f.switch_count > 0
    assert 3 <= opened <= 18


@pytest.mark.parametrize("by", ["brier", "log"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_wrong_model_is_corrected_almost_as_well_as_without_a_gate(classes: int, by: Any) -> None:
    P, Y = stream(classes, 2000, np.random.default_rng(classes), temperature=2.0)
    space = tc.Simplex(classes)
    plain = tc.VectorScaling(space, scores=None)
    gated = tc.Gated(plain, by=by, scores=None)
    A, B = gated.update_many(P, Y), plain.update_many(P, Y)
    assert brier(A, Y).mean() <= 1.01 * brier(B, Y).mean() < brier(P, Y).mean()
    assert log_score(A, Y).mean() <= 1.03 * log_score(B, Y).mean() < log_score(P, Y).mean()
    assert gated.open
    assert gated.switches[0].round < 400


def test_a_model_that_recovers_is_announced_again() -> None:
    rng, space = np.random.default_rng(0), tc.Simplex(3)
    parts = [stream(3, 1000, rng, temperature=temperature) for temperature in (1.0, 3.0, 1.0)]
    P, Y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    f = tc.Gated(tc.VectorScaling(space))
    announced = f.update_many(P, Y)
    (first, second) = f.switches
    assert (first.to, second.to) == ("corrector", "model")
    assert 900 < first.since <= first.round < 1300
    assert 1900 < second.since <= second.round < 3000  # a corrector that forgets is soon nearly as good again
    assert min(first.e_value, second.e_value) >= 20
    changed = (announced != P).any(axis=1)
    assert not changed[: first.round].any()
    assert changed[first.round : second.round].all()
    assert not changed[second.round :].any()
    assert f.report().after.brier < f.report().before.brier


def test_the_log_score_finds_errors_in_small_probabilities_sooner() -> None:
    rng, space = np.random.default_rng(0), tc.Simplex(2)
    P = np.tile([0.999, 0.001], (1500, 1))
    Y = np.eye(2)[(rng.random(1500) < 0.01).astype(int)]
    by = {kind: tc.Gated(tc.PlattScaling(space), by=kind, scores=None) for kind in ("brier", "log")}
    for f in by.values():
        f.update_many(P, Y)
    assert by["log"].switches[0].round < 1000
    assert not by["brier"].open


class Counting(tc.Corrector):
    """Knows groups and weights, and remembers those it was given."""

    seen: tuple[Any, ...] = ()

    def _announce(self, forecast: Array, *, group: Any = None) -> tc.Forecast:
        return self._point(np.full(self.space.dim, 1 / self.space.dim))

    def _after(self, forecast: Array, outcome: Array, *, group: Any = None, weight: float = 1.0) -> dict[str, Any]:
        return {"seen": (*self.seen, (group, weight))}


def test_groups_and_weights_are_passed_on() -> None:
    f = tc.Gated(Counting(tc.Simplex(2)))
    f.predict([0.5, 0.5], group="JFK")
    f.update([1, 0], weight=2.0)
    f.update_many([[1, 0], [1, 0]], [[1, 0], [1, 0]], groups=["a", ("b", 1)], weights=[1, 0.5])
    assert isinstance(f.corrector, Counting)
    assert f.corrector.seen == (("JFK", 2.0), ("a", 1.0), (("b", 1), 0.5))


def test_what_the_corrector_does_not_know_is_refused_and_changes_nothing() -> None:
    f = tc.Gated(tc.Recalibrator(tc.Simplex(2), make=tc.TreeCal(tc.Simplex(2))))
    before = dumps(f)
    with pytest.raises(UnsupportedError, match="knows no groups"):
        f.predict([1, 0], group="JFK")
    with pytest.raises(UnsupportedError, match="knows no weights"):
        f.learn([1, 0], [1, 0], weight=2.0)
    assert dumps(f) == before
    assert f.ordered
    assert not tc.Gated(tc.VectorScaling(tc.Simplex(2))).ordered


def test_a_log_is_a_start_for_the_corrector_and_no_evidence() -> None:
    P, Y = stream(3, 1000, np.random.default_rng(0), temperature=3.0)
    f = tc.Gated(tc.VectorScaling(tc.Simplex(3))).fit(P[:500], Y[:500])
    again = tc.Gated(tc.VectorScaling(tc.Simplex(3)).fit(P[:500], Y[:500]))
    assert (f.rounds, f.open, f.e_value) == (500, False, 1.0)
    assert np.array_equal(f.update_many(P[500:], Y[500:]), again.update_many(P[500:], Y[500:]))
    assert f.switches[0].round == again.switches[0].round + 500
    assert loads(dumps(f)).switches == f.switches


def test_a_copy_is_used() -> None:
    part = tc.VectorScaling(tc.Simplex(2))
    f = tc.Gated(part)
    f.learn([1, 0], [0, 1])
    assert (part.rounds, f.corrector.rounds) == (0, 1)
    assert repr(f) == f"Gated({f.corrector!r}, alpha=0.05)"
    assert repr(tc.Gated(part, by="log")).endswith(", alpha=0.05, by='log')")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"alpha": 0}, "alpha is 0"),
        ({"alpha": 1.0}, "alpha is 1.0, expected between"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"by": "l1"}, "by is 'l1', expected 'brier' or 'log'"),
        ({"corrector": "vector"}, "corrector is 'vector', expected a Corrector"),
        ({"corrector": tc.Recalibrator(tc.Box(0, 1, dim=2), groups=len), "by": "log"}, "a log score needs classes"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        tc.Gated(**({"corrector": tc.VectorScaling(tc.Simplex(2))} | arguments))


def test_switches_are_kept_in_snapshots_and_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.correctors._gated.KEPT", 5)
    f = tc.Gated(tc.VectorScaling(tc.Simplex(2), ridge=1.0), alpha=0.9)
    rng = np.random.default_rng(0)
    while f.switch_count < 12:
        f.learn(rng.dirichlet([1, 1]), np.eye(2)[rng.integers(2)])
    assert len(f.switches) == 5
    assert all(one.to != next_.to and one.round < next_.since <= next_.round for one, next_ in pairwise(f.switches))
    again = loads(dumps(f))
    assert again.switches == f.switches
    assert isinstance(again.switches[0], Switch)
    assert (again.switch_count, again.e_value, again.open) == (12, f.e_value, f.open)
    assert again.excess() == f.excess()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("open", 1),
        ("count", 2),
        ("count", -1),
        ("evidence/rounds", 3),
        ("evidence/capital", 1e9),
        ("evidence/onset", 10**6),
        ("switches/round", [10**9]),
        ("switches/to", ["nobody"]),
        ("switches/to", [["corrector"]]),
        ("switches/e_value", [math.inf]),
        ("switches/e_value", [math.nan]),
        ("switches/since", [-1]),
        ("switches/since", []),
    ],
)
def test_a_state_that_cannot_be_is_refused(path: str, value: Any) -> None:
    f = tc.Gated(tc.VectorScaling(tc.Simplex(3)))
    f.update_many(*stream(3, 500, np.random.default_rng(0), temperature=3.0))
    assert f.switch_count == 1
    state, before = f.get_state(), dumps(f)
    *parts, name = path.split("/")
    place = state["own"]
    for part in parts:
        place = place[part]
    place[name] = value
    with pytest.raises(SnapshotError):
        f.set_state(state)
    assert dumps(f) == before
