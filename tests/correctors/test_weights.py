"""Weights of rounds: none, odd ones and heavy ones, in rounds, batches, logs, banks and snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.correctors.models import model
from treecal.correctors import all_correctors
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.state import dumps, loads

TWO = tc.Simplex(2)
MAKERS: dict[str, Callable[[], tc.Corrector]] = {
    "temperature": lambda: tc.TemperatureScaling(TWO),
    "beta": lambda: tc.BetaCalibration(TWO),
    "means": lambda: tc.Recalibrator(TWO),
    "shifts": lambda: tc.Recalibrator(TWO, make="shift", scores="exact"),
    "isotonic": lambda: tc.IsotonicCalibration(TWO),
    "groups": lambda: tc.ByGroup(tc.PlattScaling(TWO)),
    "overlapping groups": lambda: tc.Multicalibrator(TWO),
    "gated": lambda: tc.Gated(tc.VectorScaling(TWO), alpha=0.9),
    "chain": lambda: tc.Chain([tc.PlattScaling(TWO), tc.Recalibrator(TWO)]),
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@each
def test_a_round_of_weight_0_is_counted_and_neither_learned_nor_scored(make: Any) -> None:
    P, Y = model("overconfident", 2, 120, 0)
    weights = np.where(np.arange(120) % 3, 1.0, 0.0)
    without, batch, loop, late = make(), make(), make(), tc.Late(make())
    without.update_many(P[weights > 0], Y[weights > 0])
    means = batch.update_many(P, Y, weights=weights)
    for i, (b, y, weight) in enumerate(zip(P, Y, weights, strict=True)):
        assert np.array_equal(loop.predict(b).mean, means[i])
        loop.update(y, weight=weight)
        late.predict(b, id=i)
        late.update(i, y, weight=weight)
    assert dumps(batch) == dumps(loop)
    assert batch.rounds == late.rounds == 120
    assert batch.report() == without.report() == late.report()
    assert np.array_equal(batch.predict_many(P), without.predict_many(P))
    assert dumps(loads(dumps(batch))) == dumps(batch)
    if batch.scores == "exact":
        assert batch.ledgers["after"].rounds == 80


@pytest.mark.parametrize("kind", all_correctors(), ids=lambda kind: kind.__name__)
def test_every_corrector_is_saved_and_resumed_after_a_round_of_weight_0(kind: type[tc.Corrector]) -> None:
    P, Y = model("overconfident", 2, 12, 0)
    for f in kind.examples(TWO):
        asked = np.stack([P] * len(f.models), axis=1) if isinstance(f, tc.Mixture) else P
        f.fit(asked[:4], Y[:4])
        for b, y, weight in zip(asked[4:], Y[4:], [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0], strict=True):
            f.predict(b)
            f.update(y, weight=weight)
            again = loads(dumps(f))
            assert again.rounds == f.rounds
            assert dumps(again) == dumps(f)
            assert np.array_equal(again.predict_many(asked), f.predict_many(asked))


@each
def test_rounds_of_weight_0_alone_resume(make: Any) -> None:
    f = make()
    f.update_many([[0.5, 0.5]] * 3, [0, 1, 0], weights=[0, 0, 0])
    again = loads(dumps(f))
    assert (again.rounds, np.array_equal(again.predict_many([[0.3, 0.7]]), [[0.3, 0.7]])) == (3, True)
    with pytest.raises(ParameterError, match="no round is scored"):
        again.report()


@each
def test_rows_of_weight_0_are_left_out_of_a_fit(make: Any) -> None:
    P, Y = model("overconfident", 2, 60, 0)
    weights = np.where(np.arange(60) % 4, 2.0, 0.0)
    one = make().fit(P, Y, weights=weights)
    other = make().fit(P[weights > 0], Y[weights > 0], weights=weights[weights > 0])
    assert dumps(one) == dumps(other)


def test_an_invalid_weight_names_its_round() -> None:
    f = tc.PlattScaling(TWO)
    f.learn([0.3, 0.7], 1)
    P, y = [[0.3, 0.7]] * 4, [1, 0, 1, 1]
    for bad in (-1.0, np.nan, np.inf, 1e13, 1e-13):
        for learn in (f.update_many, f.fit):
            with pytest.raises(ParameterError, match="the weight of round 4 is"):
                learn(P, y, weights=[1, 2, bad, 1])
        f.predict(P[0])
        with pytest.raises(ParameterError, match="weight is"):
            f.update(1, weight=bad)
        f.cancel()
    for text in (["1", "1", "1", "1"], [True] * 4):
        with pytest.raises(ParameterError, match="the weight of round 2"):
            f.update_many(P, y, weights=text)
    assert f.rounds == 1
    with pytest.raises(UnsupportedError, match="no weights"):
        tc.Recalibrator(TWO, make=tc.TreeCal(TWO)).update_many(P, y, weights=[1, 0, 1, 1])


def test_a_mixture_passes_rounds_of_weight_0() -> None:
    f = tc.Mixture(TWO, ["a", "b"])
    rounds = [[[0.9, 0.1], [0.5, 0.5]]] * 4
    f.update_many(rounds, [0] * 4, weights=[1, 0, 0, 1])
    other = tc.Mixture(TWO, ["a", "b"])
    other.update_many(rounds[:2], [0] * 2)
    assert f.weights == other.weights
    assert f.history.rounds.tolist() == [0, 1, 2, 3, 4]
    assert f.history.weights[1].tolist() == f.history.weights[3].tolist()
    assert dumps(loads(dumps(f))) == dumps(f)


@pytest.mark.parametrize("weight", [1e12, 1e-12, 0.3])
@pytest.mark.parametrize("make", ["mean", "shift"])
def test_reports_are_of_rounds_alone_whatever_a_log_weighs(make: Any, weight: float) -> None:
    P, Y = model("overconfident", 2, 400, 0)
    f, alone = (tc.Recalibrator(TWO, make=make, forget=False) for _ in range(2))
    f.fit(P[:200], Y[:200], weights=np.full(200, weight))
    f.update_many(P[200:], Y[200:])
    alone.update_many(P[200:], Y[200:])
    found, expected = f.report(), alone.report()
    assert (found.groups, found.rounds) == (expected.groups, 200)
    assert found.group_refinement == pytest.approx(expected.group_refinement, rel=1e-12)
    assert found.shift_refinement == pytest.approx(expected.shift_refinement, rel=1e-12)
    assert loads(dumps(f)).report() == found


@pytest.mark.parametrize(
    "make",
    [
        lambda: tc.PlattScaling(TWO),
        lambda: tc.PlattScaling(TWO, forget=False),
        lambda: tc.VectorScaling(TWO, forget=False),
        lambda: tc.Recalibrator(TWO, forget=False),
        lambda: tc.Recalibrator(TWO, make="shift", forget=False),
    ],
)
@pytest.mark.parametrize("weight", [0.3, 1 / 3, 1e12, 1e12 / 7, 1e-12])
def test_a_bank_that_starts_from_odd_weights_resumes(make: Any, weight: float) -> None:
    P, Y = model("overconfident", 2, 60, 0)
    bank = tc.Bank(make().fit(P[:30], Y[:30], weights=weight * np.linspace(0.5, 1, 30).clip(1e-12 / weight)))
    bank.add(3)
    bank.update(np.arange(30) % 2, Y[30:], forecasts=P[30:])
    again = loads(dumps(bank))
    assert dumps(again) == dumps(bank)
