"""Reliability diagrams: the forecast probability of a class against its frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._bins import MOST_BINS, bin_of
from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.geometry import TOLERANCE
from treecal.ledger import Ledger, Reading
from treecal.plots._style import BLUE, VERMILION, as_reading, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Reliability(NamedTuple):
    """One row for each bin that holds forecasts.

    Attributes
    ----------
    bin
        Number of the bin, from 0. A bin holds its lower edge; the last one holds 1 as well.
    forecast
        The mean forecast probability of the bin.
    weight
        The total weight of these forecasts, in rounds.
    outcome
        The mean outcome: the frequency of the class.
    low, high
        The 95 % interval of Clopper and Pearson around `outcome`.
    """

    bin: Integers
    forecast: Array
    weight: Array
    outcome: Array
    low: Array
    high: Array

    @property
    def off(self) -> NDArray[np.bool_]:
        """Whether the forecast lies outside the interval, as chance puts it in one bin out of twenty."""
        return (self.forecast < self.low) | (self.forecast > self.high)


def reliability(reading: Ledger | Reading, k: int, *, bins: int = 10) -> Reliability:
    """Return the reliability of class `k`: forecasts in bins of equal width, with the 95 % interval of each.

    The intervals count the weight in a bin as independent rounds (sample weights scaled to a mean of 1). They are too
    wide where forecasts are distributions, which may have only part of their weight in a bin, and may be too narrow
    where rounds depend on each other beyond what the forecast knows, or where sample weights differ much.

    Parameters
    ----------
    reading
        A ledger or a reading of one.
    k
        The class: a coordinate, from 0.
    bins
        Number of bins between 0 and 1.

    Examples
    --------
    >>> import treecal as tc
    >>> ledger = tc.Ledger(tc.Simplex(2))
    >>> for y in [[1, 0], [1, 0], [1, 0], [0, 1]]:
    ...     ledger.record([0.5, 0.5], y)
    >>> r = reliability(ledger, 1)
    >>> r.forecast, r.outcome, r.weight, r.low.round(3), r.high.round(3)
    (array([0.5]), array([0.25]), array([4.]), array([0.006]), array([0.806]))
    """
    from scipy.special import betaincinv

    reading, bins = as_reading(reading), whole_number("bins", bins, least=1, most=MOST_BINS)
    dim = reading.forecasts.shape[1]
    k = whole_number("k", k, least=0)
    if k >= dim:
        raise ParameterError.expected("k", k, f"a coordinate, from 0 to {dim - 1}")
    forecast, outcome = reading.forecasts[:, k], reading.outcomes[:, k]
    least, most = min(forecast.min(), outcome.min()), max(forecast.max(), outcome.max())
    if least < -TOLERANCE or most > 1 + TOLERANCE:
        raise ParameterError(f"coordinate {k} runs from {least:g} to {most:g}, expected probabilities, from 0 to 1.")
    home = bin_of(np.clip(forecast, 0, 1), bins).astype(np.int64)
    totals = np.zeros((bins, 3))
    np.add.at(totals, home, reading.weights[:, None] * np.column_stack([np.ones_like(forecast), forecast, outcome]))
    filled = np.flatnonzero(totals[:, 0])
    weight, forecast, outcome = totals[filled].T
    forecast, outcome = np.clip(forecast / weight, 0, 1), np.clip(outcome / weight, 0, 1)
    count = weight if reading.weight == reading.rounds else weight * (reading.rounds / reading.weight)
    hits, misses = count * outcome, count * (1 - outcome)
    # betaincinv needs positive parameters; without hits or misses the interval reaches 0 or 1.
    low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1.0), misses + 1, 0.025), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.where(misses > 0, misses, 1.0), 0.975), 1.0)
    return Reliability(filled, forecast, weight, outcome, low, high)


def plot_reliability(
    reading: Ledger | Reading, k: int, *, name: str | None = None, bins: int = 10, ax: Axes | None = None
) -> Axes:
    """Draw the reliability diagram of one class: on the diagonal, the forecast is the mean outcome.

    Dots are bins, with their 95 % intervals (see `reliability` for what these assume); orange diamonds are bins whose
    forecast lies outside the interval. The bars at the bottom are the weight of each bin.

    Parameters
    ----------
    reading, k, bins
        As for `reliability`.
    name
        Name of the class.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> ledger = tc.Ledger(tc.Simplex(2))
    >>> ledger.record([0.5, 0.5], [1, 0])
    >>> plot_reliability(ledger, 0, name="rain", ax=Figure().subplots()).get_title()
    'rain'
    """
    r = reliability(reading, k, bins=bins)
    ax = axes(ax)
    heights = 0.22 * r.weight / r.weight.max()
    ax.bar((r.bin + 0.5) / bins, heights, width=0.9 / bins, color="0.5", alpha=0.35, lw=0)
    ax.plot([0, 1], [0, 1], lw=1, ls=(0, (4, 3)), color="0.5")
    for chosen, color, marker in ((~r.off, BLUE, "o"), (r.off, VERMILION, "D")):
        at, y = r.forecast[chosen], r.outcome[chosen]
        spread = np.maximum([y - r.low[chosen], r.high[chosen] - y], 0)
        ax.errorbar(at, y, yerr=spread, fmt=marker, ms=5, color=color, elinewidth=1.4)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel="forecast", ylabel="mean outcome")
    ax.set_xticks([0, 0.5, 1])
    ax.set_yticks([0, 0.5, 1])
    ax.grid(alpha=0.2)
    ax.set_title(f"class {k + 1}" if name is None else name, parse_math=False)
    return ax
