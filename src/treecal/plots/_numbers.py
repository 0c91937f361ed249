"""The diagrams of an audit of forecasts of a number: where outcomes lay, coverage, and the last forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from treecal._typing import Array
from treecal.measures import Placed
from treecal.plots._style import BLUE, GREY, VERMILION, axes, matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class LastForecasts(Protocol):
    """The last rows of a log."""

    shown: tuple[float, ...]
    outcomes: Array

    @property
    def quantiles(self) -> Array: ...


class AuditedNumbers(Protocol):
    """An audit of forecasts of a number."""

    @property
    def outcome(self) -> str: ...

    @property
    def whole(self) -> Any: ...

    @property
    def last(self) -> LastForecasts | None: ...


def plot_pit(placed: Placed, *, ax: Axes | None = None) -> Axes:
    """Draw the histogram of the PIT, where outcomes lay in their forecasts, with the band in which chance keeps it.

    If the forecasts are right, 90 % of the bars end in the band.

    Parameters
    ----------
    placed
        The counts: `audit.whole.placed`.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_pit(Placed((0.25, 0.5, 0.75), np.array([40.0, 20, 20, 40])), ax=Figure().subplots())
    >>> ax.get_title(), len(ax.patches)
    ('too many outcomes in both tails', 4)
    """
    ax = axes(ax)
    edges = np.array([0.0, *placed.levels, 1.0])
    due = np.diff(edges)
    height = placed.cells / placed.rows / due
    ax.bar(edges[:-1], height, due, align="edge", color=BLUE, alpha=0.75, edgecolor="white", linewidth=0.5)
    half = 1.645 * np.sqrt((1 - due) / (due * placed.rows))
    low = np.maximum(1 - half, 0.0)
    least = np.append(low, low[-1])
    most = np.append(1 + half, 1 + half[-1])
    ax.fill_between(edges, least, most, step="post", color=GREY, alpha=0.3, linewidth=0, label="90 % by chance")
    ax.axhline(1.0, color=GREY, linewidth=1)
    ax.set_xlim(0, 1)
    ax.set_xlabel("where the outcome lay in its forecast (PIT)")
    ax.set_ylabel("rows, of those expected")
    ax.set_title(_shape(placed))
    ax.legend(loc="lower center")
    return ax


def _shape(placed: Placed) -> str:
    found = placed.verdict.advised.found
    if placed.verdict.level in ("calibrated", "cannot tell"):
        return "no more than chance" if placed.verdict.level == "calibrated" else "too few rows to tell"
    words = {
        "Too narrow": "too many outcomes in both tails",
        "Too wide": "too few outcomes in both tails",
        "Too low": "too many outcomes above",
        "Too high": "too many outcomes below",
    }
    return next((text for start, text in words.items() if found.startswith(start)), "some levels are off")


def plot_coverage(placed: Placed, *, ax: Axes | None = None) -> Axes:
    """Draw how often outcomes were up to the quantile of each level, with 90 % intervals: of right forecasts, so often.

    Parameters
    ----------
    placed
        The counts: `audit.whole.placed`.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_coverage(Placed((0.25, 0.5, 0.75), np.array([40.0, 20, 20, 40])), ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('level', 'outcomes up to its quantile')
    """
    ax = axes(ax)
    levels = [*placed.coverage]
    found = [*placed.coverage.values()]
    value = [each.value for each in found]
    ends = [[each.value - each.low for each in found], [each.high - each.value for each in found]]
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    ax.errorbar(levels, value, np.maximum(ends, 0.0), color=BLUE, marker="o", markersize=4, linewidth=1.2, capsize=0)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xlabel("level")
    ax.set_ylabel("outcomes up to its quantile")
    return ax


def plot_fan(last: LastForecasts, *, ax: Axes | None = None, outcome: str = "outcome") -> Axes:
    """Draw the last forecasts as a fan, a band for each central interval, and the outcomes that followed as points.

    Parameters
    ----------
    last
        The last rows: `audit.last`.
    ax
        Where to draw; by default on a new figure.
    outcome
        The name of the outcome.

    Examples
    --------
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> rng = np.random.default_rng(0)
    >>> log = {"q10": np.full(50, -1.3), "q50": np.zeros(50), "q90": np.full(50, 1.3), "y": rng.normal(size=50)}
    >>> ax = plot_fan(tc.audit(log, quantiles=["q10", "q50", "q90"], outcome="y").last, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['80 %', 'median', 'outcome']
    """
    ax = axes(ax)
    at = np.arange(len(last.outcomes))
    columns = dict(zip(last.shown, last.quantiles.T, strict=True))
    pairs = [(low, high) for low in last.shown for high in last.shown if low < 0.5 and abs(low + high - 1) < 1e-9]
    for low, high in pairs:
        label = f"{100 * (high - low):.3g} %"
        ax.fill_between(at, columns[low], columns[high], label=label, color=BLUE, alpha=0.15 + 0.2 * low, linewidth=0)
    if 0.5 in columns:
        ax.plot(at, columns[0.5], color=BLUE, linewidth=1, label="median")
    ax.plot(at, last.outcomes, ".", color=VERMILION, markersize=3, label="outcome")
    ax.set_xlabel(f"the last {len(at):,} rows")
    ax.set_ylabel(outcome)
    ax.legend(loc="upper left", ncols=5, fontsize="small")
    return ax


def plot_numbers(audit: AuditedNumbers, *, figure: Any = None) -> list[Axes]:
    """Draw an audit of forecasts of a number: the PIT, the coverage by level, and the last forecasts.

    Parameters
    ----------
    audit
        What `tc.audit` returned for forecasts of a number.
    figure
        Where to draw: a figure, or a part of one, with nothing in it; by default a new one.

    Returns
    -------
    list
        The axes: of the PIT, of the coverage, and of the forecasts.

    Examples
    --------
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> log = {"m": np.zeros(300), "s": np.ones(300), "y": np.random.default_rng(0).normal(size=300)}
    >>> len(plot_numbers(tc.audit(log, mean="m", sd="s", outcome="y"), figure=Figure()))
    3
    """
    if figure is None:
        figure = matplotlib("pyplot").figure(figsize=(9, 6), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    drawn = [plot_pit(audit.whole.placed, ax=figure.add_subplot(grid[0, 0]))]
    drawn.append(plot_coverage(audit.whole.placed, ax=figure.add_subplot(grid[0, 1])))
    if audit.last is not None:
        drawn.append(plot_fan(audit.last, ax=figure.add_subplot(grid[1, :]), outcome=audit.outcome))
    return drawn
