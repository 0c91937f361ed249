"""Scalings of a few numbers: a temperature; for two classes a slope and an offset, or two slopes and an offset."""

from __future__ import annotations

import numpy as np

from treecal._typing import Array, Integers
from treecal.correctors._scaling import Scaling
from treecal.exceptions import ParameterError


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


class PlattScaling(Scaling):
    """Two classes: announces `sigmoid(a·logit(b) + c)`, from `a = 1`, `c = 0`. `O(1)` a round.

    Parameters
    ----------
    space
        `Simplex(2)`.
    rate, ridge, radius, forget, scores, tolerance
        As for every `Scaling`; `radius` is the largest `‖(a, c)‖`.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, f = np.random.default_rng(0), tc.PlattScaling(tc.Simplex(2))
    >>> for _ in range(3000):
    ...     b = rng.random()
    ...     odds = np.sqrt(b / (1 - b))  # the model's log odds are twice what they should be
    ...     x = f.predict([1 - b, b])
    ...     f.update([0, 1] if rng.random() < odds / (1 + odds) else [1, 0])
    >>> f.theta.round(1)
    array([0.6, 0. ])

    References
    ----------
    Gupta and Ramdas, "Online Platt Scaling with Calibeating", 2023.
    Hazan, Agarwal and Kale, "Logarithmic regret algorithms for online convex optimization", 2007.
    """

    name = "platt"

    _streams = Scaling._streams

    def _identity(self) -> Array:
        if self.space.dim != 2:
            raise ParameterError.expected("space", self.space, "Simplex(2)", hint="for more classes, VectorScaling.")
        return np.array([1.0, 0.0])

    def _entries(self) -> tuple[Integers, Integers]:
        return np.array([1, 1]), np.array([0, 1])

    def _values(self, logs: Array) -> Array:
        return np.column_stack([logs[:, 1] - logs[:, 0], np.ones(len(logs))])


class BetaCalibration(Scaling):
    """Two classes: announces `sigmoid(a·ln b − d·ln(1 − b) + c)`, `b` of the second class. `O(1)` a round.

    From `a = d = 1`, `c = 0`. With `a = d` it is Platt scaling; two slopes can also correct a model that is too sure of
    one class and not of the other. Vector scaling does that for more classes; for two it has one number more and the
    same maps.

    Parameters
    ----------
    space
        `Simplex(2)`.
    rate, ridge, radius, forget, scores, tolerance
        As for every `Scaling`; `radius` is the largest `‖(a, d, c)‖`.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, f = np.random.default_rng(0), tc.BetaCalibration(tc.Simplex(2))
    >>> for _ in range(3000):
    ...     b = rng.random()
    ...     odds = b**2 / (1 - b)  # a = 2, d = 1
    ...     x = f.predict([1 - b, b])
    ...     f.update([0, 1] if rng.random() < odds / (1 + odds) else [1, 0])
    >>> bool(f.theta[0] > 1.3 > f.theta[1])
    True

    References
    ----------
    Kull, Silva Filho and Flach, "Beta calibration", 2017.
    """

    name = "beta"

    _streams = Scaling._streams

    def _identity(self) -> Array:
        if self.space.dim != 2:
            raise ParameterError.expected("space", self.space, "Simplex(2)", hint="for more classes, VectorScaling.")
        return np.array([1.0, 1.0, 0.0])

    def _entries(self) -> tuple[Integers, Integers]:
        return np.array([1, 1, 1]), np.array([0, 1, 2])

    def _values(self, logs: Array) -> Array:
        return np.column_stack([logs[:, 1], -logs[:, 0], np.ones(len(logs))])
