"""Binned errors against literal definitions, scikit-learn, torchmetrics, the audit, and what they should estimate."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.calibration import calibration_curve

import treecal as tc
from tests.measures.worlds import literal_ece, literal_square, world
from treecal.exceptions import ParameterError
from treecal.measures import bin_of, brier, debiased_ece, ece, mce, resolution


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 12))
def test_errors_are_what_their_definitions_say(seed: int, d: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    P, y = world(d, sharp=1.5)(40, rng)
    views = [(P.max(axis=1), y == P.argmax(axis=1)), *((P[:, k], y == k) for k in range(d))]
    exact, squares = [], []
    for p, hit in views:
        cells = bin_of(p, bins).astype(int)
        exact.append(literal_ece(p, hit, cells))
        squares.append(literal_square(p, hit, cells))
    assert ece(P, y, bins=bins) == pytest.approx(exact[0])
    assert ece(P, y, bins=bins, view=1) == pytest.approx(exact[2])
    assert ece(P, y, bins=bins, view="classes") == pytest.approx(np.mean(exact[1:]))
    top = debiased_ece(P, y, bins=bins, kind="width", squared=True)
    assert top == pytest.approx(squares[0], abs=1e-12)
    classes = debiased_ece(P, y, bins=bins, kind="width", squared=True, view="classes")
    assert classes == pytest.approx(np.mean(squares[1:]), abs=1e-12)
    assert debiased_ece(P, y, bins=bins, kind="width") == pytest.approx(np.sqrt(max(squares[0], 0)), abs=1e-7)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_bins_as_scikit_learn(strategy: str) -> None:
    kind: Literal["mass", "width"] = "width" if strategy == "uniform" else "mass"
    rng = np.random.default_rng(0)
    p = rng.random(1500)
    y = (rng.random(1500) < p**1.3).astype(int)
    outcome, forecast = calibration_curve(y, p, n_bins=15, strategy=strategy)
    cuts = np.linspace(0, 1, 16)[1:-1] if kind == "width" else np.quantile(p, np.linspace(0, 1, 16))[1:-1]
    count = np.bincount(np.searchsorted(cuts, p), minlength=15)
    assert ece(p, y, view=1, kind=kind) == pytest.approx(count @ np.abs(outcome - forecast) / 1500, abs=2e-4)
    assert mce(p, y, view=1, kind=kind, least=1) == pytest.approx(np.abs(outcome - forecast).max(), abs=6e-3)


@pytest.mark.heavy  # importing torch takes long
def test_ece_as_torchmetrics() -> None:
    torch = pytest.importorskip("torch")
    other = pytest.importorskip("torchmetrics.functional.classification")
    P, y = world(4, sharp=2)(400, np.random.default_rng(0))
    tensors = torch.tensor(P), torch.tensor(y)
    for norm, ours in ("l1", ece(P, y)), ("max", mce(P, y, least=1)):
        theirs = other.multiclass_calibration_error(*tensors, num_classes=4, n_bins=15, norm=norm)
        assert ours == pytest.approx(float(theirs), abs=1e-6)


def test_ece_as_the_audit() -> None:
    P, y = world(3, sharp=2)(300, np.random.default_rng(0))
    rows = [dict(zip("abc", map(float, p), strict=True)) | {"outcome": "abc"[k]} for p, k in zip(P, y, strict=True)]
    pd = pytest.importorskip("pandas")
    audit = tc.audit(pd.DataFrame(rows), forecast=["a", "b", "c"], outcome="outcome", bins=15).whole
    assert ece(P, y) == pytest.approx(audit.top_label.ece)
    assert ece(P, y, view="classes") == pytest.approx(audit.classwise_ece)
    assert mce(P, y, least=1) == pytest.approx(audit.top_label.mce)
    assert brier(P, y) == pytest.approx(audit.brier)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 60))
def test_bins_of_equal_mass(seed: int, bins: int, rows: int) -> None:
    from treecal.measures._cells import _by_mass

    rng = np.random.default_rng(seed)
    p = rng.random(rows)
    found = np.bincount(_by_mass(p, np.ones(rows), bins))
    if rows >= bins:
        assert len(found) == bins
        assert found.max() - found.min() <= 1
    rounded = np.round(p, 1)
    cells = _by_mass(rounded, np.ones(rows), bins)
    assert all(len(np.unique(cells[rounded == value])) == 1 for value in rounded)
    assert (np.diff(cells[np.argsort(rounded)]) >= 0).all()


def test_the_square_is_unbiased_and_the_plain_one_is_not() -> None:
    rng = np.random.default_rng(0)
    draw, kept, plain = world(3), [], []
    for _ in range(300):
        P, y = draw(100, rng)
        kept.append(debiased_ece(P, y, squared=True, view="classes"))
        plain.append(ece(P, y, view="classes"))
    error = np.std(kept) / np.sqrt(len(kept))
    assert abs(np.mean(kept)) < 4 * error
    assert np.mean(plain) > 0.05


def test_thin_bins_are_left_out_of_the_largest_gap() -> None:
    p, y = [0.8] * 40 + [0.3], [1] * 30 + [0] * 10 + [1]
    assert mce(p, y, view=1, least=40) == pytest.approx(0.05)
    assert mce(p, y, view=1, least=1) == pytest.approx(0.7)
    with pytest.raises(ParameterError, match="no bin has 41 rows; the fullest of 15 has 40"):
        mce(p, y, view=1, least=41)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_the_brier_score_is_calibration_less_resolution_and_uncertainty(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.multinomial(50, rng.dirichlet(np.ones(3)), size=4) / 50  # equal in a class, or in other bins
    at = np.repeat(np.arange(4), 25)
    P, y = points[at], rng.integers(0, 3, 100)
    n, shares = 100, np.bincount(y, minlength=3) / 100
    # Debiased, each part is: Ferro and Fricker (2012), whose sum is the score again.
    uncertainty = float((shares * (1 - shares)).sum()) * n / (n - 1)
    calibration = 3 * debiased_ece(P, y, view="classes", squared=True, bins=1000, kind="width")
    parts = calibration - resolution(P, y, bins=1000, kind="width") + uncertainty
    assert brier(P, y) == pytest.approx(parts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"view": "bottom"}, "view is 'bottom', expected 'top', 'classes' or a class from 0 to 1"),
        ({"view": 2}, "view is 2"),
        ({"view": True}, "view is True"),
        ({"bins": 0}, "bins is 0"),
        ({"kind": "round"}, "kind is 'round', expected 'mass' or 'width'"),
    ],
)
def test_invalid_options(options: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        ece([0.5, 0.5], [0, 1], **options)  # type: ignore[arg-type]
