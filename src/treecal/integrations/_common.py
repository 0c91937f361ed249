"""What the wrappers for river and scikit-learn share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.correctors import Corrector, VectorScaling
from treecal.exceptions import OutcomeError, ParameterError
from treecal.geometry import TOLERANCE, Simplex
from treecal.ledger import Ledger

Make = Callable[[Simplex], Corrector]

ROUNDING = 1e-6
"""How far from 1 a model's probabilities may sum: what float32 leaves, and no more."""


def new_corrector(make: Make | None, classes: int) -> Corrector:
    """Return a new corrector for this many classes, by default `VectorScaling` without an audit.

    Examples
    --------
    >>> new_corrector(None, 3)
    VectorScaling(Simplex(3), rate=0.1, ridge=100.0, radius=100.0, audit=False)
    """
    space = Simplex(classes)
    if make is None:
        return VectorScaling(space, audit=False)
    if not callable(make):
        raise ParameterError.expected(
            "make", make, "a function from a Simplex to a corrector", hint="make=treecal.Recalibrator."
        )
    corrector = make(space)
    if not isinstance(corrector, Corrector) or corrector.space != space:
        raise ParameterError.expected(f"make({space!r})", corrector, f"a corrector on {space!r}")
    return corrector


def checked_label(label: Any, name: str = "the label") -> Any:
    """Return the label, or say why it cannot be one.

    Examples
    --------
    >>> checked_label(float("nan"))
    Traceback (most recent call last):
    ...
    treecal.exceptions.OutcomeError: the label is nan, expected a string, a number, or True or False, not missing.
    """
    try:
        hash(label)
        good = label is not None and bool(label == label)
    except TypeError:  # not hashable, or neither equal to itself nor not, as pandas.NA
        good = False
    if not good:
        raise OutcomeError(f"{name} is {label!r}, expected a string, a number, or True or False, not missing.")
    return label


def without_rounding(forecasts: Array) -> Array:
    """Return probabilities whose sums are 1; sums that are off by more than rounding stay, for a check to refuse.

    Examples
    --------
    >>> without_rounding(np.float32([0.1, 0.2, 0.7])).sum() == 1
    np.True_
    >>> without_rounding(np.array([0.5, 0.47]))
    array([0.5 , 0.47])
    """
    forecasts = np.asarray(forecasts, np.float64)
    total = forecasts.sum(axis=-1, keepdims=True)
    off = np.abs(total - 1)
    near = (off > TOLERANCE) & (off <= ROUNDING)
    return np.asarray(forecasts / np.where(near, total, 1.0)) if near.any() else forecasts


def ledger_of(points: Array, counts: Array) -> Ledger:
    """Return the ledger of forecasts that are counted already.

    Parameters
    ----------
    points
        Distinct forecasts, `(n, d)`.
    counts
        How often each class followed each forecast, `(n, d)`.

    Examples
    --------
    >>> ledger_of(np.array([[0.5, 0.5]]), np.array([[3, 1]])).error("l1")
    0.5
    """
    return Ledger.from_rows(Simplex(points.shape[1]), points, counts.sum(axis=1), counts, rounds=int(counts.sum()))
