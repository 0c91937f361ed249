"""PlattScaling: a slope and an offset of the log odds of two classes."""

from __future__ import annotations

import numpy as np

from treecal._typing import Array, Integers
from treecal.correctors._scaling import Scaling
from treecal.exceptions import ParameterError


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
