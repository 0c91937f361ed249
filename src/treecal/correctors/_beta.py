"""BetaCalibration: two slopes and an offset, for two classes."""

from __future__ import annotations

import numpy as np

from treecal._typing import Array, Integers
from treecal.correctors._scaling import Scaling
from treecal.exceptions import ParameterError


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

    def _identity(self) -> Array:
        if self.space.dim != 2:
            raise ParameterError.expected("space", self.space, "Simplex(2)", hint="for more classes, VectorScaling.")
        return np.array([1.0, 1.0, 0.0])

    def _entries(self) -> tuple[Integers, Integers]:
        return np.array([1, 1, 1]), np.array([0, 1, 2])

    def _values(self, logs: Array) -> Array:
        return np.column_stack([logs[:, 1], -logs[:, 0], np.ones(len(logs))])
