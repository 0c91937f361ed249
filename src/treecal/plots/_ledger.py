"""A ledger drawn: its calibration error over time, and its forecasts of three classes in the triangle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from treecal._validate import finite_array
from treecal.exceptions import ParameterError
from treecal.geometry import TOLERANCE
from treecal.ledger import Ledger, Reading
from treecal.plots._style import (
    BLUE,
    PALETTE,
    SPARE,
    VERMILION,
    as_reading,
    axes,
    class_names,
    colour,
    matplotlib,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_error_over_time(
    marks: ArrayLike,
    errors: ArrayLike,
    *,
    certificate: ArrayLike | None = None,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the calibration error per round against rounds, and its bound.

    Another call on the same axes adds a line: in the colour of the forecaster, or in the next colour.

    Parameters
    ----------
    marks
        Numbers of rounds, increasing.
    errors
        The error after each of them.
    certificate
        The certified error after each of them, drawn dashed: `tc.certificate(space, norm, rounds=..., ...).bound`.
    name
        Name of the line: a forecaster's gives it that forecaster's colour, see `colour`.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = plot_error_over_time([10, 100, 1000], [0.6, 0.3, 0.1], certificate=[1.4, 1.1, 0.9], ax=ax)
    >>> [line.get_linestyle() for line in ax.lines]
    ['-', '--']
    """
    t = finite_array("marks", marks, ndim=1)
    e = finite_array("errors", errors, ndim=1)
    bounds = None if certificate is None else finite_array("certificate", certificate, ndim=1)
    if not t.size or t[0] <= 0 or (np.diff(t) <= 0).any():
        raise ParameterError.expected("marks", marks, "one or more numbers of rounds, increasing")
    for what, values in (("errors", e), ("certificate", bounds)):
        if values is not None and values.shape != t.shape:
            raise ParameterError(f"there are {len(values)} {what} for {len(t)} marks, expected one each.")
    ax = axes(ax)
    drawn = [line.get_color() for line in ax.lines if line.get_linestyle() == "-"]
    own, others = (None, PALETTE) if name is None else (colour(name), (*SPARE, *PALETTE))
    color = own or next((c for c in others if c not in drawn), others[len(drawn) % len(others)])
    marker = "os^Dv"[len(drawn) % 5]
    ax.plot(t, e, lw=1.8, color=color, marker=marker, ms=3.5, label="measured" if name is None else name)
    if bounds is not None:
        label = "guaranteed ≤" if name is None else f"{name}: guaranteed ≤"
        ax.plot(t, bounds, lw=1.4, ls="--", color=color, label=label)
    top = max(float(np.max(line.get_ydata())) for line in ax.lines)
    ax.set(xscale="log", xlabel="rounds", ylabel="calibration error per round")
    ax.xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")
    ax.set_ylim(0, 1.05 * top or 1)
    ax.grid(alpha=0.25)
    # By default a legend hides names that begin with an underscore.
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_child")]
    names = [str(line.get_label()) for line in lines]
    plain(ax.legend(lines, names, frameon=False, loc="upper left", bbox_to_anchor=(1, 1)))
    return ax


CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])


def heaviest(reading: Reading, most: int = 100) -> tuple[Reading, float]:
    """Return the forecasts of greatest weight, and the share of all weight they hold."""
    order = np.argsort(-reading.weights, kind="stable")[:most]
    chosen = Reading(
        reading.forecasts[order],
        reading.weights[order],
        reading.outcomes[order],
        reading.rounds,
        reading.resolution,
        weight=reading.weight,
    )
    return chosen, float(chosen.weights.sum() / reading.weights.sum())


def plot_ternary(reading: Ledger | Reading, *, classes: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw forecasts of three classes in the triangle, each with a line to its mean outcome.

    The nearer to a corner, the likelier its class. The area of a dot is the weight of the forecast; the shorter the
    lines of the large dots, the better calibrated. Of more than 100 forecasts the heaviest are drawn.

    Parameters
    ----------
    reading
        A ledger of three classes, or a reading of one.
    classes
        Their names.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> ledger = tc.Ledger(tc.Simplex(3))
    >>> ledger.record([0.5, 0.3, 0.2], [1, 0, 0])
    >>> ax = plot_ternary(ledger, classes=["win", "draw", "loss"], ax=Figure().subplots())
    >>> sorted(text.get_text() for text in ax.texts)
    ['draw', 'loss', 'win']
    """
    reading = as_reading(reading)
    dim = reading.forecasts.shape[1]
    if dim != 3 or np.abs(reading.forecasts.sum(axis=1) - 1).max() > TOLERANCE:
        raise ParameterError(f"a ternary plot shows probabilities of three classes, and these are points in R^{dim}.")
    names = class_names(classes, 3)
    shown, _ = heaviest(reading)
    ax = axes(ax)
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, lw=1.2, color="0.5")
    for level in (0.25, 0.5, 0.75):
        for i in range(3):
            line = np.zeros((2, 3))
            line[:, i], line[0, (i + 1) % 3], line[1, (i + 2) % 3] = level, 1 - level, 1 - level
            ax.plot(*(line @ CORNERS).T, lw=0.6, color="0.5", alpha=0.4)
    dots = shown.forecasts @ CORNERS
    ends = shown.outcomes @ CORNERS
    share = shown.weights / shown.weights.max()
    gaps = np.stack([dots, ends], axis=1)
    lines = matplotlib("collections").LineCollection(gaps, lw=0.4 + 2 * np.sqrt(share), color=VERMILION, alpha=0.7)
    ax.add_collection(lines)
    ax.scatter(dots[:, 0], dots[:, 1], s=4 + 240 * share, color=BLUE, alpha=0.6, lw=0, zorder=3)
    for (x, y), name in zip(CORNERS, names, strict=True):
        place = (y - 0.03, "top") if y == 0 else (y + 0.03, "bottom")
        ax.text(x, place[0], name, ha="center", va=place[1], parse_math=False)
    ax.set(aspect="equal", xlim=(-0.08, 1.08), ylim=(-0.12, 0.96))
    ax.set_axis_off()
    return ax
