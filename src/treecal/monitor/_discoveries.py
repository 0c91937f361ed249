"""e-BH: which of many streams are off, with a bound on the share of false discoveries."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from treecal._typing import Array, Integers
from treecal.exceptions import ParameterError

Name = TypeVar("Name", bound=Hashable)


def discoveries(e_values: Mapping[Name, float], alpha: float = 0.05) -> list[Name]:
    """Return the streams whose forecasts are off, the strongest evidence first, by e-BH (Wang and Ramdas 2022).

    Of `n` e-values, those at or above `n/(alpha·k)` are discoveries, for the largest `k` for which there are `k` of
    them. The expected share of streams among them whose forecasts are right is at most `alpha`, however the streams
    depend on each other. It holds for the e-values of one moment, which may be chosen by looking at them: not for the
    largest e-value that each stream ever had (`peak`), and not for the union of what several moments gave.

    Parameters
    ----------
    e_values
        The e-value of each stream, by name: `Monitor.e_values`, or those of many monitors.
    alpha
        The most that the false discovery rate may be.

    Examples
    --------
    >>> discoveries({"north": 3.0, "east": 90.0, "south": 41.0, "west": 0.2})
    ['east', 'south']
    """
    if not isinstance(e_values, Mapping):
        raise ParameterError.expected("e_values", e_values, "a mapping from names to e-values")
    for name, e in e_values.items():
        if isinstance(e, bool) or not isinstance(e, int | float | np.number) or not e >= 0:
            raise ParameterError.expected(f"the e-value of {name!r}", e, "a number of 0 or more")
    names = list(e_values)
    return [names[i] for i in discovered(np.array([float(e) for e in e_values.values()]), alpha)]


def discovered(e_values: Array, alpha: float) -> Integers:
    """Return the places of the discoveries among e-values, the strongest evidence first.

    Examples
    --------
    >>> discovered(np.array([3.0, 90.0, 41.0, 0.2]), 0.05)
    array([1, 2])
    """
    if not isinstance(alpha, int | float | np.number) or not 0 < alpha < 1:
        raise ParameterError.expected("alpha", alpha, "a number between 0 and 1")
    ranked = np.argsort(-e_values, kind="stable")
    enough = np.arange(1, len(ranked) + 1) * e_values[ranked] * alpha >= len(ranked)
    return np.asarray(ranked[: int(np.flatnonzero(enough).max(initial=-1)) + 1])
