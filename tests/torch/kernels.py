"""Checks of the kernels against the CPU: on a GPU, or in Triton's interpreter (`TRITON_INTERPRET=1`), which needs none.

`TRITON_INTERPRET=1 python -m tests.torch.kernels` runs all of them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from treecal.torch import CalibrationError, Recalibrate, _tally as tally


def metric(device: str) -> None:
    """Counts are those of torch's operations on the same probabilities, in all integers."""
    for rows, classes, bins, kind in (
        (20, 3, 10, torch.float32),
        (20, 40, 15, torch.bfloat16),
        (9, 200, 70, torch.float32),
        (3, 1100, 15, torch.float16),
        (3, 2500, 50, torch.float32),
    ):
        drawn = torch.Generator().manual_seed(classes)
        x = (4 * torch.randn(rows, classes, generator=drawn)).to(kind)
        y = torch.randint(classes, (rows,), generator=drawn)
        if rows > 6:
            x[1, 0], x[2, 1], x[3], y[4], y[5] = np.nan, np.inf, -np.inf, classes, -100
            x[6, 0] = 200.0  # a probability of 1
            x[7] = 3e4 * x[7].sign()  # many that are alike, and large
        if classes < 10:
            x[0] = 0.0  # all classes are alike
        module, expected = CalibrationError(classes, bins).to(device), CalibrationError(classes, bins)
        given, own = x.to(device), y.to(device)
        p = module.probabilities(given).cpu()
        assert torch.allclose(p, torch.softmax(x.float(), 1), rtol=1e-5, atol=1e-30, equal_nan=True) or rows > 6
        for part in (slice(0, 1), slice(1, rows)):  # which begins anywhere
            module.update(given[part], own[part])
        tally._add(expected._sums(), p.double(), y)
        found, other = (tally.as_cells(each._sums()) for each in (module, expected))
        assert all(np.array_equal(a, b) for a, b in zip(found, other, strict=True)), (rows, classes, bins, kind)


def steps(device: str) -> None:
    """What is learned is what the corrector learns, to 1e-10; `forward` is a softmax of it."""
    tight: dict[str, Any] = {"radius": 2.1, "rate": 0.02, "ridge": 0.5}
    drawn = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(80, 4, generator=drawn)
    y = torch.randint(4, (80,), generator=drawn)
    x[5, 1], y[7] = np.nan, -1
    kept = [row for row in range(80) if row not in (5, 7)]
    for method, given, rows in (("vector", {}, 80), ("vector", tight, 12), ("temperature", {"radius": 1.01}, 80)):
        module, other = (Recalibrate(4, method=method, **given) for _ in range(2))  # type: ignore[arg-type]
        module = module.to(device)
        for part in (slice(0, 10), slice(10, rows)):
            module.observe(x[part].to(device), y[part].to(device))
        mirror, chosen = other.corrector(), [row for row in kept if row < rows]
        mirror.update_many(torch.softmax(x[chosen].double(), 1).numpy(), y[chosen].numpy())
        own, theirs = module.corrector().get_state(), mirror.get_state()
        assert own["rounds"] == theirs["rounds"]
        assert int(module.invalid) == 2
        for name, value in theirs["own"].items():
            assert np.allclose(own["own"][name], value, rtol=1e-10, atol=1e-13), (method, given, name)
        expected = torch.softmax(module.slope * torch.log_softmax(x[:5].to(device), 1) + module.bias, 1)
        assert torch.allclose(module(x[:5].to(device)), expected, atol=1e-6)


CHECKS = metric, steps

if __name__ == "__main__":
    for check in CHECKS:
        check("cpu")
        print(check.__name__, "agrees", file=sys.stderr)
