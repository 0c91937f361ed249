"""The pictures of a report: drawn without pyplot, embedded as SVG, reproducible byte for byte."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal.geometry import Box, Simplex
from treecal.plots._curve import plot_error_over_time
from treecal.plots._reliability import draw_panel, plot_reliability, reliability
from treecal.plots._sources import bins_of, likeliest
from treecal.plots._style import short
from treecal.plots._svg import drawing, svg
from treecal.plots._ternary import heaviest, plot_ternary
from treecal.plots._tree import plot_tree
from treecal.report._entries import Entry
from treecal.report._section import Section
from treecal.report._verdict import Verdict, percent

_MOST_CLASSES = 4  # with a reliability diagram, for each entry


class Picture(NamedTuple):
    """An image: its data address, alternative text, caption, and share of the width."""

    src: str
    alt: str
    caption: str
    width: float = 1.0


def _address(figure: Any) -> str:
    """Return the figure as a data address."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg(figure).encode()).decode()


def draw(verdict: Verdict, names: Sequence[str]) -> list[Picture]:
    """Return all pictures of one entry: reliability, the triangle of three classes, the tree."""
    names = [short(name) for name in names]
    pictures = (_reliability(verdict.entry, names), _ternary(verdict, names), _intervals(verdict.entry, names))
    return [picture for picture in pictures if picture is not None]


def draw_curve(section: Section) -> Picture | None:
    """Draw the error of every entry over time, with its bound."""
    curves = {entry.name: entry.curve for entry in section.entries if entry.curve is not None}
    if not curves:
        return None
    with drawing(9, 3.8) as figure:
        ax = figure.subplots()
        for name, curve in curves.items():
            plot_error_over_time(curve.rounds, curve.errors, certificate=curve.bounds, name=short(name), ax=ax)
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
    with drawing(6.2, 4.3) as figure:
        ax = plot_reliability({"before": entry.before, f"after: {entry.name}": entry.exact}, ax=figure.subplots())
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
    width, height = (9 * len(chosen) / _MOST_CLASSES, 2.6) if len(chosen) > 1 else (3.6, 3.4)
    with drawing(width, height) as figure:
        panels, found = figure.subplots(1, len(chosen), squeeze=False)[0], []
        for ax, k in zip(panels, chosen, strict=True):
            draw_panel(ax, f"{names[k]} ({percent(rate[k])})", bins_of(reading, k).bins)
            r = reliability(reading, k)
            found.append(f"{names[k]}: {r.off.sum()} of {len(r.off)} bins off by more than chance")
            if ax is not panels[0]:
                ax.set_ylabel("")
        caption = (
            "Forecast against mean outcome, with 95 % intervals; on the diagonal the two agree. Orange diamonds are "
            "off by more than chance; hollow marks have fewer than 30 rows. Grey: the weight of each bin. Beside the "
            "name of a class: its frequency; below it the debiased error with its 90 % interval."
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
    with drawing(5, 4.2) as figure:
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
    with drawing(9, 1.1 + 0.42 * len(tree.rows)) as figure:
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
