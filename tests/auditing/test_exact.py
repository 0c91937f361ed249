"""The exact audit is the ledger's, to the last digit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.auditing import audit
from treecal.auditing._exact import ExactSum
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import Distance
from treecal.io import Source

DISTANCES: list[Distance] = [tc.l1, tc.l2, tc.linf, tc.Lp(3), tc.l2.squared, tc.NegativeEntropy()]


@st.composite
def logs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some rows over a few points, so that forecasts come back; with probabilities of exactly 0, -0 and 1."""
    d, n = draw(st.integers(2, 5)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    points = rng.dirichlet(np.full(d, 0.5), size=6)
    points[0] = np.eye(d)[0]
    points[1] = np.where(np.eye(d)[1] == 1, 1.0, -0.0)
    p = points[rng.integers(6, size=n)]
    return p, rng.integers(d, size=n), rng.integers(3, size=n)


def ledger(p: np.ndarray, y: np.ndarray) -> tc.Ledger:
    kept = tc.Ledger(tc.Simplex(p.shape[1]))
    for point, k in zip(p, y, strict=True):
        kept.record(point, np.eye(p.shape[1])[k])
    return kept


def class_error(said: np.ndarray, came: np.ndarray) -> float:
    """The error of one class by itself, one distinct probability after the other."""
    gaps = [(said == p).sum() * abs(came[said == p].mean() - p) for p in np.unique(said)]
    return math.fsum(gaps) / len(said)


@given(log=logs())
@settings(max_examples=12, deadline=None)
def test_equals_the_ledger_in_every_distance_and_group(log: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, y, model = log
    table = {"p": p, "y": y, "model": model}
    found = audit(table, forecast="p", outcome="y", by="model", norms=DISTANCES, classes=range(p.shape[1]))
    parts = [(found.whole, np.full(len(y), True)), *((part, model == key[0]) for key, part in found.groups.items())]
    assert [key for (key,) in found.groups] == sorted(set(model.tolist()))
    for part, mine in parts:
        expected = ledger(p[mine], y[mine])
        assert part.exact is not None
        assert part.exact.forecasts == len(expected.exact())
        for distance in DISTANCES:
            assert part.exact.errors[repr(distance)] == expected.error(distance)
        each = [class_error(p[mine, k] + 0.0, y[mine] == k) for k in range(p.shape[1])]
        assert part.exact.classes == pytest.approx(each, abs=1e-15)


@given(log=logs(), bad=st.lists(st.sampled_from(["sum", "nan", "negative", "label", "missing", "inf"]), max_size=8))
@settings(max_examples=12, deadline=None)
def test_bad_rows_are_the_same_rows_in_both_passes(
    log: tuple[np.ndarray, np.ndarray, np.ndarray], bad: list[str]
) -> None:
    p, y, _ = log
    rows = [[*map(float, point), str(k)] for point, k in zip(p, y, strict=True)]
    harm = {"sum": 0.97, "nan": math.nan, "negative": -0.25, "missing": None, "inf": math.inf}
    for kind in bad:
        broken = [1.0, *[0.0] * (p.shape[1] - 1), "0"]
        broken[-1 if kind == "label" else 0] = "other" if kind == "label" else harm[kind]
        rows.insert(len(rows) // 2, broken)
    names = [f"p{k}" for k in range(p.shape[1])]
    table = pa.table(dict(zip([*names, "y"], map(list, zip(*rows, strict=True)), strict=True)))
    classes = range(p.shape[1])
    found = audit(table, forecast=names, outcome="y", classes=classes, on_error="collect")
    assert found.problems.count == len(bad) == len(list(found.problems))
    assert found.whole.rounds == len(y)
    assert found.whole.exact is not None
    assert found.whole.exact.errors["l1"] == ledger(p, y).error("l1")


@given(terms=st.lists(st.lists(st.floats(0, 1e6), max_size=20), max_size=6))
@settings(max_examples=100, deadline=None)
def test_exact_sums_are_rounded_once(terms: list[list[float]]) -> None:
    total = ExactSum()
    for part in terms:
        total.add(np.array(part))
    assert total.value == math.fsum(x for part in terms for x in part)


def test_infinite_errors_stay_infinite() -> None:
    log = {"p": np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]), "y": np.array([1, 1, 0])}
    found = audit(log, forecast="p", outcome="y", norms=[tc.NegativeEntropy(), "l1"])
    assert found.whole.exact is not None
    assert found.whole.exact.errors["NegativeEntropy()"] == math.inf
    assert math.isfinite(found.whole.exact.errors["l1"])
    assert "∞" in str(found)


@pytest.mark.parametrize("classes", [2, 7])
@pytest.mark.parametrize("by", [(), ("g",), ("g", "h")])
def test_all_exact_errors_take_one_query(classes: int, by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = Source.batches

    def noted(self: Source, sql: str, **options: Any) -> Any:
        asked.append(sql)
        return plain(self, sql, **options)

    monkeypatch.setattr(Source, "batches", noted)
    log = {"p": [[1 / classes] * classes] * 6, "y": np.arange(6) % 2, "g": np.arange(6) % 2, "h": np.arange(6) % 3}
    found = audit(pa.table(log), forecast="p", outcome="y", by=by, classes=range(classes))
    assert [sql.count("GROUPING SETS") for sql in asked if "GROUP" in sql] == [2]  # joint, and by class
    assert found.whole.exact is not None
    assert len(found.whole.exact.classes) == classes


def test_many_classes_and_no_forecast_twice_in_little_memory() -> None:
    """Grouping sets over the columns would count 50 classes for each probability of each class, and run out of it."""
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(50), size=20_000), rng.integers(50, size=20_000)
    log = pa.table({"p": p.tolist(), "y": y})
    found = audit(log, forecast="p", outcome="y", classes=range(50), memory_limit="100MB").whole.exact
    gaps = np.abs(np.eye(50)[y] - p)
    assert found is not None
    assert found.forecasts == 20_000
    assert found.errors["l1"] == pytest.approx(gaps.sum(axis=1).mean())
    assert found.classes == pytest.approx(gaps.mean(axis=0).tolist())


def test_missing_values_make_a_group_of_their_own() -> None:
    """And are not taken for all rows, where these columns are not looked at."""
    p, y = np.array([[0.5, 0.5], [0.5, 0.5], [0.2, 0.8]]), [0, 1, 1]
    log = pa.table({"a": p[:, 0], "b": p[:, 1], "y": y, "g": pa.array([None, "x", None])})
    found = audit(log, forecast=["a", "b"], outcome="y", by="g")
    exact = {key: part.exact for key, part in [(None, found.whole), *found.groups.items()]}
    assert {key: (one.forecasts, one.errors["l1"]) for key, one in exact.items() if one is not None} == {
        None: (2, pytest.approx(0.4 / 3)),
        ("x",): (1, 1.0),
        (None,): (2, pytest.approx((1.0 + 0.4) / 2)),
    }


def test_groups_are_limited_and_named() -> None:
    log = {"p": np.full((40_000, 2), 0.5), "y": np.zeros(40_000, np.int64), "user": np.arange(40_000)}
    with pytest.raises(ParameterError, match=r"more than [\d,]+ groups by user"):
        audit(log, forecast="p", outcome="y", by="user", bins=1000)


def test_norms_are_needed_only_for_exact_errors() -> None:
    log = {"p": np.full((4, 2), 0.5), "y": np.zeros(4, np.int64)}
    with pytest.raises(ParameterError, match="norms is empty"):
        audit(log, forecast="p", outcome="y", norms=[])
    assert audit(log, forecast="p", outcome="y", norms=[], exact=False).whole.exact is None


def test_a_stretch_of_bad_rows_harms_no_other() -> None:
    """Longer than a chunk, so that whole chunks are left out while others are being counted."""
    rng = np.random.default_rng(0)
    p = np.round(rng.random(150_000), 2)
    clean = {"p": p, "y": (rng.random(150_000) < p).astype(np.int64)}
    dirty = {
        "p": np.insert(p, 40_000, np.full(100_000, 7.0)),
        "y": np.insert(clean["y"], 40_000, np.zeros(100_000, int)),
    }
    expected = audit(clean, forecast="p", outcome="y")
    found = audit(dirty, forecast="p", outcome="y", on_error="skip")
    assert found.problems.count == 100_000
    assert found.whole.to_dict() == expected.whole.to_dict()


def test_outcomes_must_be_classes() -> None:
    log = {"p": np.full((4, 2), 0.5), "y": np.full((4, 2), 0.5)}
    with pytest.raises(ParameterError, match="outcome is 'y', expected a column of labels"):
        audit(log, forecast="p", outcome="y")
    log = {"p": np.full((2, 2), 0.5), "a": np.array([1, 0]), "b": np.array([0, 2])}
    with pytest.raises(FileError, match=r"row 2: the outcome is \[0\.0, 2\.0\], expected one 1 among a, b"):
        audit(log, forecast="p", outcome=["a", "b"])


def test_groups_by_many_columns() -> None:
    """Thirty columns of eight values each: their combinations are more than an integer can number."""
    rows, columns = 8, [f"c{k}" for k in range(30)]
    values = {name: np.roll(np.arange(rows), k) for k, name in enumerate(columns)}
    found = audit({"p": np.full(rows, 0.5), "y": np.arange(rows) % 2, **values}, forecast="p", outcome="y", by=columns)
    assert set(found.groups) == {tuple((i - k) % rows for k in range(30)) for i in range(rows)}
