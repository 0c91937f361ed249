from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal import streams
from treecal._typing import Array
from treecal.exceptions import TreeCalError

SPACES = [
    tc.Simplex(2),
    tc.Simplex(5),
    tc.Ball(3),
    tc.Ball(2, norm="l1", centre=[1.0, 2.0]),
    tc.Box([0, -1], [2, 1]),
    tc.Polytope(vertices=[[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]),
    tc.Product(tc.Simplex(3), tc.Ball(1)),
]
CHANCE: list[Callable[[tc.ConvexSet, int, np.random.Generator], Array]] = [
    streams.iid,
    streams.regime_switches,
    streams.drift,
    streams.random_walk,
]


@pytest.mark.parametrize("space", SPACES, ids=repr)
@pytest.mark.parametrize("stream", CHANCE, ids=lambda f: f.__name__)
def test_chance_streams_are_seeded_and_inside(stream: Any, space: tc.ConvexSet) -> None:
    a, b = (stream(space, 50, np.random.default_rng(4)) for _ in range(2))
    assert np.array_equal(a, b)
    assert a.shape == (50, space.dim)
    assert space.contains(a).all()
    assert not np.array_equal(a, stream(space, 50, np.random.default_rng(5)))
    if isinstance(space, tc.Simplex):
        assert set(np.unique(a)) <= {0.0, 1.0}


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_alternation_swings_between_extreme_points(space: tc.ConvexSet) -> None:
    outcomes = streams.alternation(space, 81, arity=3)
    assert space.contains(outcomes).all()
    for size in (1, 3, 9, 27):  # an interval and the next one of the same parent start with different points
        starts = outcomes[::size].reshape(-1, 3, space.dim)
        assert (starts[:, 1:] != starts[:, :-1]).any(axis=2).all()


def test_iid_has_its_mean() -> None:
    law = np.array([0.2, 0.3, 0.5])
    outcomes = streams.iid(tc.Simplex(3), 40_000, np.random.default_rng(0), mean=law)
    assert np.abs(outcomes.mean(axis=0) - law).max() < 5 * 0.5 / 200


def test_regimes_last_as_long_as_they_should() -> None:
    outcomes = streams.regime_switches(tc.Ball(2), 4000, np.random.default_rng(1), every=1000)
    means = outcomes.reshape(4, 1000, 2).mean(axis=1)
    halves = outcomes.reshape(4, 2, 500, 2).mean(axis=2)
    assert tc.l2(halves[:, 0] - halves[:, 1]).max() < 0.12
    assert min(tc.l2(means[i] - means[j]) for i in range(4) for j in range(i)) > 0.12


def test_sign_tree_is_what_it_says() -> None:
    depth, width = 5, 3
    outcomes = streams.sign_tree(depth, width, np.random.default_rng(0))
    assert outcomes.shape == (32, 31)
    assert tc.Simplex(31).contains(outcomes).all()
    signs = (outcomes[:, 0:-1:2] - outcomes[:, 1:-1:2]) * depth * width
    np.testing.assert_allclose(np.abs(signs), 1)
    for level in range(1, depth + 1):  # constant on dyadic intervals of its level, and on no longer ones
        block = signs[:, (level - 1) * width : level * width].reshape(2**level, -1, width)
        assert (block == block[:, :1]).all()
        assert len(np.unique(block[:, 0], axis=0)) > 1


class Stubborn(streams.Adversary):
    """Tries every vertex on a real ledger: what LedgerAdversary does, the slow way."""

    def __init__(self, space: tc.ConvexSet, norm: str) -> None:
        super().__init__(space)
        self.norm, self.ledger = norm, tc.Ledger(space)

    def outcome(self, forecast: tc.Forecast) -> Array:
        errors = []
        for vertex in self.extremes(np.zeros(self.space.dim)):
            trial = self.ledger.merge(tc.Ledger(self.space))
            trial.record(forecast, vertex)
            errors.append(trial.error(self.norm, total=True))
        best: Array = self.extremes(np.zeros(self.space.dim))[int(np.argmax(np.round(errors, 9)))]
        self.ledger.record(forecast, best)
        return best


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_ledger_adversary_does_what_the_ledger_says(norm: str) -> None:
    space = tc.Simplex(3)
    fast = streams.play(tc.TreeCal(space, arity=3), streams.LedgerAdversary(space, norm=norm), rounds=60)
    slow = streams.play(tc.TreeCal(space, arity=3), Stubborn(space, norm), rounds=60)
    assert fast.error(norm) == pytest.approx(slow.error(norm), rel=0.05)


def test_the_ledger_adversary_is_harder_than_chance() -> None:
    space = tc.Simplex(3)
    for arity in (4, 8):
        chance = streams.play(tc.TreeCal(space, arity=arity), streams.iid(space, 600, np.random.default_rng(0)))
        adverse = streams.play(tc.TreeCal(space, arity=arity), streams.LedgerAdversary(space), rounds=600)
        assert adverse.error("l1") > chance.error("l1")


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_adversaries_stay_inside_every_set(space: tc.ConvexSet) -> None:
    for adversary in (streams.MeanAdversary(space), streams.LedgerAdversary(space, norm="l2")):
        assert streams.play(tc.TreeCal(space, arity=3), adversary, rounds=40).rounds == 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: streams.iid(tc.Simplex(2), 0, np.random.default_rng(0)), "rounds is 0"),
        (lambda: streams.iid(tc.Simplex(2), 5, np.random.default_rng(0), mean=[0.5, 0.6]), "a point of Simplex"),
        (lambda: streams.iid(tc.Ball(2), 5, np.random.default_rng(0), mean=[0.0, 0.0]), "only on the simplex"),
        (lambda: streams.random_walk(tc.Simplex(2), 5, np.random.default_rng(0), step=-1), "step is -1"),
        (lambda: streams.regime_switches(tc.Simplex(2), 5, np.random.default_rng(0), every=0), "every is 0"),
        (lambda: streams.sign_tree(0, 1, np.random.default_rng(0)), "depth is 0"),
        (lambda: streams.play(tc.TreeCal(tc.Simplex(2)), streams.MeanAdversary(tc.Simplex(2))), "pass rounds="),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(TreeCalError, match=message):
        call()


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 10, 1000, 12345])
def test_checkpoints_increase_to_the_end(rounds: int) -> None:
    marks = streams.checkpoints(rounds).tolist()
    assert marks == sorted(set(marks))
    assert marks[-1:] == [rounds][: rounds > 0]
    assert len(marks) <= 10 * np.log10(max(rounds, 1)) + 2


def test_play_resumes_and_records_where_it_is_told() -> None:
    space = tc.Simplex(3)
    outcomes, whole = streams.drift(space, 50, np.random.default_rng(0)), tc.Ledger(space)
    forecaster, told = tc.TreeCal(space, arity=3), []
    first = streams.play(forecaster, outcomes[:20], ledger=whole)
    assert first is whole
    streams.play(forecaster, outcomes[20:], ledger=whole, at=(7, 30), progress=lambda *counts: told.append(counts))
    assert told == [(7, 30), (30, 30)]
    assert whole.rounds == 50
    assert whole.error("l1") == streams.play(tc.TreeCal(space, arity=3), outcomes).error("l1")


def test_play_corrects_a_model() -> None:
    space, rng = tc.Simplex(2), np.random.default_rng(0)
    forecasts, outcomes = rng.dirichlet([1, 1], 40), streams.iid(space, 40, rng)
    corrector = tc.Recalibrator(space, scores="exact")
    ledger = streams.play(corrector, outcomes, forecasts=forecasts)
    assert ledger.error("l1") == corrector.ledgers["after"].error("l1")
    with pytest.raises(TreeCalError, match="41 forecasts for 40 rounds"):
        streams.play(tc.Recalibrator(space), outcomes, forecasts=np.full((41, 2), 0.5))
    adverse = streams.play(tc.Recalibrator(space), streams.MeanAdversary(space), rounds=40, forecasts=forecasts)
    assert adverse.rounds == 40
    for forecaster, given in ((tc.Recalibrator(space), None), (tc.TreeCal(space), forecasts)):
        with pytest.raises(TreeCalError, match="need the model's forecasts"):
            streams.play(forecaster, outcomes, forecasts=given)
