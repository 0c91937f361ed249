"""MatrixScaling: scores of each class that are linear in the logarithms of all."""

from __future__ import annotations

import numpy as np

from treecal._typing import Array, Integers
from treecal.correctors._base import Scored
from treecal.correctors._scaling import Scaling
from treecal.geometry import ConvexSet, Simplex

FEW = 4
"""Classes up to which the curvature of matrix scaling is full."""


class MatrixScaling(Scaling):
    """Scores of each class that are linear in the logarithms of all: announces `softmax(W·ln b + c)`.

    It corrects a model that confuses classes: where one is forecast, another one is often the outcome. It has
    `dim·(dim + 1)` parameters, so it is for few classes and some thousand rounds. The curvature is full for up to 4
    classes; for more there is a block for the scores of each class, and a round costs `O(dim⁴)` for each copy.

    Parameters
    ----------
    space
        A simplex.
    rate, ridge, radius, forget, scores, tolerance
        As for every `Scaling`.

    Examples
    --------
    A model that mistakes the second class for the third in half of its rounds:

    >>> from treecal.geometry import Simplex
    >>> f = MatrixScaling(Simplex(3))
    >>> for y in np.tile([0, 1, 1, 2], 250):
    ...     x = f.predict([0.9, 0.05, 0.05] if y == 0 else [0.1, 0.1, 0.8])
    ...     f.update(y)
    >>> f.predict([0.1, 0.1, 0.8]).mean.round(1)
    array([0. , 0.7, 0.3])

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017.
    """

    name = "matrix"

    def __init__(
        self,
        space: ConvexSet,
        *,
        rate: float = 0.1,
        ridge: float = 100.0,
        radius: float = 100.0,
        forget: bool = True,
        scores: Scored | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        self._blocks = 1 if not isinstance(space, Simplex) or space.dim <= FEW else space.dim
        super().__init__(
            space, rate=rate, ridge=ridge, radius=radius, forget=forget, scores=scores, tolerance=tolerance
        )

    # Parameter `f·dim + k` is that of the logarithm of class `f` in the score of class `k`; the last are the offsets.

    def _identity(self) -> Array:
        return np.eye(self.space.dim + 1, self.space.dim).ravel()

    def _entries(self) -> tuple[Integers, Integers]:
        dim = self.space.dim
        return np.tile(np.arange(dim), dim + 1), np.arange(dim * (dim + 1))

    def _values(self, logs: Array) -> Array:
        return np.repeat(np.hstack([logs, np.ones((len(logs), 1))]), self.space.dim, axis=1)
