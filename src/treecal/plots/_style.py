"""What all plots share: axes, and colours that are distinct to the colour-blind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from treecal._optional import require
from treecal.exceptions import ParameterError
from treecal.forecasters import REGISTRY
from treecal.ledger import Ledger, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

BLUE, VERMILION = "#0072B2", "#D55E00"
PALETTE = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", VERMILION, "#B8A800", "#7F7F7F")
"""Okabe and Ito's colours, the yellow darkened so that it shows on white."""

FORECASTERS = {
    "guarded": BLUE,
    "tracker": "#56B4E9",
    "codebook": "#332288",
    "treecal": VERMILION,
    "adaptive": "#E69F00",
    "sampled": "#661100",
    "harmonic": "#009E73",
    "binary-grid": "#CC79A7",
    "simplex-grid": "#553355",
    "running-mean": "#5A5A5A",
}
"""The colour of each forecaster, by its name in the registry."""
SPARE = ("#99CC77", "#0000FF", "#B8A800", "#8899FF")
"""Colours of no forecaster of the package: for those that others add, and for lines that are no forecaster's."""


def colour(name: str) -> str | None:
    """Return the colour of a forecaster, the same in every picture; None for a name that is no forecaster's.

    Any two of them can be distinguished with each of the common kinds of colour blindness. Forecasters that are not
    the package's own have spare colours, in the order in which they were defined.

    Parameters
    ----------
    name
        Its name in the registry or that of its class, alone or followed by parameters.

    Examples
    --------
    >>> colour("TreeCal"), colour("treecal"), colour("TreeCal(Simplex(2), arity=2)"), colour("TreeCal, arity 2")
    ('#D55E00', '#D55E00', '#D55E00', '#D55E00')
    >>> colour("the model") is None
    True
    """
    known = {alias: key for key, kind in REGISTRY.items() for alias in (kind.__name__, key)}
    word = re.split(r"[ ,(]", name, maxsplit=1)[0]
    key = known.get(word, word)
    if key in FORECASTERS:
        return FORECASTERS[key]
    added = [key for key in REGISTRY if key not in FORECASTERS]
    return SPARE[added.index(key) % len(SPARE)] if key in added else None


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
