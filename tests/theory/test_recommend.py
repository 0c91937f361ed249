from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.some import some
from treecal.exceptions import TreeCalError, UnsupportedError
from treecal.forecasters import REGISTRY
from treecal.geometry import Gauge, Lp
from treecal.streams import LedgerAdversary, MeanAdversary, iid, play
from treecal.theory import TABULATED

SPACES = [(tc.Simplex(2), "l1"), (tc.Simplex(3), "l1"), (tc.Simplex(3), "linf"), (tc.Ball(2), "l2"), (tc.Ball(2), "l1")]


@pytest.mark.parametrize(("space", "norm"), some(SPACES, every=3), ids=repr)
def test_every_choice_keeps_its_bound(space: tc.ConvexSet, norm: str) -> None:
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


def bound(f: tc.Forecaster, norm: str, rounds: int) -> float:
    found = f.certificate(norm, rounds=rounds)
    assert found is not None
    return found.bound


def test_harmonic_analytic_and_tabulated() -> None:
    tabulated = bound(tc.Harmonic(tc.Ball(3)), "l2", 1000)
    assert tabulated < 0.44
    h = 0.5 * (math.log(4 * 10**30) + 0.5772156649)
    assert bound(tc.Harmonic(tc.Ball(3)), "l2", 10**30) == pytest.approx(9 * math.pi / 2 / h, rel=1e-4)
    assert bound(tc.Harmonic(tc.Ball(3, radius=0.5)), "l2", 1000) == pytest.approx(tabulated / 2)


@pytest.mark.parametrize("block", [None, 4096, TABULATED, 2**21])
@pytest.mark.parametrize("space", [tc.Simplex(3), tc.Ball(2), tc.Box(0, 1, dim=2)], ids=repr)
def test_the_bound_of_harmonic_never_jumps(space: tc.ConvexSet, block: int | None) -> None:
    """A round adds the diameter to the total error at most, wherever the table ends or a block begins."""
    f, norm = tc.Harmonic(space, block=block), space.default_norm
    diameter = float(space.diameter(norm))
    at = [4000, 4096, 4097, 10**5, 10**5 + 1, 2 * 10**5]
    at += [TABULATED - 1, TABULATED, TABULATED + 1, TABULATED + 1000, 2 * TABULATED, 2**21, 2**21 + 1]
    totals = [each * bound(f, norm, each) for each in at]  # type: ignore[arg-type]
    for (one, earlier), (other, later) in pairwise(zip(at, totals, strict=True)):
        assert earlier <= later <= earlier + (other - one) * diameter * (1 + 1e-9)
    assert totals[4] / at[4] < 0.25 * diameter


def test_recommending_takes_no_time() -> None:
    """Nothing is certified numerically when asked for: neither where the table has entries nor between and beyond."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tc.theory._spectral, "_hard_stream", None)
        for rounds in (1, 30, 4096, 99_999, 100_001, 10**6, 10**7):
            assert tc.recommend(tc.Simplex(5), "l1", rounds=rounds).best.bound is not None


def test_recommending_for_many_classes_looks_at_one_vertex() -> None:
    """Not at all of them, whose coordinates are a million for a thousand classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "eye", None)
        assert tc.recommend(tc.Simplex(1000), "l1", rounds=1000).best.bound is not None


def test_harmonic_pays_for_a_start_far_from_the_centre() -> None:
    space, rounds = tc.Ball(2), 3
    central, away = (bound(tc.Harmonic(space, start=start), "l2", rounds) for start in ([0, 0], [1, 0]))
    assert away == pytest.approx(min(2.0, central + 1 / rounds))
    ledger = play(tc.Harmonic(space, start=[1, 0]), np.array([[-1.0, 0.0]] * rounds), rounds=rounds)
    assert ledger.error("l2") <= away


def test_every_forecaster_is_in_the_table() -> None:
    table = tc.recommend(tc.Simplex(3), "l1", rounds=100).table
    assert {choice.forecaster.split("(")[0] for choice in table} == {kind.__name__ for kind in REGISTRY.values()}
    why = {choice.forecaster.split("(")[0]: choice.why for choice in table}
    assert why["BinaryGrid"] == "space is Simplex(3), expected Simplex(2)."
    assert why["RunningMean"] == "no certificate is known"
    assert not [choice for choice in table if "0x" in choice.forecaster]


def test_norms_without_a_certificate_say_so() -> None:
    with pytest.raises(UnsupportedError, match="no forecaster has a certificate"):
        tc.recommend(tc.Ball(2), Gauge(vertices=np.eye(2)), rounds=10)
    with pytest.raises(TreeCalError, match="rounds is 0"):
        tc.recommend(tc.Ball(2), "l2", rounds=0)
    assert tc.recommend(tc.Ball(2), Lp(3), rounds=10).best.bound is not None


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 50_000))
def test_the_number_of_bins_is_the_best(rounds: int) -> None:
    tuned = bound(tc.BinaryGrid.tuned(tc.Simplex(2), tc.l1, rounds=rounds), "l1", rounds)
    assert tuned == min(bound(tc.BinaryGrid(bins=bins), "l1", rounds) for bins in range(1, 2 + math.isqrt(rounds)))
