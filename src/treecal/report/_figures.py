"""The pictures of a report: drawn without pyplot, embedded as SVG, reproducible byte for byte."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from treecal.geometry import Box, Simplex
from treecal.plots._correction import likeliest, plot_correction
from treecal.plots._curve import plot_error_over_time
from treecal.plots._reliability import plot_reliability, reliability
from treecal.plots._style import matplotlib
from treecal.plots._ternary import heaviest, plot_ternary
from treecal.plots._tree import plot_tree
from treecal.report._entries import Entry
from treecal.report._section import Section
from treecal.report._verdict import Verdict, percent

_MOST_CLASSES = 4  # with a reliability diagram, for each entry
_INK = "#24292f"  # becomes the colour of the page's text
_STYLE = f"<style>svg{{color:{_INK}}}@media (prefers-color-scheme:dark){{svg{{color:#e6e6e6}}}}</style>"
_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], _INK),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "treecal",  # names inside the file do not vary
}


class Picture(NamedTuple):
    """An image: its data address, alternative text, caption, and share of the width."""

    src: str
    alt: str
    caption: str
    width: float = 1.0


@contextmanager
def _drawing(width: float, height: float) -> Iterator[Any]:
    """Yield a figure in the report's style."""
    with matplotlib("style").context(["default", _SETTINGS]), warnings.catch_warnings():
        # The font need not have every letter of a name: the reader's browser has others.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield matplotlib("figure").Figure(figsize=(width, height), layout="constrained")


def _address(figure: Any) -> str:
    """Return the figure as a data address."""
    raw = io.BytesIO()
    figure.savefig(raw, format="svg", dpi=200, metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    svg = raw.getvalue().decode()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor").replace("<defs>", f"{_STYLE}<defs>", 1)
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _short(name: str) -> str:
    """Return a name that fits into a picture, and holds nothing that XML forbids."""
    plain = "".join(letter if letter.isprintable() else " " for letter in name)
    return plain if len(plain) <= 28 else f"{plain[:27]}…"


def draw(verdict: Verdict, names: Sequence[str]) -> list[Picture]:
    """Return all pictures of one entry: reliability, the triangle of three classes, the tree."""
    short = [_short(name) for name in names]
    pictures = (_reliability(verdict.entry, short), _ternary(verdict, short), _intervals(verdict.entry, short))
    return [picture for picture in pictures if picture is not None]


def draw_curve(section: Section) -> Picture | None:
    """Draw the error of every entry over time, with its bound."""
    curves = {entry.name: entry.curve for entry in section.entries if entry.curve is not None}
    if not curves:
        return None
    with _drawing(9, 3.8) as figure:
        ax = figure.subplots()
        for name, curve in curves.items():
            plot_error_over_time(curve.rounds, curve.errors, certificate=curve.bounds, name=_short(name), ax=ax)
        ends = ", ".join(f"{name} {curve.errors[-1]:.3f}" for name, curve in curves.items())
        caption = "Exact calibration error per round against rounds (logarithmic scale)."
        if any(curve.bounds is not None for curve in curves.values()):
            caption += " Dashed: guaranteed for every sequence."
        return Picture(_address(figure), f"Calibration error against rounds. At the end: {ends}.", caption)


def draw_correction(entry: Entry) -> Picture | None:
    """Draw a corrector's forecasts and the model's on one picture; None where there is nothing to compare."""
    if entry.before is None or not isinstance(entry.space, Simplex):
        return None
    model, corrected = (reliability(likeliest(ledger), 1) for ledger in (entry.before, entry.exact))
    with _drawing(6.2, 4.3) as figure:
        ax = plot_correction(
            entry.before, entry.exact, names=("before", f"after: {_short(entry.name)}"), ax=figure.subplots()
        )
        ax.set_title("A model, before and after its correction")
        most = int(model.weight.argmax())
        gaps = [r.weight @ np.abs(r.outcome - r.forecast) / r.weight.sum() for r in (model, corrected)]
        found = (
            f"Most often, in {percent(model.weight[most] / model.weight.sum())} of the rounds, the model gives its "
            f"likeliest class about {percent(model.forecast[most])}: it is right in {percent(model.outcome[most])} of "
            f"them. On average the two differ by {100 * gaps[0]:.1f} percentage points before the correction, and by "
            f"{100 * gaps[1]:.1f} after it."
        )
        caption = (
            f"{found} On the diagonal a forecast is right as often as it says. The larger a mark, the more rounds; "
            "lines are 95 % intervals."
        )
        return Picture(_address(figure), f"Before and after the correction. {found}", caption, 6.2 / 9)


def _reliability(entry: Entry, names: Sequence[str]) -> Picture | None:
    """Draw the reliability diagrams of the most frequent classes; None where coordinates are not probabilities."""
    space, reading = entry.space, entry.exact
    if not isinstance(space, Simplex | Box) or space.bounds()[0].min() < 0 or space.bounds()[1].max() > 1:
        return None
    rate = reading.weights @ reading.outcomes / reading.weights.sum()
    chosen = np.argsort(-rate, kind="stable")[:_MOST_CLASSES].tolist()
    if isinstance(space, Simplex) and space.dim == 2:
        chosen = [1]  # the other mirrors it
    width, height = (9 * len(chosen) / _MOST_CLASSES, 2.45) if len(chosen) > 1 else (3.6, 3.4)
    with _drawing(width, height) as figure:
        panels, found = figure.subplots(1, len(chosen), squeeze=False)[0], []
        for ax, k in zip(panels, chosen, strict=True):
            plot_reliability(reading, k, name=f"{names[k]} ({percent(rate[k])})", ax=ax)
            r = reliability(reading, k)
            found.append(f"{names[k]}: {r.off.sum()} of {len(r.off)} bins off by more than chance")
            if ax is not panels[0]:
                ax.set_ylabel("")
        caption = (
            "Forecast against mean outcome, with 95 % intervals; on the diagonal the two agree. Orange diamonds are "
            "off by more than chance. Grey bars: the weight of each bin. Beside the name of a class: its frequency."
        )
        if len(chosen) < space.dim and space.dim > 2:
            caption += f" Shown are the {len(chosen)} most frequent of {space.dim} classes."
        return Picture(_address(figure), f"Reliability diagrams. {'; '.join(found)}.", caption, width / 9)


def _ternary(verdict: Verdict, names: Sequence[str]) -> Picture | None:
    """Draw the triangle of forecasts; None unless there are three classes."""
    space, reading = verdict.entry.space, verdict.reading
    if not isinstance(space, Simplex) or space.dim != 3:
        return None
    shown, share = heaviest(reading)
    with _drawing(5, 4.2) as figure:
        plot_ternary(reading, classes=names, ax=figure.subplots())
        caption = (
            "Every dot is a forecast, larger the greater its weight; its line leads to the mean outcome. The nearer to "
            "a corner, the likelier its class."
        )
        if len(shown) < len(reading):
            caption += f" Shown are the {len(shown)} heaviest of {len(reading):,}, with {percent(share)} of all weight."
        alt = f"Triangle of forecasts of {', '.join(names)}, with a line to the mean outcome of each."
        return Picture(_address(figure), alt, caption, 5 / 9)


def _intervals(entry: Entry, names: Sequence[str]) -> Picture | None:
    """Draw the tree of intervals, if the entry has one."""
    tree = entry.tree
    if tree is None or not tree.rows:
        return None
    with _drawing(9, 1.1 + 0.42 * len(tree.rows)) as figure:
        plot_tree(tree, classes=names, ax=figure.subplots())
        caption = (
            "The tree of intervals behind the forecasts. Every cell is an interval of rounds, coloured by its "
            "forecast: the mean outcome, so far, of the longer interval it lies in. Each round's forecast mixes the "
            "cells above each other. The first cell in a longer interval has no past yet."
        )
        if tree.unseen:
            length = f"{tree.arity ** (tree.unseen - 1):,} rounds and fewer" if tree.unseen > 1 else "a single round"
            caption += f" Intervals of {length} are too narrow to be seen."
        alt = f"Interval tree with {len(tree.rows)} rows, longest intervals on top."
        return Picture(_address(figure), alt, caption)
