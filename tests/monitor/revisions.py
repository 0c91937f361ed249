"""Questions whose forecasts are revised: several open at once, of a forecaster whose logits are wrong by a factor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

EVIDENCE = 0.35


def movements(
    factor: float, rng: np.random.Generator, *, steps: tuple[int, int] = (8, 8), open_at_once: int = 1
) -> Iterator[tuple[int, float, float]]:
    """Yield question, forecast before and forecast after, in the order of time; the outcomes are never seen.

    Each step brings evidence `N(±0.35, 1)`, whose log odds the forecaster multiplies by the factor; some forecasts are
    exactly 0 or 1, once all that is left cannot change them: such are not revised.
    """
    questions = 0
    open_: list[tuple[int, int, float, float]] = []
    while True:
        while len(open_) < open_at_once:
            open_.append((questions, int(rng.integers(steps[0], steps[1] + 1)), rng.choice([-1.0, 1.0]), 0.0))
            questions += 1
        at = int(rng.integers(len(open_)))
        number, left, truth, odds = open_.pop(at)
        after = odds + 2 * EVIDENCE * (truth * EVIDENCE + rng.normal())
        yield number, rate(factor * odds), rate(factor * after)
        if left > 1:
            open_.append((number, left - 1, truth, after))


def rate(odds: float) -> float:
    """Return a probability from log odds."""
    return float(1 / (1 + np.exp(-odds)))
