"""The set of distributions of a number, against integrals written out and against lists of its steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import integrate

import treecal as tc
from tests.some import some
from treecal._typing import Array
from treecal.exceptions import ForecastError, GeometryError, OutcomeError, ParameterError, UnsupportedError
from treecal.geometry import Distribution

LOAD = tc.Cdf(0, 500)
UNEVEN = tc.Cdf(-2, 8, thresholds=[-2, -1, 0, 0.5, 5])


@st.composite
def sets(draw: st.DrawFn) -> tc.Cdf:
    low, width = draw(st.floats(-100, 100)), draw(st.floats(0.1, 100))
    if draw(st.booleans()):
        return tc.Cdf(low, low + width, points=draw(st.integers(1, 12)))
    shares = sorted(draw(st.sets(st.integers(0, 99), min_size=1, max_size=9)))
    return tc.Cdf(low, low + width, thresholds=low + width * np.array(shares) / 100)


def drawn(space: tc.Cdf, seed: int) -> Distribution:
    """A distribution with flat parts and jumps."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.choice(np.round(rng.random(4), 1), space.dim))
    return space.distribution(values)


def integral(function: Callable[[float], float], space: tc.Cdf, *breaks: float) -> float:
    parts = np.unique([space.low, *space.thresholds, *np.clip(breaks, space.low, space.high), space.high])
    return math.fsum(integrate.quad(function, a, b)[0] for a, b in itertools.pairwise(parts))


@given(space=sets(), seed=st.integers(0, 10**6), share=st.floats(-0.2, 1.2))
def test_what_is_read_off_a_distribution_is_its_integral(space: tc.Cdf, seed: int, share: float) -> None:
    law, width = drawn(space, seed), space.high - space.low
    y = space.low + share * width
    beyond = max(space.low - y, 0, y - space.high)
    score = integral(lambda z: (law.cdf(z) - (y <= z)) ** 2, space, y)
    assert law.crps(y) == pytest.approx(score + beyond, abs=1e-7 * width)
    mean = space.high - integral(law.cdf, space)
    assert law.mean == pytest.approx(mean, abs=1e-7 * width)
    square = width**2 - integral(lambda z: 2 * (z - space.low) * law.cdf(z), space)
    assert law.sd**2 == pytest.approx(square - (mean - space.low) ** 2, abs=1e-6 * width**2)


@given(space=sets(), seed=st.integers(0, 10**6), level=st.floats(0, 1))
def test_quantiles_are_the_least_numbers_that_reach_the_level(space: tc.Cdf, seed: int, level: float) -> None:
    law, width = drawn(space, seed), space.high - space.low
    q = law.quantile(level)
    assert space.low <= q <= space.high
    assert law.cdf(q) >= level - 1e-9
    assert law.cdf(q - 1e-6 * width) <= level + 1e-9
    np.testing.assert_array_equal(law.quantile([level, level]), [q, q])


@given(space=sets(), seed=st.integers(0, 10**6))
def test_sizes_are_those_of_the_list_of_steps(space: tc.Cdf, seed: int) -> None:
    steps = space.corners()
    assert space.contains(steps).all()
    assert len(np.unique(steps, axis=0)) == space.dim + 1
    width = math.sqrt(space.high - space.low)
    assert space.crps(steps - space.centre) == pytest.approx(np.full(space.dim + 1, width / 2))
    assert float(space.diameter("crps")) == pytest.approx(width)
    about = drawn(space, seed).values
    for norm in (space.crps, tc.l1, tc.l2, tc.linf, tc.Mahalanobis(np.eye(space.dim) + 1)):
        pairs = norm(steps[:, None] - steps[None])
        assert space.diameter(norm) >= pairs.max() * (1 - 1e-12)
        assert space.circumradius(norm) >= pairs.max() / 2 * (1 - 1e-12)
        assert float(space.radius(norm, about=about)) == pytest.approx(norm(steps - about).max())
    direction = np.random.default_rng(seed).normal(size=(7, space.dim))
    np.testing.assert_allclose((space.minimise(direction) * direction).sum(axis=1), (direction @ steps.T).min(axis=1))


@given(space=sets(), seed=st.integers(0, 10**6))
def test_the_norm_is_an_ellipsoid_with_a_dual(space: tc.Cdf, seed: int) -> None:
    x, y = np.random.default_rng(seed).normal(size=(2, space.dim))
    matrix = tc.Mahalanobis(space.crps.matrix)
    assert space.crps(x) == pytest.approx(float(matrix(x)))
    assert space.crps.dual(x) == pytest.approx(float(matrix.dual(x)))
    assert abs(x @ y) <= space.crps(x) * space.crps.dual(y) * (1 + 1e-9)


def test_the_score_of_a_point_is_the_crps_as_the_cells_see_it() -> None:
    """Over outcomes that are uniform in a cell, the sum over thresholds is the integral."""
    forecast = np.linspace(0, 1, LOAD.dim) ** 2
    law = LOAD.distribution(forecast)
    y = np.linspace(0, 500, 10_001)[:-1] + 0.025
    exact = law.crps(y).mean()
    assert LOAD.crps.square(forecast - LOAD.steps(y)).mean() == pytest.approx(exact, rel=1e-3)


def test_a_constant_half_is_as_far_from_every_number() -> None:
    half = LOAD.distribution(LOAD.centre)
    assert np.ptp(LOAD.crps(LOAD.centre - LOAD.corners())) < 1e-12
    assert half.mean == 250
    assert half.interval(0.9) == pytest.approx((0.5 * 2.5 * 0.2 / 1, 500 - 0.25), abs=0.3)


@pytest.mark.parametrize("points", [16, 64, 1000])
def test_certificates_do_not_grow_with_the_thresholds(points: int) -> None:
    space, root = tc.Cdf(-3, 13, points=points), 4.0
    for make, most in ((tc.Harmonic, 0.17), (tc.Guarded, 0.21)):
        found = make(space).certificate("crps", rounds=10**4)
        assert found is not None
        assert found.bound / root < most
    assert tc.certificate(space, "crps", rounds=10**4).bound / root < 0.4
    assert tc.recommend(space, "crps", rounds=1000).best.bound == pytest.approx(root * 0.21, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"low": 5, "high": 5}, "low is 5 and high 5"),
        ({"low": 0, "high": 1, "thresholds": [0.5, 0.5]}, "expected increasing ones"),
        ({"low": 0, "high": 1, "thresholds": [0.5, 1.0]}, "below 1"),
        ({"low": 0, "high": 1, "thresholds": []}, "thresholds are 0 numbers"),
        ({"low": 1e16, "high": 1e16 + 4}, "that float64 can distinguish"),
        ({"low": 0, "high": 1, "points": 3, "thresholds": [0.5]}, "not both"),
        ({"low": 0, "high": 1, "points": 0}, "points is 0"),
        ({"low": math.nan, "high": 1}, "low is nan, not finite"),
        ({"low": 0, "high": 1, "clip": 1}, "clip is 1"),
    ],
)
def test_sets_that_cannot_be(arguments: dict[str, float], words: str) -> None:
    with pytest.raises((GeometryError, ParameterError), match=words):
        tc.Cdf(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [500.001, -1, math.nan, math.inf, "12", None, True, [12.5], np.ma.masked])
def test_outcomes_that_are_none_change_nothing(bad: object) -> None:
    f = tc.Guarded(LOAD)
    f.update(12.5)
    before = f.predict()
    with pytest.raises(OutcomeError, match="round 2"):
        f.update(bad)  # type: ignore[arg-type]
    if isinstance(bad, str):
        with pytest.raises(OutcomeError, match="is '12', expected a number from 0 to 500"):
            f.update(bad)
    with pytest.raises(OutcomeError, match="round 4"):
        tc.replay([1.0, 2, 3, math.nan], tc.TreeCal(LOAD))
    assert f.rounds == 1
    assert f.predict() == before


def test_numbers_outside_count_as_the_end_if_that_is_asked_for() -> None:
    clipped, plain = tc.TreeCal(tc.Cdf(0, 10, clip=True)), tc.TreeCal(tc.Cdf(0, 10))
    for y in (-3, 12, 4):
        clipped.update(y)
        plain.update(min(max(y, 0), 10))
    assert (clipped.predict().points == plain.predict().points).all()
    with pytest.raises(OutcomeError, match=r"-3, expected 0 to 10\.") as raised:
        plain.update(-3)
    assert raised.value.hint == "tc.Cdf(0, 10, clip=True) counts numbers outside as the nearer end."


def test_forecasts_of_numbers_can_be_read() -> None:
    f = tc.TreeCal(LOAD)
    for y in (100, 200, 300):
        f.update(y)
    x = f.predict()
    law = x.distribution
    assert (x.cdf(200), x.quantile(0.5), x.interval(0.5)) == (law.cdf(200), law.quantile(0.5), law.interval(0.5))
    assert x.crps(150) == law.crps(150)
    assert law.cdf(-1) == 0
    assert law.cdf(500) == 1
    assert "median" in repr(law)
    with pytest.raises(UnsupportedError, match=r"tc\.Cdf"):
        tc.TreeCal(tc.Simplex(2)).predict().interval(0.9)
    with pytest.raises(ParameterError, match="percent"):
        law.quantile(50)
    with pytest.raises(ParameterError, match="coverage is 90"):
        law.interval(90)
    with pytest.raises(ParameterError, match=r"tc\.Cdf"):
        tc.Ledger(tc.Simplex(2)).error("crps")


def test_many_distributions_are_read_as_each_alone() -> None:
    many = np.sort(np.random.default_rng(0).random((6, UNEVEN.dim)), axis=1)
    laws, y = UNEVEN.distribution(many), np.linspace(-3, 9, 6)
    each = [UNEVEN.distribution(row) for row in many]
    for name in ("mean", "sd"):
        assert getattr(laws, name).tolist() == [getattr(law, name) for law in each]
    assert laws.crps(y).tolist() == [law.crps(value) for law, value in zip(each, y, strict=True)]
    assert laws.cdf(y).tolist() == [law.cdf(value) for law, value in zip(each, y, strict=True)]
    assert laws.quantile(0.3).tolist() == [law.quantile(0.3) for law in each]
    assert laws.cdf(1.0).tolist() == [law.cdf(1.0) for law in each]


def played(f: tc.Forecaster, outcomes: Array) -> tc.Ledger:
    ledger = tc.Ledger(f.space)
    for y in outcomes:
        ledger.record(f.predict(), y)
        f.update(y)
    return ledger


@pytest.mark.parametrize("space", some([LOAD, UNEVEN], every=2), ids=["even", "uneven"])
@pytest.mark.parametrize("make", [tc.TreeCal, tc.AdaptiveTreeCal, tc.Guarded], ids=lambda make: make.__name__)
def test_streams_banks_and_replays_agree_bit_for_bit(make: type[tc.Forecaster], space: tc.Cdf) -> None:
    outcomes = np.random.default_rng(0).uniform(space.low, space.high, 150)
    one = make(space)
    ledger = played(one, outcomes)
    run = tc.replay(outcomes, make(space))  # type: ignore[call-overload]
    assert run.error("crps") == pytest.approx(ledger.error("crps"), rel=1e-12)
    assert (run.forecast(150).points == one.predict().points).all()
    bank = tc.Bank(make(space), streams=2)
    bank.update(np.ones(150, int), outcomes)
    assert (bank.predict([1]).mean[0] == one.predict().mean).all()
    late = tc.Late(make(space))
    late.predict(id="a")
    late.update("a", float(outcomes[0]))


def test_a_snapshot_knows_the_set(tmp_path: object) -> None:
    for space in (LOAD, UNEVEN, tc.Cdf(0, 1, points=3, clip=True)):
        f = tc.Guarded(space, norm="crps")
        f.update(0.5)
        tc.save(f, f"{tmp_path}/f")
        again = tc.load(f"{tmp_path}/f")
        assert again.space == space
        assert repr(again) == repr(f)
        assert again.predict() == f.predict()


def test_a_ledger_takes_forecasts_in_every_form() -> None:
    ledger = tc.Ledger(LOAD)
    ledger.record({0.1: 80, 0.5: 120, 0.9: 200}, 100)
    ledger.record({"mean": 120, "sd": 40}, 100)
    ledger.record_many({"q10": [80, 90], "q90": [200, 210]}, [100, 140])
    assert ledger.rounds == 4
    with pytest.raises(ForecastError, match="round 6 has the quantile q90 of 501, expected 0 to 500"):
        ledger.record_many({"q10": [80, 90], "q90": [200, 501]}, [100, 140])
    assert ledger.rounds == 4


@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_ordered_classes_have_the_norm_of_their_distribution_functions(dim: int) -> None:
    space = tc.Simplex(dim, ordered=True)
    P, Q = np.random.default_rng(dim).dirichlet(np.ones(dim), (2, 5))
    gaps = np.cumsum(P - Q, axis=1)[:, :-1]
    assert space.crps is not None
    np.testing.assert_allclose(space.crps(P - Q), np.sqrt((gaps**2).sum(axis=1)), atol=1e-15)
    np.testing.assert_allclose(space.crps(P - Q), tc.Mahalanobis(space.crps.matrix)(P - Q), atol=1e-12)
    x, y = np.random.default_rng(0).normal(size=(2, dim))
    assert space.crps.dual(y) ** 2 == pytest.approx(float(y @ np.linalg.solve(space.crps.matrix, y)))
    assert abs(x @ y) <= space.crps(x) * space.crps.dual(y) * (1 + 1e-9)
    corners = np.eye(dim)
    middle = (corners[0] + corners[-1]) / 2
    assert float(space.circumradius("crps")) == pytest.approx(space.crps(corners - middle).max())
    assert float(space.diameter("crps")) == pytest.approx(2 * float(space.circumradius("crps")))


def test_an_order_is_part_of_the_set(tmp_path: object) -> None:
    plain, grades = (tc.Simplex(classes=["a", "b", "c"], ordered=ordered) for ordered in (False, True))
    assert plain != grades
    assert repr(grades) == "Simplex(classes=['a', 'b', 'c'], ordered=True)"
    f = tc.Guarded(grades, norm="crps")
    ledger = tc.Ledger(grades)
    for name in "abcabbc":
        ledger.record(f.predict(), name)
        f.update(name)
    assert 0 < ledger.error("crps") < math.sqrt(2)
    tc.save(f, f"{tmp_path}/f")
    again = tc.load(f"{tmp_path}/f")
    assert again.space == grades
    assert again.predict() == f.predict()
    found = tc.Harmonic(grades).certificate("crps", rounds=10**4)
    assert found is not None
    assert found.bound < 0.17 * math.sqrt(2)
    with pytest.raises(ParameterError, match="ordered classes"):
        tc.Ledger(plain).error("crps")
    with pytest.raises(ParameterError, match="ordered is 1"):
        tc.Simplex(3, ordered=1)  # type: ignore[arg-type]


def test_a_table_of_forecasts_is_read_as_the_forecasts() -> None:
    pytest.importorskip("pandas")
    space = tc.Cdf(0, 10, points=50)
    law = space.distribution(tc.geometry.read_distributions(space, {"mean": [4.0, 6.0], "sd": [1.0, 2.0]}))
    frame = law.to_frame([0.1, 0.5, 0.9])
    assert list(frame) == ["q0.1", "q0.5", "q0.9", "mean"]
    np.testing.assert_array_equal(frame["q0.9"], law.quantile(0.9))
    again = tc.geometry.read_distributions(space, frame.drop(columns="mean"))
    np.testing.assert_allclose(space.distribution(again).quantile(0.5), law.quantile(0.5), atol=0.01)
    assert law.to_frame().shape == (2, 6)
