"""Pictures for pages that are light or dark: SVG without a background, whose ink follows the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from treecal.plots._style import matplotlib

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
    """Yield a figure of so many inches for `svg`, which is to be called before it is left.

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
