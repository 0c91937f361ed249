"""Plots of the arena's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treecal.exceptions import ParameterError
from treecal.geometry import Norm, as_norm
from treecal.plots._style import axes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """Draw error against rounds on logarithmic axes, one line per forecaster.

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
    for index, name in enumerate(dict.fromkeys(row["forecaster"] for row in rows)):
        marks = sorted({row["rounds"] for row in rows})
        means = [np.mean([r["error"] for r in rows if (r["forecaster"], r["rounds"]) == (name, t)]) for t in marks]
        (line,) = ax.plot(marks, means, label=name, lw=1.8, color=f"C{index}")
        if certificates and name in certificates:
            ax.plot(marks, [certificates[name](t) for t in marks], ls="--", lw=1, color=line.get_color())
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
    """Draw the time of predict and update per round against the number of dimensions.

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
    last = max((row["rounds"] for row in rows), default=0)
    spent: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row["rounds"] == last:
            spent.setdefault(row["forecaster"], {}).setdefault(row["dim"], []).append(row["seconds"] / last)
    for name, by_dim in spent.items():
        dims = sorted(by_dim)
        ax.plot(dims, [1e6 * np.median(by_dim[dim]) for dim in dims], marker="o", ms=4, label=name)
    ax.set(xscale="log", yscale="log", xlabel="dimensions", ylabel="microseconds per round", title="time")
    dims = sorted({row["dim"] for row in rows})
    ax.set_xticks(dims, [str(dim) for dim in dims])
    ax.set_xticks([], minor=True)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return ax
