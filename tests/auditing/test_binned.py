"""The binned audit against scikit-learn, torchmetrics and a literal computation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error
from torchmetrics.functional.classification.calibration_error import _ce_compute

from treecal.auditing import Bins, audit

seeds = st.integers(0, 2**32)


def random_log(seed: int, n: int = 400, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts off every edge, and labels that follow them only in part."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(d), size=n)
    y = np.array([rng.choice(d, p=row) if rng.random() < 0.6 else rng.integers(d) for row in p])
    return p, y


def literal(p: np.ndarray, hit: np.ndarray, bins: int) -> tuple[list[int], float, float]:
    """Bins, ECE and MCE by their definition, row by row in rational numbers of bins."""
    members: list[list[int]] = [[] for _ in range(bins)]
    for i, x in enumerate(p):
        members[min(sum(x >= k / bins for k in range(1, bins)), bins - 1)].append(i)
    gaps = [abs(p[rows].mean() - hit[rows].mean()) if rows else 0.0 for rows in members]
    sizes = [len(rows) for rows in members]
    return sizes, float(np.dot(sizes, gaps)) / len(p), max(gaps)


@given(seed=seeds, bins=st.integers(1, 25), grid=st.booleans())
@settings(max_examples=15, deadline=None)
def test_equals_the_definition(seed: int, bins: int, grid: bool) -> None:
    p, y = random_log(seed, n=150, d=3)
    if grid:  # probabilities on edges, and exactly 0 and 1
        p = np.random.default_rng(seed).multinomial(20, [0.2, 0.2, 0.6], size=150) / 20
    found = audit({"p": p, "y": y}, forecast="p", outcome="y", bins=bins, exact=False, classes=range(3)).whole
    for k, part in enumerate(found.classes.values()):
        _same(part, literal(p[:, k], y == k, bins))
    _same(found.top_label, literal(p.max(axis=1), y == p.argmax(axis=1), bins))
    assert found.brier == pytest.approx(np.square(p - np.eye(3)[y]).sum(axis=1).mean(), abs=1e-12)


def _same(bins: Bins, expected: tuple[list[int], float, float]) -> None:
    sizes, ece, mce = expected
    assert bins.weight.tolist() == sizes
    assert bins.ece == pytest.approx(ece, abs=1e-12)
    assert np.nanmax(bins.gap) == pytest.approx(mce, abs=1e-12)
    thick = [gap for gap, size in zip(bins.gap, sizes, strict=True) if size >= 30]
    assert bins.mce == pytest.approx(max(thick, default=np.nan), nan_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_torchmetrics(seed: int) -> None:
    """To 1e-9 with its arithmetic in float64; its functions themselves round everything to float32 first."""
    p, y = random_log(seed)
    found = audit({"p": p, "y": y}, forecast="p", outcome="y", bins=15, exact=False).whole
    said, right = torch.from_numpy(p), torch.from_numpy(y)
    cases = [(found.top_label, said.max(dim=1).values, said.argmax(dim=1) == right)]
    cases += [(bins, said[:, k].contiguous(), right == k) for k, bins in enumerate(found.classes.values())]
    for bins, confidence, hit in cases:
        for norm, ours in (("l1", bins.ece), ("max", float(np.nanmax(bins.gap)))):
            theirs = float(_ce_compute(confidence, hit.double(), 15, norm))
            assert ours == pytest.approx(theirs, abs=1e-9)
    public = multiclass_calibration_error(said, right, num_classes=4, n_bins=15, norm="l1")
    assert found.top_label.ece == pytest.approx(float(public), abs=1e-6)
    public = binary_calibration_error(said[:, 0].contiguous(), (right == 0).int(), n_bins=15, norm="max")
    assert np.nanmax(found.classes["0"].gap) == pytest.approx(float(public), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_scikit_learn(seed: int) -> None:
    p, y = random_log(seed)
    p[:20], y[:20] = np.eye(4)[y[:20]], y[::-1][:20]  # probabilities of exactly 0 and 1
    found = audit({"p": p, "y": y}, forecast="p", outcome="y", bins=10, exact=False).whole
    for k, bins in enumerate(found.classes.values()):
        happened, said = calibration_curve(y == k, p[:, k], n_bins=10)
        filled = bins.weight > 0
        np.testing.assert_allclose(bins.outcome[filled], happened, rtol=0, atol=1e-9)
        np.testing.assert_allclose(bins.forecast[filled], said, rtol=0, atol=1e-9)
        assert bins.ece == pytest.approx(bins.weight[filled] @ np.abs(happened - said) / len(y), abs=1e-9)
    binary = audit({"p": p[:, 0], "y": y == 0}, forecast="p", outcome="y", exact=False).whole
    assert binary.brier / 2 == pytest.approx(brier_score_loss(y == 0, p[:, 0]), abs=1e-9)


def test_certain_forecasts_stay_in_their_bin() -> None:
    """torchmetrics gives a probability of 1 a bin of its own, so that errors no longer cancel; we do not."""
    p, y = np.array([1.0, 0.92, 0.0, 0.08]), np.array([0, 1, 1, 0])
    bins = audit({"p": p, "y": y}, forecast="p", outcome="y", exact=False).whole.classes["1"]
    assert bins.weight.tolist() == [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bins.ece == pytest.approx(0.46)
    theirs = float(binary_calibration_error(torch.from_numpy(p), torch.from_numpy(y), n_bins=10, norm="l1"))
    assert theirs == pytest.approx((1.0 + 0.08 + 2 * 0.46) / 4)  # were it put right, this would be ours


def test_an_edge_belongs_to_the_bin_above_it() -> None:
    """scikit-learn's bins hold their upper edge, and its linspace puts the edge 0.3 at 0.30000000000000004."""
    p = np.arange(11) / 10
    bins = audit({"p": p, "y": np.arange(11) % 2}, forecast="p", outcome="y", exact=False).whole.classes["1"]
    assert bins.weight.tolist() == [1] * 9 + [2]
    assert bins.forecast[:9].tolist() == p[:9].tolist()
    assert len(calibration_curve(np.arange(11) % 2, p, n_bins=10)[0]) == 10


@given(seed=seeds)
@settings(max_examples=4, deadline=None)
def test_the_order_of_rows_leaves_no_trace(seed: int) -> None:
    p, y = random_log(seed, n=200)
    order = np.random.default_rng(seed).permutation(200)
    one, other = (
        audit({"p": p[rows], "y": y[rows], "g": y[rows] % 2}, forecast="p", outcome="y", by="g", classes=range(4))
        for rows in (np.arange(200), order)
    )
    assert one.to_dict() == other.to_dict()


def test_chunks_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    p, y = random_log(5, n=5000)
    log = {"p": p, "y": y}
    whole = audit(log, forecast="p", outcome="y").to_dict()
    monkeypatch.setattr("treecal.io._outcomes._ROWS", 1024)
    assert audit(log, forecast="p", outcome="y").to_dict() == whole


def test_every_kind_of_source_gives_the_same(tmp_path: Path) -> None:
    p, y = random_log(1, n=300, d=3)
    names = np.array(["ash", "birch", "cedar"])[y]
    table = pa.table({"p_ash": p[:, 0], "p_birch": p[:, 1], "p_cedar": p[:, 2], "tree": names, "p": p.tolist()})
    columns = table.drop_columns("p")
    pq.write_table(table, tmp_path / "log.parquet")
    for suffix in ("csv", "csv.gz", "tsv"):
        columns.to_pandas().to_csv(tmp_path / f"log.{suffix}", index=False, sep="\t" if suffix == "tsv" else ",")
    with (tmp_path / "log.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    hot = {f"is_{tree}": (names == tree).astype(int) for tree in ("ash", "birch", "cedar")}
    wide, lists = ["p_ash", "p_birch", "p_cedar"], "p"
    sources: list[tuple[Any, Any, Any]] = [
        (tmp_path / "log.parquet", wide, "tree"),
        (str(tmp_path / "log.parquet"), lists, "tree"),
        (tmp_path / "log.csv", wide, "tree"),
        (tmp_path / "log.csv.gz", wide, "tree"),
        (tmp_path / "log.tsv", wide, "tree"),
        (tmp_path / "log.jsonl", wide, "tree"),
        (tmp_path / "log.jsonl", lists, "tree"),
        (table, wide, "tree"),
        (columns.to_pandas(), wide, "tree"),
        (columns.to_pandas().astype({"tree": "category"}), wide, "tree"),
        (pl.from_arrow(table), lists, "tree"),
        (pl.from_arrow(table).lazy(), wide, "tree"),  # type: ignore[union-attr]
        (duckdb.sql("SELECT * FROM columns"), wide, "tree"),
        ({"p": p, "tree": names}, lists, "tree"),
        (pa.table({**dict(zip(wide, p.T, strict=True)), **hot}).to_pandas(), wide, list(hot)),
    ]
    whole = audit(table, forecast=wide, outcome="tree").whole.to_dict()
    for source, forecast, outcome in sources:
        classes = ["ash", "birch", "cedar"] if isinstance(outcome, list) else None
        assert audit(source, forecast=forecast, outcome=outcome, classes=classes).whole.to_dict() == whole


def test_float32_probabilities_are_taken() -> None:
    logits = np.random.default_rng(0).normal(size=(500, 50)).astype(np.float32)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert p.dtype == np.float32
    found = audit({"p": p, "y": p.argmax(axis=1)}, forecast="p", outcome="y", classes=range(50))
    assert found.whole.rounds == 500


def test_the_columns_names_settle_the_order() -> None:
    log = {"p_sun": np.array([0.9, 0.8]), "p_rain": np.array([0.1, 0.2]), "sky": np.array(["sun", "sun"])}
    found = audit(log, forecast=["p_sun", "p_rain"], outcome="sky")
    assert found.classes == ("sun", "rain")
    assert found.whole.top_label.mean_outcome == 1.0


def test_what_people_see() -> None:
    p, y = random_log(0)
    found = audit(
        {"p": p, "y": y, "[red]model\x1b": np.where(y > 1, "=new", "old")},
        forecast="p",
        outcome="y",
        by="[red]model\x1b",
    )
    text = str(found)
    assert "sure" in text
    assert "[red]" in text
    assert "\x1b" not in text
    json.dumps(found.to_dict(), allow_nan=False)
    rows = list(found.bins())
    assert {row["[red]model\x1b"] for row in rows} == {None, "=new", "old"}
    tops = [row["weight"] for row in rows if row["kind"] == "top label" and row["[red]model\x1b"] is None]
    assert sum(tops) == 400
