"""Draw `guard.svg`, a stream on which the eager part fails and comes back, and `guard-budget.svg`, what a budget costs.

Run it from anywhere; it takes a minute: python docs/explanation/guard.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import treecal as tc
from treecal import plots, streams
from treecal.streams import MeanAdversary

FRIENDLY, HOSTILE, AGAIN = 2000, 1500, 2500  # rounds of each phase
REGIMES = ((0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.3, 0.6))  # the friendly phases take turns with them
WINDOW = 50  # rounds over which the share of each part is shown
EVERY = 10  # rounds between points of the lines
HERE = Path(__file__).parent


BUDGETS = (0.01, 0.03, 0.1, 0.3, 1.0)


def play(budget: float = 0.1) -> tuple[np.ndarray, float]:
    """Return, round by round: the eager part's error, the budget, and whether it forecast; and the error of all."""
    space, rng = tc.Simplex(3), np.random.default_rng(0)
    guarded, adversary = tc.Guarded(space, budget=budget), MeanAdversary(space)
    ledger, rows = tc.Ledger(space), []
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
            print(f"{budget}, {t + 1:,} rounds: error {ledger.error('l1'):.3f}, safe forecast {held.safe_rounds:,}")
    return np.array(rows), ledger.error("l1")


def trade_off(figure: Any) -> None:
    """Draw what more budget costs against an adversary and in the certificate, and what it brings."""
    space = tc.Simplex(3)
    mixed = [play(budget)[1] for budget in BUDGETS]
    hostile, certified = [], []
    for budget in BUDGETS:
        f = tc.Guarded(space, budget=budget)
        hostile.append(
            streams.play(f, streams.LedgerAdversary(space, rng=np.random.default_rng(0)), rounds=1000).error("l1")
        )
        certified.append(f.certificate("l1", rounds=10_000).bound)
        print(
            f"{budget}: mixed {mixed[len(hostile) - 1]:.3f}, hostile {hostile[-1]:.3f}, certified {certified[-1]:.3f}"
        )
    ax = figure.subplots()
    ax.plot(BUDGETS, certified, color="0.5", ls="--", marker="o", label="certified, 10,000 rounds")
    ax.plot(
        BUDGETS, hostile, color=plots.colour("treecal"), marker="o", label="adversary against the ledger, 1,000 rounds"
    )
    ax.plot(BUDGETS, mixed, color=plots.colour("guarded"), marker="o", label="regimes, an adversary, regimes again")
    ax.set(xscale="log", xlabel="budget κ", ylabel="ℓ1 error", ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.2)
    ax.legend(frameon=False)


def main() -> None:
    rows, _ = play()
    eager, budget, spoke = rows.T
    rounds = np.arange(len(spoke)) + 1
    with plots.drawing(9, 4.6) as figure:
        draw(figure, rounds, eager, budget, spoke)
        (HERE / "guard.svg").write_text(plots.svg(figure), encoding="utf-8")
    with plots.drawing(7, 3.6) as figure:
        trade_off(figure)
        (HERE / "guard-budget.svg").write_text(plots.svg(figure), encoding="utf-8")


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
