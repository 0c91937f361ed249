"""What every measure reads: forecasts, outcomes and weights of the rows of a log, and sums over these rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import finite_array
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry import Simplex, valid_forecasts, without_negatives


class Log(NamedTuple):
    """Valid rows: forecasts `(n, d)`, the class of each outcome `(n,)`, weights `(n,)`."""

    forecasts: Array
    outcomes: Integers
    weights: Array


def read_log(P: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> Log:
    """Return checked rows; anything invalid raises, and names its row."""
    forecasts = read_forecasts(P)
    n, classes = forecasts.shape
    raw = np.asarray(y)
    if raw.shape != (n,) or raw.dtype.kind not in "biu":
        raise OutcomeError(
            f"outcomes have shape {raw.shape} and type {raw.dtype}, expected a class index for each of {n} rows.",
            hint="np.unique(names, return_inverse=True) turns names into indices.",
        )
    outcomes = raw.astype(np.int64)
    if (wrong := (outcomes < 0) | (outcomes >= classes)).any():
        row = int(np.argmax(wrong))
        raise OutcomeError.at(row, f"is {outcomes[row]}, expected a class from 0 to {classes - 1}.", where="in row")
    return Log(forecasts, outcomes, read_weights(weights, n))


def read_forecasts(P: ArrayLike) -> Array:
    """Return forecasts as `(n, d)`: probabilities of class 1, `(n,)`, get a first column for class 0."""
    given = finite_array("P", P)
    alone = given.ndim == 1
    if alone:
        given = np.column_stack([1 - given, given])
    if given.ndim != 2 or given.shape[0] == 0 or given.shape[1] < 2:
        raise ForecastError(f"P has shape {np.shape(P)}, expected (n, d) with d classes, or (n,) for class 1 of two.")
    if not (valid := valid_forecasts(given.T)).all():
        row = int(np.argmin(valid))
        if alone:
            problem = f"is {given[row, 1]:.6g}, expected a probability from 0 to 1."
            raise ForecastError.at(row, problem, where="in row", hint="if they are in per cent, divide by 100.")
        low = given[row].min()
        total = given[row].sum()
        problem = f"has least entry {low:.6g} and sum {total:.6g}, expected probabilities that sum to 1."
        raise ForecastError.at(row, problem, where="in row")
    return without_negatives(Simplex(given.shape[1]), given)


def read_weights(weights: ArrayLike | None, n: int) -> Array:
    """Return the weight of each row: 1 unless given."""
    if weights is None:
        return np.ones(n)
    found = finite_array("weights", weights)
    if found.shape != (n,) or (found < 0).any() or not found.any():
        raise ParameterError(
            f"weights have shape {found.shape} and least entry {found.min(initial=0):.6g}, expected {n} numbers "
            "of 0 or more, not all 0."
        )
    return found


class Parts(ABC):
    """A measure of given forecasts and weights, that depends on the outcomes through sums over rows only.

    Attributes
    ----------
    bounds
        The least and the largest value there can be.
    debiased
        Whether `value` has no bias to first order, though what `read` says may have one.
    """

    bounds: tuple[float, float] = (0.0, 1.0)
    debiased = False

    def value(self, y: Integers) -> float:
        """Return the measure."""
        return float(self.read(self.sums(y, np.zeros(len(y), np.int64), 1))[0])

    @abstractmethod
    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        """Return the sums of the rows of each chunk, `(chunks, s)`."""

    @abstractmethod
    def read(self, sums: Array) -> Array:
        """Return the measure, or its plain version, from sums over all rows, `(r, s)`: one value for each."""


def sum_by(group: Integers, values: Array, groups: int = 0) -> Array:
    """Return the sum of the values of each group."""
    found: Array = np.bincount(group, values, groups)  # type: ignore[assignment] # floats, since values are
    return found


def measured(make: Callable[..., Parts], P: ArrayLike, y: ArrayLike, weights: ArrayLike | None, *args: Any) -> float:
    """Return a measure of rows, which are checked first."""
    log = read_log(P, y, weights)
    return make(log.forecasts, log.weights, *args).value(log.outcomes)
