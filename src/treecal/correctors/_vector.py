"""VectorScaling: a slope and an offset for each class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, get_args

import numpy as np

from treecal._typing import Array, Integers
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._scaling import Scaling
from treecal.exceptions import ParameterError
from treecal.geometry import ConvexSet, Simplex

Curvature = Literal["full", "by class"]
FEW = 10
"""Classes up to which the curvature of vector scaling is full."""


class VectorScaling(Scaling):
    """A slope and an offset for each class: announces `softmax(w_i·ln b_i + c_i)`.

    A round costs `O(dim³)` for each copy with the full curvature, and `O(dim)` with one block for the slope and the
    offset of each class, which leaves out how classes depend on each other: at 1,000 classes and 12 copies 0.7 ms. The
    bound of `Scaling` is for the full one. On synthetic streams of 3, 10 and 50 classes the log loss by class was
    higher by at most 0.15 %, 0.11 % and 0.8 %.

    Parameters
    ----------
    space
        A simplex.
    curvature
        "full", "by class", or (None) full for up to 10 classes.
    rate, ridge, radius, forget, scores, tolerance
        As for every `Scaling`.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.VectorScaling(tc.Simplex(3))
    >>> for y in np.tile(np.eye(3)[:2], (100, 1)):
    ...     x = f.predict([0.2, 0.3, 0.5])
    ...     f.update(y)
    >>> bool(f.predict([0.2, 0.3, 0.5]).mean[2] < 0.1)  # the third class was never the outcome
    True

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017.
    """

    name = "vector"
    _fields = ("space", "curvature", *Scaling._fields[1:])

    def __init__(
        self,
        space: ConvexSet,
        *,
        curvature: Curvature | None = None,
        rate: float = 0.1,
        ridge: float = 100.0,
        radius: float = 100.0,
        forget: bool = True,
        scores: Scored | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        if curvature is not None and curvature not in get_args(Curvature):
            raise ParameterError.expected("curvature", curvature, "'full', 'by class' or None")
        few = isinstance(space, Simplex) and space.dim <= FEW
        self.curvature = curvature or ("full" if few else "by class")
        self._blocks = 1 if self.curvature == "full" or not isinstance(space, Simplex) else space.dim
        super().__init__(
            space, rate=rate, ridge=ridge, radius=radius, forget=forget, scores=scores, tolerance=tolerance
        )

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield those of every scaling, and one with a block for each class."""
        yield from super().examples(space)
        with suppress(ParameterError):
            yield cls(space, curvature="by class", ridge=10.0, forget=False)

    _streams = Scaling._streams

    def _identity(self) -> Array:
        return np.repeat([1.0, 0.0], self.space.dim)

    def _entries(self) -> tuple[Integers, Integers]:
        return np.tile(np.arange(self.space.dim), 2), np.arange(2 * self.space.dim)

    def _values(self, logs: Array) -> Array:
        return np.hstack([logs, np.ones_like(logs)])
