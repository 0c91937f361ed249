"""All diagrams of an audit: the most likely class, and the classes of largest error as small multiples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from treecal.plots._reliability import KEYS, draw_bins, draw_panel, error_words, frame, show_keys, subtitle
from treecal.plots._sources import TOP, Audited, Calibrated, whole_of
from treecal.plots._style import class_title, matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 9  # classes with a diagram
_UNITS = (3.1, 2.3, 1.9)  # inches of a small diagram's side, by the number of rows


def plot_audit(audit: Audited | Calibrated, *, figure: Any = None) -> list[Axes]:
    """Draw the reliability of an audit: of the most likely class, and beside it of single classes.

    The classes with the largest debiased errors come first; of more than nine the legend says how many are left out.
    Of two classes the second is drawn, which the first mirrors. All is drawn as by `plot_reliability`.

    Parameters
    ----------
    audit
        An audit, or a part of one: `audit.whole`, a group.
    figure
        Where to draw: a figure, or a part of one, with nothing in it; by default a new one.

    Returns
    -------
    list
        The axes: of the most likely class, then of classes.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> rng = np.random.default_rng(0)
    >>> P = rng.dirichlet([1, 1, 1], size=1000)
    >>> y = np.array([rng.choice(3, p=p) for p in P])
    >>> y[rng.random(1000) < 0.2] = 2                   # more often than announced
    >>> axes = plot_audit(tc.audit(P, y), figure=Figure())
    >>> [ax.get_title() for ax in axes]
    ['most likely class, 1,000 rows', 'class 2', 'class 1', 'class 0']
    """
    return draw_audit(whole_of(audit), figure, most=_MOST)


def draw_audit(part: Calibrated, figure: Any, *, most: int) -> list[Any]:
    """Draw the most likely class, and so many others at most."""
    names = sorted(part.classes, key=lambda name: (-part.classes[name].debiased_ece, -part.classes[name].ece))
    names = [*part.classes][1:] if len(names) == 2 else names
    shown = names[:most]
    rows = min(math.ceil(len(shown) / 3), 3)
    columns = math.ceil(len(shown) / rows)
    unit = _UNITS[rows - 1]
    if figure is None:
        size = (unit * (rows + columns) + 0.4, unit * rows + 1.6)
        figure = matplotlib("pyplot").figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(rows, rows + columns)
    large = figure.add_subplot(grid[:, :rows])
    keys = draw_bins(large, part.top_label)
    frame(large, top=True)
    large.set_aspect("auto")
    large.set_title(f"{TOP}, {part.rounds:,} row{'s' * (part.rounds != 1)}", pad=32)
    subtitle(large, error_words(part.top_label))
    drawn = [large]
    for place, name in enumerate(shown):
        row, column = divmod(place, columns)
        ax = figure.add_subplot(grid[row, rows + column])
        keys += draw_panel(
            ax, class_title(name, 24 if rows == 1 else 18), part.classes[name], largest=130 if rows == 1 else 60
        )
        if place + columns < len(shown):
            ax.set(xlabel="", xticklabels=[])
        if column:
            ax.set(ylabel="", yticklabels=[])
        drawn.append(ax)
    rest = len(names) - len(shown)
    note = f"{rest:,} more class{'es' * (rest > 1)} with smaller errors {'are' if rest > 1 else 'is'} not shown"
    show_keys(
        figure,
        [key for key in KEYS if key in keys],
        loc="outside lower center",
        ncols=min(rows + columns, 3),
        title=note if rest else None,
    )
    return drawn
