"""What the pictures show, worked out without matplotlib."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binomtest

import treecal as tc
from tests.strategies import one_hot, play
from treecal._typing import Array
from treecal.exceptions import HorizonError, ParameterError
from treecal.ledger import Reading
from treecal.plots import interval_tree, likeliest, reliability
from treecal.plots._ledger import heaviest
from treecal.plots._tree import MOST_CELLS


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_reliability_is_what_counting_by_hand_gives(seed: int, bins: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    said = rng.integers(0, 9, size=rounds) / 8  # 0 and 1 among them
    happened = rng.integers(2, size=rounds)
    ledger = tc.Ledger(tc.Simplex(2))
    for p, y in zip(said, happened, strict=True):
        ledger.record([1 - p, p], np.eye(2)[y])
    r = reliability(ledger, 1, bins=bins)
    home = [min(int(p * bins), bins - 1) for p in said]
    for row, cell in enumerate(sorted(set(home))):
        inside = [i for i in range(rounds) if home[i] == cell]
        hits, n = int(happened[inside].sum()), len(inside)
        interval = binomtest(hits, n).proportion_ci(0.95, method="exact")
        assert r.weight[row] == n
        assert r.forecast[row] == pytest.approx(said[inside].mean())
        assert r.outcome[row] == pytest.approx(hits / n)
        assert (r.low[row], r.high[row]) == pytest.approx((interval.low, interval.high), abs=1e-9)
        assert r.off[row] == (not interval.low <= said[inside].mean() <= interval.high)
    assert len(r.weight) == len(set(home))


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 120))
@settings(max_examples=20, deadline=None)
def test_no_weight_falls_out_of_the_bins(seed: int, dim: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    _, ledger = play(tc.TreeCal(tc.Simplex(dim), arity=3), one_hot(dim, rounds, rng))
    for k in range(dim):
        r = reliability(ledger, k)
        assert r.weight.sum() == pytest.approx(rounds)
        assert ((r.low <= r.outcome) & (r.outcome <= r.high)).all()
        assert r.weight @ r.outcome == pytest.approx(ledger.exact().weights @ ledger.exact().outcomes[:, k])


def test_the_likeliest_class_is_what_counting_by_hand_gives() -> None:
    rng, ledger = np.random.default_rng(0), tc.Ledger(tc.Simplex(4))
    sure, right = [], []
    for p in rng.dirichlet(np.ones(4), size=50):
        y = np.eye(4)[rng.integers(4)]
        ledger.record(p, y)
        sure.append(p.max())
        right.append(y[p.argmax()])
    found = likeliest(ledger)
    order, given = np.argsort(found.forecasts[:, 1]), np.argsort(sure)
    np.testing.assert_array_equal(found.forecasts[order, 1], np.array(sure)[given])
    np.testing.assert_array_equal(found.outcomes[order, 1], np.array(right)[given])
    np.testing.assert_allclose(found.forecasts.sum(axis=1), 1)


def test_reliability_refuses() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    with pytest.raises(ParameterError, match="nothing to draw"):
        reliability(ledger, 0)
    ledger.record([0.5, 0.5], [1, 0])
    with pytest.raises(ParameterError, match="k is 2, expected a coordinate, from 0 to 1"):
        reliability(ledger, 2)
    with pytest.raises(ParameterError, match="bins is 0"):
        reliability(ledger, 0, bins=0)
    with pytest.raises(ParameterError, match="expected an Audit, a Calibration, Bins, a Ledger, a Reading"):
        reliability([0.5], 0)  # type: ignore[arg-type]
    ball = tc.Ledger(tc.Ball(2))
    ball.record([0.5, -0.5], [1, 0])
    with pytest.raises(ParameterError, match=r"coordinate 1 runs from -0\.5 to 0, expected probabilities"):
        reliability(ball, 1)


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(2, 5), st.integers(1, 150), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_tree_is_treecals(seed: int, dim: int, arity: int, rounds: int, fixed: bool, own_start: bool) -> None:
    """Every label that TreeCal ever announces under a node is the label of that node, and of no other."""
    outcomes, space = one_hot(dim, rounds, np.random.default_rng(seed)), tc.Simplex(dim)
    depth = 1 + int(np.ceil(np.log(rounds) / np.log(arity))) if fixed else None
    start = np.eye(dim)[0] if own_start else None
    forecasts, _ = play(tc.TreeCal(space, arity=arity, depth=depth, start=start), outcomes)
    announced: dict[tuple[int, ...], Array] = {}
    for x in forecasts:
        assert x.nodes is not None
        announced |= {tuple(node): point for node, point in zip(x.nodes.tolist(), x.points, strict=True)}
    tree = interval_tree(outcomes, arity=arity, depth=depth, start=start)
    drawn = {
        (row.height, index): label
        for row in tree.rows
        for index, label in enumerate(row.forecasts)
        if not np.isnan(label).any()
    }
    assert drawn.keys() == announced.keys()
    assert all(np.array_equal(drawn[node], announced[node]) for node in drawn)
    for row in tree.rows:
        assert row.edges[0] == 0
        assert row.edges[-1] == rounds
        assert set(np.diff(row.edges)[:-1]) <= {arity**row.height}
    assert [row.height for row in tree.rows] == sorted((row.height for row in tree.rows), reverse=True)


def test_rows_too_fine_to_be_seen_are_counted() -> None:
    outcomes = np.eye(2)[np.arange(MOST_CELLS * 4 + 1) % 2]
    tree = interval_tree(outcomes, arity=4)
    assert tree.unseen == 2  # of 6001 and 1501 intervals
    assert [len(row.forecasts) for row in tree.rows] == [2, 6, 24, 94, 376]
    assert interval_tree(outcomes[:MOST_CELLS], arity=4).unseen == 0


def test_the_tree_refuses() -> None:
    with pytest.raises(ParameterError, match="no outcomes"):
        interval_tree(np.empty((0, 2)), arity=2)
    with pytest.raises(ParameterError, match=r"start has shape \(3,\)"):
        interval_tree([[1, 0]], arity=2, start=[1, 0, 0])
    with pytest.raises(HorizonError, match="round 5 is beyond the horizon"):
        interval_tree(np.eye(2)[[0] * 5], arity=2, depth=2)
    with pytest.raises(ParameterError, match="nan"):
        interval_tree([[np.nan, 1]], arity=2)


def test_the_heaviest_forecasts() -> None:
    reading = Reading(np.eye(3), np.array([1.0, 5.0, 4.0]), np.eye(3), 10, None)
    chosen, share = heaviest(reading, 2)
    assert chosen.weights.tolist() == [5, 4]
    assert chosen.forecasts.tolist() == np.eye(3)[1:].tolist()
    assert share == 0.9


def test_data_needs_no_matplotlib() -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import treecal as tc; from treecal.plots import reliability, interval_tree, plot_tree\n"
        "ledger = tc.Ledger(tc.Simplex(2)); ledger.record([0.5, 0.5], [1, 0])\n"
        "reliability(ledger, 0); tree = interval_tree([[1, 0]], arity=2)\n"
        "try: plot_tree(tree)\n"
        "except tc.TreeCalError as error: print(error)\n"
    )
    told = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert "(the extra plots)" in told
