"""The pictures of a report: drawn without pyplot, kept as SVG in the page, the same bytes every time."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from treecal.geometry import Box, Simplex
from treecal.ledger import Reading
from treecal.plots._curve import plot_error_over_time
from treecal.plots._reliability import plot_reliability, reliability
from treecal.plots._style import class_names, matplotlib
from treecal.plots._ternary import heaviest, plot_ternary
from treecal.plots._tree import draw_tree
from treecal.report._entries import Entry, Section
from treecal.report._verdict import percent

MOST_CLASSES = 4
"""Reliability diagrams for one forecaster."""
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
    """An image: its data, what it shows for those who cannot see it, what to say below it, its share of the width."""

    src: str
    alt: str
    caption: str
    width: float = 1.0


@contextmanager
def _drawing(width: float, height: float) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Lend a figure in the report's style, and a function that returns it as a data address."""
    with matplotlib("style").context(["default", _SETTINGS]), warnings.catch_warnings():
        # Our font need not know every letter of a name: the reader's browser draws them with its own.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure = matplotlib("figure").Figure(figsize=(width, height), layout="constrained")
        yield figure, lambda: _address(figure)


def _address(figure: Any) -> str:
    raw = io.BytesIO()
    figure.savefig(raw, format="svg", dpi=200, metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    svg = raw.getvalue().decode()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor").replace("<defs>", f"{_STYLE}<defs>", 1)
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _names(classes: Sequence[str] | None, dim: int) -> list[str]:
    return [_short(name) for name in class_names(classes, dim)]


def _short(name: str) -> str:
    """Return a name that fits into a picture, and holds nothing that XML forbids."""
    plain = "".join(letter if letter.isprintable() else " " for letter in name)
    return plain if len(plain) <= 28 else f"{plain[:27]}…"


def draw_curve(section: Section) -> Picture | None:
    """Draw the error of every entry over time, and what is certain of it."""
    curves = {entry.name: entry.curve for entry in section.entries if entry.curve is not None}
    if not curves:
        return None
    with _drawing(9, 3.8) as (figure, address):
        ax = figure.subplots()
        for name, curve in curves.items():
            plot_error_over_time(curve.rounds, curve.errors, certificate=curve.bounds, name=_short(name), ax=ax)
        ends = ", ".join(f"{name} {curve.errors[-1]:.3f}" for name, curve in curves.items())
        caption = "Calibration error per round, each distinct forecast by itself, as rounds go by (logarithmic scale)."
        if any(curve.bounds is not None for curve in curves.values()):
            caption += " Dashed: what it could not have exceeded on any sequence."
        return Picture(address(), f"Calibration error against rounds. At the end: {ends}.", caption)


def draw_reliability(entry: Entry, reading: Reading, classes: Sequence[str] | None) -> Picture | None:
    """Draw the reliability diagrams of the classes that happened most; None where coordinates are no probabilities."""
    space = entry.space
    if not isinstance(space, Simplex | Box) or space.bounds()[0].min() < 0 or space.bounds()[1].max() > 1:
        return None
    dim, names = space.dim, _names(classes, space.dim)
    rate = reading.weights @ reading.outcomes / reading.weights.sum()
    # Of two classes one tells all.
    chosen = (
        [1] if isinstance(space, Simplex) and dim == 2 else np.argsort(-rate, kind="stable")[:MOST_CLASSES].tolist()
    )
    words = []
    width, height = (9 * len(chosen) / MOST_CLASSES, 2.45) if len(chosen) > 1 else (3.6, 3.4)
    with _drawing(width, height) as (figure, address):
        panels = figure.subplots(1, len(chosen), squeeze=False)[0]
        for ax, k in zip(panels, chosen, strict=True):
            plot_reliability(reading, k, name=f"{names[k]} ({percent(rate[k])})", ax=ax)
            r = reliability(reading, k)
            words.append(f"{names[k]}: {r.off.sum()} of {len(r.off)} bins off by more than chance")
            if ax is not panels[0]:
                ax.set_ylabel("")
        caption = (
            "What was said against how often it happened, with 95 % intervals; on the diagonal the two agree. Orange "
            "diamonds are off by more than chance. Grey bars: how often each was said. Beside the name of a class, how "
            "often it happened."
        )
        if len(chosen) < dim and dim > 2:
            caption += f" Shown are the {len(chosen)} most frequent of {dim} classes."
        return Picture(address(), f"Reliability diagrams. {'; '.join(words)}.", caption, width / 9)


def draw_ternary(entry: Entry, reading: Reading, classes: Sequence[str] | None) -> Picture | None:
    """Draw the triangle of forecasts; None unless there are three classes."""
    if not isinstance(entry.space, Simplex) or entry.space.dim != 3:
        return None
    shown, share = heaviest(reading)
    with _drawing(5, 4.2) as (figure, address):
        plot_ternary(reading, classes=_names(classes, 3), ax=figure.subplots())
        caption = (
            "Every dot is a forecast, larger the more often it was said; its line leads to what then happened on "
            "average. The nearer to a corner, the likelier its class."
        )
        if len(shown) < len(reading):
            caption += f" Shown are the {len(shown)} heaviest of {len(reading):,}, with {percent(share)} of all weight."
        names = ", ".join(_names(classes, 3))
        alt = f"Triangle of forecasts of {names}, with a line to the mean outcome of each."
        return Picture(address(), alt, caption, 5 / 9)


def draw_intervals(entry: Entry, classes: Sequence[str] | None) -> Picture | None:
    """Draw the tree of intervals; None where there is none."""
    tree = entry.tree
    if tree is None or not tree.rows:
        return None
    with _drawing(9, 1.1 + 0.42 * len(tree.rows)) as (figure, address):
        draw_tree(tree, classes=_names(classes, entry.space.dim), ax=figure.subplots())
        caption = (
            "The tree of intervals behind the forecasts. Every cell is an interval of rounds, coloured by what it "
            "forecasts: the mean outcome, so far, of the longer interval it lies in. Each round's forecast mixes the "
            "cells above each other. The first cell in a longer one has nothing to go by yet."
        )
        if tree.unseen:
            length = f"{tree.arity ** (tree.unseen - 1):,} rounds and fewer" if tree.unseen > 1 else "a single round"
            caption += f" Intervals of {length} are too narrow to be seen."
        return Picture(address(), f"Interval tree with {len(tree.rows)} rows, longest intervals on top.", caption)
