"""The calibration error as rounds go by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from treecal._validate import finite_array
from treecal.exceptions import ParameterError
from treecal.plots._style import PALETTE, SPARE, axes, colour, plain

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
