"""An audit as tables: a sentence, the errors, and the classes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from treecal.auditing._result import Audit, Calibration


def shown(audit: Audit) -> Group:
    """Return the audit as rich tables."""
    parts: list[Any] = [Text(verdict(audit.whole)), Text(), errors(audit), Text(), classes(audit)]
    if audit.problems.count:
        parts += [Text(), Text(str(audit.problems))]
    return Group(*parts)


def text(audit: Audit) -> str:
    """Return the audit as plain text."""
    paper = io.StringIO()
    Console(file=paper, width=110).print(shown(audit))
    return "\n".join(line.rstrip() for line in paper.getvalue().splitlines())


def verdict(whole: Calibration) -> str:
    """Return the result in a sentence or two."""
    top = whole.top_label
    gap = top.mean_forecast - top.mean_outcome
    words = (
        f"{whole.rounds:,} row{'s' * (whole.rounds != 1)}{_weight(whole)}. The most likely class has mean forecast "
        f"{top.mean_forecast:.3f} and mean outcome {top.mean_outcome:.3f}: {'over' if gap > 0 else 'under'}confident "
        f"by {abs(gap):.3f}."
    )
    if whole.exact is not None and whole.exact.forecasts > max(1, whole.rounds / 10):
        words += (
            f" There are {whole.exact.forecasts:,} distinct forecasts, too many for the exact errors to mean more than "
            "chance: use the binned ones."
        )
    return words


def _weight(part: Calibration) -> str:
    return "" if part.weight == part.rounds else f" with a total weight of {part.weight:,.6g}"


def errors(audit: Audit) -> Table:
    """Return the table of errors: all rows, then each group."""
    table = Table(title="Calibration errors", title_justify="left")
    for name in audit.by:
        table.add_column(_cell(name))
    names = [] if audit.whole.exact is None else [*audit.whole.exact.errors]
    exact = [] if audit.whole.exact is None else ["forecasts", *(f"exact {name}" for name in names)]
    weighted = any(part.weight != part.rounds for part in (audit.whole, *audit.groups.values()))
    for name in ("rows", *["weight"] * weighted, *exact, "top-label ECE", "top-label MCE", "class-wise ECE", "Brier"):
        table.add_column(name, justify="right")
    for key, part in [(("all",) * len(audit.by), audit.whole), *audit.groups.items()]:
        figures: list[float] = [part.top_label.ece, part.top_label.mce, part.classwise_ece, part.brier]
        counts = [f"{part.rounds:,}", *[f"{part.weight:,.6g}"] * weighted]
        if part.exact is not None:
            counts.append(f"{part.exact.forecasts:,}")
            figures = [*(part.exact.errors[name] for name in names), *figures]
        table.add_row(*map(_cell, key), *counts, *(f"{figure:.4f}".replace("inf", "∞") for figure in figures))
        if part is audit.whole and audit.groups:
            table.add_section()
    return table


def classes(audit: Audit) -> Table:
    """Return the table of classes, over all rows."""
    table = Table(title="Class by class", title_justify="left")
    table.add_column("class")
    table.add_column("probability")
    exact = audit.whole.exact
    for name in ("mean forecast", "mean outcome", *(["exact"] * (exact is not None)), "ECE", "MCE"):
        table.add_column(name, justify="right")
    for k, ((name, bins), column) in enumerate(zip(audit.whole.classes.items(), audit.columns, strict=True)):
        exactly = [] if exact is None else [exact.classes[k]]
        figures = (bins.mean_forecast, bins.mean_outcome, *exactly, bins.ece, bins.mce)
        table.add_row(_cell(name), _cell(column), *(f"{figure:.4f}" for figure in figures))
    return table


def _cell(name: Any) -> Text:
    """Return a name from the log, with nothing that a terminal or rich would interpret."""
    words = "(missing)" if name is None else str(name)
    return Text(words if words.isprintable() else repr(words)[1:-1])
