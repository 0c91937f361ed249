"""Which rows to label next, and with which probability each is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import positive_number
from treecal.exceptions import ParameterError
from treecal.io import as_columns, read_arrays
from treecal.measures import read_forecasts

_STRATA = 10
_FLOOR = 0.2
"""Share of the budget that is spread evenly, so that no row is drawn too rarely and weighs too much."""
_PRIOR = 4.0
"""Labels in each stratum that are thought to vary as all labels do."""


class LabelSample(NamedTuple):
    """Rows to label, and the probability with which each row was drawn.

    Attributes
    ----------
    rows
        The numbers of the rows to label, from 0.
    probability
        Of every row: 1 for those that are labelled already. Keep it beside the log: it is what makes an estimate of
        the labels.
    """

    rows: Integers
    probability: Array


def sample_labels(
    source: Any,
    budget: float,
    *,
    forecast: str | Sequence[str] | None = None,
    outcome: str | ArrayLike | None = None,
    by: str | Sequence[str] = (),
    rng: np.random.Generator,
) -> LabelSample:
    """Draw rows to label, more where the outcome is less certain: Neyman allocation over bins of confidence and groups.

    Each row is drawn by itself, with a probability in proportion to how much outcomes of its stratum vary: as the
    forecasts say, or, where some rows are labelled already, as their outcomes do. A fifth of the budget is spread
    evenly. With these probabilities `tc.audit(log, probability=...)` and `treecal.measures.few_labels` have no bias,
    whatever the forecasts are.

    Parameters
    ----------
    source
        Forecasts, `(n, d)`, or `(n,)` of class 1 of two; or a log, as for `tc.audit`.
    budget
        How many rows to label, on average.
    forecast
        Of a log, the columns of the probabilities.
    outcome
        Labels there are already, of few rows: the class of each, NaN where there is none; of a log, their column, which
        holds whole numbers. These rows are not drawn, and count with probability 1 from now on.
    by
        Of a log, columns of groups: strata are cells of both.
    rng
        Source of randomness.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> p = np.array([0.5, 0.99] * 5000)
    >>> drawn = tc.sample_labels(p, 200, rng=np.random.default_rng(0))
    >>> len(drawn.rows), drawn.probability[:2].round(4)
    (189, array([0.0307, 0.0093]))
    """
    given = positive_number("budget", budget)
    if forecast is None:
        if by or isinstance(outcome, str) or isinstance(source, str | PathLike):
            raise ParameterError("forecast is missing, expected columns of the log.", hint="forecast='p'.")
        P = read_forecasts(source)
        labels = outcome
        keys: list[Any] = []
    else:
        asked = as_columns("forecast", forecast)
        by = (by,) if isinstance(by, str) else tuple(by)
        known = [] if outcome is None else [str(outcome)]
        columns = read_arrays(source, [*asked, *by, *known], plain=by)
        P = read_forecasts(columns[asked[0]] if len(asked) == 1 else np.column_stack([columns[name] for name in asked]))
        labels = columns[known[0]] if known else None
        keys = [columns[name] for name in by]
    n = len(P)
    top = P.argmax(axis=1)
    sure = P[np.arange(n), top]
    right = np.full(n, np.nan)
    if labels is not None:
        y = np.asarray(labels, np.float64)
        if y.shape != (n,):
            raise ParameterError(f"outcome has shape {y.shape}, expected ({n},): the class of each, NaN where none is.")
        right = np.where(np.isnan(y), np.nan, y == top)
    free = np.isnan(right)
    if given > free.sum():
        raise ParameterError.expected("budget", budget, f"at most {int(free.sum()):,}, the rows without a label")
    probability = np.where(free, 0.0, 1.0)
    probability[free] = _allocated(_spread(sure, right, keys)[free], given)
    drawn = np.flatnonzero(free & (rng.random(n) < probability))
    return LabelSample(drawn, probability)


def _spread(sure: Array, right: Array, keys: Sequence[Any]) -> Array:
    """Return the standard deviation of the outcome's gap in each row's stratum."""
    edges = np.unique(np.quantile(sure, np.arange(1, _STRATA) / _STRATA))
    stratum = np.searchsorted(edges, sure, side="right")
    for key in keys:
        _, own = np.unique(np.asarray(key).astype(str), return_inverse=True)
        stratum = np.unique(stratum * (own.max() + 1) + own, return_inverse=True)[1]
    rows = np.bincount(stratum)
    variance = np.bincount(stratum, sure * (1 - sure)) / np.maximum(rows, 1)
    known = ~np.isnan(right)
    if known.any():
        home = stratum[known]
        gap = right[known] - sure[known]
        count = np.bincount(home, minlength=len(rows))
        total = np.bincount(home, gap, len(rows))
        off = gap - (total / np.maximum(count, 1))[home]
        prior = _PRIOR * float(gap.var())
        variance = (np.bincount(home, off**2, len(rows)) + prior) / (count + _PRIOR)
    return np.sqrt(variance)[stratum]


def _allocated(size: Array, budget: float) -> Array:
    """Return probabilities that sum to the budget, in proportion to sizes as far as none is above 1."""
    mean = float(size.mean())
    wanted = np.ones(len(size)) if mean <= 0 else (1 - _FLOOR) * size / mean + _FLOOR
    found = np.zeros(len(size))
    full = np.zeros(len(size), bool)
    while True:
        rest = budget - full.sum()
        found = np.where(full, 1.0, wanted * (rest / wanted[~full].sum()) if not full.all() else 1.0)
        over = ~full & (found > 1)
        if not over.any():
            return found
        full |= over
