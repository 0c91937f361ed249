"""Probabilities and outcomes in two arrays, as a log with columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry import by_column, columns, is_series, paired

_Log = tuple[dict[str, Any], str, str | list[str], Sequence[str | int] | None, str | None]


def from_arrays(forecasts: Any, outcomes: Any, classes: Sequence[str | int] | None, weights: Any) -> _Log:
    """Return a log, and its columns: of the forecast, of the outcome; the classes; and the column of the weight."""
    titles = columns(forecasts)
    if classes is None and titles and all(isinstance(title, str) for title in titles) and _are_names(outcomes):
        classes = paired(titles, {name for name in _array("y", outcomes) if isinstance(name, str)}) or titles
    names = None if classes is None else [str(name) for name in classes]
    p = _array("P", by_column(names, forecasts, ForecastError))
    y = _array("y", by_column(names, outcomes, OutcomeError))
    if p.ndim not in (1, 2) or p.dtype.kind not in "biuf":
        raise ParameterError(
            f"P is {p.dtype} of shape {p.shape}, expected probabilities of shape (n, d), or (n,) for two classes."
        )
    if p.ndim == 2 and p.shape[1] == 1:
        raise ParameterError(
            f"P has shape {p.shape}, expected a column for each class.", hint="for two classes pass P[:, 0], (n,)."
        )
    d = 2 if p.ndim == 1 else p.shape[1]
    if y.shape not in ((len(p),), (len(p), d)):
        raise ParameterError(f"y has shape {y.shape}, expected ({len(p)},), the classes, or ({len(p)}, {d}), one-hot.")
    name = forecasts.name if p.ndim == 1 and is_series(forecasts) and isinstance(forecasts.name, str) else "p"
    name = "p" if name in ("", "y", "weight") else name  # one that names a class is of that class
    log: dict[str, Any] = {name: p}
    weight = None
    if weights is not None:
        if isinstance(weights, str):
            raise ParameterError.expected("weight", weights, f"an array of shape ({len(p)},) beside two arrays")
        log["weight"] = _array("weight", weights)
        weight = "weight"
        if log["weight"].shape != (len(p),):
            raise ParameterError(f"weight has shape {log['weight'].shape}, expected ({len(p)},).")
    if y.ndim == 1:
        return log | {"y": y}, name, "y", classes, weight
    hot = {f"y[{k}]": np.ascontiguousarray(column) for k, column in enumerate(y.T)}
    return log | hot, name, list(hot), range(d) if classes is None else classes, weight


def _are_names(outcomes: Any) -> bool:
    y = _array("y", outcomes)
    return y.ndim == 1 and len(y) > 0 and isinstance(y[0], str)


def _array(name: str, value: Any) -> NDArray[Any]:
    if np.ma.is_masked(value):
        raise ParameterError(f"{name} has masked entries.", hint="leave these rows out.")
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged; or a tensor on a GPU, or with a gradient
        raise ParameterError(f"{name} is a {type(value).__name__} that is no array: {error}") from None
