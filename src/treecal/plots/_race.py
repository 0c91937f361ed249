"""Plots of the arena's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from treecal.exceptions import ParameterError
from treecal.geometry import Norm, as_norm
from treecal.plots._style import SPARE, axes, colour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa
    from matplotlib.axes import Axes


def plot_errors(
    table: pa.Table,
    *,
    stream: str,
    dim: int,
    norm: Norm | str = "l1",
    certificates: Mapping[str, Callable[[int], float]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw error against rounds on logarithmic axes, one line per forecaster, the mean over seeds in their range.

    Parameters
    ----------
    table
        The table that `arena.race` returned.
    stream, dim, norm
        Which part of it.
    certificates
        By forecaster, functions from rounds to a certified error: drawn dashed, in the colour of the forecaster.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal import arena
    >>> from matplotlib.figure import Figure
    >>> streams = {"drift": arena.STREAMS["drift"]}
    >>> table = arena.race({"TreeCal": tc.TreeCal}, streams, [tc.Simplex(2)], rounds=64, workers=1)
    >>> ax = plot_errors(table, stream="drift", dim=2, ax=Figure().add_subplot())
    >>> ax.get_title()
    'drift, d = 2'
    """
    wanted = (stream, dim, repr(as_norm(norm)))
    rows = [r for r in table.to_pylist() if (r["stream"], r["dim"], r["norm"]) == wanted and r["error"] is not None]
    if not rows:
        raise ParameterError(f"the table has no errors for the stream {stream!r} in {dim} dimensions in {norm!r}.")
    ax = axes(ax)
    errors: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        errors.setdefault(row["forecaster"], {}).setdefault(row["rounds"], []).append(row["error"])
    for (name, by_round), style in zip(errors.items(), _styles(errors), strict=True):
        marks = sorted(by_round)
        ax.plot(marks, [np.mean(by_round[t]) for t in marks], label=name, lw=1.8, **style)
        if max(map(len, by_round.values())) > 1:
            low, high = ([pick(by_round[t]) for t in marks] for pick in (min, max))
            ax.fill_between(marks, low, high, color=style["color"], alpha=0.08, lw=0)
        if certificates and name in certificates:
            ax.plot(marks, [certificates[name](t) for t in marks], ls="--", lw=1, color=style["color"])
    ax.set(xscale="log", yscale="log", xlabel="rounds", ylabel=f"{norm} error per round", title=f"{stream}, d = {dim}")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return ax


def plot_ranking(errors: Mapping[tuple[int, str, str], float], *, ax: Axes | None = None) -> Axes:
    """Draw a heat map of each forecaster's error as a multiple of the best one's, from `arena.final`.

    One row per forecaster, one column per (dimension, stream); bright is good. Errors below 0.001 count as 0.001.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> errors = {(2, "drift", "TreeCal"): 0.2, (2, "drift", "Harmonic"): 0.1}
    >>> [text.get_text() for text in plot_ranking(errors, ax=Figure().add_subplot()).texts]
    ['2.0', '1.0']
    """
    ax = axes(ax)
    names = list(dict.fromkeys(name for _, _, name in errors))
    columns = sorted({(dim, stream) for dim, stream, _ in errors})
    size = np.array([[np.maximum(1e-3, errors.get((*c, n), np.nan)) for c in columns] for n in names])
    factor = size / np.nanmin(size, axis=0)
    ax.imshow(-np.log(factor), aspect="auto", cmap="viridis", vmin=-np.log(8), vmax=0)
    for i, j in np.ndindex(factor.shape):
        if np.isfinite(factor[i, j]):
            text = f"{factor[i, j]:.1f}" if factor[i, j] < 10 else "≥10"
            ax.text(j, i, text, ha="center", va="center", fontsize=6, color="white" if factor[i, j] > 2 else "black")
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_xticks(range(len(columns)), [f"{stream}, {dim}" for dim, stream in columns], rotation=90, fontsize=6)
    ax.set_title("error, as a multiple of the best forecaster's")
    return ax


def plot_times(table: pa.Table, *, ax: Axes | None = None) -> Axes:
    """Draw the time of predict and update per round against the number of dimensions: the median of all runs.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal import arena
    >>> from matplotlib.figure import Figure
    >>> streams = {"drift": arena.STREAMS["drift"]}
    >>> table = arena.race({"TreeCal": tc.TreeCal}, streams, [tc.Simplex(2)], rounds=64, workers=1)
    >>> plot_times(table, ax=Figure().add_subplot()).get_ylabel()
    'microseconds per round'
    """
    ax = axes(ax)
    rows = [row for row in table.to_pylist() if row["seconds"]]
    runs = {(row["forecaster"], row["dim"], row["stream"], row["seed"], row["length"]): row for row in rows}  # the last
    spent: dict[str, dict[int, list[float]]] = {}
    for (name, dim, *_), row in runs.items():
        spent.setdefault(name, {}).setdefault(dim, []).append(row["seconds"] / row["rounds"])
    for (name, by_dim), style in zip(spent.items(), _styles(spent), strict=True):
        dims = sorted(by_dim)
        ax.plot(dims, [1e6 * np.median(by_dim[dim]) for dim in dims], marker="o", ms=4, label=name, **style)
    ax.set(xscale="log", yscale="log", xlabel="dimensions", ylabel="microseconds per round", title="time")
    dims = sorted({row["dim"] for row in rows})
    ax.set_xticks(dims, [str(dim) for dim in dims])
    ax.set_xticks([], minor=True)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return ax


def plot_scores(summary: pa.Table, *, stream: str, dim: int, ax: Axes | None = None) -> Axes:
    """Draw calibration error against Brier score, one dot per forecaster: the best are at the bottom left.

    A constant may have no calibration error at all; the dotted line is the Brier score of the best one, chosen with
    hindsight. Above the line a forecast has no skill.

    Parameters
    ----------
    summary
        The table that `arena.summary` returned.
    stream, dim
        Which part of it; of several lengths, the longest.
    ax
        Where to draw; by default on a new figure.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal import arena
    >>> from matplotlib.figure import Figure
    >>> streams = {"drift": arena.STREAMS["drift"]}
    >>> table = arena.race({"TreeCal": tc.TreeCal}, streams, [tc.Simplex(2)], rounds=64, workers=1)
    >>> plot_scores(arena.summary(table), stream="drift", dim=2, ax=Figure().add_subplot()).get_ylabel()
    'Brier score'
    """
    rows = [row for row in summary.to_pylist() if (row["stream"], row["dim"]) == (stream, dim) and row["seeds"]]
    if not rows:
        raise ParameterError(f"the table has no scores for the stream {stream!r} in {dim} dimensions.")
    rows = [row for row in rows if row["rounds"] == max(each["rounds"] for each in rows)]
    ax = axes(ax)
    names = [row["forecaster"] for row in rows]
    for row, style in zip(rows, _styles(names), strict=True):
        marker = "o" if style["ls"] == "-" else "s"
        ax.plot(row["error"], row["brier"], marker, ms=8, color=style["color"], label=row["forecaster"])
    ax.axhline(float(np.mean([row["uncertainty"] for row in rows])), ls=":", lw=1.2, color="0.5")
    ax.set(xlabel="calibration error per round", ylabel="Brier score", title=f"{stream}, {rows[0]['rounds']:,} rounds")
    ax.set_xlim(left=0)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return ax


def _styles(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a colour for each line, the forecaster's own, and a dash that tells variants of one from each other."""
    styles = list[dict[str, Any]]()
    others = 0
    for name in names:
        own = colour(name)
        if own is None:
            own = SPARE[others % len(SPARE)]
            others += 1
        before = sum(style["color"] == own for style in styles)
        styles.append({"color": own, "ls": ("-", ":", "-.")[min(before, 2)]})
    return styles
