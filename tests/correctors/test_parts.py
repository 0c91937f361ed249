"""Correctors made of others: what may be a part, whose tolerance counts, and several models at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal.exceptions import ForecastError, ParameterError, TreeCalError, UnsupportedError
from treecal.state import dumps, loads

TWO = tc.Simplex(2)
ROUNDED = [0.3, 0.699]


@pytest.mark.parametrize(
    "whole",
    [
        tc.Gated,
        tc.ByGroup,
        lambda part: tc.Chain([part]),
        lambda part: tc.Chain([tc.PlattScaling(TWO), part]),
        lambda part: tc.GuardedCorrector(TWO, corrector=part),
        lambda part: tc.Mixture(TWO, 2, corrector=part),
    ],
)
def test_a_mixture_is_no_part(whole: Callable[[Any], Any]) -> None:
    with pytest.raises(ParameterError, match=r"takes the forecasts of several(.|\n)*put it outside"):
        whole(tc.Mixture(TWO, 2))
    with pytest.raises(ParameterError, match="corrector"):
        whole("PlattScaling")


@pytest.mark.parametrize(
    "whole",
    [tc.Gated, tc.ByGroup, lambda part: tc.Chain([part, tc.Recalibrator(TWO)])],
    ids=["gate", "groups", "chain"],
)
def test_the_tolerance_of_a_part_counts(whole: Callable[..., Any]) -> None:
    f = whole(tc.PlattScaling(TWO, tolerance=0.01))
    f.predict(ROUNDED)
    f.update(1)
    assert f.tolerance == loads(dumps(f)).tolerance == 0.01
    with pytest.raises(ForecastError, match=r"tolerance=0\.01"):
        whole(tc.PlattScaling(TWO)).predict(ROUNDED)


def test_the_tolerance_of_the_whole_comes_first() -> None:
    part = tc.PlattScaling(TWO, tolerance=0.01)
    for f in (tc.Gated(part, tolerance=0), tc.ByGroup(part, tolerance=0), tc.Chain([part], tolerance=0)):
        with pytest.raises(ForecastError):
            f.predict(ROUNDED)
    assert tc.Mixture(TWO, 2, corrector=part).tolerance == 0.01
    assert tc.Mixture(TWO, 2).tolerance == 1e-6


def test_what_is_no_rounding_is_not_called_so() -> None:
    with pytest.raises(ForecastError) as error:
        tc.PlattScaling(TWO).predict([0.3, 0.65])
    assert "tolerance" not in str(error.value)
    assert "p / p.sum()" in str(error.value)


def several(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(2), (n, 3)), rng.integers(2, size=n)


def test_the_forecasts_of_several_models_by_name() -> None:
    (P, y), names = several(40), ["icon", "gfs", "ecmwf"]
    array, named, rows, loop = (tc.Mixture(TWO, names) for _ in range(4))
    x = array.update_many(P, y)
    by_name = {name: P[:, i].astype(np.float64).tolist() for i, name in reversed(list(enumerate(names)))}
    assert np.array_equal(named.update_many(by_name, y), x)
    listed: Any = [dict(zip(names, each, strict=True)) for each in P]
    assert np.array_equal(rows.update_many(listed, y), x)
    for b, outcome in zip(P, y, strict=True):
        loop.predict(b)
        loop.update(outcome)
    assert dumps(array) == dumps(named) == dumps(rows) == dumps(loop)
    assert np.array_equal(named.predict_many(by_name), array.predict_many(P))
    assert dumps(tc.Mixture(TWO, names).fit(by_name, y)) == dumps(tc.Mixture(TWO, names).fit(P, y))


def test_invalid_forecasts_of_several_models_are_named() -> None:
    P, y = several(4)
    f = tc.Mixture(TWO, ["icon", "gfs", "ecmwf"])
    bad = P.copy()
    bad[2, 1] = 0.7
    for given in (bad, bad.tolist(), dict(zip(f.models, bad.transpose(1, 0, 2), strict=True))):
        with pytest.raises(ForecastError, match="round 3 of gfs"):
            f.update_many(given, y)
    with pytest.raises(ForecastError, match=r"(?s)round 1 on have no forecast of 'gfs', 'ecmwf'.*models are 'icon'"):
        f.update_many({"icon": P[:, 0]}, y)
    with pytest.raises(TreeCalError, match="of gfs"):
        f.update_many({"icon": P[:, 0], "gfs": P[:2, 0, 0], "ecmwf": P[:, 0]}, y)
    with pytest.raises(TreeCalError, match="forecasts"):
        f.update_many({"icon": P[:, 0], "gfs": P[:2, 0], "ecmwf": P[:, 0]}, y)
    for nonsense in (3, "abc", np.ones((2, 2)), None):
        with pytest.raises(ForecastError):
            f.predict_many(nonsense)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="knows no groups"):
        f.update_many(P, y, groups=["a"] * 4)
    assert f.rounds == 0
