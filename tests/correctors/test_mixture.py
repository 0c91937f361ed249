"""A mixture follows the best sequence of models within its bound, and is a corrector like any other."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal._typing import Array
from treecal.exceptions import ForecastError, ParameterError, SnapshotError, UnsupportedError
from treecal.state import dumps, loads
from treecal.testing import CORRECTOR_CHECKS, check_arrays_of_any_form

SPACES: dict[str, tc.ConvexSet] = {"simplex": tc.Simplex(3), "box": tc.Box(-1, 1, dim=2), "ball": tc.Ball(3)}


def losses(forecasts: Array, outcome: Array, space: tc.ConvexSet) -> Array:
    """Return the log score of each forecast on a simplex, the squared score elsewhere."""
    if isinstance(space, tc.Simplex):
        met = outcome > 0
        with np.errstate(divide="ignore"):
            return np.asarray(-(np.log(forecasts[..., met]) * outcome[met]).sum(axis=-1))
    return np.asarray(((outcome - forecasts) ** 2).sum(axis=-1))


def best_sequences(L: Array, most: int) -> list[float]:
    """Return the least total loss of a sequence of models with 0, 1, … changes at most, from `(rounds, models)`."""
    least = np.full((most + 1, L.shape[1]), math.inf)
    least[:] = L[0]
    for row in L[1:]:
        changed = np.vstack([np.full((1, L.shape[1]), math.inf), np.tile(least[:-1].min(axis=1)[:, None], L.shape[1])])
        least = np.minimum(least, changed) + row
    return [float(x) for x in least.min(axis=1)]


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 10**6), st.sampled_from([0.001, 0.02, 0.5]), st.integers(1, 4))
def test_regret_is_within_the_bound_on_every_sequence(name: str, seed: int, share: float, models: int) -> None:
    space, rng = SPACES[name], np.random.default_rng(seed)
    P, spread = np.array(space.sample(rng, 80 * models)).reshape(80, models, -1), rng.choice([0.0, 0.7, 1.0])
    Y = np.array(space.sample(rng, 80))
    if isinstance(space, tc.Simplex):
        Y = np.where(rng.random((80, 1)) < 0.7, np.eye(3)[rng.integers(3, size=80)], Y)
        P = np.where(rng.random((80, models, 1)) < 0.3, np.eye(3)[rng.integers(3, size=(80, models))], P)  # zeros too
    # One model is nearly right, another one from time to time.
    P[np.arange(80), np.arange(80) // 27 % models] += (
        spread * 0.9 * (Y - P[np.arange(80), np.arange(80) // 27 % models])
    )
    f = tc.Mixture(space, models, share=share)
    mixed, ours = f.update_many(P, Y), 0.0
    ours = float(sum(losses(x, y, space) for x, y in zip(mixed, Y, strict=True)))
    best = best_sequences(np.array([losses(p, y, space) for p, y in zip(P, Y, strict=True)]), 5)
    for changes, least in enumerate(best):
        assert ours <= least + f.regret(changes=changes) + 1e-9


def test_the_bound_is_nearly_reached() -> None:
    # Two models, one of them sure and right: the mixture loses ln 2 in the first round, and the shares later.
    f = tc.Mixture(tc.Simplex(2), 2, share=0.01)
    mixed = f.update_many([[[1, 0], [0, 1]]] * 100, [[1, 0]] * 100)
    assert 0.7 * f.regret() < -np.log(mixed[:, 0]).sum() <= f.regret()


def test_weights_follow_the_definition() -> None:
    rng, space, share = np.random.default_rng(0), tc.Simplex(3), 0.01
    P, Y = rng.dirichlet(np.ones(3), (50, 4)), np.eye(3)[rng.integers(3, size=50)]
    w, f = np.full(4, 0.25), tc.Mixture(space, ["a", "b", "c", "d"], share=share)
    for p, y in zip(P, Y, strict=True):
        assert np.allclose(f.predict(p).mean, w @ p)
        f.update(y)
        w = w * (p @ y)
        w = (1 - share) * w / w.sum() + share / 4
        assert list(f.weights) == ["a", "b", "c", "d"]
        assert np.allclose(list(f.weights.values()), w)


def test_an_outcome_that_all_models_exclude_leaves_their_weights() -> None:
    f = tc.Mixture(tc.Simplex(3), 2)
    rows = np.array([[1, 0, 0], [0.5, 0.5, 0]])
    f.learn(rows, np.eye(3)[1])
    assert f.weights["model 2"] == pytest.approx(0.999)
    f.learn(rows, np.eye(3)[2])
    assert f.weights["model 2"] == pytest.approx(0.998 * 0.999 + 0.001)
    f.learn(np.array([[1e-320, 1, 0], [1e-310, 0.5, 0.5]]), np.eye(3)[0])
    assert all(math.isfinite(w) for w in f.weights.values())


def test_after_a_change_of_the_best_model_the_weights_follow() -> None:
    rng, space = np.random.default_rng(0), tc.Simplex(2)
    f = tc.Mixture(space, ["day", "night"])
    for t in range(1200):
        z, noise = rng.normal(size=2)
        good, bad = 1 / (1 + math.exp(-2 * z)), 1 / (1 + math.exp(-2 * noise))
        rows = [[1 - good, good], [1 - bad, bad]]
        f.learn(rows if t < 600 else rows[::-1], np.eye(2)[int(rng.random() < good)])
        if t == 599:
            assert f.weights["day"] > 0.95
    assert f.weights["night"] > 0.95
    rounds, weights = f.history
    middle = weights[(rounds > 100) & (rounds <= 600), 0]
    assert np.quantile(middle, 0.1) > 0.9


@pytest.mark.parametrize("rounds", [0, 1, 254, 255, 256, 1500])
def test_history_is_bounded_and_equally_spaced(rounds: int) -> None:
    f = tc.Mixture(tc.Simplex(2), 2, scores=None)
    every = [list(f.weights.values())]
    rng = np.random.default_rng(0)
    for k in rng.integers(2, size=rounds):
        f.learn([[0.4, 0.6], [0.6, 0.4]], np.eye(2)[k])
        every.append(list(f.weights.values()))
    found, weights = f.history
    assert 1 <= len(found) < 256
    assert len(found) >= min(128, rounds + 1)
    assert len(set(np.diff(found))) <= 1
    assert rounds - found[-1] < (found[1] if len(found) > 1 else 1)
    assert np.array_equal(weights, np.array(every)[found])
    again = loads(dumps(f))
    assert np.array_equal(again.history.weights, weights)


CHECKS = [check for check in CORRECTOR_CHECKS if check is not check_arrays_of_any_form]  # which flattens matrices


@pytest.mark.parametrize("last", [None, "vector", "gated"])
def test_contract(last: str | None) -> None:
    space, rng = tc.Simplex(3), np.random.default_rng(0)
    made: dict[str | None, Callable[[], tc.Corrector | None]] = {
        None: lambda: None,
        "vector": lambda: tc.VectorScaling(space),
        "gated": lambda: tc.Gated(tc.Recalibrator(space), alpha=0.9),
    }
    forecasts, outcomes = rng.dirichlet(np.ones(3), (24, 2)), np.eye(3)[rng.integers(3, size=24)]
    for check in CHECKS:
        check(lambda: tc.Mixture(space, ["a", "b"], corrector=made[last](), share=0.1), outcomes, forecasts)


def test_what_follows_is_fed_the_mixture() -> None:
    rng, space = np.random.default_rng(0), tc.Simplex(3)
    P, Y = rng.dirichlet(np.ones(3), (100, 2)), np.eye(3)[rng.integers(3, size=100)]
    plain, last = tc.Mixture(space, 2), tc.VectorScaling(space)
    both = tc.Mixture(space, 2, corrector=last)
    expected = last.update_many(plain.update_many(P, Y), Y)
    assert np.array_equal(both.update_many(P, Y), expected)
    assert both.weights == plain.weights
    assert both.report().before.brier == pytest.approx(((Y - P.mean(axis=1)) ** 2).sum(axis=1).mean())


def test_a_log_fits_the_weights_and_what_follows() -> None:
    rng, space = np.random.default_rng(0), tc.Simplex(3)
    P, Y = rng.dirichlet(np.ones(3), (100, 2)), np.eye(3)[rng.integers(3, size=100)]
    plain = tc.Mixture(space, 2)
    last = tc.VectorScaling(space).fit(plain.update_many(P, Y), Y, in_order=True)
    both = tc.Mixture(space, 2, corrector=tc.VectorScaling(space)).fit(P, Y, in_order=True)
    assert both.corrector is not None
    assert (both.weights, both.rounds) == (plain.weights, 100)
    assert np.array_equal(both.history.weights, plain.history.weights)
    assert np.array_equal(both.corrector.predict_many(P[:, 0]), last.predict_many(P[:, 0]))
    assert tc.Mixture(space, 2).fit(P, Y, in_order=True).weights == plain.weights


def test_the_exact_scores_are_those_of_the_average() -> None:
    f = tc.Mixture(tc.Simplex(2), 2, scores="exact")
    f.learn([[1, 0], [0, 1]], [1, 0])
    assert f.ledgers["before"].error("l1") == 1
    assert f.report().before.brier == 0.5


def test_forecasts_by_name_and_in_any_form() -> None:
    f = tc.Mixture(tc.Simplex(2), ["icon", "gfs"])
    f.learn([[0.9, 0.1], [0.2, 0.8]], [1, 0])
    x = f.predict({"gfs": [0.2, 0.8], "icon": (0.9, 0.1)})
    f.cancel()
    assert f.predict(np.array([[0.9, 0.1], [0.2, 0.8]], ">f4").astype(">f8").round(6)) == x
    f.cancel()
    assert f.predict([np.array([0.9, 0.1]), np.array([0.2, 0.8])]) == x
    named: Any = [{"icon": [0.9, 0.1], "gfs": [0.2, 0.8]}]
    assert np.array_equal(f.predict_many(named), x.mean[None])


@pytest.mark.parametrize(
    ("forecast", "complaint"),
    [
        ([[1, 0]], "round 1 has 1 entries, expected 2 points, one for each of icon, gfs"),
        ([0.5, 0.5], "round 1 of icon is the scalar"),
        ({"icon": [1, 0]}, "(?s)round 1 has no forecast of 'gfs'\\..*the models are 'icon', 'gfs'"),
        ({"icon": [1, 0], "gfs": [1, 0], "gem": [1, 0]}, "round 1 has one of 'gem'\\."),
        ({"icon": [1, 0], "gsf": [1, 0]}, "round 1 has no forecast of 'gfs', and one of 'gsf'\\."),
        (None, "round 1 is a NoneType"),
        ([[1, 0], [1, 0.5]], "round 1 of gfs lies outside"),
        ([[1, 0], [math.nan, 1]], "round 1 of gfs holds nan"),
        (np.float64(1), "round 1 is a float64"),
    ],
)
def test_a_wrong_forecast_is_named_and_changes_nothing(forecast: Any, complaint: str) -> None:
    f = tc.Mixture(tc.Simplex(2), ["icon", "gfs"])
    before = dumps(f)
    with pytest.raises(ForecastError, match=complaint):
        f.predict(forecast)
    with pytest.raises(ForecastError, match="round 2"):
        f.update_many([[[1, 0], [1, 0]], forecast], [[1, 0], [1, 0]])
    assert dumps(f) == before


def test_late_pairs_are_scored_by_what_was_announced() -> None:
    f, P = tc.Mixture(tc.Simplex(2), 2), [[0.9, 0.1], [0.2, 0.8]]
    f.learn(P, [1, 0], announced=[0.5, 0.5])
    f.update_many([P], [[1, 0]], announced=[tc.Forecast([[0.5, 0.5]])])
    f.update_many([P], [[1, 0]], announced=[[0.5, 0.5]], weights=[2.0])
    assert f.report().after.brier == pytest.approx(0.5)


def test_groups_are_those_of_the_corrector() -> None:
    f = tc.Mixture(tc.Simplex(2), 2)
    with pytest.raises(UnsupportedError, match="without a corrector knows no groups"):
        f.predict([[1, 0], [1, 0]], group="JFK")
    g = tc.Mixture(tc.Simplex(2), 2, corrector=tc.Recalibrator(tc.Simplex(2), make=tc.TreeCal(tc.Simplex(2))))
    assert g.ordered
    assert not f.ordered


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"models": []}, "models is"),
        ({"models": 0}, "models is 0"),
        ({"models": ["a", "a"]}, "all different"),
        ({"models": "ab"}, "their names, or how many"),
        ({"models": ["a", 1]}, "all different"),
        ({"share": 0.0}, "share is 0"),
        ({"share": 0.6}, "share is 0.6, expected more than 0 and at most 0.5"),
        ({"corrector": tc.VectorScaling(tc.Simplex(3))}, "expected a Corrector on Simplex"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        tc.Mixture(**(dict[str, Any](space=tc.Simplex(2), models=2) | arguments))


def test_files(tmp_path: Path) -> None:
    f = tc.Mixture(tc.Simplex(2), ["icon", "gfs"], corrector=tc.Gated(tc.PlattScaling(tc.Simplex(2))))
    f.predict([[1, 0], [0, 1]])
    tc.save(f, tmp_path / "f.treecal")
    again = tc.load(tmp_path / "f.treecal")
    for each in (f, again):
        each.update([1, 0])
    assert again.weights == f.weights
    assert again.models == ("icon", "gfs")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 3),
        ("step", 0),
        ("step", 2),
        ("weights", np.array([1.0])),
        ("weights", np.array([1.5, -0.5])),
        ("past", np.full((3, 2), 0.5)),
    ],
)
def test_a_state_that_cannot_be_is_refused(name: str, value: Any) -> None:
    f = tc.Mixture(tc.Simplex(2), 2)
    f.update_many(np.tile([[1, 0], [0.5, 0.5]], (10, 1, 1)), [[1, 0]] * 10)
    state, before = f.get_state(), dumps(f)
    state["own"]["shares"][name] = value
    with pytest.raises(SnapshotError):
        f.set_state(state)
    assert dumps(f) == before
