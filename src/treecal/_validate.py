"""Checked arguments: each error names the value and what was expected."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.exceptions import ParameterError, TreeCalError

HEAVIEST = 1e12
"""The most that a round may weigh; the least, apart from 0, is its inverse: sums then stay exact enough."""


def whole_number(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Return `value` as a Python int of at least `least`, and at most `most`, or raise."""
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ParameterError.expected(name, value, f"a whole number of {least} or more")
    if most is not None and number > most:
        raise ParameterError.expected(name, value, f"at most {most:,}")
    return number


def positive_number(name: str, value: Any, *, or_zero: bool = False) -> float:
    """Return `value` as a finite float above 0, or from 0 on; any other raises."""
    if not (isinstance(value, int | float | np.number) and 0 <= value < math.inf and (value > 0 or or_zero)):
        raise ParameterError.expected(name, value, "a number of 0 or more" if or_zero else "a positive number")
    return float(value)


def fraction(name: str, value: Any, *, hint: str | None = None) -> float:
    """Return `value` as a float between 0 and 1, neither included, or raise."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ParameterError.expected(name, value, "a number between 0 and 1", hint=hint)
    return float(value)


def finite_array(name: str, value: Any, *, ndim: int | None = None) -> Array:
    """Return `value` as a read-only float64 copy with only finite entries, or raise."""
    if any(map(np.ma.is_masked, value if isinstance(value, list | tuple) else (value,))):
        raise ParameterError(f"{name} has masked entries, expected real numbers.")
    try:
        raw = np.asarray(value)
    except ValueError as error:  # ragged nesting
        raise ParameterError(f"{name} is not an array of numbers: {error}") from None
    if raw.dtype.kind not in "biuf":
        raise ParameterError(f"{name} holds {raw.dtype} values, expected real numbers.")
    with np.errstate(over="ignore"):
        array = np.array(raw, dtype=np.float64)
    if ndim is not None and array.ndim != ndim:
        raise ParameterError(f"{name} has shape {array.shape}, expected {ndim} dimension{'s' * (ndim != 1)}.")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        if not where:
            raise ParameterError(f"{name} is {array}, not finite.")
        raise ParameterError(f"{name} holds {array[tuple(where)]} at {where}, expected finite numbers.")
    array.setflags(write=False)
    return array


def known_numbers(name: str, value: Any, error: type[TreeCalError] = ParameterError) -> Array:
    """Return `value` as a float64 copy with NaN where it is masked; anything but numbers raises."""
    try:
        raw: Any = np.ma.array(value, copy=False)
    except ValueError as ragged:
        raise error(f"{name} is not an array of numbers: {ragged}") from None
    if raw.dtype.kind not in "biuf":
        raise error(f"{name} holds {raw.dtype} values, expected real numbers, NaN where one is not known.")
    numbers = np.array(raw.data, np.float64)
    if np.ma.is_masked(raw):
        numbers[np.ma.getmaskarray(raw)] = np.nan
    return numbers


def sample_weight(weight: Any, name: str = "weight") -> float:
    """Return how much a round counts, as a float: 0, or a number whose sums stay accurate; any other raises."""
    number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if not number or not (weight == 0 or 1 / HEAVIEST <= weight <= HEAVIEST):
        raise ParameterError.expected(name, weight, f"0, or a number from {1 / HEAVIEST:g} to {HEAVIEST:g}")
    return float(weight) + 0.0  # not -0.0


def sample_weights(weights: Any, count: int) -> Array:
    """Return the weights of `count` rounds, or raise and name the first invalid one."""
    found = finite_array("weights", weights, ndim=1)
    if len(found) != count:
        raise ParameterError(f"there are {count} rounds and {len(found)} weights, expected one each.")
    valid = (found == 0) | ((found >= 1 / HEAVIEST) & (found <= HEAVIEST))
    if not valid.all():
        at = int(np.argmin(valid))
        sample_weight(float(found[at]), f"weights[{at}]")
    return found + 0.0
