"""The monitor behind a model: that of the CPU, bit for bit."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install torch")

import treecal as tc  # noqa: E402
from treecal.torch import Monitor  # noqa: E402


def test_same_alarm_and_evidence() -> None:
    drawn = torch.Generator().manual_seed(1)
    monitor, mirror = (
        Monitor(["dry", "wet", "snow"], alpha=0.01),
        tc.Monitor(tc.Simplex(classes=["dry", "wet", "snow"]), alpha=0.01),
    )
    for _ in range(6):
        logits = torch.randn(50, 3, generator=drawn)
        y = torch.distributions.Categorical(logits=logits).sample()
        monitor.update((3 * logits).bfloat16(), y)
        mirror.update_many(torch.softmax((3 * logits).bfloat16(), 1, dtype=torch.float64).numpy(), y.numpy())
    assert monitor.alarm is not None
    assert monitor.alarm == mirror.alarm
    assert monitor.e_value == mirror.e_value
    again = Monitor(["dry", "wet", "snow"], alpha=0.01)
    again.load_state_dict(monitor.state_dict())
    assert again.alarm == monitor.alarm
    assert again.e_value == monitor.e_value
    monitor.reset()
    assert monitor.alarm is None


def test_invalid_rows_are_left_out() -> None:
    monitor = Monitor(2)
    logits = torch.zeros(5, 2)
    logits[1] = np.nan
    monitor.update(logits, torch.tensor([0, 1, 2, -1, 1]))
    assert monitor.invalid == 3
    assert monitor.monitor.rounds == 2


def test_the_compiler_of_torch_is_not_imported_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def disable(method: Any) -> None:
        raise AssertionError("torch._dynamo takes seconds to import")

    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setattr(torch.compiler, "disable", disable)
    monitor = Monitor(2)
    monitor.update(torch.zeros(5, 2), torch.tensor([0, 1, 0, 1, 1]))
    assert monitor.monitor.rounds == 5
