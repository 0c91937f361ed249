"""Reliability diagrams: the forecast probability of a class against its frequency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers
from treecal.exceptions import ParameterError
from treecal.measures import Bins
from treecal.plots._sources import TOP, Source, bins_of
from treecal.plots._style import BLUE, GREY, PALETTE, VERMILION, axes, class_title, matplotlib, plain, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HISTOGRAM = 0.2  # of the height
_LARGEST = 130  # area of the largest mark, in square points


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


def reliability(source: Source, k: int | str | None = None, *, bins: int | None = None) -> Reliability:
    """Return the reliability of a class: forecasts in bins of equal width, with the 95 % interval of each.

    The intervals count the weight in a bin as independent rounds (sample weights scaled to a mean of 1). They are too
    wide where forecasts are distributions, which may have only part of their weight in a bin, and may be too narrow
    where rounds depend on each other beyond what the forecast knows, or where sample weights differ much.

    Parameters
    ----------
    source
        An audit, a part of one (`audit.whole`, a group) or its bins; a ledger, or a reading of one.
    k
        The class: its number, from 0, or in an audit its name; by default the most likely class of each row.
    bins
        For ledgers, the number of bins between 0 and 1: by default 10. An audit has its own.

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
    return _with_intervals(bins_of(source, k, bins=bins).bins)


def _with_intervals(bins: Bins) -> Reliability:
    from scipy.special import betaincinv

    filled = np.flatnonzero(bins.weight > 0)
    forecast, weight, outcome = (part[filled].astype(np.float64) for part in (bins.forecast, bins.weight, bins.outcome))
    hits = bins.rows[filled] * outcome
    misses = bins.rows[filled] * (1 - outcome)
    # betaincinv needs positive parameters; without hits or misses the interval reaches 0 or 1.
    low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1.0), misses + 1, 0.025), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.where(misses > 0, misses, 1.0), 0.975), 1.0)
    return Reliability(filled, forecast, weight, outcome, low, high)


def plot_reliability(
    source: Source | Mapping[str, Source],
    k: int | str | None = None,
    *,
    name: str | None = None,
    bins: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the reliability diagram of a class: on the diagonal, the forecast is the mean outcome.

    Marks are bins, their area the rows in them, with 95 % intervals (see `reliability` for what these assume). Orange
    diamonds are bins whose forecast lies outside the interval, hollow marks those of fewer than 30 rows. At the bottom,
    the histogram of the forecasts; under the title the expected calibration error, up to where it would be chance, and
    the debiased one with its 90 % interval.

    Several sources, such as a model before and after a correction, are drawn on the same axes, in a colour each.

    Parameters
    ----------
    source
        As for `reliability`; or a dictionary of several, by name.
    k, bins
        As for `reliability`.
    name
        The title: by default the name of the class.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> rng = np.random.default_rng(0)
    >>> P = rng.dirichlet([1, 1, 1], size=1000)
    >>> y = np.array([rng.choice(3, p=p) for p in P])
    >>> before, after = tc.audit(P**3 / (P**3).sum(axis=1)[:, None], y), tc.audit(P, y)
    >>> plot_reliability(before, ax=Figure().subplots()).get_title()
    'most likely class'
    >>> plot_reliability(before, "2", name="rain", ax=Figure().subplots()).get_title()
    'rain'
    >>> ax = plot_reliability({"before": before, "after": after}, ax=Figure().subplots())
    >>> for text in ax.get_legend().get_texts():
    ...     print(text.get_text())
    before: 0.2... (0.1...–0.2...)
    after: 0.0... (0.0...–0.0...)
    fewer than 30 rows
    """
    several = dict(source) if isinstance(source, Mapping) else {"": source}
    if not several:
        raise ParameterError("source is an empty dictionary, so there is nothing to draw.")
    found = {str(each): bins_of(one, k, bins=bins) for each, one in several.items()}
    own, only = next(iter(found.values()))
    ax = axes(ax)
    if isinstance(source, Mapping):
        keys = _draw_several(ax, {each: named.bins for each, named in found.items()})
    else:
        keys = draw_bins(ax, only)
        subtitle(ax, error_words(only))
    frame(ax, top=own == TOP)
    ax.set_title(
        class_title(own) if name is None else name, parse_math=False, pad=6 if isinstance(source, Mapping) else 32
    )
    title = "debiased ECE (90 % interval)" if isinstance(source, Mapping) else None
    show_keys(ax, keys, loc="best", title=title, title_fontsize="small")
    return ax


def error_words(bins: Bins) -> str:
    """Return the error of a diagram, what chance would show, and the interval, in two lines."""
    interval = bins.interval()
    return (
        f"ECE {bins.ece:.3f}, by chance up to {bins.chance.high:.3f}\n"
        f"debiased {interval.value:.3f} (90 %: {interval.low:.3f}–{interval.high:.3f})"
    )


def subtitle(ax: Any, words: str) -> None:
    """Write words under the title, small."""
    place = {"xy": (0.5, 1), "xycoords": "axes fraction", "xytext": (0, 4), "textcoords": "offset points"}
    ax.annotate(words, **place, ha="center", va="bottom", fontsize="small", parse_math=False)


class Key(NamedTuple):
    """An entry of a legend: what to plot for it, and its name."""

    style: dict[str, Any]
    name: str


DIAGONAL = Key({"ls": (0, (4, 3)), "lw": 1, "color": GREY}, "forecast = mean outcome")
FINE = Key({"ls": "none", "marker": "o", "color": BLUE}, "a bin: area by rows, 95 % interval")
OFF = Key({"ls": "none", "marker": "D", "color": VERMILION}, "off by more than chance")
THIN = Key({"ls": "none", "marker": "o", "color": GREY, "mfc": "none"}, "fewer than 30 rows")
HISTOGRAM = Key({"ls": "none", "marker": "s", "color": GREY, "alpha": 0.45, "mew": 0}, "histogram of forecasts")
KEYS = (DIAGONAL, FINE, OFF, THIN, HISTOGRAM)


def draw_bins(ax: Any, bins: Bins, *, largest: float = _LARGEST) -> list[Key]:
    """Draw one diagram, and return what its legend says."""
    r = _with_intervals(bins)
    thin = bins.thin[bins.weight > 0]
    share = r.weight / r.weight.max()
    _draw_histogram(ax, bins, GREY)
    _draw_diagonal(ax)
    for chosen, key in ((~r.off, FINE), (r.off, OFF)):
        color = key.style["color"]
        marker = key.style["marker"]
        _draw_marks(ax, r, thin, share, chosen, color=color, marker=marker, largest=largest)
    used = [(~r.off & ~thin).any(), r.off.any(), thin.any()]
    return [DIAGONAL, *(key for key, there in zip((FINE, OFF, THIN), used, strict=True) if there), HISTOGRAM]


def draw_panel(ax: Any, name: str, bins: Bins, *, largest: float = _LARGEST) -> list[Key]:
    """Draw the diagram of one class among others, where there is less room, and return what its legend says."""
    keys = draw_bins(ax, bins, largest=largest)
    frame(ax, top=False)
    ax.set_aspect("auto")  # a figure's layout would not leave room for titles
    ax.set_title(name, parse_math=False, fontsize="medium", pad=18)
    interval = bins.interval()
    subtitle(ax, f"debiased {interval.value:.3f} ({interval.low:.3f}–{interval.high:.3f})")
    return keys


def _draw_several(ax: Any, found: Mapping[str, Bins]) -> list[Key]:
    """Draw several diagrams on one pair of axes, and return what the legend says."""
    keys = list[Key]()
    any_thin = False
    colors = (VERMILION, BLUE) if len(found) <= 2 else PALETTE
    most = max(bins.weight.max() / bins.weight.sum() for bins in found.values())
    _draw_diagonal(ax)
    for place, (name, bins) in enumerate(found.items()):
        r = _with_intervals(bins)
        thin = bins.thin[bins.weight > 0]
        color = colors[place % len(colors)]
        marker = "Dos^vP*X"[place % 8]
        _draw_histogram(ax, bins, color, fill=False)
        ax.plot(r.forecast[~thin], r.outcome[~thin], lw=1.2, color=color, alpha=0.6)
        share = r.weight / r.weight.sum() / most
        _draw_marks(ax, r, thin, share, np.ones_like(thin), color=color, marker=marker, largest=_LARGEST)
        interval = bins.interval()
        words = f"{short(name)}: {interval.value:.3f} ({interval.low:.3f}–{interval.high:.3f})"
        keys.append(Key({"ls": "none", "marker": marker, "color": color}, words))
        any_thin |= bool(thin.any())
    return [*keys, *[THIN] * any_thin]


def _draw_diagonal(ax: Any) -> None:
    ax.plot([0, 1], [0, 1], **DIAGONAL.style)


def _draw_histogram(ax: Any, bins: Bins, color: str, *, fill: bool = True) -> None:
    heights = _HISTOGRAM * bins.weight / bins.weight.max()
    if fill:
        ax.stairs(heights, bins.edges, fill=True, color=color, alpha=0.3, lw=0)
    else:
        ax.stairs(heights, bins.edges, color=color, alpha=0.6, lw=0.8)


def _draw_marks(
    ax: Any,
    r: Reliability,
    thin: NDArray[np.bool_],
    share: Array,
    chosen: NDArray[np.bool_],
    *,
    color: str,
    marker: str,
    largest: float,
) -> None:
    """Draw some bins: marks with their intervals, hollow and thin where there are few rows."""
    for part, face, width in ((chosen & ~thin, color, 1.4), (chosen & thin, "none", 0.7)):
        if not part.any():
            continue
        ax.vlines(r.forecast[part], r.low[part], r.high[part], color=color, lw=width)
        size = 0.08 * largest + 0.92 * largest * share[part]
        ax.scatter(r.forecast[part], r.outcome[part], s=size, marker=marker, fc=face, ec=color, lw=1, zorder=3)


def frame(ax: Any, *, top: bool) -> None:
    """Set limits, ticks and labels."""
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.set(
        xlabel="forecast of the most likely class" if top else "forecast",
        ylabel="how often it was the outcome" if top else "mean outcome",
    )
    ax.set_xticks([0, 0.5, 1])
    ax.set_yticks([0, 0.5, 1])
    ax.grid(alpha=0.2)


def show_keys(ax: Any, keys: Iterable[Key], **options: Any) -> None:
    """Show these entries as the legend of axes or of a figure."""
    line = matplotlib("lines").Line2D
    handles = [line([], [], **({"ms": 7} | key.style)) for key in keys]
    names = [key.name for key in keys]
    plain(ax.legend(handles, names, frameon=False, fontsize="small", **options))
