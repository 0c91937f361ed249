"""Audits of many labels: each the audit of its column, and few false discoveries however they depend on each other."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import treecal as tc
from treecal.auditing import audit_labels
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.measures import bin_of


def drawn(rows: int, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    P = rng.random((rows, size))
    Y = (rng.random((rows, size)) < P).astype(float)
    Y[rng.random((rows, size)) < 0.2] = np.nan
    return P, Y


def test_each_label_is_the_audit_of_its_column_and_the_whole_that_of_all() -> None:
    P, Y = drawn(3000, 4)
    found = audit_labels(P, Y, ["d", "c", "b", "a"])
    for k, name in enumerate("dcba"):
        known = ~np.isnan(Y[:, k])
        alone = tc.audit(P[known, k], Y[known, k].astype(int), exact=False)
        assert found.groups[name,].to_dict() == alone.whole.to_dict()
    known = ~np.isnan(Y)
    assert found.whole.to_dict() == tc.audit(P[known], Y[known].astype(int), exact=False).whole.to_dict()
    assert json.loads(json.dumps(found.to_dict()))["joint"] == found.joint
    assert "Groups" in str(found)


def test_the_joint_error_is_the_mean_of_the_largest_gap() -> None:
    P, Y = drawn(500, 5)
    Y = np.where(np.isnan(Y), 0.0, Y)
    found = audit_labels(P, Y)
    gaps = np.empty_like(P)
    for k in range(5):
        home = bin_of(P[:, k], 10)
        for b in np.unique(home):
            own = home == b
            gaps[own, k] = abs(Y[own, k].mean() - P[own, k].mean())
    assert found.joint == pytest.approx(gaps.max(axis=1).mean())
    assert 0 < found.joint_by_chance < 0.2


def test_a_report_of_labels() -> None:
    pytest.importorskip("matplotlib")
    from treecal import report

    P, Y = drawn(400, 30)
    Y[:, 3] = (np.random.default_rng(1).random(400) < P[:, 3] ** 3).astype(float)
    found = audit_labels(P, Y, [f"label {k}" for k in range(30)])
    assert found.off == [("label 3",)]
    assert "1 of 30 labels is off by more than chance: label 3." in str(found)
    assert "Some labels are off and others are not: use tc.Labels." in str(found)
    section = report.audited(found, title="Labels")
    assert len(section.groups) == 30
    assert [entry.name for entry in section.entries] == ["all rows", "label 3"]


def test_masked_outcomes_are_not_known() -> None:
    P, Y = drawn(300, 3)
    hidden = np.random.default_rng(0).random(Y.shape) < 0.3
    found = audit_labels(P, np.ma.masked_array(Y, hidden)).whole
    assert found.brier == audit_labels(P, np.where(hidden, np.nan, Y)).whole.brier
    with pytest.raises(ForecastError, match="nan"):
        audit_labels(np.ma.masked_array(P, hidden), Y)
    with pytest.raises(OutcomeError, match="not an array of numbers"):
        audit_labels(P[:2], [[1], [1, 0]])


def test_invalid_input_is_named() -> None:
    P, Y = drawn(20, 2)
    wrong = P.copy()
    wrong[3, 1] = np.nan
    with pytest.raises(ForecastError, match="in row 3 has the probability nan of '1'"):
        audit_labels(wrong, Y)
    other = Y.copy()
    other[5, 0] = 0.5
    with pytest.raises(OutcomeError, match=r"0\.5 for '0'"):
        audit_labels(P, other)
    other[:, 0] = np.nan
    with pytest.raises(OutcomeError, match="'0' has no outcome"):
        audit_labels(P, other)
    with pytest.raises(ParameterError, match="distinct names"):
        audit_labels(P, Y, ["a", "a"])
    with pytest.raises(OutcomeError, match="shape"):
        audit_labels(P, Y[:, :1])
    with pytest.raises(OutcomeError, match=r"object values, expected .*, NaN where one is not known"):
        audit_labels([[0.5]], np.array([[None]]))


def _false(logs: int) -> float:
    """Return the mean share of right labels among those called off, where outcomes have one common cause."""
    shares = []
    for seed in range(logs):
        rng = np.random.default_rng([5, seed])
        P = np.clip(rng.random((500, 1)) + 0.1 * rng.normal(size=(500, 30)), 0.01, 0.99)
        Y = rng.random((500, 1)) < P
        said = np.where(np.arange(30) < 20, P, P**2 / (P**2 + (1 - P) ** 2))
        off = [int(name) for (name,) in audit_labels(said, Y).off]
        shares.append(sum(k < 20 for k in off) / max(len(off), 1))
    return float(np.mean(shares))


def test_few_labels_are_called_off_by_chance() -> None:
    assert _false(5) <= 0.2


@pytest.mark.heavy
def test_false_discoveries_of_dependent_labels() -> None:
    found = _false(300)
    print(f"false discovery rate {found:.4f}")
    assert found <= 0.05


@pytest.mark.heavy
def test_a_million_rows_of_a_hundred_labels_cost_what_a_hundred_audits_do() -> None:
    rng = np.random.default_rng(0)
    P = rng.random((1_000_000, 100))
    Y = rng.random((1_000_000, 100)) < P
    audit_labels(P[:1000], Y[:1000])
    tc.audit(P[:100_000, 0].copy(), Y[:100_000, 0].astype(int), exact=False)
    begin = time.process_time()
    audit_labels(P, Y)
    together = time.process_time() - begin
    begin = time.process_time()
    for k in range(100):
        tc.audit(P[:, k], Y[:, k], exact=False)
    apart = time.process_time() - begin
    print(f"together {together:.1f} s, apart {apart:.1f} s")
    assert together <= 3 * apart
