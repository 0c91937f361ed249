"""The diagrams of an audit, class by class and window after window; and decision curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.measures import DecisionCurve
from treecal.monitor import Alarm
from treecal.plots._reliability import KEYS, Key, draw_bins, draw_panel, error_words, frame, show_keys, subtitle
from treecal.plots._sources import TOP, Audited, Calibrated, bins_of, whole_of
from treecal.plots._style import BLUE, GREY, VERMILION, axes, class_title, matplotlib, plain, short

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
    """Draw the most likely class, and at most `most` others."""
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


_MOST_NAMES = 12  # under the axis
_CALIBRATED = Key({"marker": "o", "ls": "none", "color": BLUE}, "not distinguishable from 0")
_OFF = Key({"marker": "D", "ls": "none", "color": VERMILION}, "debiased ECE, 90 % interval")
_ROWS = Key({"ls": "none", "marker": "s", "color": GREY, "alpha": 0.45, "mew": 0}, "rows")
_ALARM: dict[str, Any] = {"color": VERMILION, "lw": 1.5, "ls": (0, (5, 2))}


def plot_windows(
    audit: Audited, k: int | str | None = None, *, alarm: Alarm | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the debiased calibration error of each window of time of an audit, in order: of each week, for example.

    Bars are 90 % intervals; orange diamonds are errors that chance does not explain, whose interval does not reach 0.
    The grey bars at the bottom are the rows of each window.

    Parameters
    ----------
    audit
        An audit with windows of time, `tc.audit(..., time="day")`, or those windows; or else one whose groups are in
        order: `tc.audit(..., by="week")`.
    k
        The class: its name or its number, from 0; by default the most likely class of each row.
    alarm
        The alarm of a `tc.Monitor` that watched the same rows in the order of the windows, `monitor.alarm`: a dashed
        line, shaded since the round in which the error most likely began. By default that of the windows, if any.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> import treecal as tc
    >>> from matplotlib.figure import Figure
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(3000)
    >>> week = np.arange(3000) // 500
    >>> y = (rng.random(3000) < np.where(week < 3, p, p**2)).astype(int)      # from week 3 on, less often
    >>> audit = tc.audit({"p": p, "y": y, "week": week}, forecast="p", outcome="y", time="week")
    >>> ax = plot_windows(audit, 1, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_xticklabels()], ax.get_xlabel()
    (['0', '1', '2', '3', '4', '5'], 'week')
    """
    if not isinstance(audit, Audited):
        raise ParameterError(f"audit is of type {type(audit).__name__}, expected an Audit.")
    audit = audit if audit.windows is None else audit.windows
    if not audit.groups:
        raise ParameterError("the audit has no windows of time.", hint='tc.audit(..., time="day"), a column of times.')
    if alarm is not None and not isinstance(alarm, Alarm):
        raise ParameterError.expected("alarm", alarm, "the alarm of a Monitor: monitor.alarm")
    alarm = audit.alarm if alarm is None else alarm
    parts = [*audit.groups.values()]
    rows = np.array([part.rounds for part in parts], dtype=np.float64)
    if alarm is not None and alarm.round > rows.sum():
        raise ParameterError(
            f"the alarm was raised after round {alarm.round:,}, and the audit has {rows.sum():,.0f} rows.",
            hint="audit the rows that the monitor watched.",
        )
    found = [bins_of(part, k) for part in parts]
    intervals = [named.bins.interval() for named in found]
    value, low, high = (np.array([getattr(i, end) for i in intervals]) for end in ("value", "low", "high"))
    ax = axes(ax)
    at = np.arange(len(parts))
    off = low > 0
    top = 1.08 * max(high.max(), 0.01)
    ax.bar(at, 0.15 * top * rows / rows.max(), width=0.8, color=GREY, alpha=0.3, lw=0)
    keys = []
    for chosen, key in ((off, _OFF), (~off, _CALIBRATED)):
        if chosen.any():
            style = key.style
            ax.vlines(at[chosen], low[chosen], high[chosen], color=style["color"], lw=1.4)
            ax.scatter(at[chosen], value[chosen], s=36, marker=style["marker"], color=style["color"], lw=0, zorder=3)
            keys.append(key)
    if alarm is not None:
        since, raised = (_place(number, rows) for number in (alarm.onset, alarm.round))
        ax.axvspan(since, raised, color=VERMILION, alpha=0.12, lw=0)
        ax.axvline(raised, **_ALARM)
        keys.append(Key(_ALARM, f"alarm after round {alarm.round:,},\nsince about {alarm.onset:,}"))
    _name_windows(ax, [*audit.groups])
    ax.set(
        xlabel=short(", ".join(audit.by), 60),
        ylabel="debiased ECE",
        ylim=(-0.02 * top, top),
        xlim=(-0.6, len(parts) - 0.4),
    )
    ax.xaxis.label.set_parse_math(False)
    ax.set_title(class_title(found[0].name), parse_math=False)
    ax.grid(axis="y", alpha=0.2)
    show_keys(ax, [*keys, _ROWS], loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def _place(number: int, rows: Array) -> float:
    """Return where on the axis a round lies: window i reaches from i - 1/2 to i + 1/2."""
    ends = np.cumsum(rows)
    window = int(np.searchsorted(ends, number))
    before = ends[window] - rows[window]
    return float(window - 0.5 + (number - before) / rows[window])


def _name_windows(ax: Any, keys: list[tuple[Any, ...]]) -> None:
    step = -(-len(keys) // _MOST_NAMES)
    names = [short(", ".join("(missing)" if part is None else str(part) for part in key), 20) for key in keys[::step]]
    ax.set_xticks(range(0, len(keys), step), names)
    long = max(map(len, names)) * len(names) > 60
    for label in ax.get_xticklabels():
        label.set(parse_math=False, fontsize="small")
        if long:
            label.set(rotation=45, ha="right", rotation_mode="anchor")


def plot_decisions(
    curves: DecisionCurve | Mapping[str, DecisionCurve],
    *,
    show: Literal["net benefit", "cost", "regret"] = "net benefit",
    ax: Axes | None = None,
) -> Axes:
    """Draw what deciding by forecasts gains or costs, at every threshold: decision curves, or cost curves.

    Beside each forecaster stand those who say yes to all rows, and to none; a forecaster below the better of them is
    worth nothing to whoever has that threshold.

    Parameters
    ----------
    curves
        What `treecal.measures.decision_curve` returns; or a dictionary of several of the same rows, by name.
    show
        The net benefit, as medicine draws it; the cost; or the regret.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from treecal.measures import decision_curve
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(1000)
    >>> curve = decision_curve(p, rng.random(1000) < p)
    >>> ax = plot_decisions({"model": curve}, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['model', 'yes to all', 'yes to none']
    """
    several = dict(curves) if isinstance(curves, Mapping) else {"forecasts": curves}
    if not several:
        raise ParameterError("curves is an empty dictionary, so there is nothing to draw.")
    if show not in (shown := ("net benefit", "cost", "regret")):
        raise ParameterError.expected("show", show, f"one of {', '.join(shown)}")
    ax = axes(ax)
    first = next(iter(several.values()))
    for name, curve in several.items():
        lines = {"net benefit": curve.net_benefit, "cost": curve.cost, "regret": curve.regret}
        ax.plot(curve.threshold, lines[show], label=short(name))
    none = np.zeros_like(first.threshold)
    all_rows = {"net benefit": (first.net_benefit_of_all, none), "cost": (first.always, first.never)}
    for line, name, style in zip(all_rows.get(show, ()), ("yes to all", "yes to none"), ("--", ":"), strict=False):
        ax.plot(first.threshold, line, style, color=GREY, label=name)
    if show == "net benefit":
        most = max(float(curve.net_benefit.max()) for curve in several.values())
        ax.set_ylim(-0.1 * max(most, 0.01), 1.1 * max(most, 0.01))  # yes to all falls without end
    ax.set_xlabel("threshold")
    ax.set_ylabel(f"{show} per row")
    plain(ax.legend())
    return ax
