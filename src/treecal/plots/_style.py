"""What all plots share: axes, colours that are distinct to the colour-blind, and SVG for light and dark pages."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from treecal._optional import require
from treecal.exceptions import ParameterError
from treecal.forecasters import REGISTRY
from treecal.ledger import Ledger, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

BLUE = "#0072B2"
VERMILION = "#D55E00"
GREY = "0.5"
PALETTE = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", VERMILION, "#B8A800", "#7F7F7F")
"""Okabe and Ito's colours, the yellow darkened so that it shows on white."""

FORECASTERS = {
    "guarded": BLUE,
    "tracker": "#56B4E9",
    "codebook": "#6173F5",
    "treecal": VERMILION,
    "adaptive": "#E69F00",
    "sampled": "#B4019A",
    "harmonic": "#009E73",
    "binary-grid": "#CC79A7",
    "simplex-grid": "#8424FF",
    "running-mean": "#63615F",
}
"""The colour of each forecaster, by its name in the registry: it shows on white and on a dark page."""
SPARE = ("#99CC77", "#0000FF", "#B8A800", "#8899FF")
"""Colours that no forecaster of the package has: for those that others add, and for other lines."""


def colour(name: str) -> str | None:
    """Return the colour of a forecaster, the same in every picture; None for any other name.

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
    """Return the names of the classes: by default their numbers, from 0."""
    if classes is None:
        return [f"class {k}" for k in range(dim)]
    if len(classes) != dim:
        raise ParameterError(f"{len(classes)} classes were named, expected {dim}.")
    return [str(name) for name in classes]


def plain(legend: Any) -> None:
    """Show the names in a legend as they are: `$` starts no formula."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def short(name: str, most: int = 28) -> str:
    """Return a name that fits into a picture, and holds nothing that XML forbids."""
    words = "".join(letter if letter.isprintable() else " " for letter in name)
    return words if len(words) <= most else f"{words[: most - 1]}…"


def class_title(name: str, most: int = 28) -> str:
    """Return the name of a class as a title: a number alone says too little."""
    return f"class {name}" if name.isdecimal() else short(name, most)


_INK = "#24292f"  # becomes the colour of the page's text
_FOLLOW = f"<style>svg{{color:{_INK}}}@media (prefers-color-scheme:dark){{svg{{color:#e6e6e6}}}}</style>"
_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], _INK),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "treecal",  # names inside the file do not vary
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    """Yield a figure of this size, in inches, for `svg`, which must be called inside the block.

    Examples
    --------
    >>> with drawing(3, 2) as figure:
    ...     _ = figure.subplots().plot([1, 2, 3])
    ...     page = svg(figure)
    >>> "currentColor" in page, "prefers-color-scheme:dark" in page
    (True, True)
    """
    with matplotlib("style").context(["default", _SETTINGS]), warnings.catch_warnings():
        # The font need not have every letter of a name: the reader's browser has others.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield matplotlib("figure").Figure(figsize=(width, height), layout="constrained")


def svg(figure: Any, *, inline: bool = False) -> str:
    """Return a figure of `drawing` as SVG, the same byte for byte: without background, its ink that of the page.

    As an image it is dark on light pages, and light on dark ones: where CSS says `color-scheme: dark`, or the reader's
    system does.

    Parameters
    ----------
    figure
        A figure that `drawing` made.
    inline
        Whether it becomes a part of an HTML page, whose colour of text it takes, and not an image.

    Examples
    --------
    >>> with drawing(3, 2) as figure:
    ...     _ = figure.subplots().plot([1, 2, 3])
    ...     svg(figure, inline=True)[:11]
    '<svg style='
    """
    raw = io.BytesIO()
    figure.savefig(raw, format="svg", dpi=200, metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    text = raw.getvalue().decode()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    if not inline:
        return text.replace("<defs>", f"{_FOLLOW}<defs>", 1)
    # matplotlib's own style sheet would apply to the whole page.
    text = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", text, count=1, flags=re.S)
    return text.replace("<svg", '<svg style="stroke-linejoin:round;stroke-linecap:butt;max-width:100%;height:auto"', 1)
