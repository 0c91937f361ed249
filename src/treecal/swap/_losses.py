"""Losses that can be summed and averaged without keeping their history.

A sum of losses is a loss of the same kind and size, so a learner that needs the sum of a million keeps one. (Only
`CallableLoss`, for arbitrary functions, has to keep a list.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array, whole_number
from treecal.exceptions import LossError, TreeCalError
from treecal.geometry import LARGEST, TOLERANCE, ConvexSet, Regularizer, Value


class Loss(Value, ABC):
    """A function on a convex set, to be minimised. Losses of one kind add, and scale by positive numbers.

    Finitely many actions are the corners of a simplex, and weights over them its points: the loss of the weights is the
    expected loss of the actions.

    Examples
    --------
    >>> total = LinearLoss([1.0, 0.0]) + LinearLoss([0.0, 2.0])
    >>> (total / 2).value([1.0, 1.0]), (3 * total).value([1.0, 1.0])
    (np.float64(1.5), np.float64(9.0))
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates, or of actions."""

    @property
    def kind(self) -> tuple[Any, ...]:
        """What two losses must share to be added."""
        return type(self), self.dim

    @abstractmethod
    def value(self, points: ArrayLike) -> Array:
        """Return the loss of each point along the last axis."""

    @abstractmethod
    def minimise(self, space: ConvexSet) -> Array:
        """Return a point of the set with the least loss."""

    @abstractmethod
    def _plus(self, other: Self) -> Self:
        """Return the sum with a loss of the same kind."""

    @abstractmethod
    def _times(self, factor: float, divisor: int) -> Self:
        """Return the loss times `factor / divisor`, one of which is 1."""

    def _with(self, **attributes: Any) -> Self:
        """Return a loss of the same kind with other attributes, without a check."""
        made = object.__new__(type(self))
        vars(made).update(vars(self), **attributes)
        return made

    def complaint(self, space: ConvexSet) -> str | None:
        """Return why the loss is not valid on the set; None if it is."""
        return None if self.dim == space.dim else f"has dimension {self.dim}, expected {space.dim} for {space!r}"

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, Loss):
            return NotImplemented
        if self.kind != other.kind:
            raise LossError(f"{self!r} and {other!r} are of different kinds and cannot be added.")
        return self._plus(other)

    def __mul__(self, factor: float) -> Self:
        if not (isinstance(factor, int | float | np.number) and 0 < factor < np.inf):
            raise LossError(f"a loss was multiplied by {factor!r}, expected a positive number.")
        return self._times(float(factor), 1)

    __rmul__ = __mul__

    def __truediv__(self, count: int) -> Self:
        return self._times(1.0, whole_number("count", count, least=1))


class LinearLoss(Loss):
    """`ℓ(p) = <v, p>` on a convex set; for weights p over finitely many actions, the expected loss.

    Parameters
    ----------
    vector
        `v`; for actions, the loss of each.

    Examples
    --------
    >>> from treecal.geometry import Ball
    >>> total = LinearLoss([3.0, 0.0]) + LinearLoss([0.0, 4.0])
    >>> total.value([[1.0, 0.0], [0.0, 1.0]])
    array([3., 4.])
    >>> total.minimise(Ball(2))
    array([-0.6, -0.8])
    """

    _fields = ("vector",)

    def __init__(self, vector: ArrayLike) -> None:
        self.vector = read_vector("vector", vector)

    @classmethod
    def trusted(cls, vector: Array) -> Self:
        """Make a loss of a finite float64 vector that no caller will change, without a check or a copy."""
        self = object.__new__(cls)
        self.vector = vector
        return self

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.vector)

    def value(self, points: ArrayLike) -> Array:
        """Return `<v, p>`."""
        return np.asarray(read_points(points, self.dim) @ self.vector)[()]

    def minimise(self, space: ConvexSet) -> Array:
        """Return the set's linear minimiser; for actions, the first with the least loss."""
        return space.minimise(self.vector)

    def _plus(self, other: Self) -> Self:
        return self.trusted(self.vector + other.vector)

    def _times(self, factor: float, divisor: int) -> Self:
        return self.trusted(self.vector * factor if divisor == 1 else self.vector / divisor)

    def __repr__(self) -> str:
        return f"LinearLoss({np.array2string(self.vector, threshold=6, precision=4)})"


class BregmanLoss(Loss):
    """`ℓ(p) = D_R(y|p)`, the proper score whose swap regret is calibration error (Lemma 2.2).

    The average over many outcomes is the divergence from their mean plus a constant (Lemma 2.1). It keeps the sum and
    count of outcomes, the sum of `R(y)`, and one scale for all. The mean is one division, so that the minimiser of the
    sum is TreeCal's point to the last bit.

    Parameters
    ----------
    regularizer
        `R`.
    outcome
        `y`, a point of the set.

    Examples
    --------
    >>> from treecal.geometry import Simplex, SquaredEuclidean
    >>> total = BregmanLoss(SquaredEuclidean(), [1, 0]) + BregmanLoss(SquaredEuclidean(), [0, 1])
    >>> total.minimise(Simplex(2)), total.value([0.5, 0.5])
    (array([0.5, 0.5]), np.float64(1.0))
    """

    _fields = ("regularizer", "total", "count", "constant", "scale")

    def __init__(self, regularizer: Regularizer, outcome: ArrayLike) -> None:
        if not isinstance(regularizer, Regularizer):
            raise LossError(f"regularizer is {regularizer!r}, expected a Regularizer.")
        self.regularizer = regularizer
        self.total = read_vector("outcome", outcome) + 0.0  # −0.0 is 0.0
        self.count: float = 1
        self.constant = float(regularizer.value(self.total))
        self.scale = 1.0
        if not np.isfinite(self.constant):
            raise LossError(f"R(y) is {self.constant} at the outcome, expected an outcome in the domain of R.")

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.total)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Losses of one regularizer add."""
        return BregmanLoss, self.dim, self.regularizer

    @property
    def mean(self) -> Array:
        """The mean outcome."""
        return self.total / self.count

    def value(self, points: ArrayLike) -> Array:
        """Return `scale · Σ_y D_R(y|p)`."""
        jensen = self.constant - self.count * float(self.regularizer.value(self.mean))
        # Rounding can make the gap negative.
        return self.scale * (
            self.count * self.regularizer.between(self.mean, read_points(points, self.dim)) + max(jensen, 0.0)
        )

    def minimise(self, space: ConvexSet) -> Array:
        """Return the mean outcome, which lies in every convex set that the outcomes lie in."""
        return self.mean

    def complaint(self, space: ConvexSet) -> str | None:
        """Return how the outcome lies outside the set."""
        if problem := super().complaint(space):
            return problem
        mean = self.mean
        # Rounding may move the mean of outcomes on the edge a little farther out.
        inside = space.admits(mean) if self.count == 1 else space.contains(mean, tol=2 * TOLERANCE)
        return None if inside else f"has an outcome outside {space!r}: {space.complaint(mean)}"

    def _plus(self, other: Self) -> Self:
        a = 1.0 if self.scale == other.scale else self.scale
        b = 1.0 if self.scale == other.scale else other.scale
        return self._with(
            total=a * self.total + b * other.total,
            count=a * self.count + b * other.count,
            constant=a * self.constant + b * other.constant,
            scale=self.scale if self.scale == other.scale else 1.0,
        )

    def _times(self, factor: float, divisor: int) -> Self:
        return self._with(scale=self.scale * factor / divisor)

    def __repr__(self) -> str:
        mean = np.array2string(self.mean, threshold=6, precision=4)
        return f"BregmanLoss({self.regularizer!r}, mean of {self.count:g}: {mean})"


def read_loss(loss: Loss | ArrayLike, space: ConvexSet, *, round_: int, like: tuple[Any, ...] | None = None) -> Loss:
    """Return the loss, or the linear loss of a vector, checked: valid on the set, and of the kind of those before."""
    where = f"loss at round {round_}"
    if not isinstance(loss, Loss):
        loss = LinearLoss.trusted(read_vector(where, loss))
    if problem := loss.complaint(space):
        raise LossError(f"{where} {problem}.")
    if like is not None and loss.kind != like:
        raise LossError(f"{where}, {loss!r}, is not of the same kind as the losses before it, so they cannot be added.")
    return loss


def read_vector(name: str, value: Any) -> Array:
    """Return a loss's vector as a read-only float64 copy, checked."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.ndim == 1 and value.size:
        copy: Array = value.copy()
        if max(copy.max(), -copy.min()) <= LARGEST:  # False for NaN
            copy.setflags(write=False)
            return copy
    try:
        vector = finite_array(name, value, ndim=1)
    except TreeCalError as error:
        raise LossError(error.message, hint="a loss is a vector of finite numbers, or a Loss.") from None
    if not vector.size:
        raise LossError(f"{name} is empty, expected one number or more.")
    if np.abs(vector).max() > LARGEST:
        raise LossError(f"{name} reaches {np.abs(vector).max():g}; beyond {LARGEST:.2g} sums overflow.")
    return vector


def read_points(points: ArrayLike, dim: int) -> Array:
    """Return points as an array `(..., dim)`."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] != dim:
        raise LossError(f"points have shape {array.shape}, expected (..., {dim}).")
    return array
