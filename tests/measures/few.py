"""Logs of which few rows are labelled, with proxies of every kind, and how often the intervals of estimates cover.

python tests/measures/few.py                                           # the table of the documentation: 1,000 logs each
python tests/measures/few.py --logs 10000 --labels 50 100 --judges good        # some of it, with less noise
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from treecal.measures import estimate, few_labels

KINDS = ("good", "useless", "adversarial")
LABELS = (50, 100, 200, 500, 2000)
MEANS = ("accuracy", "too_sure", "brier", "log_score")
JUDGES = ("lenient", "strict", "either", "none")
SHARPNESS = 1.6


class Covered(NamedTuple):
    """How often 90 % intervals hold the truth, with the judge and without; and their width as a share of those."""

    both: float
    alone: float
    width: float


class FewLog(NamedTuple):
    """Forecasts of class 1, outcomes, NaN where there is none, the judge's classes, and probabilities of a label."""

    p: np.ndarray
    y: np.ndarray
    judge: np.ndarray
    pi: np.ndarray


def draw(rows: int, labels: int, kind: str, neyman: bool, rng: np.random.Generator) -> FewLog:
    """Return a log of forecasts that are too sure, and a judge who is mostly right, guesses, or is mostly wrong.

    The good one's classes have a correlation of 0.9 with the outcomes.
    """
    z = rng.normal(size=rows)
    p = _rate(SHARPNESS * z)
    y = (rng.random(rows) < _rate(z)).astype(float)
    honest = {"good": 0.95, "useless": 0.5, "adversarial": 0.2}[kind]
    source = (rng.random(rows) < 0.5).astype(float) if kind == "useless" else y
    judge = np.where(rng.random(rows) < honest, source, 1 - source)
    spread = np.sqrt(p * (1 - p)) if neyman else np.ones(rows)
    pi = np.minimum(labels / rows * (0.8 * spread / spread.mean() + 0.2), 1.0)
    return FewLog(p, np.where(rng.random(rows) < pi, y, np.nan), judge, pi)


def truth() -> dict[str, float]:
    """Return what the measures of infinitely many rows are, by a fine grid of quantiles."""
    p, rate, sure, right = _grid(200_000)
    return {
        "accuracy": float(right.mean()),
        "too_sure": float((sure - right).mean()),
        "brier": float(2 * (rate * (1 - p) ** 2 + (1 - rate) * p**2).mean()),
        "log_score": float(-(rate * np.log(p) + (1 - rate) * np.log1p(-p)).mean()),
    }


def true_calibration_error(log: FewLog) -> float:
    """Return what the error of infinitely many rows is in the cells of a log: 15 at most, of 25 labels each or more."""
    labelled = np.sort(np.maximum(log.p, 1 - log.p)[~np.isnan(log.y)])
    cells = min(max(len(labelled) // 25, 1), 15)
    cuts = np.unique(labelled[np.arange(1, cells) * len(labelled) // cells])
    _, _, sure, right = _grid(20_000)
    home = np.searchsorted(cuts, sure, side="right")
    size = np.bincount(home, minlength=len(cuts) + 1)
    gap = np.bincount(home, right - sure, len(cuts) + 1) / np.maximum(size, 1)
    return float(np.sqrt(size @ gap**2 / size.sum()))


def covered(kind: str, labels: int, *, neyman: bool, logs: int, seed: int = 0) -> dict[str, Covered]:
    """Return how often intervals cover, by measure."""
    rng = np.random.default_rng([KINDS.index(kind), labels, neyman, seed])
    true = truth()
    seen = defaultdict(list)
    for _ in range(logs):
        log = draw(max(10_000, 20 * labels), labels, kind, neyman, rng)
        found = few_labels(log.p, log.y, probability=log.pi, proxy=log.judge)
        for name, value in {**true, "calibration_error": true_calibration_error(log)}.items():
            ends = (found[name].interval, found[name].alone)
            held = [each.low <= value <= each.high for each in ends]
            seen[name].append((*held, *(each.high - each.low for each in ends)))
    means = {name: np.mean(rows, axis=0) for name, rows in seen.items()}
    return {name: Covered(float(a), float(b), float(c / d)) for name, (a, b, c, d) in means.items()}


def covered_rare(right: float, labels: int, judge: str, *, logs: int, seed: int = 0) -> float:
    """Return how often the interval of an accuracy covers it, where few are wrong and a judge's errors are fewer still.

    The lenient one takes a fifth of the wrong rows for right, the strict one a twentieth of the right ones for wrong,
    and "either" is mistaken in a twentieth of all.
    """
    rng = np.random.default_rng([JUDGES.index(judge), labels, round(1000 * right), seed])
    rows = 4000
    held = 0
    for _ in range(logs):
        y = (rng.random(rows) < right).astype(float)
        errs = {"lenient": 0.2 * (1 - y), "strict": 0.05 * y, "either": np.full(rows, 0.05), "none": 0 * y}
        wrong = rng.random(rows) < errs[judge]
        few = np.where(rng.random(rows) < labels / rows, y, np.nan)
        if np.isfinite(few).sum() > 1:
            proxy = None if judge == "none" else np.where(wrong, 1 - y, y)
            found = estimate(few, probability=labels / rows, proxy=proxy).interval
            held += found.low <= right <= found.high
    return held / logs


def _grid(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return forecasts by quantiles, how often they come, how sure they are, and how often the likelier class comes."""
    from scipy.special import ndtri

    z = ndtri((np.arange(rows) + 0.5) / rows)
    p, rate = _rate(SHARPNESS * z), _rate(z)
    return p, rate, np.maximum(p, 1 - p), np.where(p > 0.5, rate, 1 - rate)


def _rate(logit: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-logit))
    return found


def main() -> None:
    """Print coverage in per cents, row by row, and how many settings are near the level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS)
    parser.add_argument("--judges", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names = [*MEANS, "calibration_error"]
    print(
        "| judge, labels |", " | ".join(f"`{name}`" for name in names), "| the same by labels alone | width, accuracy |"
    )
    print("| --- |" + " --- |" * (len(names) + 2))
    means = []
    for kind in asked.judges:
        for labels in asked.labels:
            for neyman in (False, True):
                found = covered(kind, labels, neyman=neyman, logs=asked.logs, seed=asked.seed)
                means += [found[name].both for name in MEANS]
                shares = [f"{100 * found[name].both:.1f}" for name in names]
                alone = ", ".join(f"{100 * found[name].alone:.1f}" for name in names)
                row = f"{kind}, {labels:,}{', Neyman' if neyman else ''}"
                print("|", " | ".join([row, *shares, alone, f"{found['accuracy'].width:.2f}"]), "|", flush=True)
    within = sum(0.88 <= each <= 0.92 for each in means)
    print("\n| right, labels |", " | ".join(JUDGES), "|")
    print("| --- |" + " --- |" * len(JUDGES))
    for right in (0.9, 0.97):
        for labels in (20, 50, 100, 300):
            held = (covered_rare(right, labels, judge, logs=asked.logs, seed=asked.seed) for judge in JUDGES)
            print(
                f"| {100 * right:.0f} %, {labels} |", " | ".join(f"{100 * each:.1f}" for each in held), "|", flush=True
            )
    print(f"\nmeans: {within} of {len(means)} from 88 to 92 %, all from {min(means):.3f} to {max(means):.3f}")


if __name__ == "__main__":
    main()
