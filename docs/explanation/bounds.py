"""Draw the pictures of docs/explanation/bounds.md: `python docs/explanation/bounds.py`, about two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

import treecal as tc
from treecal import plots
from treecal.streams import LedgerAdversary, iid

HERE = Path(__file__).parent
ROUNDS = np.unique(np.geomspace(30, 6000, 13).astype(int))
SPACE = tc.Simplex(2)
FORECASTERS = {
    "TreeCal(arity=8)": lambda: tc.TreeCal(SPACE, arity=8),
    'AdaptiveTreeCal(arity=8, rule="block")': lambda: tc.AdaptiveTreeCal(SPACE, arity=8, rule="block"),
    "Harmonic()": lambda: tc.Harmonic(SPACE),
    "BinaryGrid(bins=30)": lambda: tc.BinaryGrid(bins=30),
}


def measured(make, stream) -> list[float]:
    """The unlabelled ℓ1 error at each of ROUNDS of one run."""
    forecaster, ledger, errors = make(), tc.Ledger(SPACE), []
    for t in range(ROUNDS[-1]):
        x = forecaster.predict()
        y = stream.outcome(x) if isinstance(stream, LedgerAdversary) else stream[t]
        ledger.record(x, y)
        forecaster.update(y)
        if t + 1 in ROUNDS:
            errors.append(ledger.error("l1"))
    return errors


def draw_errors(figure: Any) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    chance = iid(SPACE, ROUNDS[-1], np.random.default_rng(0), mean=[0.3, 0.7])
    for ax, title, stream in (
        (axes[0], "an adversary who sees the ledger", None),
        (axes[1], "independent draws, 30 % against 70 %", chance),
    ):
        for name, make in FORECASTERS.items():
            errors = measured(make, LedgerAdversary(SPACE) if stream is None else stream)
            ax.plot(ROUNDS, errors, color=plots.colour(name), lw=2, label=name)
            certified = [make().certificate("l1", rounds=int(t)).bound for t in ROUNDS]
            ax.plot(ROUNDS, certified, color=plots.colour(name), lw=1.2, ls="--")
        ax.set(xscale="log", yscale="log", title=title, xlabel="rounds")
        ax.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("ℓ1 calibration error per round")
    axes[1].legend(title="measured (solid), certified (dashed)", fontsize=8, title_fontsize=8, loc="lower left")


def draw_map(figure: Any) -> None:
    dims = [2, 3, 4, 5, 7, 10, 20, 50, 100]
    powers = [2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9]
    kinds = ["BinaryGrid", "SimplexGrid", "Harmonic", "TreeCal", "nothing beats the centre"]
    winner, bound = np.zeros((len(dims), len(powers)), int), np.zeros((len(dims), len(powers)))
    for i, dim in enumerate(dims):
        for j, power in enumerate(powers):
            advice = tc.recommend(tc.Simplex(dim), "l1", rounds=round(10**power))
            assert advice.best.bound is not None
            useless = advice.best.bound >= advice.trivial
            winner[i, j] = kinds.index(kinds[-1] if useless else advice.best.forecaster.split("(")[0])
            bound[i, j] = min(advice.best.bound, advice.trivial)
    ax = figure.subplots()
    # The forecasters' colours, pale enough to read numbers on.
    pale = [[1 - 0.4 * (1 - c) for c in to_rgb(plots.colour(kind) or "0.8")] for kind in kinds]
    ax.imshow(np.array(pale)[winner], aspect="auto", origin="lower")
    for i in range(len(dims)):
        for j in range(len(powers)):
            ax.text(j, i, f"{bound[i, j]:.2f}", ha="center", va="center", fontsize=8, color="black")
    ax.set_xticks(range(len(powers)), [f"$10^{{{p:g}}}$" for p in powers])
    ax.set_yticks(range(len(dims)), [str(d) for d in dims])
    ax.set(xlabel="rounds", ylabel="classes", title="Least certified ℓ1 error on the simplex, and who certifies it")
    handles = [Rectangle((0, 0), 1, 1, color=hue) for hue in pale]
    ax.legend(handles, kinds, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=5, fontsize=8, frameon=False)


if __name__ == "__main__":
    for name, draw, size in (("bounds", draw_errors, (11, 4.6)), ("who-wins", draw_map, (9, 5))):
        with plots.drawing(*size) as drawn:
            draw(drawn)
            (HERE / f"{name}.svg").write_text(plots.svg(drawn), encoding="utf-8")
