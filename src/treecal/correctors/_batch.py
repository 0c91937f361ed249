"""Rows of a log or of many rounds: forecasts, outcomes, and what is known of each."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal._validate import sample_weight
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast

Group = Hashable


@dataclass(frozen=True)
class Batch:
    """Rows that were found to be valid, in order."""

    forecasts: Array
    outcomes: Array
    groups: Sequence[Group] | None = None
    weights: Array | None = None
    announced: Sequence[Forecast] | None = None
    inner: bool = False
    """Whether a part of another corrector learns them: it does not count rounds of weight 0."""
    in_order: bool = False
    """Whether rows of a log are in order of time."""

    def __len__(self) -> int:
        return len(self.forecasts)

    def group(self, row: int) -> Group:
        """Return the group of a row, None if there are none."""
        return None if self.groups is None else self.groups[row]

    def weight(self, row: int) -> float:
        """Return the weight of a row."""
        return 1.0 if self.weights is None else float(self.weights[row])

    def known(self, row: int) -> Forecast | None:
        """Return what was announced, if that is known."""
        return None if self.announced is None else self.announced[row]

    def points(self) -> Array | None:
        """Return what was announced, `(n, dim)`, if that is known and is one point a round."""
        if self.announced is None or any(len(x) > 1 for x in self.announced):
            return None
        return np.array([x.points[0] for x in self.announced]).reshape(self.outcomes.shape)

    def numbers(self) -> Integers:
        """Return for each row the number of rounds that are counted by then."""
        counts = self.all_weights() > 0 if self.inner else np.ones(len(self), np.int64)
        return np.cumsum(counts)

    def all_weights(self) -> Array:
        """Return the weight of every row."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def of(self, rows: slice | Sequence[int] | Integers) -> Batch:
        """Return some of the rows."""
        at = range(len(self))[rows] if isinstance(rows, slice) else rows
        return Batch(
            self.forecasts[rows],
            self.outcomes[rows],
            None if self.groups is None else [self.groups[i] for i in at],
            None if self.weights is None else self.weights[rows],
            None if self.announced is None else [self.announced[i] for i in at],
            self.inner,
            self.in_order,
        )

    def sorted(self) -> Batch:
        """Return the rows by outcome, forecast, weight and group, in whatever order they came."""
        if not len(self):
            return self
        columns = [np.reshape(each, (len(self), -1)) for each in (self.outcomes, self.forecasts, self.all_weights())]
        if self.groups is not None:
            names = np.unique([repr(group) for group in self.groups], return_inverse=True)[1]
            columns.append(names[:, None].astype(np.float64))
        rows = (np.hstack(columns) + 0.0).astype(">f8")  # whose bytes compare as the numbers from 0 on do
        return self.of(rows.view(f"V{8 * rows.shape[1]}").ravel().argsort(kind="stable"))

    def spread(self) -> Batch:
        """Return sorted rows in steps of the golden ratio, so that each class is spread evenly."""
        if len(self) < 2:
            return self
        step = max(1, round(len(self) * (math.sqrt(5) - 1) / 2))
        while math.gcd(step, len(self)) > 1:
            step += 1
        return self.of(np.arange(len(self)) * step % len(self))

    def counted(self) -> Batch:
        """Return the rows whose weight is not 0."""
        if self.weights is None or self.weights.all():
            return self
        return self.of(np.flatnonzero(self.weights))


def read_weights(weights: Any, count: int, before: int) -> Array | None:
    """Return the weights of so many rounds after earlier ones, if any are given, or raise and name the first invalid.

    Examples
    --------
    >>> read_weights([1, 0, 2.5], 3, 0)
    array([1. , 0. , 2.5])
    """
    if one_each("weights", weights, count) is None:
        return None
    raw = np.asarray(weights)
    given = raw.tolist() if raw.ndim == 1 else list(weights)
    return np.array([sample_weight(each, f"the weight of round {before + i}") for i, each in enumerate(given, 1)])


def one_each(name: str, given: Any, count: int) -> Any:
    """Return what is given for each row, if anything is, or raise unless there are so many."""
    if given is None:
        return None
    if isinstance(given, str | bytes | Mapping | Set) or not hasattr(given, "__len__") or getattr(given, "ndim", 1) < 1:
        raise ParameterError.expected(name, given, f"a sequence of {count}, one for each forecast")
    if len(given) != count:
        raise ParameterError(f"there are {count} forecasts and {len(given)} {name}.")
    return given
