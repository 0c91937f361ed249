"""An audit as tables: the errors beside what chance would show, the scores, the classes and the groups.

Nothing here knows an audit: it says itself which sentences and tables it is made of, for terminals, text and HTML.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence, Sized
from html import escape
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from treecal.auditing._calibration import Calibration
from treecal.auditing._groups import Key, printable
from treecal.auditing._stated import Stated
from treecal.exceptions import UnsupportedError
from treecal.measures import Interval, Payoff, called

_MOST_ROWS = 10  # of a table in HTML
_MOST_LETTERS = 60  # of a cell


def as_group(pieces: Sequence[str | Table]) -> Group:
    """Return sentences and tables for a terminal, with a blank line between them."""
    shown = [Text(piece) if isinstance(piece, str) else piece for piece in pieces]
    return Group(*[part for piece in shown for part in (Text(), piece)][1:])


def as_text(pieces: Sequence[str | Table]) -> str:
    """Return them as plain text."""
    paper = io.StringIO()
    Console(file=paper, width=110).print(as_group(pieces))
    return "\n".join(line.rstrip() for line in paper.getvalue().splitlines()).rstrip()


def as_html(pieces: Sequence[str | Table], picture: str) -> str:
    """Return them as HTML without scripts, every name escaped, in the colours of the page around it."""
    parts = []
    for piece in pieces:
        if isinstance(piece, Table):
            parts.append(_in_html(piece))
            continue
        *words, last = piece.splitlines()
        if words:  # what was found, and what to do
            parts.append(f"<p>{escape(' '.join(words))}</p>")
            last = f"<strong>{escape(last)}</strong>"
        else:
            last = escape(last)
        parts.append(f"<p>{last}</p>")
    return f"<div>{''.join(parts)}{picture}</div>"


def picture(width: float, height: float, draw: Callable[[Any], object]) -> str:
    """Return a picture as SVG; nothing without matplotlib."""
    from treecal.plots import drawing, svg

    try:
        with drawing(width, height) as figure:
            draw(figure)
            return svg(figure, inline=True)
    except UnsupportedError:
        return ""


def errors(whole: Calibration) -> Table:
    """Return the table of errors, each beside its chance level and its interval."""
    top, each = whole.verdict.views
    table = _titled(
        "Calibration errors", "error", ">value", ">by chance", ">1 in 20", ">RMS, no noise", ">its 90 % interval"
    )
    mce = whole.top_label.mce
    rows = [(view.luck.value, view.luck.mean, view.luck.high, view.error.value) for view in (top, each)]
    for name, figures, view in zip(("top-label ECE", "class-wise ECE"), rows, (top, each), strict=True):
        table.add_row(name, *map(_figure, figures), _ends(view.error))
    if not math.isnan(mce):
        table.add_row("top-label MCE, bins of 30 rows", _figure(mce))
    if whole.exact is not None:
        distinct = f"{whole.exact.forecasts:,} forecast{'s' * (whole.exact.forecasts != 1)}"
        for name, value in whole.exact.errors.items():
            by_chance = [_figure(whole.exact.chance)] if name == "l1" and whole.exact.chance is not None else []
            table.add_row(f"exact {name}, {distinct}", _figure(value), *by_chance)
    return table


def scores(whole: Calibration) -> Table:
    """Return the table of scores."""
    table = _titled("Scores", "score", ">value", ">90 % interval", ">of the base rates")
    rates = whole.rates
    entropy = -math.fsum(rate * math.log(rate) for rate in rates if rate > 0)
    rows = [
        ("Brier", whole.brier, whole.brier_interval, whole.uncertainty),
        ("log", whole.log_score, whole.log_interval, entropy),
        ("accuracy", whole.accuracy, None, max(rates)),
        ("skill", whole.skill, None, 0.0),
        ("resolution", whole.resolution, None, 0.0),
    ]
    for name, value, interval, of_rates in rows:
        table.add_row(name, _figure(value), "" if interval is None else _ends(interval), _figure(of_rates))
    return table


def classes(whole: Calibration, columns: Sequence[str]) -> Table:
    """Return the table of classes, over all rows."""
    exact = whole.exact
    off = set(whole.verdict.off)
    names = ["class", "probability", ">forecast", ">outcome", *([">exact"] * (exact is not None))]
    table = _titled("Class by class", *names, ">ECE", ">by chance", ">RMS, no noise", ">its 90 % interval", "")
    bins = whole.classes.values()
    thin = [2 * each.thin.sum() > (each.weight > 0).sum() for each in bins]  # more than half of the bins
    measured = [(each.mean_forecast, each.mean_outcome, each.ece, each.chance.mean, each.interval()) for each in bins]
    for k, (name, column) in enumerate(zip(whole.classes, columns, strict=True)):
        forecast, outcome, ece, chance, error = measured[k]
        exactly = [] if exact is None else [exact.classes[k]]
        figures = (forecast, outcome, *exactly, ece, chance, error.value)
        note = "off" if name in off else "thin" if thin[k] else ""
        table.add_row(_safe(name), _safe(column), *map(_figure, figures), _ends(error), note)
    return table


def acting(payoff: Payoff) -> Table:
    """Return the table of what was done with each action."""
    names = ["action", ">rows", ">cost a row", "better", ">would save", ">its 90 % interval", ">by chance"]
    table = _titled("Action by action", *names)
    for each in payoff.actions:
        better = "" if each.better == each.action else called(each.better)
        figures = [_figure(each.saved.value), _ends(each.saved), _figure(each.chance.mean)] if each.rows else []
        table.add_row(_safe(called(each.action)), f"{each.rows:,.6g}", _figure(each.cost), _safe(better), *figures)
    return table


def confidences(values: Sequence[Stated]) -> Table:
    """Return the table of stated confidences."""
    table = _titled("Stated confidences", ">stated", ">rows", ">known", ">right", ">90 % interval", ">say", "")
    for each in values:
        ends = "" if math.isnan(each.low) else f"{each.low:.4f} – {each.high:.4f}"
        counts = f"{each.rows:,}", f"{each.labels:,}"
        note = "off" if each.off else ""
        table.add_row(f"{each.value:.4g}", *counts, _figure(each.right), ends, f"{each.say:.4g}", note)
    return table


def estimates(whole: Calibration) -> Table:
    """Return the table of what measures are over all rows, of which few are labelled."""
    names = "measure", ">all rows", ">±", ">labels alone", ">±", ">proxies alone", ">a label is worth"
    table = _titled("Estimates for all rows, 90 % intervals", *names)
    for name, each in whole.estimates.items():
        proxied = ["", ""] if each.proxy is None else [_figure(each.proxy), f"{each.worth:.1f}"]
        alone = (each.alone.high - each.alone.low) / 2
        figures = each.interval.value, each.half, each.alone.value, alone
        table.add_row(name.replace("_", " "), *map(_figure, figures), *proxied)
    return table


def groups(by: Sequence[str], parts: Mapping[Key, Calibration], title: str = "Groups") -> Table:
    """Return the table of groups."""
    weighted = any(part.weight != part.rounds for part in parts.values())
    counts = [">rows", *[">weight"] * weighted]
    figures = [">top-label ECE", ">by chance", ">class-wise ECE", ">by chance", ">Brier", ">skill"]
    costs = [">regret"] * any(part.payoff is not None for part in parts.values())
    table = _of_groups(title, by, parts, *counts, *figures, *costs, "verdict")
    for key, part in parts.items():
        top, each = part.verdict.views
        values = [top.luck.value, top.luck.mean, each.luck.value, each.luck.mean, part.brier, part.skill]
        size = [f"{part.rounds:,}", *[f"{part.weight:,.6g}"] * weighted]
        if part.payoff is not None:
            values.append(part.payoff.value)
        table.add_row(*map(_safe, key), *size, *map(_figure, values), part.verdict.level)
    return table


def number_scores(whole: Any) -> Table:
    """Return the table of scores."""
    found = _titled("Scores, in units of the outcome", "score", ">value", ">90 % interval", ">of the climatology")
    found.add_row("CRPS", _short(whole.crps.value), _ends(whole.crps, "{:.4g}".format), _short(whole.climatology))
    found.add_row("skill", _short(whole.skill), "", _short(0.0))
    found.add_row("outcome less median", _short(whole.gap), "", "")
    found.add_row("sd of the outcomes", _short(whole.spread), "", "")
    for tau, value in whole.pinball.items():
        found.add_row(f"pinball loss at {tau:g}", _short(value), "", "")
    return found


def number_coverage(whole: Any) -> Table:
    """Return the table of levels, and of central intervals."""
    found = _titled("Coverage", "up to the quantile", ">outcomes", ">90 % interval", ">mean quantile")
    for tau, share in whole.placed.coverage.items():
        mean = whole.quantile.get(tau, math.nan)
        found.add_row(f"{tau:g}", f"{share.value:.3f}", f"{share.low:.3f} – {share.high:.3f}", _short(mean))
    for probability, held in whole.placed.intervals.items():
        width = whole.sharpness.get(probability, math.nan)
        of = f", {_short(width)} wide" if not math.isnan(width) else ""
        found.add_row(f"the {100 * probability:g} % interval{of}", f"{held:.3f}", "", "")
    return found


def number_groups(by: Sequence[str], parts: Mapping[Key, Any], title: str = "Groups") -> Table:
    """Return the table of groups."""
    found = _of_groups(title, by, parts, ">rows", ">CRPS", ">outcome less median", ">widest interval", "verdict")
    for key, part in parts.items():
        widest = max(part.placed.intervals, default=math.nan)
        held = "" if math.isnan(widest) else f"{100 * widest:g} % held {part.placed.intervals[widest]:.3f}"
        row = (f"{part.rounds:,}", _short(part.crps.value), _short(part.gap), held, part.verdict.level)
        found.add_row(*map(_safe, key), *row)
    return found


def _of_groups(title: str, by: Sequence[str], parts: Sized, *columns: str) -> Table:
    """Return an empty table of groups."""
    table = _titled(title, *map(_safe, by), *columns)
    if len(parts) >= 20:
        table.caption = "Of so many groups, one of twenty that are calibrated is called off by chance."
    return table


def _titled(title: str, *columns: str | Text) -> Table:
    """Return an empty table; the names of columns of figures begin with `>`."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        figures = isinstance(name, str) and name.startswith(">")
        table.add_column(name[1:] if figures else name, justify="right" if figures else "left")
    return table


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}".replace("inf", "∞")


def _short(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def _ends(interval: Interval, figure: Callable[[float], str] = "{:.4f}".format) -> str:
    return f"{figure(interval.low)} – {figure(interval.high)}" if math.isfinite(interval.high) else interval.note


def _safe(name: Any) -> Text:
    """Return a name from the log, with nothing that a terminal or rich would interpret."""
    return Text(printable(name))


def _in_html(table: Table) -> str:
    """Return a table of the terminal as HTML: its first rows."""
    head = "".join(f"<th{_side(column.justify)}>{_escaped(column.header)}</th>" for column in table.columns)
    columns = [
        [f"<td{_side(column.justify)}>{_escaped(cell)}</td>" for cell in column.cells] for column in table.columns
    ]
    rows = [f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True)]
    left = len(rows) - _MOST_ROWS
    more = f"<p>{left:,} more row{'s' * (left > 1)}: print(audit) shows all.</p>" if left > 0 else ""
    title = f'<caption style="text-align:left">{_escaped(table.title)}</caption>'
    body = "".join(rows[:_MOST_ROWS])
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _side(justify: str) -> str:
    return f' style="text-align:{justify}"'


def _escaped(value: object) -> str:
    words = str(value)
    return escape(words if len(words) <= _MOST_LETTERS else f"{words[: _MOST_LETTERS - 1]}…")
