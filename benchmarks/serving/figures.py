"""Figures and their tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table


class Line(NamedTuple):
    """One figure, and its target."""

    what: str
    target: str
    value: str
    note: str = ""


def percentiles(seconds: Any) -> str:
    low, high = np.percentile(seconds, [50, 99]) * 1e3
    return f"p50 {low:.1f}, p99 {high:.1f}, max {np.max(seconds) * 1e3:.0f} ms"


def rate(rates: list[float]) -> str:
    low, middle, high = np.percentile(rates, [25, 50, 75])
    return f"{middle:,.0f}/s ({low:,.0f} … {high:,.0f})"


def show(lines: list[Line], *, markdown: bool) -> None:
    names = ("what", "target", "measured", "")
    if markdown:
        print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
        for each in lines:
            print("| " + " | ".join(each) + " |")
        return
    table = Table(*names)
    for each in lines:
        table.add_row(*each)
    Console().print(table)
