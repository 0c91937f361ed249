"""What the wrappers for river and scikit-learn share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.correctors import AutoCorrector, Corrector
from treecal.exceptions import OutcomeError, ParameterError
from treecal.geometry import Cdf, Distance, Simplex
from treecal.ledger import Ledger
from treecal.measures import bin_rows, classwise_ece

Make = Callable[[Any], Corrector]
WIDTH = 0.1
"""Of the bins of a class, and of the cells of joint errors."""


def new_corrector(make: Make | None, space: Simplex | Cdf) -> Corrector:
    """Return a new corrector on the set, by default `AutoCorrector`."""
    if make is None:
        return AutoCorrector(space)
    if not callable(make):
        expected = f"a function from a {type(space).__name__} to a corrector"
        raise ParameterError.expected("make", make, expected, hint="make=treecal.Recalibrator.")
    corrector = make(space)
    if not isinstance(corrector, Corrector) or corrector.space != space:
        raise ParameterError.expected(f"make({space!r})", corrector, f"a corrector on {space!r}")
    return corrector


def cdf_around(numbers: Sequence[Array], width: float, low: float | None, high: float | None) -> Cdf:
    """Return a set twice as wide as these numbers, where its ends are not given, with ten thresholds in a width."""
    least, most = (float(end([end(each) for each in numbers])) for end in (np.min, np.max))
    room = max((most - least) / 2, 4 * width)
    low = least - room if low is None else low
    high = most + room if high is None else high
    return Cdf(low, high, points=int(np.clip(10 * (high - low) / width, 100, 1000)), clip=True)


def check_takes_weight(corrector: Corrector, weight: float) -> None:
    """Raise if a round of this weight cannot be learned; one of weight 0 is not learned."""
    if weight:
        corrector._given(weight=weight)


def checked_label(label: Any, name: str = "the label") -> Any:
    """Return the label; one that is missing or not hashable raises."""
    try:
        hash(label)
        valid = label is not None and bool(label == label)
    except TypeError:  # not hashable; or pandas.NA, which is neither equal to itself nor not
        valid = False
    if not valid:
        raise OutcomeError(f"{name} is {label!r}, expected a string, a number, or True or False, not missing.")
    return label


def error_of(points: Array, counts: Array, norm: Distance | str | None, resolution: float | None) -> float:
    """Return the error per round of distinct forecasts, `(n, d)`, given the weight of each class after each, `(n, d)`.

    0 where nothing has weight.
    """
    weights = counts.sum(axis=1)
    total = float(weights.sum())
    if norm is None:
        if resolution != WIDTH:
            hint = "norm='l1', or another norm, for the joint error in cells of that width."
            raise ParameterError.expected("resolution", resolution, f"{WIDTH:g} without a norm", hint=hint)
        if not total:
            return 0.0
        met = weights > 0
        means = counts[met] / weights[met, None]
        return classwise_ece(bin_rows(points[met], means, weights[met])[1])
    ledger = Ledger.from_rows(Simplex(points.shape[1]), points, weights, counts, rounds=math.ceil(total), weight=total)
    reading = ledger.exact() if resolution is None else ledger.binned(resolution=resolution)
    return reading.error(norm, total=True) / (total or 1.0)
