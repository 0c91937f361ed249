"""The metric on the CPU: digit for digit the audit, and not what torchmetrics makes of it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install torch")

import treecal as tc  # noqa: E402
from treecal.exceptions import ParameterError  # noqa: E402
from treecal.torch import CalibrationError, _tally as tally  # noqa: E402


def batch(rows: int, classes: int, kind: Any = torch.float32, seed: int = 0) -> tuple[Any, Any]:
    drawn = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=drawn)
    return logits.to(kind), torch.randint(classes, (rows,), generator=drawn)


@pytest.mark.parametrize(
    ("classes", "bins", "kind"),
    [
        (2, 10, torch.float32),
        (5, 15, torch.float64),
        (40, 7, torch.bfloat16),
        (3, 100, torch.float16),
        (4, 1, torch.float32),
    ],
)
def test_equals_the_audit_digit_for_digit(classes: int, bins: int, kind: Any) -> None:
    x, y = batch(300, classes, kind)
    x[0], y[0] = 0.0, 1  # all classes are alike
    x[1] = torch.tensor([60.0] + [-60.0] * (classes - 1))  # a probability of 1
    metric = CalibrationError(classes, bins)
    for start in (0, 7, 150):
        metric.update(x[start : {0: 7, 7: 150, 150: 300}[start]], y[start : {0: 7, 7: 150, 150: 300}[start]])
    audited = tc.audit(metric.probabilities(x), y, classes=range(classes), bins=bins, exact=False).whole
    assert metric.compute().to_dict() == audited.to_dict()
    assert float(metric.compute()) == audited.classwise_ece


def test_parts_merge_in_any_order() -> None:
    x, y = batch(500, 6)
    whole, one, two = (CalibrationError(6) for _ in range(3))
    whole.update(x, y)
    one.update(x[400:], y[400:])
    two.update(x[:400], y[:400])
    one.merge_state(two)
    two.merge_state(CalibrationError(6).state_dict())
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), whole.state_dict().values(), strict=True))
    assert one.compute().to_dict() == whole.compute().to_dict()
    again = CalibrationError(6)
    again.load_state_dict(whole.state_dict())
    assert again.compute().to_dict() == whole.compute().to_dict()
    one.reset()
    assert not any(part.any() for part in one.state_dict().values())
    with pytest.raises(ParameterError, match="not one of 6 classes and 10 bins"):
        one.merge_state(CalibrationError(6, bins=5))
    with pytest.raises(ParameterError, match="no row is valid"):
        one.compute()


def test_state_does_not_grow_as_torchmetrics_does() -> None:
    other = pytest.importorskip("torchmetrics.classification")
    x, y = batch(4000, 4)
    metric, theirs = CalibrationError(4, bins=15), other.MulticlassCalibrationError(4, n_bins=15)
    for start in range(0, 4000, 500):
        metric.update(x[start : start + 500], y[start : start + 500])
        theirs.update(x[start : start + 500], y[start : start + 500])
    assert sum(len(part) for part in theirs.confidences) == 4000  # every confidence
    assert sum(part.numel() for part in metric.buffers()) == 4 * 5 * 15 + 8 + 3
    assert metric.compute().top_label.ece == pytest.approx(float(theirs.compute()), abs=1e-6)


def test_a_probability_of_1_is_in_the_last_bin() -> None:
    """torchmetrics gives it a bin of its own, so that errors no longer cancel."""
    functional = pytest.importorskip("torchmetrics.functional.classification")
    x = torch.tensor([[200.0, -200.0]] * 2 + [[1.2, -1.2]] * 2)  # 1, and 0.917: both in [0.9, 1]
    y = torch.tensor([0, 1, 0, 0])
    metric = CalibrationError(2)
    metric.update(x, y)
    p = metric.probabilities(x)
    assert p[0, 0] == 1
    theirs = float(functional.multiclass_calibration_error(p, y, num_classes=2, n_bins=10))
    mean, right = float(p[:, 0].double().mean()), 3 / 4
    assert metric.compute().top_label.ece == pytest.approx(abs(mean - right), abs=1e-12)
    assert abs(theirs - abs(mean - right)) > 0.05


def test_invalid_rows_are_left_out_and_counted() -> None:
    x, y = batch(20, 3)
    x[1, 0], x[2, 1], x[3], x[4, 0], y[5], y[6] = np.nan, np.inf, -np.inf, -np.inf, 3, -100
    metric = CalibrationError(3)
    metric.update(x, y)
    kept = [row for row in range(20) if row not in (1, 2, 3, 5, 6)]
    expected = CalibrationError(3)
    expected.update(x[kept], y[kept])
    assert metric.invalid == 5
    assert metric.compute().to_dict() == expected.compute().to_dict()


@pytest.mark.parametrize(
    ("logits", "outcomes", "message"),
    [
        (torch.zeros(4, 3, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), "expected a tensor of floats"),
        (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), r"expected \(n, 3\)"),
        (torch.zeros(4, 3), torch.zeros(4), "expected a tensor of whole numbers"),
        (torch.zeros(4, 3), torch.zeros(5, dtype=torch.int64), r"expected \(4,\)"),
    ],
)
def test_what_is_refused_changes_nothing(logits: Any, outcomes: Any, message: str) -> None:
    metric = CalibrationError(3)
    with pytest.raises(ParameterError, match=message):
        metric.update(logits, outcomes)
    assert not any(part.any() for part in metric.state_dict().values())


def test_images_and_names() -> None:
    x, y = batch(60, 3)
    flat, images = CalibrationError(["a", "b", "c"]), CalibrationError(3)
    flat.update(x, y)
    images.update(x.view(5, 12, 3).movedim(2, 1), y.view(5, 12))
    assert list(flat.compute().classes) == ["a", "b", "c"]
    assert all(torch.equal(a, b) for a, b in zip(flat.buffers(), images.buffers(), strict=True))
    with pytest.raises(ParameterError, match="distinct names"):
        CalibrationError(["a", "a"])


def test_halves_are_one_sum() -> None:
    """However sums are split into halves, the counts are the same: kernels split later."""
    x, y = batch(50, 3)
    metric = CalibrationError(3)
    metric.update(x, y)
    other = tally.views(metric.counts.clone(), metric.bins)
    other.cells[tally.HIGH] -= 1
    other.cells[tally.LOWS] += 1 << tally.HALF
    assert all(np.array_equal(a, b) for a, b in zip(tally.as_cells(other), tally.as_cells(metric._sums()), strict=True))


@pytest.mark.heavy  # a compiler of C++ is started
def test_under_compile() -> None:
    x, y = batch(64, 5)
    plain, metric = CalibrationError(5), CalibrationError(5)
    plain.update(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(metric.update)(x, y)
    assert metric.compute().brier == pytest.approx(plain.compute().brier, abs=1e-6)  # the softmax is another one
    assert torch.equal(metric.counts[-3:], plain.counts[-3:])


def test_processes_add_up(tmp_path: Any) -> None:
    """With `torch.distributed`, every process gets the result of all rows; its own state stays."""
    import torch.distributed as dist

    x, y = batch(100, 3)
    metric = CalibrationError(3)
    metric.update(x, y)
    before = metric.compute().to_dict()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        assert metric.compute().to_dict() == before
    finally:
        dist.destroy_process_group()
