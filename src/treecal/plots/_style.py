"""What all plots share: axes, and colours that are distinct to the colour-blind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treecal._optional import require
from treecal.exceptions import ParameterError
from treecal.ledger import Ledger, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

BLUE, VERMILION = "#0072B2", "#D55E00"
PALETTE = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", VERMILION, "#B8A800", "#7F7F7F")
"""Okabe and Ito's colours, the yellow darkened so that it shows on white."""


def axes(ax: Axes | None) -> Any:
    """Return the axes, or new ones on a new figure."""
    return matplotlib("pyplot").subplots(layout="constrained")[1] if ax is None else ax


def matplotlib(module: str) -> Any:
    """Import a module of matplotlib."""
    return require(f"matplotlib.{module}", extra="plots", what="a plot")


def as_reading(ledger: Ledger | Reading) -> Reading:
    """Return the reading, or the exact reading of a ledger; an empty one raises."""
    if not isinstance(ledger, Ledger | Reading):
        raise ParameterError.expected("reading", ledger, "a Ledger or a Reading")
    reading = ledger.exact() if isinstance(ledger, Ledger) else ledger
    if not len(reading):
        raise ParameterError("no round is recorded, so there is nothing to draw.")
    return reading


def class_names(classes: Sequence[str] | None, dim: int) -> list[str]:
    """Return the names of the classes: by default their numbers, from 1."""
    if classes is None:
        return [f"class {k + 1}" for k in range(dim)]
    if len(classes) != dim:
        raise ParameterError(f"{len(classes)} classes were named, expected {dim}.")
    return [str(name) for name in classes]


def plain(legend: Any) -> None:
    """Show the names in a legend as they are: `$` starts no formula."""
    for text in legend.get_texts():
        text.set_parse_math(False)
