"""Where outcomes lie in forecasts of numbers: the interval of levels that is known, as the monitor bets on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.exceptions import OutcomeError
from treecal.geometry import (
    Cdf,
    Distribution,
    columns,
    read_columns,
    read_distributions,
    read_numbers,
    read_outcome_rows,
)

Rows = tuple[Array, Array]
"""The ends of the interval of each row, `(n, 2)`; and whether it is more than one cell of the forecast, `(n, 1)`."""


def levels_of(space: Cdf, P: Array, Y: Array) -> Rows:
    """Return the levels of outcomes, given both as points of the set: those of the cells that they lie in.

    Examples
    --------
    >>> space = Cdf(0, 4, points=4)
    >>> levels_of(space, np.array([[0.1, 0.4, 0.4, 1.0]]), space.steps([1.0]))
    (array([[0.1, 0.4]]), array([[0.]]))
    """
    edges = np.empty((len(P), space.dim + 2))
    edges[:, 0] = 0.0
    edges[:, -1] = 1.0
    edges[:, 1:-1] = np.maximum.accumulate(np.clip(P, 0.0, 1.0), axis=1)
    # The cell of a step that rises at threshold k has that threshold as its upper end; the last cell has the high end.
    first = np.where((Y > 0).any(axis=1), (Y > 0).argmax(axis=1), space.dim)
    last = np.where((Y >= 1 - 1e-9).any(axis=1), (Y >= 1 - 1e-9).argmax(axis=1), space.dim)
    each = np.arange(len(P))
    found = np.column_stack([edges[each, first], edges[each, np.maximum(first, last) + 1]])
    return found, (last > first).astype(np.float64)[:, None]


def read_levels(space: Cdf, forecasts: Any, outcomes: Any, *, before: int, tolerance: float) -> Rows:
    """Return the levels of outcomes, by forecasts in any form; what is invalid raises.

    Of quantiles, only their levels are known, and of `n` members that an outcome is as likely in each of the `n + 1`
    gaps between them. An outcome that equals some of them lies in one of several gaps.
    """
    raw = np.asarray(outcomes)
    if raw.ndim == 2 and raw.shape[1] == space.dim:  # points of the set: outcomes known to lie in some cells
        P = read_distributions(space, forecasts, before=before, tolerance=tolerance)
        Y = read_outcome_rows(space, raw, before=before)
        return levels_of(space, P, Y[: len(P)]) if len(P) == len(Y) else (P, Y)
    if raw.ndim != 1 or raw.dtype.kind not in "iuf":
        raise OutcomeError(f"outcomes from round {before + 1} on are {raw.dtype} of shape {raw.shape}, expected (n,).")
    numbers = read_numbers(space, raw, before)
    names = None if isinstance(forecasts, np.ndarray | list | tuple | Distribution) else columns(forecasts)
    if names is not None or isinstance(forecasts, Mapping):
        form, known, values = read_columns(forecasts, space=space, before=before)
        if form in ("quantiles", "members"):
            values = np.sort(values, axis=1)  # members that are missing are last
            count = (~np.isnan(values)).sum(axis=1)
            if form == "quantiles":
                levels = np.array([0.0, *known, 1.0])[None].repeat(len(values), axis=0)
            else:
                levels = np.minimum(np.arange(values.shape[1] + 2) / (count[:, None] + 1), 1.0)
            y = numbers[:, None]
            below = (values < y).sum(axis=1)
            upto = (values <= y).sum(axis=1)
            each = np.arange(len(values))[: len(y)]
            if len(values) == len(y):
                return np.column_stack([levels[each, below], levels[each, upto + 1]]), (upto > below)[:, None] * 1.0
    P = read_distributions(space, forecasts, before=before, tolerance=tolerance)
    return levels_of(space, P, space.steps(numbers)[: len(P)]) if len(P) == len(numbers) else (P, numbers[:, None])
