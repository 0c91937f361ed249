"""The interval tree of TreeCal, coloured by its forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._typing import Array
from treecal._validate import finite_array
from treecal.exceptions import ParameterError
from treecal.plots._style import PALETTE, axes, class_names, matplotlib, plain
from treecal.tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CELLS = 1500
"""Intervals in a row, at most: more of them would be narrower than a pixel."""


class Row(NamedTuple):
    """The intervals of one height.

    Attributes
    ----------
    height
        Their height; each covers `arity**height` rounds.
    edges
        The rounds at which they begin, and the last round at the end.
    forecasts
        The forecast of each, `(n, d)`; NaN for one that is never played, the first of each height in a growing tree.
    """

    height: int
    edges: Array
    forecasts: Array


class IntervalTree(NamedTuple):
    """The rows that can be seen, the longest intervals first, and the number of rows too fine to be seen."""

    rows: tuple[Row, ...]
    arity: int
    unseen: int


def interval_tree(
    outcomes: ArrayLike, *, arity: int, depth: int | None = None, start: ArrayLike | None = None
) -> IntervalTree:
    """Return the forecasts of the nodes of the tree that TreeCal grows on these outcomes, height by height.

    An interval forecasts the mean outcome of its parent up to its own start, and a first child the start point. Heights
    of more than 1500 intervals are left out.

    Parameters
    ----------
    outcomes
        One row per round; or, given `start`, the index of the class of each round.
    arity, depth
        The tree; without depth, it grows.
    start
        The forecast of first children; by default the uniform vector.

    Examples
    --------
    >>> tree = interval_tree([[1, 0], [1, 0], [0, 1], [0, 1]], arity=2, depth=2)
    >>> [(row.height, row.forecasts[:, 1].tolist()) for row in tree.rows]
    [(1, [0.5, 0.0]), (0, [0.5, 0.0, 0.5, 1.0])]
    """
    first = None if start is None else finite_array("start", start, ndim=1)
    labels = np.asarray(outcomes)
    of_classes = first is not None and labels.ndim == 1 and labels.dtype.kind in "iu"
    y: NDArray[Any] = labels if of_classes else finite_array("outcomes", outcomes, ndim=2)
    if not y.size:
        raise ParameterError("there are no outcomes, so there is no tree.")
    rounds = len(y)
    dim = len(first) if first is not None and of_classes else y.shape[1]
    first = np.full(dim, 1 / dim) if first is None else first
    if first.shape != (dim,):
        raise ParameterError(f"start has shape {first.shape}, expected ({dim},).")
    tree = Tree(arity, depth)
    tree.check(rounds)
    rows = []
    unseen = 0
    sums = y
    for height in range(tree.heights(rounds - 1)):
        size = tree.arity**height
        count = -(-rounds // size)
        if count > MOST_CELLS:
            unseen += 1
        else:
            if sums.ndim == 1:  # classes: a row for each round would take too much memory
                sums = np.zeros((count, dim))
                np.add.at(sums, (np.arange(rounds) // size, y), 1.0)
            forecasts = _sibling_means(sums[:count], tree.arity, size, first)
            if depth is None and height:
                forecasts[0] = np.nan
            edges = np.minimum(np.arange(count + 1) * size, rounds).astype(float)
            rows.append(Row(height, edges, forecasts))
        if sums.ndim == 2:
            sums = np.add.reduceat(sums, np.arange(0, len(sums), tree.arity))  # the last node may have fewer children
    return IntervalTree(tuple(reversed(rows)), tree.arity, unseen)


def _sibling_means(sums: Array, arity: int, size: int, first: Array) -> Array:
    """Return the mean of each node's elder siblings, whose sums and size are given; for a first child, `first`."""
    families = np.zeros((-(-len(sums) // arity), arity, sums.shape[1]))
    families.reshape(-1, sums.shape[1])[: len(sums)] = sums
    before = np.cumsum(families, axis=1)
    means = np.empty_like(families)
    means[:, 0] = first
    means[:, 1:] = before[:, :-1] / (np.arange(1, arity) * size)[:, None]
    return means.reshape(-1, sums.shape[1])[: len(sums)]


def plot_tree(tree: IntervalTree, *, classes: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw the interval tree of TreeCal: one row per height, one cell per interval, coloured by its forecast.

    Time runs to the right, and the longest intervals are on top; the forecast of a round is the mixture of the cells
    above each other. Two or three classes mix their colours, pale at the centre; more classes show the colour of the
    likeliest, stronger the more probable it is; beyond eight, classes that are seldom the likeliest share one colour.

    Parameters
    ----------
    tree
        What `interval_tree` returned, of outcomes that are probability vectors or one-hot.
    classes
        The names of the classes.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> tree = interval_tree(np.eye(2)[[0, 1, 1, 0, 1, 1, 0, 1]], arity=2)
    >>> ax = plot_tree(tree, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['4', '2', '1']
    """
    dim = tree.rows[0].forecasts.shape[1] if tree.rows else 0
    if dim < 2:
        raise ParameterError("there is no interval to draw, or only one class.")
    names = class_names(classes, dim)
    ax = axes(ax)
    leaders = leading_classes(tree)
    hues = class_hues(dim, leaders)
    for place, row in enumerate(tree.rows):
        ax.pcolormesh(
            row.edges, [place - 0.46, place + 0.46], forecast_colors(row.forecasts, hues)[None], rasterized=True
        )
        if len(row.forecasts) <= 120:  # more would be all edges
            ax.vlines(row.edges[1:-1], place - 0.46, place + 0.46, lw=0.6, color="0.5", alpha=0.6)
    ax.set_yticks(range(len(tree.rows)), [f"{tree.arity**row.height:,}" for row in tree.rows])
    ax.set_ylim(len(tree.rows) - 0.5, -0.5)
    ax.set_xlim(0, tree.rows[0].edges[-1])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "left", "right"]].set_visible(False)
    ax.set(xlabel="round", ylabel="interval length")
    ax.xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")
    keys = [(hues[k], names[k]) for k in leaders] + [(PALETTE[-1], "others")] * (len(leaders) < dim)
    handles = [matplotlib("patches").Patch(color=color) for color, _ in keys]
    shown = [name for _, name in keys]
    columns = min(len(keys), 5)
    plain(ax.legend(handles, shown, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1), frameon=False))
    return ax


def leading_classes(tree: IntervalTree) -> list[int]:
    """Return the classes with their own colour: all, or of too many those that are the likeliest most often."""
    dim = tree.rows[0].forecasts.shape[1]
    if dim <= len(PALETTE):
        return list(range(dim))
    lead = np.zeros(dim)
    for row in tree.rows:
        np.add.at(lead, np.nan_to_num(row.forecasts).argmax(axis=1), np.diff(row.edges))
    return sorted(np.argsort(-lead, kind="stable")[: len(PALETTE) - 1].tolist())


def class_hues(dim: int, leaders: list[int]) -> Array:
    """Return a colour for each class; those that are not leaders share the last."""
    hues = np.tile(_rgb(PALETTE[-1:]), (dim, 1))
    hues[leaders] = _rgb(PALETTE[: len(leaders)])
    return hues


def forecast_colors(forecasts: Array, hues: Array) -> Array:
    """Return the colour of each forecast, RGBA; transparent for NaN."""
    dim = forecasts.shape[1]
    known = ~np.isnan(forecasts[:, 0])
    p = np.clip(np.where(known[:, None], forecasts, 0.0), 0, 1)
    if dim <= 3:
        # The common part of all classes is pale, and so is the centre.
        common = p.min(axis=1)[:, None]
        rgb = (p - common) @ hues + dim * common * _PALE
    else:
        strength = np.clip((p.max(axis=1) - 1 / dim) / (1 - 1 / dim), 0, 1)[:, None]
        rgb = _PALE + strength * (hues[p.argmax(axis=1)] - _PALE)
    return np.column_stack([np.clip(rgb, 0, 1), known])


_PALE = 0.9


def _rgb(colors: Sequence[str]) -> Array:
    return np.array([matplotlib("colors").to_rgb(color) for color in colors])
