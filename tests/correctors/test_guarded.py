"""GuardedCorrector: a model keeps its skill while it deserves trust, and its certificate on every sequence."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.correctors.models import model, run, some_rounds
from tests.forecasters.oracle_guarded import LiteralCodebook
from tests.guarantees.hostile import HOSTILE, Hostile, World, opponent
from tests.guarantees.test_guard import BUDGETS, NORMS, OPPONENTS, SLACK, defend
from treecal._typing import Array
from treecal.correctors._guarded import MANY
from treecal.exceptions import HorizonError, ParameterError
from treecal.forecasters import GuardReport
from treecal.geometry import Norm
from treecal.state import dumps, loads

TWO = tc.Simplex(2)
SAFE: dict[str, Any] = {
    "grid": lambda: tc.BinaryGrid(tc.Simplex(2)),
    "harmonic": lambda: tc.Harmonic(tc.Simplex(3), block=30),
    "tree in a box": lambda: tc.TreeCal(tc.Box([-1.0, 0.0], [1.0, 5.0])),
}


def assert_theorem(
    kind: type[Hostile], safe: tc.Forecaster, norm: Norm, against: str, options: dict[str, Any], rounds: int
) -> GuardReport:
    """The model is the hostile part: it knows the guard, and forecasts what hurts."""
    world = World()
    f = world.guard = tc.GuardedCorrector(safe.space, safe=safe, norm=norm, **options)
    attacker = kind(safe.space, world)
    answer = opponent(against, safe.space, norm, rounds, seed=rounds)

    def predict() -> tc.Forecast:
        return f.predict(attacker.predict().mean)

    def update(outcome: Array) -> None:
        f.update(outcome)
        attacker.update(outcome)

    for now in defend(predict, update, f.guard, safe, answer, norm, rounds, **options):
        assert f.guard().eager_error == pytest.approx(now.eager, abs=SLACK)
        assert now.bound is not None
        assert now.total <= now.most + now.bound + SLACK
    found = f.certificate(norm, rounds=rounds)
    assert found is not None
    assert now.total <= rounds * found.bound + SLACK
    return f.guard()


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_model_is_guarded(kind: type[Hostile]) -> None:
    for i, (against, budget) in enumerate(product(OPPONENTS, BUDGETS)):
        safe, norm = [*SAFE][(i + i // 3) % 3], [*NORMS][(i + i // 12) % 4]
        if i % 3 == HOSTILE.index(kind) % 3:
            assert assert_theorem(kind, SAFE[safe](), NORMS[norm], against, BUDGETS[budget], rounds=50).rounds == 50


@pytest.mark.heavy
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_model_is_guarded_everywhere(kind: type[Hostile], budget: str) -> None:
    for safe, norm, against in product(SAFE, NORMS, OPPONENTS):
        assert_theorem(kind, SAFE[safe](), NORMS[norm], against, BUDGETS[budget], rounds=120)


def scores(forecasts: Array, announced: list[tc.Forecast], outcomes: Array) -> tuple[float, float]:
    """The Brier scores of the model and of what was announced."""
    ours = [float(x.weights @ ((y - x.points) ** 2).sum(axis=1)) for x, y in zip(announced, outcomes, strict=True)]
    return float(((outcomes - forecasts) ** 2).sum(axis=1).mean()), float(np.mean(ours))


@pytest.mark.parametrize(("dim", "options"), [(2, {}), (3, {"budget": 1.0}), (3, {}), (5, {})])
def test_a_model_that_is_right_keeps_its_skill(dim: int, options: dict[str, Any]) -> None:
    """Most of it: nine tenths of the rounds, and seven tenths of what it gains on a constant forecast."""
    forecasts, outcomes = model("right", dim, 2000, 0)
    f, ledger = tc.GuardedCorrector(tc.Simplex(dim), scores=None, **options), tc.Ledger(tc.Simplex(dim))
    announced = run(f, forecasts, outcomes)
    for x, y in zip(announced, outcomes, strict=True):
        ledger.record(x, y)
    before, after = scores(forecasts, announced, outcomes)
    constant = 1 - float((outcomes.mean(axis=0) ** 2).sum())
    assert f.guard().eager_rounds > 0.9 * 2000
    assert after <= before + 0.3 * (constant - before), f"{before:.3f} became {after:.3f}, not {constant:.3f}"
    assert ledger.error("l1") < 0.3


def test_a_model_that_goes_wrong_is_dropped_and_taken_back() -> None:
    """Right, then sure of the wrong class, then right again: it speaks, is silenced, and speaks again."""
    rng, space = np.random.default_rng(0), tc.Simplex(3)
    chance = rng.integers(1, 10, size=1500) / 10
    classes = (rng.random(1500) < chance).astype(int)
    forecasts, outcomes = np.stack([1 - chance, chance, 0 * chance], axis=1), np.eye(3)[classes]
    forecasts[300:800], outcomes[300:800] = [0, 1, 0], [1, 0, 0]
    f, spoke = tc.GuardedCorrector(space, scores=None), []
    for b, y in zip(forecasts, outcomes, strict=True):
        before = f.guard().eager_rounds
        f.predict(b)
        f.update(y)
        spoke.append(f.guard().eager_rounds > before)
    right, wrong, again = np.mean(spoke[100:300]), np.mean(spoke[450:800]), np.mean(spoke[1200:])
    assert right > 0.9
    assert wrong < 0.3 * right
    assert again > 2 * wrong


def test_points_are_those_of_a_codebook() -> None:
    """While the model speaks, its forecasts go through a book, literally."""
    forecasts, outcomes = some_rounds(3, 200, 0)
    f = tc.GuardedCorrector(tc.Simplex(3), error=2.5)
    slow = LiteralCodebook(320, classes=True, dim=3, l2_diameter=2**0.5)
    for b, y in zip(forecasts, outcomes, strict=True):
        np.testing.assert_allclose(f.predict(b).points, [slow.announce(b.tolist())], rtol=1e-12)
        f.update(y)
        slow.learn(y.tolist())
    assert f.guard().eager_rounds == 200


def test_a_corrector_is_applied_first() -> None:
    """An overconfident model is scaled before it speaks, and learns every round."""
    forecasts, outcomes = model("overconfident", 3, 500, 0)
    space = tc.Simplex(3)
    plain = tc.GuardedCorrector(space)
    scaled = tc.GuardedCorrector(space, corrector=tc.VectorScaling(space, scores=None))
    raw, better = (scores(forecasts, run(f, forecasts, outcomes), outcomes)[1] for f in (plain, scaled))
    assert better < raw
    assert scaled.corrector is not None
    assert scaled.corrector.rounds == 500


@pytest.mark.parametrize("options", [{}, {"corrector": tc.PlattScaling(TWO, scores=None)}])
def test_the_certificate_after_a_log_is_one_of_the_rounds_after_it(options: dict[str, Any]) -> None:
    """A log that is biased the other way round buys the model no error in the rounds."""
    rng = np.random.default_rng(0)
    rows = 20_000 if not options else 2000
    half = np.full((rows, 2), 0.5)
    f, ledger = tc.GuardedCorrector(TWO, scores=None, **options), tc.Ledger(TWO)
    f.fit(half, (rng.random(rows) < 0.56).astype(int))
    assert f.guard() == tc.GuardedCorrector(TWO, **options).guard()
    if f.corrector is not None:
        assert f.corrector.rounds == rows
    for _ in range(2000):
        ledger.record(f.predict([0.5, 0.5]), 0)
        f.update(0)
    certificate = f.certificate("l1", rounds=2000)
    assert certificate is not None
    assert ledger.error("l1") <= certificate.bound
    assert f.guard().rounds == 2000
    assert dumps(loads(dumps(f))) == dumps(f)


def test_points_of_a_log_are_announced_again() -> None:
    """What a log taught the books is announced in the rounds after it, as if it had been learned in rounds."""
    forecasts, outcomes = model("right", 2, 300, 0)
    fitted = tc.GuardedCorrector(TWO, error=2.5).fit(forecasts[:200], outcomes[:200], in_order=True)
    played = tc.GuardedCorrector(TWO, error=2.5)
    run(played, forecasts[:200], outcomes[:200])
    assert run(fitted, forecasts[200:], outcomes[200:]) == run(played, forecasts[200:], outcomes[200:])


@pytest.mark.parametrize("options", [{}, {"error": 0.3}, {"corrector": tc.VectorScaling(tc.Simplex(3), scores=None)}])
def test_saved_and_copied_in_any_round(options: dict[str, Any]) -> None:
    forecasts, outcomes = model("drifting", 3, 120, 0)
    whole = tc.GuardedCorrector(tc.Simplex(3), **options)
    f = tc.GuardedCorrector(tc.Simplex(3), **options)
    for t, (b, y) in enumerate(zip(forecasts, outcomes, strict=True)):
        if t % 7 == 0:
            f = [deepcopy, lambda f: loads(dumps(f))][t % 2](f)
        assert f.predict(b) == whole.predict(b)
        assert f.guard() == whole.guard()
        f.update(y)
        whole.update(y)
    assert dumps(f) == dumps(whole)


def test_no_round_left_changes_nothing() -> None:
    space = tc.Simplex(3)
    forecasts, outcomes = some_rounds(3, 17, 0)
    f = tc.GuardedCorrector(space, safe=tc.TreeCal(space, arity=2, depth=4), budget=0)
    run(f, forecasts[:16], outcomes[:16])
    before = f.guard()
    with pytest.raises(HorizonError):
        f.predict(forecasts[16])
    assert f.guard() == before
    assert f.rounds == 16


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("budget", -1),
        ("error", np.nan),
        ("safe", tc.TreeCal(tc.Simplex(2))),
        ("corrector", tc.Recalibrator(tc.Simplex(2))),
        ("corrector", "none"),
    ],
)
def test_arguments_are_checked(name: str, bad: Any) -> None:
    with pytest.raises(ParameterError, match=name):
        tc.GuardedCorrector(tc.Simplex(3), **{name: bad})


def test_what_is_foreseen_after_a_good_past() -> None:
    """The rounds after the log count, of which the ledger is."""
    forecasts, outcomes = model("right", 3, 1200, 0)
    ledger = tc.Ledger(tc.Simplex(3))
    f = tc.GuardedCorrector(tc.Simplex(3), scores=None).fit(forecasts[:200], outcomes[:200])
    for b, y in zip(forecasts[200:], outcomes[200:], strict=True):
        ledger.record(f.predict(b), y)
        f.update(y)
    whole, ahead = f.certificate("l1", rounds=1100), f.certificate("l1", rounds=100, after=ledger)
    assert whole is not None
    assert ahead is not None
    assert ledger.error("l1") * 1000 / 1100 < ahead.bound < whole.bound
    with pytest.raises(ParameterError, match="has learned 1,000"):
        f.certificate("l1", rounds=1, after=tc.Ledger(tc.Simplex(3)))


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("corrector", [None, tc.VectorScaling])
def test_a_long_batch_is_its_rounds_one_by_one(corrector: Any, closes: bool) -> None:
    """Such a batch is played on copies; one in which the guard closes is then played round by round."""
    space = tc.Simplex(3)
    forecasts, outcomes = model("right", 3, 3 * MANY, 0)
    if closes:
        outcomes = (forecasts.argmin(axis=1)).astype(np.int64)
    one, many = (tc.GuardedCorrector(space, corrector=corrector and corrector(space)) for _ in range(2))
    found = []
    for b, y in zip(forecasts, outcomes, strict=True):
        found.append(one.predict(b).mean)
        one.update(y)
    parts = [many.update_many(forecasts[at : at + MANY], outcomes[at : at + MANY]) for at in range(0, 3 * MANY, MANY)]
    np.testing.assert_array_equal(np.concatenate(parts), found)
    assert dumps(one) == dumps(many)
    assert (one.guard().safe_rounds > 0) is (closes and corrector is None)
