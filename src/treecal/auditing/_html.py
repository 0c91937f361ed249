"""An audit as HTML, for notebooks: the verdict, the tables, and the diagrams of the classes that are most off."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rich.table import Table

from treecal.auditing._show import classes, errors, groups, scores, verdict
from treecal.exceptions import UnsupportedError
from treecal.plots._audit import draw_audit
from treecal.plots._svg import drawing, svg

if TYPE_CHECKING:
    from treecal.auditing._result import Audit, Calibration

_MOST_ROWS = 10  # of a table
_MOST_LETTERS = 60  # of a cell


def html(audit: Audit) -> str:
    """Return the audit as HTML without scripts, every name escaped, in the colours of the page around it."""
    *words, advice = verdict(audit).splitlines()
    said = f"<p>{escape(' '.join(words))}</p><p><strong>{escape(advice)}</strong></p>"
    tables = [errors(audit.whole), scores(audit.whole), classes(audit), *([groups(audit)] if audit.groups else [])]
    if audit.windows is not None:
        tables.append(groups(audit.windows, title="Windows of time"))
    invalid = f"<p>{escape(str(audit.problems))}</p>" if audit.problems.count else ""
    return f"<div>{said}{''.join(map(_table, tables))}{invalid}{_picture(audit.whole)}</div>"


def _table(table: Table) -> str:
    """Return a table of the terminal as HTML: its first rows."""
    head = "".join(f"<th{_side(column.justify)}>{_cell(column.header)}</th>" for column in table.columns)
    columns = [[f"<td{_side(column.justify)}>{_cell(cell)}</td>" for cell in column.cells] for column in table.columns]
    rows = [f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True)]
    left = len(rows) - _MOST_ROWS
    more = f"<p>{left:,} more row{'s' * (left > 1)}: print(audit) shows all.</p>" if left > 0 else ""
    title = f'<caption style="text-align:left">{_cell(table.title)}</caption>'
    body = "".join(rows[:_MOST_ROWS])
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _side(justify: str) -> str:
    return f' style="text-align:{justify}"'


def _cell(value: object) -> str:
    words = str(value)
    return escape(words if len(words) <= _MOST_LETTERS else f"{words[: _MOST_LETTERS - 1]}…")


def _picture(whole: Calibration) -> str:
    """Return the diagrams of the most likely class and of two others; nothing without matplotlib."""
    try:
        with drawing(3 * min(len(whole.classes), 3), 3.9) as figure:
            draw_audit(whole, figure, most=2)
            return svg(figure, inline=True)
    except UnsupportedError:
        return ""
