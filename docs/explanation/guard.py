"""Draw `guard.png`: a stream on which the eager part is trusted, fails, is suspended and comes back.

Run it from anywhere; it takes some seconds: python docs/explanation/guard.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import treecal as tc
from treecal import plots
from treecal.streams import MeanAdversary

FRIENDLY, HOSTILE, AGAIN = 2000, 1000, 5000  # rounds of each phase
HERE = Path(__file__).parent


def main() -> None:
    space, rng = tc.Simplex(2), np.random.default_rng(0)
    guarded, adversary = tc.Guarded(space), MeanAdversary(space)
    rows, level = [], 0.5
    for t in range(FRIENDLY + HOSTILE + AGAIN):
        if t % 250 == 0:
            level = rng.choice([0.1, 0.3, 0.7, 0.9])  # a new regime, for the tracker to find
        hostile = FRIENDLY <= t < FRIENDLY + HOSTILE
        spoke, report = guarded.eager_speaks, guarded.report()
        y = adversary.outcome(guarded.predict()) if hostile else np.eye(2)[int(rng.random() < level)]
        guarded.update(y)
        rows.append((t + 1, report.eager_error, report.budget, report.safe_error, spoke))
    rounds, eager, budget, safe, spoke = np.array(rows).T

    figure, (top, middle, below) = plt.subplots(
        3, 1, figsize=(10, 6), sharex=True, height_ratios=(5, 3, 1.1), layout="constrained"
    )
    for ax in (top, middle):
        ax.axvspan(FRIENDLY, FRIENDLY + HOSTILE, color="0.5", alpha=0.15, lw=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.2)
    blue, red, grey = plots.colour("guarded"), plots.colour("treecal"), "0.35"
    top.plot(rounds, budget, color=grey, lw=1.5, ls="--", label="budget")
    top.plot(rounds, eager, color=blue, lw=2, label="error of the eager part's rounds")
    top.set(ylabel="total error")
    top.legend(frameon=False, loc="upper left")
    top.text(FRIENDLY + HOSTILE / 2, 1.02, "adversary", ha="center", transform=top.get_xaxis_transform())
    window = 200
    share = np.convolve(spoke, np.ones(window) / window, mode="full")[: len(spoke)]
    middle.plot(rounds, 100 * share, color=blue, lw=1.5)
    middle.set(ylabel="eager part's share of\nthe last 200 rounds, %", ylim=(-4, 104))
    for who, color in ((1, blue), (0, red)):
        below.fill_between(rounds, 0, 1, where=spoke == who, color=color, lw=0, step="mid")
    below.set(yticks=[], xlabel="rounds", xlim=(0, len(rounds)))
    figure.savefig(HERE / "guard.png", dpi=140)
    print(guarded.report())


if __name__ == "__main__":
    main()
