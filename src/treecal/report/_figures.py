"""The pictures of a report: drawn without pyplot, embedded as SVG, reproducible byte for byte."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal.auditing import Audit, NumberAudit
from treecal.geometry import Simplex
from treecal.measures import Bins, Verdict as Judged, percent
from treecal.plots import (
    PALETTE,
    VERMILION,
    colour,
    draw_audit,
    drawing,
    heaviest,
    likeliest,
    plot_coverage,
    plot_error_over_time,
    plot_fan,
    plot_pit,
    plot_reliability,
    plot_ternary,
    plot_tree,
    plot_windows,
    reliability,
    short,
    svg,
)
from treecal.report._entries import Entry
from treecal.report._section import Section
from treecal.report._verdict import Verdict


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
    pictures = (_reliability(verdict, names), _ternary(verdict, names), _intervals(verdict.entry, names))
    return [picture for picture in pictures if picture is not None]


def draw_curve(section: Section) -> Picture | None:
    """Draw the error of the verdict over time for every entry; beside it the exact error, where it is guaranteed."""
    entries = {entry.name: entry for entry in section.entries}
    before = {f"{entry.name}, before": entry.before for entry in section.entries if entry.before is not None}
    models = [entry.ledger for entry in before.values()]
    own = [entry.ledger for entry in section.entries]  # a model may be an entry, too
    entries |= {name: entry for name, entry in before.items() if entry.ledger not in own}
    curves = {name: entry.curve for name, entry in entries.items() if entry.curve is not None}
    if not curves:
        return None
    classes = isinstance(section.entries[0].space, Simplex)
    worst = section.verdicts[0].worst
    bounded = {name: curve for name, curve in curves.items() if curve.bounds is not None and curve.bounds[-1] < worst}
    hues = _hues({name: entries[name].ledger in models for name in curves})
    panels = 1 + (classes and bool(bounded))
    with drawing(9, 3.4 * panels) as figure:
        first, *second = figure.subplots(panels, 1, squeeze=False)[:, 0]
        for name, curve in curves.items():
            bounds = curve.bounds if not classes and name in bounded else None
            plot_error_over_time(curve.rounds, curve.errors, certificate=bounds, name=short(name), ax=first)
        first.set_ylabel("class-wise ECE" if classes else "calibration error per round")
        for ax in second:
            for name, curve in bounded.items():
                plot_error_over_time(curve.rounds, curve.exact, certificate=curve.bounds, name=short(name), ax=ax)
            ax.set_ylabel("exact error per round")
        for ax in (first, *second):
            _paint(ax, hues)
        ends = ", ".join(f"{name} {curve.errors[-1]:.3f}" for name, curve in curves.items())
        caption = "The error of the verdict against rounds (logarithmic scale)."
        if second:
            caption += " Below it the exact error of each distinct forecast, and dashed what is guaranteed of it."
        elif bounded:
            caption += " Dashed: guaranteed for every sequence."
        return Picture(_address(figure), f"Calibration error against rounds. At the end: {ends}.", caption)


def _hues(models: Mapping[str, bool]) -> dict[str, str]:
    """Return a colour for each name: a forecaster's own; orange for models, as in the picture of a correction."""
    hues = {name: colour(name) for name in models}
    free = [hue for hue in PALETTE if hue != VERMILION and hue not in hues.values()] or [*PALETTE]
    others = [name for name, hue in hues.items() if hue is None and not models[name]]
    given = {name: free[place % len(free)] for place, name in enumerate(others)}
    return {short(name): hue or given.get(name, VERMILION) for name, hue in hues.items()}


def _paint(ax: Any, hues: Mapping[str, str]) -> None:
    """Give each line, and its entry in the legend, the colour of its name."""
    legend = ax.get_legend()
    entries = zip(legend.legend_handles, (text.get_text() for text in legend.get_texts()), strict=True)
    for line, name in [*((line, str(line.get_label())) for line in ax.lines), *entries]:
        line.set_color(hues[name.removesuffix(": guaranteed ≤")])


def draw_windows(audit: Audit) -> Picture:
    """Draw the error of each group of an audit by time, and the alarm."""
    with drawing(9, 3.4) as figure:
        plot_windows(audit, _worst_class(audit.whole.verdict), alarm=audit.alarm, ax=figure.subplots())
        caption = "The error of one window of time after another, without its noise, with 90 % intervals."
        if audit.alarm is not None:
            caption += " Dashed: the alarm of a monitor that looked after every row."
        return Picture(_address(figure), "Calibration error by window of time.", caption)


def _worst_class(verdict: Judged) -> str | None:
    """Return the class whose error decides; None if that of the most likely class does."""
    if verdict.worst is verdict.views[0]:
        return None
    names = list(verdict.classes)
    return names[1] if len(names) == 2 else max(names, key=lambda name: verdict.classes[name].debiased_ece)


def draw_correction(entry: Entry) -> Picture | None:
    """Draw a corrector's forecasts and the model's on one picture; None where there is nothing to compare."""
    if entry.before is None or not isinstance(entry.space, Simplex):
        return None
    model, corrected = (reliability(likeliest(each.exact), 1) for each in (entry.before, entry))
    with drawing(5.2, 5.6) as figure:
        ax = plot_reliability({"before": entry.before.exact, f"after: {entry.name}": entry.exact}, ax=figure.subplots())
        ax.set_title("A model, before and after its correction")
        legend: Any = ax.get_legend()
        legend.set_loc("upper center")
        legend.set_bbox_to_anchor((0.5, -0.12))  # below, where nothing is drawn
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
        return Picture(_address(figure), f"Before and after the correction. {found}", caption, 5.2 / 9)


def _reliability(verdict: Verdict, names: Sequence[str]) -> Picture | None:
    """Draw the most likely class, and the classes that are most off; None where coordinates are not probabilities."""
    judged = verdict.judged
    if judged is None:
        return None
    rows = 1 if len(names) <= 3 else 2
    with drawing(9, 3.6 if rows == 1 else 5.2) as figure:
        draw_audit(Drawn(verdict.entry.rounds, judged.top, judged.classes), figure, most=3 * rows)
        caption = (
            "Forecast against mean outcome, with 95 % intervals; on the diagonal the two agree. Orange diamonds are "
            "off by more than chance; hollow marks have fewer than 30 rows. Grey: the weight of each bin."
        )
        off = f"Off by more than chance: {', '.join(judged.off[:8])}." if judged.off else "No single class is off."
        return Picture(_address(figure), f"Reliability diagrams. {off}", caption)


class Drawn(NamedTuple):
    """What `draw_audit` draws."""

    rounds: int
    top_label: Bins
    classes: Mapping[str, Bins]


def _ternary(verdict: Verdict, names: Sequence[str]) -> Picture | None:
    """Draw the triangle of forecasts; None unless there are three classes."""
    space = verdict.entry.space
    if not isinstance(space, Simplex) or space.dim != 3 or verdict.entry.audited is not None:
        return None
    reading = verdict.reading
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


def draw_numbers(audit: NumberAudit) -> list[Picture]:
    """Draw where outcomes lay, how often levels held, and the last forecasts."""
    placed = audit.whole.placed
    with drawing(9, 3.2) as figure:
        left, right = figure.subplots(1, 2)
        plot_pit(placed, ax=left)
        plot_coverage(placed, ax=right)
        caption = (
            "Left: where outcomes lay in their forecasts. If these were right, 90 % of the bars would end in the grey "
            "band. Right: how often outcomes were up to the quantile of each level, with 90 % intervals."
        )
        pictures = [Picture(_address(figure), "Histogram of the PIT, and coverage by level", caption)]
    if audit.last is not None:
        with drawing(9, 3.0) as figure:
            plot_fan(audit.last, ax=figure.subplots(), outcome=short(audit.outcome))
            caption = "The last forecasts, as central intervals, and the outcomes that followed."
            pictures.append(Picture(_address(figure), "Fan chart of the last forecasts", caption))
    return pictures
