"""Losses whose minimiser is found numerically: quadratics, and arbitrary functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import LossError, TreeCalError
from treecal.geometry import ConvexSet, positive_definite
from treecal.swap._losses import Loss, read_points, read_vector
from treecal.swap._solve import descend, search

_Map = Callable[[Array], Any]
_Term = tuple[float, _Map, _Map | None]


class QuadraticLoss(Loss):
    """`ℓ(p) = pᵀAp + <b, p> + c`, convex.

    Parameters
    ----------
    matrix
        `A`, symmetric and positive semidefinite.
    vector
        `b`; by default 0.
    constant
        `c`.

    Examples
    --------
    >>> from treecal.geometry import Box
    >>> loss = QuadraticLoss([[1.0, 0.0], [0.0, 1.0]], vector=[-4.0, 1.0])
    >>> loss.minimise(Box(0, 1, dim=2)), loss.value([1.0, 0.0])
    (array([1., 0.]), np.float64(-3.0))
    """

    _fields = ("matrix", "vector", "constant")

    def __init__(self, matrix: ArrayLike, *, vector: ArrayLike | None = None, constant: float = 0.0) -> None:
        try:
            self.matrix = positive_definite("matrix", matrix, semi=True)
        except TreeCalError as error:
            raise LossError(str(error)) from None
        self.vector = read_vector("vector", np.zeros(len(self.matrix)) if vector is None else vector)
        if self.vector.shape != self.matrix.shape[:1]:
            raise LossError(f"vector has shape {self.vector.shape}, expected ({len(self.matrix)},).")
        self.constant = float(read_vector("constant", [constant])[0])

    def _made(self, matrix: Array, vector: Array, constant: float) -> Self:
        made = object.__new__(type(self))
        made.matrix = matrix
        made.vector = vector
        made.constant = constant
        return made

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.vector)

    def value(self, points: ArrayLike) -> Array:
        """Return `pᵀAp + <b, p> + c`."""
        p = read_points(points, self.dim)
        return np.asarray(((p @ self.matrix + self.vector) * p).sum(axis=-1) + self.constant)[()]

    def gradient(self, points: ArrayLike) -> Array:
        """Return `2Ap + b`."""
        return np.asarray(2 * np.asarray(points, dtype=np.float64) @ self.matrix + self.vector)

    def minimise(self, space: ConvexSet) -> Array:
        """Return the projected free minimiser where A is a multiple of the identity, else by projected gradients."""
        bend = self.matrix[0, 0]
        if not self.matrix.any():
            return space.minimise(self.vector)
        if np.array_equal(self.matrix, bend * np.eye(self.dim)):
            return space.project(-self.vector / (2 * bend))
        return descend(self.value, self.gradient, space)

    def _plus(self, other: Self) -> Self:
        return self._made(self.matrix + other.matrix, self.vector + other.vector, self.constant + other.constant)

    def _times(self, factor: float, divisor: int) -> Self:
        by = factor / divisor
        return self._made(self.matrix * by, self.vector * by, self.constant * by)

    def __repr__(self) -> str:
        return f"QuadraticLoss in R^{self.dim}"


class CallableLoss(Loss):
    """Any function. A sum has to keep all its terms, and costs as much as they do.

    Parameters
    ----------
    function
        Maps points `(..., d)` to losses `(...)`.
    dim
        `d`.
    gradient
        Maps points `(..., d)` to gradients of the same shape. With it the minimiser of a convex loss is found by
        projected gradients; without it by SciPy, and only locally.

    Examples
    --------
    >>> from treecal.geometry import Box
    >>> loss = CallableLoss(lambda p: ((p - 0.25) ** 4).sum(-1), dim=1)
    >>> total = loss + loss
    >>> len(total), round(float(total.minimise(Box(0, 1, dim=1))[0]), 2)
    (2, 0.25)
    """

    def __init__(self, function: _Map, *, dim: int, gradient: _Map | None = None) -> None:
        if not callable(function):
            raise LossError(f"function is {function!r}, expected a callable.")
        self._dim = whole_number("dim", dim, least=1)
        self._terms: list[_Term] = [(1.0, function, gradient)]

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self._dim

    def __len__(self) -> int:
        return len(self._terms)

    def _ask(self, function: _Map, points: Array, shape: tuple[int, ...]) -> Array:
        answer = np.asarray(function(points), dtype=np.float64)
        if answer.shape != shape:
            raise LossError(f"the function returned shape {answer.shape} for points {points.shape}, expected {shape}.")
        if not np.isfinite(answer).all():
            raise LossError("the function is not finite at a point of the set, expected finite numbers.")
        return answer

    def value(self, points: ArrayLike) -> Array:
        """Return the weighted sum of the functions' values."""
        p = read_points(points, self.dim)
        total: Array = np.sum([w * self._ask(f, p, p.shape[:-1]) for w, f, _ in self._terms], axis=0)
        return total[()]

    def minimise(self, space: ConvexSet) -> Array:
        """Return a minimiser: by projected gradients where all gradients are known, else a local one by SciPy."""
        gradients = [(w, g) for w, _, g in self._terms if g is not None]
        if len(gradients) < len(self._terms):
            return search(self.value, space)
        return descend(self.value, lambda p: np.sum([w * self._ask(g, p, p.shape) for w, g in gradients], 0), space)

    def _made(self, terms: list[_Term]) -> Self:
        made = object.__new__(type(self))
        made._dim = self._dim
        made._terms = terms
        return made

    def _plus(self, other: Self) -> Self:
        return self._made(self._terms + other._terms)

    def _times(self, factor: float, divisor: int) -> Self:
        return self._made([(w * factor / divisor, f, g) for w, f, g in self._terms])

    def __repr__(self) -> str:
        return f"CallableLoss in R^{self.dim}, {len(self)} term{'s' * (len(self) != 1)}"
