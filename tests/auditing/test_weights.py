"""Sample weights of an audit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import treecal as tc
from treecal._validate import HEAVIEST
from treecal.auditing._kernels import _product
from treecal.auditing._sql import scale_of, whole_weights


def a_log(seed: int = 0, rows: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), rows)
    p[: rows // 2] = p[rng.integers(9, size=rows // 2)]
    group = np.array(["old", "new"])[rng.integers(2, size=rows)]
    return {"p": p, "y": rng.integers(3, size=rows), "g": group, "w": rng.integers(0, 4, size=rows)}


COLUMNS: dict[str, Any] = {"forecast": "p", "outcome": "y", "by": "g"}


OF_ROWS = {"rounds", "source", "verdict", "intervals", "interval", "chance", "debiased_ece", "resolution", "mce"}


def without_rounds(found: Any) -> Any:
    """Return all digits but the number of rows, and what depends on it: a repeated row is one more row."""
    if isinstance(found, dict):
        return {name: without_rounds(value) for name, value in found.items() if name not in OF_ROWS}
    return list(map(without_rounds, found)) if isinstance(found, list) else found


@pytest.mark.parametrize(("seed", "times"), [(0, 2**30), (1, 0.125)])
def test_whole_weights_are_repeated_rows_to_the_last_digit(seed: int, times: float) -> None:
    log = a_log(seed)
    rows = np.repeat(np.arange(300), log["w"])
    repeated = {name: log[name][rows] for name in ("p", "y", "g")}
    weighed = tc.audit(log, **COLUMNS, weight="w").to_dict()
    assert without_rounds(weighed) == without_rounds(tc.audit(repeated, **COLUMNS).to_dict())
    assert weighed["whole"]["rounds"] == np.count_nonzero(log["w"])
    heavier = tc.audit(log | {"w": log["w"] * times}, **COLUMNS, weight="w")
    expected = tc.audit(repeated, **COLUMNS).whole.exact
    assert expected is not None
    assert heavier.whole.exact == replace(expected, chance=None)
    assert heavier.whole.weight == times * len(rows)


def test_weights_of_1_change_nothing() -> None:
    log = a_log()
    plain = tc.audit(log, **COLUMNS).to_dict()
    for ones in (np.ones(300), np.ones(300, int), np.ones(300, np.float32)):
        assert tc.audit(log | {"w": ones}, **COLUMNS, weight="w").to_dict() == plain


def test_any_weights_give_the_mean_and_a_ledgers_errors_in_any_order() -> None:
    log, rng = a_log(), np.random.default_rng(1)
    w = rng.exponential(size=300)
    found = tc.audit(log | {"w": w}, **COLUMNS, weight="w").to_dict()
    order = rng.permutation(300)
    assert tc.audit({name: (log | {"w": w})[name][order] for name in log}, **COLUMNS, weight="w").to_dict() == found
    ledger = tc.Ledger(tc.Simplex(3))
    ledger.record_many(log["p"], log["y"], weights=w)
    whole = found["whole"]
    for norm in ("l1", "l2", "linf"):
        assert whole["errors"][norm]["exact"] == pytest.approx(ledger.error(norm), rel=1e-13)
    squares = ((log["p"] - np.eye(3)[log["y"]]) ** 2).sum(axis=1)
    assert whole["brier"] == pytest.approx(np.average(squares, weights=w), rel=1e-13)
    assert whole["weight"] == pytest.approx(w.sum(), rel=1e-13)
    old = log["g"] == "old"
    group = next(part for part in found["groups"] if part["by"]["g"] == "old")
    assert group["brier"] == pytest.approx(np.average(squares[old], weights=w[old]), rel=1e-12)
    arrays = tc.audit(log["p"], log["y"], weight=w).to_dict()
    assert arrays["whole"] == whole


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_invalid_weights_are_invalid_rows(tmp_path: Path, suffix: str) -> None:
    import pandas as pd

    rows = [(0.5, "a", 1.0), (0.5, "b", -1.0), (0.5, "b", None), (0.2, "b", 0.0), (0.5, "a", 1e13), (0.7, "b", 2.5)]
    frame = pd.DataFrame(rows, columns=["p", "y", "w"])
    path = tmp_path / f"log{suffix}"
    {".csv": lambda: frame.to_csv(path, index=False), ".parquet": lambda: frame.to_parquet(path)}.get(
        suffix, lambda: frame.to_json(path, orient="records", lines=True)
    )()
    columns: dict[str, Any] = {"forecast": "p", "outcome": "y", "classes": ["a", "b"], "weight": "w"}
    found = tc.audit(path, **columns, on_error="collect")
    assert found.problems.count == 3
    reasons = [problem.reason for problem in found.problems]
    assert reasons[0] == "w is -1.0, expected a weight: 0, or from 1e-12 to 1e+12." or reasons[0].startswith("w is '-1")
    assert "missing" in reasons[1]
    assert (found.whole.rounds, found.whole.weight, found.whole.exact and found.whole.exact.forecasts) == (2, 3.5, 2)
    with pytest.raises(tc.TreeCalError, match=r"w is .*-1.*expected a weight"):
        tc.audit(path, **columns)
    assert "The 2 rows have a total weight of 3.5" in str(found)


def test_rows_that_are_infinite_or_not_numbers() -> None:
    log = {"p": np.full(5, 0.5), "y": np.array([0, 1, 0, 1, 1]), "w": np.array([1.0, np.inf, np.nan, -0.0, 2.0])}
    found = tc.audit(log, forecast="p", outcome="y", weight="w", on_error="skip")
    assert (found.problems.count, found.whole.rounds, found.whole.weight) == (2, 2, 3.0)
    with pytest.raises(tc.TreeCalError, match="no valid row of positive weight"):
        tc.audit(log | {"w": np.zeros(5)}, forecast="p", outcome="y", weight="w")
    with pytest.raises(tc.TreeCalError, match="has no column 'v'"):
        tc.audit(log, forecast="p", outcome="y", weight="v")
    with pytest.raises(tc.TreeCalError, match="holds BOOLEAN values, expected numbers"):
        tc.audit(log | {"w": np.ones(5, bool)}, forecast="p", outcome="y", weight="w")


def test_a_group_without_weight_is_no_group() -> None:
    log = a_log() | {"w": (a_log()["g"] == "old").astype(int)}
    found = tc.audit(log, **COLUMNS, weight="w")
    assert list(found.groups) == [("old",)]
    assert found.groups["old",].to_dict() == found.whole.to_dict()


@given(st.integers(0, 2**52 - 1), st.integers(0, 2**53 - 1))
def test_a_product_of_105_bits(amount: int, weight: int) -> None:
    ones, rest = _product(amount, weight)
    assert (ones << 51) + rest == amount * weight
    assert 0 <= rest < 3 << 51


@given(st.lists(st.floats(1 / HEAVIEST, HEAVIEST), min_size=1, max_size=50), st.integers(1, 10**9))
def test_whole_weights_fit_and_lose_as_little_as_stated(weights: list[float], times: int) -> None:
    w = np.array(weights)
    scale = scale_of(len(w) * times, float(w.max()))
    whole = whole_weights(w, scale)
    assert sum(whole.tolist()) * times < 2**61
    assert whole.max() < 2**53
    for given_, found in zip(weights, whole.tolist(), strict=True):
        lost = Fraction(given_) - Fraction(found) / Fraction(scale)
        assert 0 <= lost <= Fraction(float(w.max())) * max(len(w) * times, 128) / 2**59
