from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treecal as tc
from treecal.exceptions import TreeCalError, UnsupportedError
from treecal.forecasters._grids import binary_grid_bound
from treecal.geometry import Gauge, Lp
from treecal.streams import LedgerAdversary, MeanAdversary, iid, play
from treecal.theory._recommend import harmonic

SPACES = [(tc.Simplex(2), "l1"), (tc.Simplex(3), "l1"), (tc.Simplex(3), "linf"), (tc.Ball(2), "l2"), (tc.Ball(2), "l1")]


@pytest.mark.parametrize(("space", "norm"), SPACES, ids=repr)
def test_every_choice_keeps_its_promise(space: tc.ConvexSet, norm: str) -> None:
    """Each forecaster of the table, made as the table says, against chance and two adversaries."""
    rounds = 250
    advice = tc.recommend(space, norm, rounds=rounds)
    bounds = [choice.bound for choice in advice.table if choice.bound is not None]
    assert advice.best.bound == min(bounds)
    names = {"space": space, **{name: getattr(tc, name) for name in tc.__all__}}
    for choice in advice.table:
        if choice.bound is None:
            continue
        for stream in (
            iid(space, rounds, np.random.default_rng(0)),
            MeanAdversary(space),
            LedgerAdversary(space, norm=norm),
        ):
            forecaster = eval(choice.forecaster, {}, names)  # what the table says one should type
            ledger = play(forecaster, stream, rounds=rounds)
            assert ledger.error(norm) <= choice.bound * (1 + 1e-9)


def test_the_tool_knows_who_wins() -> None:
    def best(dim: int, rounds: int) -> str:
        return tc.recommend(tc.Simplex(dim), "l1", rounds=rounds).best.forecaster.split("(")[0]

    assert best(2, 10**6) in ("BinaryGrid", "SimplexGrid")
    assert best(3, 10**7) == "SimplexGrid"
    assert best(10, 1000) == "Harmonic"
    assert best(100, 10**9) == "TreeCal"


def test_a_hopeless_case_is_called_one() -> None:
    advice = tc.recommend(tc.Simplex(200), "l1", rounds=50)
    assert advice.best.bound is not None
    assert advice.best.bound >= advice.trivial
    assert "choose by measurement" in str(advice)
    assert "choose by measurement" not in str(tc.recommend(tc.Simplex(2), "l1", rounds=10**6))


def test_harmonic_analytic_and_numerical() -> None:
    numerical, analytic = (
        harmonic(tc.Ball(3), "l2", rounds=1000),
        harmonic(tc.Ball(3), "l2", rounds=10**9, numerical=False),
    )
    assert numerical.bound is not None
    assert analytic.bound is not None
    assert numerical.bound < 0.49
    h = 0.5 * (math.log(4 * 10**9) + 0.5772156649)
    assert analytic.bound == pytest.approx(9 * math.pi / 2 / h, rel=1e-4)
    half = harmonic(tc.Ball(3, radius=0.5), "l2", rounds=1000).bound
    assert half == pytest.approx(numerical.bound / 2)


def test_norms_without_a_certificate_say_so() -> None:
    with pytest.raises(UnsupportedError, match="no forecaster has a certificate"):
        tc.recommend(tc.Ball(2), Gauge(vertices=np.eye(2)), rounds=10)
    with pytest.raises(TreeCalError, match="rounds is 0"):
        tc.recommend(tc.Ball(2), "l2", rounds=0)
    assert tc.recommend(tc.Ball(2), Lp(3), rounds=10).best.bound is not None


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 50_000))
def test_the_number_of_bins_is_the_best(rounds: int) -> None:
    advice = tc.recommend(tc.Simplex(2), "l1", rounds=rounds, numerical_rounds=0)
    bound = next(choice.bound for choice in advice.table if choice.forecaster.startswith("BinaryGrid"))
    least = min(binary_grid_bound(rounds, bins=bins) for bins in range(1, 2 + math.isqrt(rounds)))
    assert bound == min(2.0, 2 * least)
