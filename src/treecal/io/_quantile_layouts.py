"""Forecasts of numbers as others give them, put into columns of quantiles: no package of theirs is needed.

- **statsforecast, mlforecast, neuralforecast, TimeGPT, darts** and **AutoGluon** have a column for each quantile of
  each model: `AutoARIMA-lo-90`, `NHITS-median`, `load_q0.1`, `0.1`.
- **sktime**: `predict_quantiles` and `predict_interval` give tables whose columns are named by tuples,
  `("load", 0.1)` and `("load", 0.9, "lower")`.
- **hubverse**: a row for each quantile, with `output_type`, `output_type_id` and `value`.
- **GluonTS**: forecast objects with a method `quantile`.
- **MAPIE**: point predictions with an array of intervals, `(n, 2, levels)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal.exceptions import FileError, ParameterError
from treecal.geometry import columns, quantile_level

_HUB = ("output_type", "output_type_id", "value")
_MARK = re.compile(r"[-_](?:lo[-_]|hi[-_]|ql?[-_]?\d|ql?[-_]?\.|median$)")
_USUAL = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def quantile_columns(
    source: Any, *, model: str | None = None, levels: Sequence[float] | None = None
) -> dict[str, NDArray[Any]]:
    """Return forecasts of numbers in columns `q0.05`, …, one for each level, beside the other columns there are.

    That is what `tc.audit(log, quantiles=[...], outcome=...)` takes, once the outcomes are a column, and every
    corrector of numbers takes the quantiles alone. The index of a pandas table is not read: `reset_index()` makes
    columns of it.

    Parameters
    ----------
    source
        A table, or a mapping of columns, of statsforecast, mlforecast, neuralforecast, TimeGPT, darts, AutoGluon or
        sktime; hubverse's long table, whose rows of other types than quantiles are left out; a forecast of GluonTS, or
        a list of them; or MAPIE's pair `(predictions, intervals)`.
    model
        Of tables with several models: which one, by what its columns begin with. A long table has them as a column.
    levels
        Of GluonTS, the levels to ask for; of MAPIE, the confidence levels of the intervals, in their order.

    Examples
    --------
    >>> cv = {"ds": [1, 2], "y": [5, 7], "AutoETS": [4, 6], "AutoETS-lo-80": [3, 4], "AutoETS-hi-80": [6, 9]}
    >>> list(quantile_columns(cv))
    ['ds', 'y', 'AutoETS', 'q0.1', 'q0.9']
    >>> hub = {"location": ["US", "US"], "output_type": ["quantile"] * 2, "output_type_id": [0.1, 0.9], "value": [3, 8]}
    >>> quantile_columns(hub)
    {'location': array(['US'], dtype=object), 'q0.1': array([3.]), 'q0.9': array([8.])}
    >>> list(quantile_columns(([5.0, 6.0], [[[4], [7]], [[5], [8]]]), levels=[0.8]))
    ['q0.1', 'q0.9']
    """
    if isinstance(source, tuple) and len(source) == 2 and np.ndim(source[1]) == 3:
        return _intervals(source[1], levels)
    if _is_gluonts(source) or (isinstance(source, list | tuple) and source and all(map(_is_gluonts, source))):
        return _asked(source if isinstance(source, list | tuple) else [source], levels or _USUAL)
    names = list(source) if isinstance(source, Mapping) else columns(source)
    if not names:
        expected = "a table of quantiles, a forecast with a method quantile, or a pair of predictions and intervals"
        raise ParameterError(f"source is a {type(source).__name__}, expected {expected}.")
    if {*_HUB} <= {*names}:
        return _pivoted({str(name): np.asarray(source[name]) for name in names})
    return _renamed({name: np.asarray(source[name]) for name in names}, model)


def _is_gluonts(each: Any) -> bool:
    return callable(getattr(each, "quantile", None)) and hasattr(each, "item_id") and columns(each) is None


def _asked(forecasts: Iterable[Any], levels: Sequence[float]) -> dict[str, NDArray[Any]]:
    """Return the quantiles of forecasts of GluonTS, one after another, with the item and the step ahead of each row."""
    rows = [(each.item_id, *(np.ravel(each.quantile(level)).astype(float) for level in levels)) for each in forecasts]
    found: dict[str, NDArray[Any]] = {
        "item_id": np.concatenate([np.full(len(row[1]), row[0], object) for row in rows]),
        "step": np.concatenate([np.arange(1, len(row[1]) + 1) for row in rows]),
    }
    return found | {f"q{level:g}": np.concatenate([row[1 + k] for row in rows]) for k, level in enumerate(levels)}


def _intervals(intervals: ArrayLike, levels: Sequence[float] | None) -> dict[str, NDArray[Any]]:
    """Return the ends of MAPIE's intervals, `(n, 2, levels)`; each point prediction is a mean, and no quantile."""
    ends = np.asarray(intervals, np.float64)
    if levels is None or ends.shape[1:] != (2, len(levels)):
        hint = f"levels=[0.9]: one for each of {ends.shape[2]}, in their order."
        raise ParameterError.expected("levels", levels, "the confidence levels of the intervals", hint=hint)
    named = {
        f"q{(1 + sign * level) / 2:g}": ends[:, place, k]
        for k, level in enumerate(levels)
        for place, sign in ((0, -1), (1, 1))
    }
    return dict(sorted(named.items(), key=lambda item: quantile_level(item[0])))


def _pivoted(table: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return a row for each forecast of a long table: all columns but those of hubverse tell which one it is."""
    rows = table["output_type"] == "quantile"
    if not rows.any():
        raise FileError("no row has the output_type 'quantile'.", hint="samples: pivot them to columns, members=[…].")
    keys = [name for name in table if name not in _HUB]
    told = [table[name][rows].tolist() for name in keys]
    tasks = list(zip(*told, strict=True)) if keys else [()] * int(rows.sum())
    level_of = {name: quantile_level(float(name)) for name in dict.fromkeys(table["output_type_id"][rows].tolist())}
    place = {task: at for at, task in enumerate(dict.fromkeys(tasks))}
    column = {level: at for at, level in enumerate(sorted({*level_of.values()}))}
    found = np.full((len(place), len(column)), np.nan)
    at = np.array([place[task] for task in tasks])
    of = np.array([column[level_of[name]] for name in table["output_type_id"][rows].tolist()])
    if len(np.unique(at * len(column) + of)) < len(at):
        raise FileError(f"a quantile of the same {', '.join(keys) or 'forecast'} is there twice.")
    found[at, of] = table["value"][rows].astype(np.float64)
    columns_: dict[str, NDArray[Any]] = {
        name: np.array([task[k] for task in place], dtype=object) for k, name in enumerate(keys)
    }
    return columns_ | {f"q{level:g}": found[:, k] for level, k in column.items()}


def _renamed(table: dict[Any, NDArray[Any]], model: str | None) -> dict[str, NDArray[Any]]:
    """Return a wide table, with its quantiles named by their levels."""
    told = {name: _told(name) for name in table}
    models = dict.fromkeys(each[0] for each in told.values() if each is not None)
    if not models:
        hint = 'tc.audit(log, quantiles={"low": 0.1, "high": 0.9}, outcome="y") takes columns of any names.'
        raise FileError(f"none of the columns {[*map(str, table)]} is named as a quantile.", hint=hint)
    if model is None and len(models) == 1:
        model = next(iter(models))
    if model not in models:
        raise ParameterError.expected("model", model, "one of " + ", ".join(map(repr, models)))
    found: dict[str, NDArray[Any]] = {}
    for name, column in table.items():
        if told[name] is None:
            found[name if isinstance(name, str) else "_".join(filter(None, map(str, name)))] = column
    for level, name in sorted((each[1], name) for name, each in told.items() if each and each[0] == model):
        if (own := f"q{level:g}") in found:
            raise FileError(f"two columns of {model!r} are the quantile of level {level:g}, one is {name!r}.")
        found[own] = table[name]
    return found


def _told(name: Any) -> tuple[str, float] | None:
    """Return the model and the level that the name of a column tells; None if it is not that of a quantile."""
    if isinstance(name, tuple):  # of sktime
        if len(name) == 2 and isinstance(name[1], float):
            return str(name[0]), name[1]
        if len(name) == 3 and name[2] in ("lower", "upper"):
            return str(name[0]), round((1 + (1 if name[2] == "upper" else -1) * float(name[1])) / 2, 12)
        return None
    text = str(name)
    try:
        level = quantile_level(name)
    except ParameterError:
        return None
    mark = _MARK.search(text)
    return text[: mark.start()] if mark else "", level
