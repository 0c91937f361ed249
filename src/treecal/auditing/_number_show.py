"""An audit of forecasts of a number as tables: the verdict, scores, coverage by level, and groups."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from html import escape
from typing import Any, Protocol

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from treecal.auditing._groups import Key
from treecal.auditing._number_sums import LastRows
from treecal.auditing._show import as_html, safe, titled
from treecal.exceptions import UnsupportedError
from treecal.io import Problems
from treecal.measures import Interval


class ShownNumbers(Protocol):
    """What is shown of an audit of forecasts of a number."""

    @property
    def outcome(self) -> str: ...

    @property
    def by(self) -> tuple[str, ...]: ...

    @property
    def whole(self) -> Any: ...

    @property
    def groups(self) -> Mapping[Key, Any]: ...

    @property
    def problems(self) -> Problems: ...

    @property
    def windows(self) -> ShownNumbers | None: ...

    @property
    def last(self) -> LastRows | None: ...

    @property
    def sentences(self) -> list[str]: ...


def shown(audit: ShownNumbers) -> Group:
    """Return the audit as rich tables."""
    parts: list[Any] = [Text("\n".join(audit.sentences)), scores(audit.whole), coverage(audit.whole)]
    if audit.groups:
        parts.append(groups(audit))
    if audit.windows is not None:
        parts.append(groups(audit.windows, title=f"Windows of time, by {audit.windows.by[0]}"))
    if audit.problems.count:
        parts.append(Text(str(audit.problems)))
    return Group(*[piece for part in parts for piece in (Text(), part)][1:])


def text(audit: ShownNumbers) -> str:
    """Return the audit as plain text."""
    paper = io.StringIO()
    Console(file=paper, width=110).print(shown(audit))
    return "\n".join(line.rstrip() for line in paper.getvalue().splitlines()).rstrip()


def scores(whole: Any) -> Table:
    """Return the table of scores."""
    found = titled("Scores, in units of the outcome", "score", ">value", ">90 % interval", ">of the climatology")
    found.add_row("CRPS", _figure(whole.crps.value), _ends(whole.crps), _figure(whole.climatology))
    found.add_row("skill", _figure(whole.skill), "", _figure(0.0))
    found.add_row("outcome less median", _figure(whole.gap), "", "")
    found.add_row("sd of the outcomes", _figure(whole.spread), "", "")
    for tau, value in whole.pinball.items():
        found.add_row(f"pinball loss at {tau:g}", _figure(value), "", "")
    return found


def coverage(whole: Any) -> Table:
    """Return the table of levels, and of central intervals."""
    found = titled("Coverage", "up to the quantile", ">outcomes", ">90 % interval", ">mean quantile")
    for tau, share in whole.placed.coverage.items():
        mean = whole.quantile.get(tau, math.nan)
        found.add_row(f"{tau:g}", f"{share.value:.3f}", f"{share.low:.3f} – {share.high:.3f}", _figure(mean))
    for probability, held in whole.placed.intervals.items():
        width = whole.sharpness.get(probability, math.nan)
        of = f", {_figure(width)} wide" if not math.isnan(width) else ""
        found.add_row(f"the {100 * probability:g} % interval{of}", f"{held:.3f}", "", "")
    return found


def groups(audit: ShownNumbers, title: str = "Groups") -> Table:
    """Return the table of groups."""
    found = titled(title, *map(safe, audit.by), ">rows", ">CRPS", ">outcome less median", ">widest interval", "verdict")
    for key, part in audit.groups.items():
        widest = max(part.placed.intervals, default=math.nan)
        held = "" if math.isnan(widest) else f"{100 * widest:g} % held {part.placed.intervals[widest]:.3f}"
        row = (f"{part.rounds:,}", _figure(part.crps.value), _figure(part.gap), held, part.verdict.level)
        found.add_row(*map(safe, key), *row)
    if len(audit.groups) >= 20:
        found.caption = "Of so many groups, one of twenty that are calibrated is called off by chance."
    return found


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def _ends(interval: Interval) -> str:
    return f"{interval.low:.4g} – {interval.high:.4g}" if math.isfinite(interval.high) else interval.note


def html(audit: ShownNumbers) -> str:
    """Return the audit as HTML without scripts, every name escaped, in the colours of the page around it."""
    *words, advice = audit.sentences
    said = f"<p>{escape(' '.join(words))}</p><p><strong>{escape(advice)}</strong></p>"
    tables = [scores(audit.whole), coverage(audit.whole), *([groups(audit)] if audit.groups else [])]
    if audit.windows is not None:
        tables.append(groups(audit.windows, title="Windows of time"))
    invalid = f"<p>{escape(str(audit.problems))}</p>" if audit.problems.count else ""
    return f"<div>{said}{''.join(map(as_html, tables))}{invalid}{_picture(audit)}</div>"


def _picture(audit: ShownNumbers) -> str:
    """Return the diagrams; nothing without matplotlib."""
    from treecal.plots import drawing, plot_numbers, svg

    try:
        with drawing(9.0, 6.0) as figure:
            plot_numbers(audit, figure=figure)
            return svg(figure, inline=True)
    except UnsupportedError:
        return ""
