"""An audit as tables: the verdict, the errors beside what chance would show, the scores, the classes and the groups.

In a terminal; and as HTML for notebooks, with the diagrams of the classes that are most off.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from treecal.auditing._calibration import Calibration
from treecal.auditing._stated import Stated, advice
from treecal.auditing._words import Shown, acted, called, labelled, printable, watched
from treecal.exceptions import UnsupportedError
from treecal.geometry import pairing
from treecal.measures import Interval, Payoff

_MOST_ROWS = 10  # of a table
_FAR_BELOW = -0.25
_MOST_LETTERS = 60  # of a cell


Named = Callable[[str], str]
"""How a corrector is called, by the name of its class, where the audit is read."""


def in_python(kind: str) -> str:
    """Return how a corrector is called in Python."""
    return f"tc.{kind}"


def shown(audit: Shown, named: Named = in_python) -> Group:
    """Return the audit as rich tables."""
    parts: list[Any] = [Text(verdict(audit, named)), errors(audit.whole), scores(audit.whole), classes(audit)]
    if audit.whole.payoff is not None:
        parts += [Text(acted(audit.whole.payoff)), acting(audit.whole.payoff)]
    if audit.whole.estimates:
        parts += [estimates(audit.whole), Text(labelled(audit.whole.estimates))]
    if audit.groups:
        parts.append(groups(audit))
    if (windows := audit.windows) is not None:
        parts += [groups(windows, title=f"Windows of time, by {windows.by[0]}"), Text(watched(windows))]
    if audit.problems.count:
        parts.append(Text(str(audit.problems)))
    return Group(*[piece for part in parts for piece in (Text(), part)][1:])


def judged(audit: Shown, values: Sequence[Stated], named: Named = in_python) -> Group:
    """Return the audit of stated confidences as rich tables."""
    parts: list[Any] = [Text(verdict(audit, named).rpartition("\n")[0])]
    table = titled("Stated confidences", ">stated", ">rows", ">known", ">right", ">90 % interval", ">say", "")
    for each in values:
        ends = "" if math.isnan(each.low) else f"{each.low:.4f} – {each.high:.4f}"
        counts = f"{each.rows:,}", f"{each.labels:,}"
        note = "off" if each.off else ""
        table.add_row(f"{each.value:.4g}", *counts, _figure(each.right), ends, f"{each.say:.4g}", note)
    parts += [table, Text(f"What to do: {advice(values)}")]
    if audit.whole.estimates:
        parts += [estimates(audit.whole), Text(labelled(audit.whole.estimates))]
    if audit.groups:
        parts.append(groups(audit))
    return Group(*[piece for part in parts for piece in (Text(), part)][1:])


def text(audit: Shown) -> str:
    """Return the audit as plain text."""
    paper = io.StringIO()
    Console(file=paper, width=110).print(shown(audit))
    return "\n".join(line.rstrip() for line in paper.getvalue().splitlines()).rstrip()


def verdict(audit: Shown, named: Named = in_python) -> str:
    """Return the result in a few sentences, and what to do."""
    whole = audit.whole
    found = audit.whole.verdict
    words = found.sentences
    if whole.weight != whole.rounds:
        words.append(f"The {whole.rounds:,} rows have a total weight of {whole.weight:,.6g}.")
    if whole.skill <= 0:
        words.append(f"The forecasts are no better than the base rates alone: their skill is {whole.skill:.3f}.")
    if whole.skill < _FAR_BELOW and whole.swapped_skill > 0:
        pairs = pairing(audit.columns, list(whole.classes))
        words.insert(
            0,
            f"The columns seem to be of the other class each: the skill is {whole.skill:.3f}, and would be about "
            f"{whole.swapped_skill:.3f} in the other order. They were read as {pairs}.",
        )
    advice = found.advised.text(named)
    if off := audit.off:
        first = ", ".join(", ".join(map(str, map(safe, key))) for key in off[:3])
        first += f" and {len(off) - 3:,} more" if len(off) > 3 else ""
        are = "is" if len(off) == 1 else "are"
        words.append(f"{len(off):,} of {len(audit.groups):,} {audit._parts} {are} off by more than chance: {first}.")
        if len(off) < len(audit.groups):
            advice = f"Some {audit._parts} are off and others are not: use {named(audit._cure)}."
    if audit.windows is not None and (alarm := audit.windows.alarm) is not None:
        words.append(f"A monitor raised an alarm after round {alarm.round:,}.")
        if found.level == "calibrated":
            advice = "Right on the whole, wrong at times: look at the windows; correctors follow such changes."
    return "\n".join([*words, f"What to do: {advice}"])


def errors(whole: Calibration) -> Table:
    """Return the table of errors, each beside its chance level and its interval."""
    top, each = whole.verdict.views
    table = titled(
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
    table = titled("Scores", "score", ">value", ">90 % interval", ">of the base rates")
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


def classes(audit: Shown) -> Table:
    """Return the table of classes, over all rows."""
    exact = audit.whole.exact
    off = set(audit.whole.verdict.off)
    names = ["class", "probability", ">forecast", ">outcome", *([">exact"] * (exact is not None))]
    table = titled("Class by class", *names, ">ECE", ">by chance", ">RMS, no noise", ">its 90 % interval", "")
    bins = audit.whole.classes.values()
    thin = [2 * each.thin.sum() > (each.weight > 0).sum() for each in bins]  # more than half of the bins
    measured = [(each.mean_forecast, each.mean_outcome, each.ece, each.chance.mean, each.interval()) for each in bins]
    for k, (name, column) in enumerate(zip(audit.whole.classes, audit.columns, strict=True)):
        forecast, outcome, ece, chance, error = measured[k]
        exactly = [] if exact is None else [exact.classes[k]]
        figures = (forecast, outcome, *exactly, ece, chance, error.value)
        note = "off" if name in off else "thin" if thin[k] else ""
        table.add_row(safe(name), safe(column), *map(_figure, figures), _ends(error), note)
    return table


def acting(payoff: Payoff) -> Table:
    """Return the table of what was done with each action."""
    names = ["action", ">rows", ">cost a row", "better", ">would save", ">its 90 % interval", ">by chance"]
    table = titled("Action by action", *names)
    for each in payoff.actions:
        better = "" if each.better == each.action else called(each.better)
        figures = [_figure(each.saved.value), _ends(each.saved), _figure(each.chance.mean)] if each.rows else []
        table.add_row(safe(called(each.action)), f"{each.rows:,.6g}", _figure(each.cost), safe(better), *figures)
    return table


def estimates(whole: Calibration) -> Table:
    """Return the table of what measures are over all rows, of which few are labelled."""
    names = "measure", ">all rows", ">±", ">labels alone", ">±", ">proxies alone", ">a label is worth"
    table = titled("Estimates for all rows, 90 % intervals", *names)
    for name, each in whole.estimates.items():
        proxied = ["", ""] if each.proxy is None else [_figure(each.proxy), f"{each.worth:.1f}"]
        alone = (each.alone.high - each.alone.low) / 2
        figures = each.interval.value, each.half, each.alone.value, alone
        table.add_row(name.replace("_", " "), *map(_figure, figures), *proxied)
    return table


def groups(audit: Shown, title: str = "Groups") -> Table:
    """Return the table of groups."""
    weighted = any(part.weight != part.rounds for part in audit.groups.values())
    counts = [">rows", *[">weight"] * weighted]
    figures = [">top-label ECE", ">by chance", ">class-wise ECE", ">by chance", ">Brier", ">skill"]
    paid = audit.whole.payoff is not None
    costs = [">regret"] * paid
    table = titled(title, *map(safe, audit.by), *counts, *figures, *costs, "verdict")
    for key, part in audit.groups.items():
        top, each = part.verdict.views
        values = [top.luck.value, top.luck.mean, each.luck.value, each.luck.mean, part.brier, part.skill]
        size = [f"{part.rounds:,}", *[f"{part.weight:,.6g}"] * weighted]
        if part.payoff is not None:
            values.append(part.payoff.value)
        table.add_row(*map(safe, key), *size, *map(_figure, values), part.verdict.level)
    if len(audit.groups) >= 20:
        table.caption = "Of so many groups, one of twenty that are calibrated is called off by chance."
    return table


def titled(title: str, *columns: str | Text) -> Table:
    """Return an empty table; the names of columns of figures begin with `>`."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        figures = isinstance(name, str) and name.startswith(">")
        table.add_column(name[1:] if figures else name, justify="right" if figures else "left")
    return table


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}".replace("inf", "∞")


def _ends(interval: Interval) -> str:
    return f"{interval.low:.4f} – {interval.high:.4f}" if math.isfinite(interval.high) else interval.note


def safe(name: Any) -> Text:
    """Return a name from the log, with nothing that a terminal or rich would interpret."""
    return Text(printable(name))


def html(audit: Shown) -> str:
    """Return the audit as HTML without scripts, every name escaped, in the colours of the page around it."""
    *words, advice = verdict(audit).splitlines()
    said = f"<p>{escape(' '.join(words))}</p><p><strong>{escape(advice)}</strong></p>"
    tables = [errors(audit.whole), scores(audit.whole), classes(audit), *([groups(audit)] if audit.groups else [])]
    if audit.whole.payoff is not None:
        tables.append(acting(audit.whole.payoff))
    if audit.whole.estimates:
        tables.insert(0, estimates(audit.whole))
    if audit.windows is not None:
        tables.append(groups(audit.windows, title="Windows of time"))
    invalid = f"<p>{escape(str(audit.problems))}</p>" if audit.problems.count else ""
    return f"<div>{said}{''.join(map(as_html, tables))}{invalid}{_picture(audit.whole)}</div>"


def as_html(table: Table) -> str:
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


def _picture(whole: Calibration) -> str:
    """Return the diagrams of the most likely class and of two others; nothing without matplotlib."""
    from treecal.plots import draw_audit, drawing, svg

    try:
        with drawing(3 * min(len(whole.classes), 3), 3.9) as figure:
            draw_audit(whole, figure, most=2)
            return svg(figure, inline=True)
    except UnsupportedError:
        return ""
