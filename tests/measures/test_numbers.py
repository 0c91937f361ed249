"""Measures of forecasts of numbers, against integrals written out and against other people's libraries."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

import treecal as tc
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.measures import (
    chance,
    coverage,
    crps,
    crps_parts,
    interval,
    interval_score,
    pinball,
    pit,
    rps,
    sharpness,
)

RNG = np.random.default_rng(0)
N = 60
MEAN, SD, Y = RNG.normal(10, 3, N), RNG.uniform(0.5, 2, N), RNG.normal(10, 3, N)
MEMBERS = RNG.normal(MEAN[:, None], SD[:, None], (N, 9))
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
QUANTILES: dict[Any, Any] = {tau: stats.norm(MEAN, SD).ppf(tau) for tau in LEVELS}


@pytest.fixture(scope="module")
def scoringrules() -> Any:
    """Imported by the tests that use it, and without Numba, for which it would compile all its functions."""
    with patch.dict(sys.modules, numba=None):
        import scoringrules
    return scoringrules


@pytest.fixture(scope="module")
def properscoring() -> Any:
    with warnings.catch_warnings():  # its docstrings are older than Python's rules
        warnings.simplefilter("ignore")
        import properscoring
    return properscoring


def test_scores_are_those_of_other_libraries(scoringrules: Any, properscoring: Any) -> None:
    members = {"members": MEMBERS}
    assert crps(members, Y) == pytest.approx(scoringrules.crps_ensemble(Y, MEMBERS, estimator="nrg").mean())
    assert crps(members, Y) == pytest.approx(properscoring.crps_ensemble(Y, MEMBERS).mean())
    assert crps(members, Y, fair=True) == pytest.approx(scoringrules.crps_ensemble(Y, MEMBERS, estimator="fair").mean())
    moments = {"mean": MEAN, "sd": SD}
    assert crps(moments, Y) == pytest.approx(properscoring.crps_gaussian(Y, MEAN, SD).mean())
    square = np.log1p((SD / 12) ** 2)
    lognormal = scoringrules.crps_lognormal(np.abs(Y), np.log(12) - square / 2, np.sqrt(square)).mean()
    assert crps({"mean": np.full(N, 12.0), "sd": SD, "family": "lognormal"}, np.abs(Y)) == pytest.approx(lognormal)
    table = np.column_stack(list(QUANTILES.values()))
    assert crps(QUANTILES, Y) == pytest.approx(scoringrules.crps_quantile(Y, table, np.array(LEVELS)).mean())
    for tau, found in pinball(QUANTILES, Y).items():
        assert found == pytest.approx(scoringrules.quantile_score(Y, QUANTILES[tau], tau).mean())
    winkler = scoringrules.interval_score(Y, QUANTILES[0.25], QUANTILES[0.75], 0.5).mean()
    assert interval_score(QUANTILES, Y, coverage=0.5) == pytest.approx(winkler)


def test_scores_of_normal_laws_are_their_integrals() -> None:
    z = np.linspace(-60, 90, 30_001)
    for k in range(2):
        one = {"mean": MEAN[k : k + 1], "sd": SD[k : k + 1], "family": ["normal"]}
        square = (np.asarray(stats.norm(MEAN, SD).cdf(z[:, None]))[:, k] - (z >= Y[k])) ** 2
        assert crps(one, [Y[k]]) == pytest.approx(np.trapezoid(square, z), rel=1e-3)


def test_scores_of_ensembles_are_their_integrals() -> None:
    holes = MEMBERS.copy()
    holes[3, [0, 4]] = np.nan
    with pytest.warns(tc.exceptions.RepairWarning):
        found = crps({"members": holes[3:4]}, Y[3:4])
    rest = holes[3][~np.isnan(holes[3])]
    expected = np.abs(rest - Y[3]).mean() - np.abs(rest[:, None] - rest).mean() / 2
    assert found == pytest.approx(expected)


def test_curves_are_measured_as_themselves() -> None:
    space = tc.Cdf(-10, 30, points=2000)
    curves = space.distribution(tc.geometry.read_distributions(space, {"mean": MEAN, "sd": SD}))
    moments = {"mean": MEAN, "sd": SD}
    assert crps(curves, Y) == pytest.approx(crps(moments, Y), rel=1e-3)
    np.testing.assert_allclose(pit(curves, Y), pit(moments, Y), atol=1e-2)
    assert sharpness(curves) == pytest.approx(sharpness(moments), rel=1e-2)


def test_the_parts_of_a_score_add_up() -> None:
    """With as many bins as there are forecasts at a threshold, the parts are those of the literal decomposition."""
    rng = np.random.default_rng(1)
    kinds = rng.integers(3, size=900)
    members = np.array([[0.0, 1, 2, 3], [2, 2, 4, 5], [1, 5, 5, 6]])[kinds]
    y = rng.normal(kinds * 2, 1)
    parts = crps_parts({"members": members}, y, bins=997)
    low, high = y.min(), y.max()
    z = np.unique(np.quantile(y, (np.arange(50) + 0.5) / 50))
    space = tc.Cdf(low, high, thresholds=z, clip=True)
    P, step = tc.geometry.read_distributions(space, {"members": members}), space.steps(y)
    assert parts.score == pytest.approx((space.widths * ((P - step) ** 2).mean(axis=0)).sum(), rel=1e-9)
    means = np.array([step[kinds == k].mean(axis=0) for k in range(3)])[kinds]
    assert parts.reliability <= (space.widths * ((P - means) ** 2).mean(axis=0)).sum() + 1e-12
    base = step.mean(axis=0)
    assert parts.uncertainty == pytest.approx((space.widths * base * (1 - base)).sum())
    assert parts.uncertainty == pytest.approx(np.abs(y[:, None] - y).mean() / 2, rel=0.02)
    assert 0 < parts.skill < 1


def test_pit_of_each_form() -> None:
    low, high = pit({"mean": MEAN, "sd": SD}, Y).T
    np.testing.assert_allclose(low, stats.norm(MEAN, SD).cdf(Y))
    np.testing.assert_array_equal(low, high)
    np.testing.assert_array_equal(
        pit({0.1: [1.0, 1, 1, 1], 0.5: [2.0, 2, 2, 1], 0.9: [3.0, 3, 3, 1]}, [0.5, 2.0, 4.0, 1.0]),
        [[0, 0.1], [0.1, 0.5], [0.9, 1], [0, 0.9]],
    )
    np.testing.assert_allclose(
        pit({"members": [[1.0, 2, 3]] * 3}, [0.0, 2.5, 2.0]), [[0, 0.25], [0.5, 0.75], [0.25, 0.75]]
    )
    drawn = pit({"members": [[1.0, 2, 3]] * 1000}, np.full(1000, 2.5), rng=np.random.default_rng(0))
    assert (drawn >= 0.5).all()
    assert (drawn <= 0.75).all()
    assert np.ptp(drawn) > 0.24


@pytest.mark.parametrize(
    "forecasts",
    [
        {"mean": np.zeros(4000), "sd": np.ones(4000)},
        {tau: np.full(4000, stats.norm.ppf(tau)) for tau in (0.1, 0.25, 0.5, 0.75, 0.9)},
        {"members": np.random.default_rng(5).normal(size=(4000, 19))},
    ],
    ids=["moments", "quantiles", "members"],
)
def test_right_forecasts_are_at_their_chance_level(forecasts: dict[Any, Any]) -> None:
    y = np.random.default_rng(2).normal(size=4000)
    rng = np.random.default_rng(3)
    for tau, found in coverage(forecasts, y, level=0.999).items():
        assert found.low < tau < found.high
    u = pit(forecasts, y, rng=rng)
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    for measure in (crps, interval_score):
        luck = chance(measure, forecasts, draws=40, rng=rng)
        assert luck.mean == pytest.approx(measure(forecasts, y), rel=0.06)
    too_sure = 2 * y
    assert coverage(forecasts, too_sure)[0.9].high < 0.8
    assert stats.kstest(pit(forecasts, too_sure, rng=rng), "uniform").pvalue < 1e-6
    found = interval(crps, forecasts, y, draws=100, rng=rng)
    assert found.low < crps(forecasts, y) < found.high


def test_weights_count_rows() -> None:
    w = np.arange(N) % 3
    again = np.repeat(np.arange(N), w)
    for measure in (crps, interval_score):
        weighted = measure({"mean": MEAN, "sd": SD}, Y, weights=w)
        assert weighted == pytest.approx(measure({"mean": MEAN[again], "sd": SD[again]}, Y[again]))


@pytest.mark.parametrize(
    ("forecasts", "y", "error", "words"),
    [
        ({0.1: [1.0], 0.9: [2.0]}, [math.nan], OutcomeError, "at round 1 is nan"),
        ({0.1: [1.0], 0.9: [2.0]}, [1.0, 2.0], OutcomeError, "a number for each of 1 forecasts"),
        ({0.1: [1.0, math.nan], 0.9: [2.0, 3.0]}, [1.0, 2.0], ForecastError, "round 2 has the quantile 0.1 of NaN"),
        ({10: [1.0], 90: [2.0]}, [1.0], ForecastError, "percent"),
        ([[0.1, 0.9]], [1], ForecastError, "a table or a dictionary"),
    ],
)
def test_what_cannot_be_measured(forecasts: Any, y: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        crps(forecasts, y)


def test_levels_that_are_not_known_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"level 0\.2 is not among those forecast"):
        pinball(QUANTILES, Y, levels=[0.2])
    with pytest.raises(ParameterError, match=r"level 0\.1 is not among"):
        sharpness(QUANTILES, coverage=0.8)
    with pytest.raises(ParameterError, match="coverage is 80"):
        interval_score(QUANTILES, Y, coverage=80)


def test_the_ranked_probability_score_is_that_of_the_space_and_of_another_library(scoringrules: Any) -> None:
    rng = np.random.default_rng(0)
    P, y = rng.dirichlet(np.ones(4), 50), rng.integers(4, size=50)
    norm = tc.Simplex(4, ordered=True).crps
    assert norm is not None
    assert rps(P, y) == pytest.approx(float(norm.square(P - np.eye(4)[y]).mean()))
    assert rps(P, y) == pytest.approx(scoringrules.rps_score(y + 1, P).mean())
