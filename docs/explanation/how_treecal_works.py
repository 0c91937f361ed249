"""Draw `how-treecal-works.svg`: the labels of a small tree over 27 days, and one day's forecast.

Run it from anywhere; it takes some seconds: python docs/explanation/how_treecal_works.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.patches import Rectangle

import treecal as tc
from treecal import plots
from treecal.streams import seattle_weather

ARITY, DEPTH, ROUND = 3, 3, 18  # the round whose forecast is shown on the right, counted from 1
HERE = Path(__file__).parent


def main() -> None:
    weather = seattle_weather()
    days = ARITY**DEPTH
    wet = weather.outcomes[:days, weather.classes.index("rain")]
    f, labels, shown = tc.TreeCal(tc.Simplex(2), arity=ARITY, depth=DEPTH), {}, None
    for t, rain in enumerate(wet, start=1):
        x = f.predict()
        labels.update(zip(map(tuple, x.nodes.tolist()), x.points[:, 1].tolist(), strict=True))
        shown = x if t == ROUND else shown
        f.update([1 - rain, rain])

    assert shown is not None
    with plots.drawing(11, 3.2) as figure:
        draw(figure, labels, wet, shown)
        (HERE / "how-treecal-works.svg").write_text(plots.svg(figure), encoding="utf-8")


def draw(figure: Any, labels: dict[tuple[int, int], float], wet: np.ndarray, shown: tc.Forecast) -> None:
    days = len(wet)
    tree, forecast = figure.subplots(1, 2, width_ratios=(5, 1))
    colours = colormaps["Blues"]
    for (height, index), label in labels.items():
        width = ARITY**height
        on_path = index == (ROUND - 1) // width
        box = {"facecolor": colours(0.08 + 0.8 * label), "edgecolor": "C1" if on_path else "white"}
        box |= {"linewidth": 2.5 if on_path else 1, "zorder": 3 if on_path else 2}
        tree.add_patch(Rectangle((index * width, height + 1), width, 0.9, **box))
        text = {"color": "white" if label > 0.6 else "black", "fontsize": 7 if height == 0 else 10, "zorder": 4}
        tree.text((index + 0.5) * width, height + 1.45, f"{100 * label:.0f}", ha="center", va="center", **text)
    tree.scatter(np.arange(days) + 0.5, np.full(days, 0.45), s=60, c=[colours(0.08 + 0.8 * r) for r in wet], ec="grey")
    tree.text(ROUND - 0.5, 0, f"round {ROUND}", ha="center", va="center", color="C1")
    tree.set(xlim=(0, days), ylim=(-0.2, DEPTH + 1), xticks=[], yticks=[0.45, 1.45, 2.45, 3.45])
    tree.set_yticklabels(["rain?", "1 day", "3 days", "9 days"])
    tree.set_title("Integers: chance of rain in each interval, in per cent", loc="left", fontsize=11)
    tree.spines[:].set_visible(False)
    tree.tick_params(length=0)

    merged = shown.merged()
    forecast.bar(100 * merged.points[:, 1], merged.weights, width=6, color="C1")
    forecast.set(
        xlim=(-5, 105),
        ylim=(0, 0.5),
        ylabel="weight",
        xlabel="chance of rain, per cent",
        xticks=[0, 50, 100],
        yticks=[0, 0.5],
    )
    forecast.set_title(f"Forecast, round {ROUND}", loc="left", fontsize=11)
    forecast.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
