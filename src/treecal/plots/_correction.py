"""A correction on one picture: how often the likeliest class was right, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from treecal.ledger import Ledger, Reading
from treecal.plots._reliability import Reliability, reliability
from treecal.plots._style import BLUE, VERMILION, as_reading, axes, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def likeliest(reading: Ledger | Reading) -> Reading:
    """Read only the likeliest class of each forecast: its probability, and how often it was the outcome.

    The reading has two classes: any other, and the likeliest. Of equally likely ones the first counts.

    Parameters
    ----------
    reading
        A ledger of probabilities of classes, or a reading of one.

    Examples
    --------
    >>> import treecal as tc
    >>> ledger = tc.Ledger(tc.Simplex(3))
    >>> for y in [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]]:
    ...     ledger.record([0.1, 0.2, 0.7], y)
    ...     ledger.record([0.1, 0.8, 0.1], y)
    >>> r = reliability(likeliest(ledger), 1)
    >>> r.forecast, r.outcome, r.weight
    (array([0.7, 0.8]), array([0.  , 0.75]), array([4., 4.]))
    """
    reading = as_reading(reading)
    top = reading.forecasts.argmax(axis=1)[:, None]
    p, y = (np.take_along_axis(part, top, axis=1) for part in (reading.forecasts, reading.outcomes))
    points, means = np.hstack([1 - p, p]), np.hstack([1 - y, y])
    return Reading(points, reading.weights, means, reading.rounds, reading.resolution, weight=reading.weight)


def _main_bins(r: Reliability) -> Reliability:
    """Return the bins with enough weight to be seen."""
    kept = r.weight >= 0.01 * r.weight.sum()
    return Reliability(*(column[kept] for column in r))


def plot_correction(
    before: Ledger | Reading,
    after: Ledger | Reading,
    *,
    names: tuple[str, str] = ("before", "after"),
    bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw the probability of the likeliest class against how often it was right, before and after a correction.

    On the diagonal the two agree. The area of a mark is the weight of its bin, lines are 95 % intervals; bins with less
    than 1 % of the weight are left out.

    Parameters
    ----------
    before, after
        Ledgers of probabilities of classes, or readings of them.
    names
        Names of the two.
    bins
        Number of bins between 0 and 1.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> space, rng = tc.Simplex(2), np.random.default_rng(0)
    >>> corrector = tc.Recalibrator(space, scores="exact")
    >>> for _ in range(1000):
    ...     _ = corrector.predict([0.1, 0.9])
    ...     corrector.update([0, 1] if rng.random() < 0.6 else [1, 0])
    >>> ledgers = corrector.ledgers
    >>> ax = plot_correction(ledgers["before"], ledgers["after"], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['before', 'after']
    """
    found = [_main_bins(reliability(likeliest(each), 1, bins=bins)) for each in (before, after)]
    ax, handles = axes(ax), list[Any]()
    ax.plot([0, 1], [0, 1], lw=1, ls=(0, (4, 3)), color="0.5")
    most = max(r.weight.max() for r in found)
    for r, color, marker in zip(found, (VERMILION, BLUE), "Do", strict=True):
        ax.vlines(r.forecast, r.low, r.high, color=color, lw=1, alpha=0.5)
        ax.plot(r.forecast, r.outcome, lw=1.2, color=color, alpha=0.6)
        ax.scatter(r.forecast, r.outcome, s=6 + 160 * r.weight / most, color=color, marker=marker, lw=0, zorder=3)
        handles += ax.plot([], [], color=color, marker=marker, ls="none", ms=7)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.set(xlabel="probability of the likeliest class", ylabel="how often it was right")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    ax.grid(alpha=0.2)
    plain(ax.legend(handles, names, frameon=False, loc="upper left"))
    return ax
