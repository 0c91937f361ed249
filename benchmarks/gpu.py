"""What counting and recalibrating cost on a GPU, beside the rate of its copies: ratios in one run.

`python benchmarks/gpu.py` needs torch with CUDA; torchmetrics, if it is there, is measured beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable

import numpy as np
import torch

from treecal.torch import CalibrationError


def seconds(work: Callable[[], object], *, repeats: int = 20, calls: int = 40) -> float:
    """Return the median time of a call among many, by the device's own clock: the first alone waits for the CPU."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / calls)
    return statistics.median(times)


def copy_rate() -> float:
    """Return the bytes that the device reads and writes in a second when it copies 4 GB."""
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds(lambda: target.copy_(source), calls=3)


def show(name: str, seconds_: float, **ratios: tuple[float, str]) -> dict[str, object]:
    """Print a line, and return it."""
    parts = "; ".join(
        f"{what.replace('_', ' ')} {value:.3g} (target {target})" for what, (value, target) in ratios.items()
    )
    print(f"{name:48} {1e6 * seconds_:10.1f} µs   {parts}", flush=True)
    return {"name": name, "seconds": seconds_, **{what: value for what, (value, _) in ratios.items()}}


def metric(rows: int, classes: int, rate: float) -> list[dict[str, object]]:
    """Count a batch of logits, beside torchmetrics."""
    found = []
    logits, outcomes = 3 * torch.randn(rows, classes, device="cuda"), torch.randint(classes, (rows,), device="cuda")
    for kind in (torch.float32, torch.bfloat16):
        x, ours = logits.to(kind), CalibrationError(classes, bins=15).cuda()
        took = seconds(lambda x=x, ours=ours: ours.update(x, outcomes))
        ratios = {"of_copy_rate": (x.nbytes / took / rate, "none")}
        try:
            from torchmetrics.classification import MulticlassCalibrationError

            theirs = MulticlassCalibrationError(classes, n_bins=15, validate_args=False).cuda()

            def other(x: torch.Tensor = x, theirs: MulticlassCalibrationError = theirs) -> None:
                theirs.update(x, outcomes)
                theirs.confidences.clear(), theirs.accuracies.clear()

            ratios["times_torchmetrics"] = seconds(other) / took, "none"
        except ImportError:
            pass
        found.append(show(f"metric.update {rows:,} x {classes:,} {kind}".replace("torch.", ""), took, **ratios))
    return found


def forward(rows: int, classes: int) -> list[dict[str, object]]:
    """Recalibrate a batch of logits, beside a softmax."""
    from treecal.torch import Recalibrate

    found = []
    logits, outcomes = 3 * torch.randn(rows, classes, device="cuda"), torch.randint(classes, (rows,), device="cuda")
    module = Recalibrate(classes).cuda()
    module.observe(logits[:512], outcomes[:512])
    for kind in (torch.float32, torch.bfloat16):
        x = logits.to(kind)
        plain = seconds(lambda x=x: torch.softmax(x, 1))
        took = seconds(lambda x=x: module(x))
        found.append(show(f"Recalibrate.forward {rows:,} x {classes:,} {kind}".replace("torch.", ""), took,
                          times_softmax=(took / plain, "1.1")))  # fmt: skip
    took = seconds(lambda: module.observe(logits[:512], outcomes[:512]), repeats=3, calls=1)
    return [*found, show(f"Recalibrate.observe 512 x {classes:,}", took, us_a_row=(1e6 * took / 512, "none"))]


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--json", help="a file for the figures")
    given = parser.parse_args()
    torch.manual_seed(0)
    rate = copy_rate()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, NumPy {np.__version__}: "
        f"copies {rate / 1e12:.2f} TB/s"
    )
    found = metric(given.batch, given.classes, rate) + forward(given.batch, given.classes)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"copy": rate, "found": found}, file)


if __name__ == "__main__":
    main()
