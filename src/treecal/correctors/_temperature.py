"""TemperatureScaling: one number for all classes."""

from __future__ import annotations

import numpy as np

from treecal._typing import Array, Integers
from treecal.correctors._scaling import Scaling


class TemperatureScaling(Scaling):
    """One number for any number of classes: announces `softmax(θ·ln b)`, `1/θ` the temperature. `O(dim)` a round.

    Parameters
    ----------
    space
        A simplex.
    rate, ridge, radius, forget, scores, tolerance
        As for every `Scaling`.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.TemperatureScaling(tc.Simplex(3))
    >>> f.predict([0.2, 0.3, 0.5]).mean
    array([0.2, 0.3, 0.5])

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017.
    """

    name = "temperature"
    # One number for all rounds can make use of how small the smallest are, which tells naive Bayes' guesses from its
    # knowledge. A slope of its own for a class is thrown off by them.
    _least = 1e-15

    _streams = Scaling._streams

    def _identity(self) -> Array:
        return np.ones(1)

    def _entries(self) -> tuple[Integers, Integers]:
        return np.arange(self.space.dim), np.zeros(self.space.dim, np.int64)

    def _values(self, logs: Array) -> Array:
        return logs
