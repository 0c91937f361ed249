"""Losses whose minimiser is found numerically, quadratics and arbitrary functions, and how it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import LossError, TreeCalError, UnsupportedError
from treecal.geometry import ConvexSet, positive_definite
from treecal.swap._losses import Loss, read_points, read_vector

_STEEPEST = 1e8  # the entropy's gradient is infinite on the boundary; a finite one there still points inwards
_STEPS = 10_000


def descend(value: Callable[[Array], Array], gradient: Callable[[Array], Array], space: ConvexSet) -> Array:
    """Return a minimiser of a smooth convex function, by spectral projected gradients (Birgin, Martínez and Raydan).

    It ends where a projected unit step moves no coordinate by more than 1e-10 times the point's size, the condition
    of optimality; or where rounding lets no step improve the value further.
    """

    def slope(point: Array) -> Array:
        return np.clip(gradient(point), -_STEEPEST, _STEEPEST)

    point = np.array(space.centre)
    here = float(value(point))
    g = slope(point)
    rate = 1.0
    recent = [here]
    best = point
    least = here
    for _ in range(_STEPS):
        if np.abs(space.project(point - g) - point).max() <= 1e-10 * (1 + np.abs(point).max()):
            return point
        direction = space.project(point - rate * g) - point
        fall = float(g @ direction)
        length = 1.0
        goal = max(recent)
        while (there := float(value(point + length * direction))) > goal + 1e-4 * length * fall:
            length /= 2
            if length < 1e-12:  # no step is an improvement that float64 can see
                return best
        step = length * direction
        point = point + step
        before = g
        g = slope(point)
        bend = float(step @ (g - before))
        rate = min(max(float(step @ step) / bend, 1e-10), 1e10) if bend > 0 else 1e10
        recent = [*recent[-9:], there]  # the last ten: the value may rise between, which spectral steps need
        if there < least:
            best = point
            least = there
    raise UnsupportedError.by(space, "minimiser of this loss", f"projected gradients took {_STEPS} steps")


def search(value: Callable[[Array], Array], space: ConvexSet) -> Array:
    """Return a local minimiser of a function whose gradient is not known, by SciPy.

    Minimises `value(Π(z)) + ‖z − Π(z)‖²` over all `z`, Π the projection onto the set: its minimisers project onto those
    of the function over the set, and the function is never evaluated outside the set.
    """
    from scipy.optimize import minimize

    def lifted(z: Array) -> float:
        inside = space.project(z)
        return float(value(inside)) + float(np.square(z - inside).sum())

    found = minimize(lifted, np.array(space.centre), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    return space.project(found.x)


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
            self.matrix = positive_definite(matrix, semi=True)
        except TreeCalError as error:
            raise LossError(error.message, hint=error.hint) from None
        self.vector = read_vector("vector", np.zeros(len(self.matrix)) if vector is None else vector)
        if self.vector.shape != self.matrix.shape[:1]:
            raise LossError(f"vector has shape {self.vector.shape}, expected ({len(self.matrix)},).")
        self.constant = float(read_vector("constant", [constant])[0])

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
        vector = self.vector + other.vector
        return self._with(matrix=self.matrix + other.matrix, vector=vector, constant=self.constant + other.constant)

    def _times(self, factor: float, divisor: int) -> Self:
        by = factor / divisor
        return self._with(matrix=self.matrix * by, vector=self.vector * by, constant=self.constant * by)

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

    def _plus(self, other: Self) -> Self:
        return self._with(_terms=self._terms + other._terms)

    def _times(self, factor: float, divisor: int) -> Self:
        return self._with(_terms=[(w * factor / divisor, f, g) for w, f, g in self._terms])

    def __repr__(self) -> str:
        return f"CallableLoss in R^{self.dim}, {len(self)} term{'s' * (len(self) != 1)}"
