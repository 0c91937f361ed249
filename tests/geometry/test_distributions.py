"""How forecasts of a number are read: every form against what it says of the distribution, and what is refused."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from scipy import stats

import treecal as tc
from treecal.exceptions import ForecastError, ParameterError, RepairWarning
from treecal.geometry import quantile_level, read_distribution, read_distributions

LOAD = tc.Cdf(0, 500)
Z = LOAD.thresholds


def one(value: object, space: tc.Cdf = LOAD) -> object:
    return read_distribution(space, value, 1, 1e-6)


@given(
    q=st.lists(st.floats(0, 500), min_size=2, max_size=9),
    seed=st.integers(0, 10**6),
)
def test_quantiles_are_met_and_lines_lie_between_them(q: list[float], seed: int) -> None:
    levels = np.sort(np.random.default_rng(seed).choice(np.arange(1, 100), len(q), replace=False)) / 100
    q = sorted(round(value, 2) for value in q)
    found = np.asarray(one(dict(zip(levels, q, strict=True))))
    assert LOAD.contains(found)
    for z, value in zip(Z, found, strict=True):
        if z < q[0]:
            width = q[1] - q[0]
            slope = (levels[1] - levels[0]) / width if width else math.inf
            assert value == pytest.approx(levels[0] * math.exp(-slope * (q[0] - z) / levels[0]), abs=1e-12)
        elif z >= q[-1]:
            width, rest = q[-1] - q[-2], 1 - levels[-1]
            slope = (levels[-1] - levels[-2]) / width if width else math.inf
            gone = math.exp(-slope * (z - q[-1]) / rest) if z > q[-1] or width else 0.0
            assert value == pytest.approx(1 - rest * gone, abs=1e-12)
        else:
            k = max(i for i in range(len(q)) if q[i] <= z)
            share = (z - q[k]) / (q[k + 1] - q[k])
            assert value == pytest.approx(levels[k] + share * (levels[k + 1] - levels[k]), abs=1e-12)


def test_a_single_quantile_is_linear_to_both_ends() -> None:
    law = LOAD.distribution(np.asarray(one({0.25: 100})))
    assert law.quantile([0.125, 0.25, 0.625]) == pytest.approx([50, 100, 300], abs=2)


@given(members=st.lists(st.floats(0, 500), min_size=1, max_size=20))
def test_members_are_their_empirical_distribution(members: list[float]) -> None:
    expected = [np.mean([member <= z for member in members]) for z in Z]
    np.testing.assert_allclose(np.asarray(one({"members": members})), expected, atol=1e-15)


LAWS = {
    "normal": stats.norm(200, 40),
    "lognormal": stats.lognorm(math.sqrt(math.log1p(0.04)), scale=200 / math.sqrt(1.04)),
}


@pytest.mark.parametrize("family", LAWS)
def test_families_are_those_of_scipy(family: str) -> None:
    law = LAWS[family]
    assert (law.mean(), law.std()) == pytest.approx((200, 40))
    found = np.asarray(one({"mean": 200, "sd": 40, "family": family}))
    np.testing.assert_allclose(found, law.cdf(Z), atol=1e-14)
    np.testing.assert_array_equal(one(law), law.cdf(Z))
    np.testing.assert_array_equal(one({"mean": 200, "sd": 0, "family": family}), Z >= 200)


def test_other_forms() -> None:
    values = np.linspace(0, 1, LOAD.dim)
    np.testing.assert_array_equal(one(values), values)
    np.testing.assert_array_equal(one(list(values)), values)
    np.testing.assert_array_equal(one(values.astype("f4")), values.astype("f4").astype(float))
    np.testing.assert_array_equal(one(120), Z >= 120)
    np.testing.assert_array_equal(one(LOAD.distribution(values)), LOAD.distribution(values).cdf(Z))
    np.testing.assert_array_equal(one(tc.Forecast([values], space=LOAD)), LOAD.distribution(values).cdf(Z))
    of_one_number_at_a_time = statistics.NormalDist(200, 40)
    np.testing.assert_array_equal(one(of_one_number_at_a_time), list(map(of_one_number_at_a_time.cdf, Z)))


ROWS = {0.1: [80.0, 90.0, 20.0], 0.5: [120.0, 130.0, 20.0], 0.9: [200.0, 300.0, 40.0]}
NAMED = {"q10": ROWS[0.1], "q90": ROWS[0.9], "p50": ROWS[0.5]}


@pytest.mark.parametrize(
    "table",
    [ROWS, NAMED, pd.DataFrame(NAMED), pa.table(NAMED), pd.DataFrame(ROWS)],
    ids=["levels", "names", "pandas", "arrow", "numeric columns"],
)
def test_tables_of_quantiles_are_read_as_their_rows(table: object) -> None:
    rows = [dict(zip(ROWS, values, strict=True)) for values in zip(*ROWS.values(), strict=True)]
    expected = np.array([one(row) for row in rows])
    np.testing.assert_array_equal(read_distributions(LOAD, table), expected)
    np.testing.assert_array_equal(read_distributions(LOAD, rows), expected)


def test_other_tables_are_read_as_their_rows() -> None:
    members = np.random.default_rng(0).uniform(0, 500, (4, 7))
    each = np.array([one({"members": row}) for row in members])
    np.testing.assert_array_equal(read_distributions(LOAD, {"members": members}), each)
    mean, sd = [100, 200], [10.0, 20.0]
    each = np.array([one({"mean": m, "sd": s}) for m, s in zip(mean, sd, strict=True)])
    np.testing.assert_array_equal(read_distributions(LOAD, {"mean": mean, "sd": sd}), each)
    np.testing.assert_array_equal(read_distributions(LOAD, pd.DataFrame({"sd": sd, "mean": mean})), each)
    np.testing.assert_allclose(read_distributions(LOAD, stats.norm(mean, sd)), each, atol=1e-14)
    np.testing.assert_array_equal(read_distributions(LOAD, each), each)
    np.testing.assert_array_equal(read_distributions(LOAD, np.array([120.0, 7.0])), LOAD.steps([120, 7]))


def test_what_is_repaired_is_said() -> None:
    with pytest.warns(RepairWarning, match=r"quantiles cross, and are sorted, at round 1\."):
        crossing = one({0.1: 120, 0.9: 80})
    np.testing.assert_array_equal(crossing, one({0.1: 80, 0.9: 120}))
    members = np.array([[1.0, 2, 3], [1, np.nan, 3]])
    with pytest.warns(RepairWarning, match=r"left out, in 1 of 2 forecasts, first at round 12\."):
        found = read_distributions(LOAD, {"members": members}, before=10)
    np.testing.assert_array_equal(found[1], one({"members": [1, 3]}))
    clipped = tc.Cdf(0, 10, points=5, clip=True)
    np.testing.assert_array_equal(one({0.1: -3, 0.9: 12}, clipped), one({0.1: 0, 0.9: 10}, clipped))
    np.testing.assert_array_equal(one(12, clipped), one(10, clipped))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({0.1: math.nan, 0.9: 3}, "has the quantile 0.1 of NaN"),
        ({"q10": 3, "q90": None}, "has the quantile q90 of NaN"),
        ({10: 3, 90: 5}, "divide levels in percent by 100"),
        ({"10": 3, "90": 5}, "level is 10.0, expected a number between 0 and 1"),
        ({0.1: 3, "q10": 5}, "both the quantile of level 0.1"),
        ({0.0: 3, 0.5: 5}, "level is 0.0"),
        ({0.1: 3, 0.9: 501}, "has the quantile 0.9 of 501, expected 0 to 500"),
        ({0.1: "low", 0.9: 3}, "holds no numbers in '0.1'"),
        ({0.1: 10**400, 0.9: 3}, "holds no numbers in '0.1'"),
        ({"members": []}, "has no member that is a number"),
        ({"members": [math.nan, math.nan]}, "has no member that is a number"),
        ({"members": [1, 2, math.inf]}, "has the member inf"),
        ({"members": 3}, "an array of numbers"),
        ({"mean": 3, "sd": -1}, "has the sd -1"),
        ({"mean": 3, "sd": math.nan}, "has the sd nan"),
        ({"mean": -3, "sd": 1}, "has the mean -3"),
        ({"mean": 3}, "quantiles by level, or members, or mean and sd"),
        ({}, "is empty"),
        ([1.0, 2.0, 3.0], 'an ensemble is given as {"members": values}'),
        (np.linspace(1, 0, LOAD.dim), "it falls from "),
        (np.linspace(0, 1.2, LOAD.dim), "its last value is 1.2"),
        (np.full(LOAD.dim, math.nan), "holds NaN at threshold 1"),
        ("120", "is a str"),
        (None, "is a NoneType"),
        (501, "is 501, expected 0 to 500"),
    ],
)
def test_what_is_no_forecast_is_refused_and_says_why(bad: object, words: str) -> None:
    with pytest.raises(ForecastError, match="round 7") as one_round:
        read_distribution(LOAD, bad, 7, 1e-6)
    with pytest.raises(ForecastError, match="round 7") as many:
        read_distributions(LOAD, [3.0, bad], before=5)
    assert words in str(one_round.value)
    assert words in str(many.value)


def test_a_level_near_zero_has_a_steep_tail() -> None:
    found = read_distributions(LOAD, {1e-320: np.ones(1), 0.5: np.full(1, 2.0)})  # warnings are errors
    np.testing.assert_allclose(found, read_distributions(LOAD, {1e-300: np.ones(1), 0.5: np.full(1, 2.0)}), atol=1e-12)


def test_a_row_of_a_table_is_named_with_its_column() -> None:
    with pytest.raises(ForecastError, match="round 42 has the quantile q90 of NaN"):
        read_distributions(LOAD, pd.DataFrame({"q10": [1.0, 2.0], "q90": [3.0, None]}), before=40)
    with pytest.raises(ParameterError, match="family is 'cauchy', expected one of normal, lognormal"):
        one({"mean": 3, "sd": 1, "family": "cauchy"})


@pytest.mark.parametrize("bad", ["load", "q", "", "1.5", 1, 0, True, None, "q0", "100%"])
def test_what_is_no_level(bad: object) -> None:
    with pytest.raises(ParameterError, match="level"):
        quantile_level(bad)
