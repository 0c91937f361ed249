"""One rule for bins of equal width: every edge of 1 to 200 bins, in every engine."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import treecal as tc
from treecal.auditing import audit
from treecal.measures import bin_edges, bin_of, bin_sql
from treecal.plots import plot_reliability, reliability

BINS = range(1, 201)


def edges_and_below(bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Every edge and the float below it, and the bins they lie in by definition."""
    edges = np.array([k / bins for k in range(bins + 1)])
    below = np.nextafter(edges[1:], 0)
    k = np.arange(bins)
    return np.concatenate([edges, below]), np.concatenate([k, [bins - 1], k])


def test_numpy() -> None:
    for bins in BINS:
        p, expected = edges_and_below(bins)
        assert bin_of(p, bins).tolist() == expected.tolist()
        assert bin_edges(bins).tolist() == [k / bins for k in range(bins + 1)]


def test_any_number_lies_between_the_edges_of_its_bin() -> None:
    p = np.random.default_rng(0).random(20_000)
    for bins in (*BINS, 997, 10**6, 2**40 + 1):
        k = bin_of(p, bins)
        assert ((k / bins <= p) & (p < (k + 1) / bins)).all()


def test_the_compiled_kernel() -> None:
    from treecal.auditing import AuditRows, BinCounts, tally

    for bins in BINS:
        p, expected = edges_and_below(bins)
        cells = BinCounts.empty(classes=2, bins=bins)
        one = np.zeros(len(p), np.int64)
        tally(AuditRows(np.stack([p, 1 - p]), one, one, one[:0]), cells)
        assert cells.weight[0, 0].tolist() == np.bincount(expected, minlength=bins).tolist()
        assert cells.hits[0, 0].tolist() == cells.weight[0, 0].tolist()


def test_duckdb() -> None:
    connection = duckdb.connect()
    for bins in BINS:
        p, expected = edges_and_below(bins)
        connection.register("log", pa.table({"p": p}))
        assert (
            connection.sql(f"SELECT {bin_sql('p', bins)} AS b FROM log").fetchnumpy()["b"].tolist() == expected.tolist()
        )


@pytest.mark.parametrize("bins", [1, 22, 49, 100, 198])
def test_an_audit(bins: int) -> None:
    p, expected = edges_and_below(bins)
    log = {"p": p, "y": np.zeros(len(p), np.int64)}
    found = audit(log, forecast="p", outcome="y", bins=bins, classes=[0, 1], exact=False).whole.classes["1"]
    assert found.weight.tolist() == np.bincount(expected, minlength=bins).tolist()


@pytest.mark.parametrize("bins", [1, 22, 49, 100, 198])
def test_a_reliability_diagram(bins: int) -> None:
    from matplotlib.figure import Figure

    p, expected = edges_and_below(bins)
    ledger = tc.Ledger(tc.Simplex(2))
    for q in p.tolist():
        ledger.record([1 - q, q], [1, 0])
    r = reliability(ledger, 1, bins=bins)
    weight = np.bincount(expected, minlength=bins)
    assert r.bin.tolist() == list(range(bins))
    assert r.weight.tolist() == weight.tolist()
    drawn: Any = plot_reliability(ledger, 1, bins=bins, ax=Figure().subplots()).patches[0]
    heights, edges, _ = drawn.get_data()
    assert edges.tolist() == (np.arange(bins + 1) / bins).tolist()
    assert (heights / heights.max()).tolist() == pytest.approx((weight / weight.max()).tolist())


def test_a_bar_stands_where_its_bin_is() -> None:
    """The mean of three times 0.29 is rounded to less than 0.29."""
    from matplotlib.figure import Figure

    ledger = tc.Ledger(tc.Simplex(2))
    for _ in range(3):
        ledger.record([0.71, 0.29], [1, 0])
    drawn: Any = plot_reliability(ledger, 1, bins=100, ax=Figure().subplots()).patches[0]
    assert np.flatnonzero(drawn.get_data().values).tolist() == [29]
