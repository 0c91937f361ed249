"""Draw `guard.svg`: a stream on which the eager part is trusted, fails, is suspended and comes back.

Run it from anywhere; it takes some seconds: python docs/explanation/guard.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import treecal as tc
from treecal import plots
from treecal.streams import MeanAdversary

FRIENDLY, HOSTILE, AGAIN = 2000, 1500, 2500  # rounds of each phase
REGIMES = ((0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.3, 0.6))  # the friendly phases take turns with them
WINDOW = 50  # rounds over which the share of each part is shown
EVERY = 10  # rounds between points of the lines
HERE = Path(__file__).parent


def play() -> np.ndarray:
    """Return, round by round: the eager part's error, the budget, and whether it forecast."""
    space, rng = tc.Simplex(3), np.random.default_rng(0)
    guarded, adversary, ledger, rows = tc.Guarded(space), MeanAdversary(space), tc.Ledger(space), []
    for t in range(FRIENDLY + HOSTILE + AGAIN):
        x, spoke, report = guarded.predict(), guarded.eager_speaks, guarded.report()
        if FRIENDLY <= t < FRIENDLY + HOSTILE:
            y = adversary.outcome(x)
        else:
            y = rng.multinomial(1, REGIMES[t // 250 % 3]).astype(float)
        guarded.update(y)
        ledger.record(x, y)
        rows.append((report.eager_error, report.budget, spoke))
        if t + 1 in np.cumsum((FRIENDLY, HOSTILE, AGAIN)):
            held = guarded.report()
            print(f"{t + 1:,} rounds: error {ledger.error('l1'):.3f}, safe forecast {held.safe_rounds:,}")
    return np.array(rows)


def main() -> None:
    eager, budget, spoke = play().T
    rounds = np.arange(len(spoke)) + 1
    with plots.drawing(9, 4.6) as figure:
        draw(figure, rounds, eager, budget, spoke)
        (HERE / "guard.svg").write_text(plots.svg(figure), encoding="utf-8")


def draw(figure: Any, rounds: np.ndarray, eager: np.ndarray, budget: np.ndarray, spoke: np.ndarray) -> None:
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(6, 1))
    blue, red = plots.colour("guarded"), plots.colour("treecal")
    top.axvspan(FRIENDLY, FRIENDLY + HOSTILE, color="0.5", alpha=0.15, lw=0)
    top.plot(rounds[::EVERY], budget[::EVERY], color="0.5", lw=1.5, ls="--", label="budget")
    top.plot(rounds[::EVERY], eager[::EVERY], color=blue, lw=2, label="error of the eager part's rounds")
    top.set(ylabel="total ℓ1 error")
    top.spines[["top", "right"]].set_visible(False)
    top.grid(alpha=0.2)
    top.legend(frameon=False, loc="upper left")
    for start, length, name in (
        (0, FRIENDLY, "regimes"),
        (FRIENDLY, HOSTILE, "an adversary"),
        (FRIENDLY + HOSTILE, AGAIN, "regimes again"),
    ):
        top.text(start + length / 2, 1.02, name, ha="center", transform=top.get_xaxis_transform())
    counts = np.convolve(np.ones(len(spoke)), np.ones(WINDOW), mode="same")  # fewer at the ends
    share = 100 * np.convolve(spoke, np.ones(WINDOW), mode="same") / counts
    rounds, share = rounds[::EVERY], share[::EVERY]
    below.fill_between(rounds, 0, share, color=blue, lw=0, label="eager")
    below.fill_between(rounds, share, 100, color=red, lw=0, label="safe")
    below.set(xlabel="rounds", ylabel="forecasts, %", xlim=(0, len(spoke)), ylim=(0, 100))
    below.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


if __name__ == "__main__":
    main()
