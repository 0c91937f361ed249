"""How far apart two points are: norms, their duals and their squares.

A norm is a callable over the last axis of an array, so `tc.l1(gaps)` of an `(n, d)` array has shape `(n,)`. Wherever a
norm is an argument the strings `"l1"`, `"l2"` and `"linf"` are accepted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array, whole_number
from treecal.exceptions import GeometryError, ParameterError
from treecal.geometry._value import Value


class Distance(ABC):
    """What a calibration error is measured with: `D(outcome, forecast) >= 0`, zero when the two agree.

    Norms, their squares and the Bregman divergences of regularizers are distances (the paper's "distance measure").

    Examples
    --------
    >>> from treecal.geometry import SquaredEuclidean
    >>> [isinstance(d, Distance) for d in (l1, l1.squared, SquaredEuclidean())]
    [True, True, True]
    >>> l1.between([1.0, 0.0], [0.5, 0.5])
    np.float64(1.0)
    """

    @abstractmethod
    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return `D(outcome, forecast)` over the last axis."""


class Norm(Value, Distance):
    """A norm on R^d, vectorised over leading axes.

    Examples
    --------
    >>> l2([[3.0, 4.0], [0.0, 1.0]]), l1.dual
    (array([5., 1.]), linf)
    """

    @abstractmethod
    def __call__(self, vectors: ArrayLike) -> Array:
        """Return the norm of each vector along the last axis."""

    @property
    @abstractmethod
    def dual(self) -> Norm:
        """The norm `sup {<v, s> : ‖s‖ <= 1}`."""

    @property
    def squared(self) -> SquaredNorm:
        """The square of this norm, as a distance."""
        return SquaredNorm(self)

    @property
    def absolute(self) -> bool:
        """Whether the norm depends only on the sizes of the coordinates, and so never falls as they grow."""
        return False

    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return `‖outcome − forecast‖` over the last axis."""
        return self(np.subtract(outcomes, forecasts, dtype=np.float64))

    def square(self, vectors: ArrayLike) -> Array:
        """Return `‖v‖²` of each vector along the last axis."""
        return np.square(self(vectors))


class SquaredNorm(Value, Distance):
    """The square of a norm: the distance that TreeCal's main theorem bounds.

    Examples
    --------
    >>> l2.squared.between([1.0, 0.0], [0.0, 0.0])
    np.float64(1.0)
    """

    _fields = ("norm",)

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return `‖outcome − forecast‖²` over the last axis."""
        return self.norm.square(np.subtract(outcomes, forecasts, dtype=np.float64))

    def __repr__(self) -> str:
        return f"{self.norm!r}.squared"


class Lp(Norm):
    """The ℓp norm, `(Σ |x_i|^p)^(1/p)`, for `1 <= p <= inf`; its dual is ℓq with `1/p + 1/q = 1`.

    Neither overflows nor underflows where the answer itself does not.

    Parameters
    ----------
    p
        The exponent; `math.inf` is the largest coordinate.

    Examples
    --------
    >>> Lp(3)([1.0, 2.0])
    np.float64(2.080083823051904)
    >>> l1.dual, l2.dual, Lp(4).dual
    (linf, l2, Lp(p=1.3333333333333333))
    """

    _fields = ("p",)

    def __init__(self, p: float) -> None:
        if not (isinstance(p, int | float | np.number) and not isinstance(p, bool) and p >= 1):
            raise ParameterError.expected("p", p, "a number of 1 or more", hint="below 1 it is not a norm.")
        self.p = float(p)

    def __call__(self, vectors: ArrayLike) -> Array:
        """Return the ℓp norm of each vector along the last axis."""
        size = np.abs(np.asarray(vectors, dtype=np.float64))
        largest: Array = np.maximum.reduce(size, axis=-1, initial=0.0)
        if self.p == math.inf:
            return largest
        if self.p == 1:
            return _total(size)
        # Scaled by a power of two near the largest entry: exact, and no power can overflow. The exponent is clipped so
        # that the scale is a normal number, and 0, inf and NaN stay what they are.
        scale: Array = np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1021, 1022))
        scaled = size / scale[..., None]
        root = np.sqrt(_total(np.square(scaled))) if self.p == 2 else _total(scaled**self.p) ** (1 / self.p)
        return scale * root

    def square(self, vectors: ArrayLike) -> Array:
        """Return the squared norm; in ℓ2 the sum of squares, with no root to round."""
        return _total(np.square(np.asarray(vectors, dtype=np.float64))) if self.p == 2 else super().square(vectors)

    @property
    def dual(self) -> Lp:
        """The ℓq norm with `1/p + 1/q = 1`."""
        if self.p == 1:
            return linf
        return l1 if self.p == math.inf else Lp(self.p / (self.p - 1))

    @property
    def absolute(self) -> bool:
        """True: every ℓp norm is."""
        return True

    def __repr__(self) -> str:
        return {1.0: "l1", 2.0: "l2", math.inf: "linf"}.get(self.p, f"Lp(p={self.p!r})")


class Mahalanobis(Norm):
    """The ellipsoidal norm `√(xᵀ A x)`; its dual has the inverse matrix.

    Parameters
    ----------
    matrix
        `A`, symmetric and positive definite. (For the statistician's distance, the inverse of the covariance.)

    Examples
    --------
    >>> norm = Mahalanobis([[4.0, 0.0], [0.0, 1.0]])
    >>> norm([1.0, 0.0]), norm.dual([1.0, 0.0])
    (np.float64(2.0), np.float64(0.5))
    """

    _fields = ("matrix",)

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = positive_definite(matrix)
        self.dim = len(self.matrix)
        self._factor = np.linalg.cholesky(self.matrix)

    def __call__(self, vectors: ArrayLike) -> Array:
        """Return `√(xᵀ A x)` of each vector along the last axis."""
        return l2(as_points(self, vectors) @ self._factor)

    def square(self, vectors: ArrayLike) -> Array:
        """Return `xᵀ A x` of each vector along the last axis."""
        return l2.square(as_points(self, vectors) @ self._factor)

    @cached_property
    def dual(self) -> Mahalanobis:
        """The norm of the inverse matrix."""
        inverse = np.linalg.inv(self.matrix)
        return Mahalanobis((inverse + inverse.T) / 2)


class _RootOfScore(Mahalanobis):
    """The root of a score, "crps" by name; a subclass defines `square`."""

    def __call__(self, vectors: ArrayLike) -> Array:
        """Return the root of the score of each vector along the last axis."""
        return np.sqrt(self.square(vectors))

    def __repr__(self) -> str:
        return "crps"


class Crps(_RootOfScore):
    """The norm of a `Cdf`, "crps" by name: `√(Σ w_i x_i²)`, whose square is the continuous ranked probability score.

    Parameters
    ----------
    weights
        `w`, the widths of the cells around the thresholds: positive.

    Examples
    --------
    >>> import treecal as tc
    >>> norm = tc.Cdf(0, 10, points=5).crps
    >>> norm, norm.square([0.5, 0.5, 0.5, 0.5, 0.5])
    (crps, np.float64(2.5))
    """

    _fields = ("weights",)

    def __init__(self, weights: ArrayLike) -> None:
        self.weights = finite_array("weights", weights, ndim=1)
        if not self.weights.size or self.weights.min() <= 0:
            raise GeometryError(f"weights are {self.weights.min(initial=0.0):g} at least, expected positive numbers.")
        self.dim = len(self.weights)

    def square(self, vectors: ArrayLike) -> Array:
        """Return `Σ w_i x_i²` of each vector, added from left to right, as compiled code adds it."""
        gaps = as_points(self, vectors)
        return np.asarray(np.add.accumulate(self.weights * (gaps * gaps), axis=-1)[..., -1])[()]

    @cached_property
    def matrix(self) -> Array:  # type: ignore[override] # made when asked for
        """The weights as a diagonal matrix."""
        return np.diag(self.weights)

    @cached_property
    def dual(self) -> Mahalanobis:
        """The norm of the inverse weights."""
        return Mahalanobis(np.diag(1 / self.weights))

    @property
    def absolute(self) -> bool:
        """True."""
        return True


class Rps(_RootOfScore):
    """The norm of ordered classes, "crps" by name: `√(Σ_k (x_1 + … + x_k)²)`, the root of the ranked probability score.

    It is that of a `Cdf` for the distribution functions of the classes: putting weight on a class next to the outcome
    costs less than on one far from it.

    Parameters
    ----------
    dim
        Number of classes.

    Examples
    --------
    >>> norm = Rps(3)
    >>> norm.square([[1, -1, 0], [1, 0, -1]])
    array([1., 2.])
    """

    _fields = ("dim",)

    def __init__(self, dim: int) -> None:
        self.dim = whole_number("dim", dim, least=1)

    def square(self, vectors: ArrayLike) -> Array:
        """Return `Σ_k (x_1 + … + x_k)²` of each vector, added from left to right."""
        sums = np.add.accumulate(as_points(self, vectors), axis=-1)
        return np.asarray(np.add.accumulate(sums * sums, axis=-1)[..., -1])[()]

    @cached_property
    def matrix(self) -> Array:  # type: ignore[override] # made when asked for
        """`CᵀC`, with C the matrix of cumulative sums."""
        sums = np.tri(self.dim)
        return sums.T @ sums

    @cached_property
    def dual(self) -> Mahalanobis:
        """The norm of the inverse matrix, that of differences."""
        differences = np.eye(self.dim) - np.eye(self.dim, k=-1)
        return Mahalanobis(differences @ differences.T)


class Gauge(Norm):
    """The norm whose unit ball is a given polytope, symmetric about 0.

    Parameters
    ----------
    halfspaces
        Rows `a_i`; the unit ball is `{x : |<a_i, x>| <= 1}`, and the norm `max_i |<a_i, x>|`.
    vertices
        Rows `v_i`; the unit ball is the convex hull of all `±v_i`, and the norm `min {Σ|c_i| : Σ c_i v_i = x}`: one
        linear program a vector. Give one of the two; the dual of one is the other.

    Examples
    --------
    >>> hexagon = Gauge(vertices=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> hexagon([[1.0, 1.0], [1.0, -1.0]])
    array([1., 2.])
    >>> hexagon.dual([1.0, 1.0])
    np.float64(2.0)
    """

    _fields = ("halfspaces", "vertices")

    def __init__(self, *, halfspaces: ArrayLike | None = None, vertices: ArrayLike | None = None) -> None:
        if (halfspaces is None) == (vertices is None):
            raise GeometryError("Gauge takes either halfspaces= or vertices=, not both or neither.")
        self.halfspaces = None if halfspaces is None else finite_array("halfspaces", halfspaces, ndim=2)
        self.vertices = None if vertices is None else finite_array("vertices", vertices, ndim=2)
        self._rows: Array = self.halfspaces if self.halfspaces is not None else self.vertices  # type: ignore[assignment]
        rank = int(np.linalg.matrix_rank(self._rows))
        self.dim = self._rows.shape[1]
        if rank < self.dim:
            what, ball = ("halfspaces", "unbounded") if vertices is None else ("vertices", "flat")
            raise GeometryError(f"the {what} span {rank} of {self.dim} dimensions: the unit ball would be {ball}.")

    def __call__(self, vectors: ArrayLike) -> Array:
        """Return the gauge of each vector along the last axis."""
        array = as_points(self, vectors)
        if self.halfspaces is not None:
            largest: Array = np.max(np.abs(array @ self._rows.T), axis=-1)
            return largest
        flat = array.reshape(-1, array.shape[-1])
        return np.array([self._lift(x) for x in flat]).reshape(array.shape[:-1])[()]

    def _lift(self, x: Array) -> float:
        from scipy.optimize import linprog

        both_signs = np.concatenate([self._rows, -self._rows])
        # LP solvers use absolute tolerances, so the vector is scaled to size 1 first.
        size = float(linf(x))
        if size == 0:
            return 0.0
        solution = linprog(np.ones(len(both_signs)), A_eq=both_signs.T, b_eq=x / size, method="highs")
        if solution.fun is None:
            raise GeometryError(f"the gauge of {x.tolist()} could not be computed: {solution.message}")
        return float(solution.fun) * size

    @cached_property
    def dual(self) -> Gauge:
        """The gauge of the polar polytope: halfspaces become vertices and the other way round."""
        return Gauge(halfspaces=self.vertices, vertices=self.halfspaces)


def _total(entries: Array) -> Array:
    total: Array = np.add.reduce(entries, axis=-1)
    return total


def as_points(owner: Any, points: ArrayLike) -> Array:
    """Return an array whose last axis has the dimension of a set or a norm."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] != owner.dim:
        raise GeometryError(f"{owner!r} was given an array of shape {array.shape}, expected (..., {owner.dim}).")
    return array


def positive_definite(matrix: ArrayLike, *, semi: bool = False) -> Array:
    """Return a symmetric positive (semi)definite matrix as a read-only array; any other raises."""
    array = finite_array("matrix", matrix, ndim=2)
    if array.shape[0] != array.shape[1] or array.shape[0] == 0:
        raise GeometryError(f"matrix has shape {array.shape}, expected a square.")
    if not np.allclose(array, array.T, rtol=1e-12, atol=0):
        raise GeometryError("matrix is not symmetric.", hint="use (matrix + matrix.T) / 2.")
    values = np.linalg.eigvalsh(array)
    least = -1e-12 * max(values[-1], 1e-300) if semi else np.finfo(float).smallest_subnormal
    if values[0] < least:
        expected = "0 or more, which is convex" if semi else "positive ones"
        raise GeometryError(f"matrix has the eigenvalue {values[0]:.3g}, expected {expected}.")
    return array


l1 = Lp(1)
"""The sum of the sizes of the coordinates; on the simplex, twice the total variation distance."""
l2 = Lp(2)
"""The Euclidean norm."""
linf = Lp(math.inf)
"""The size of the largest coordinate."""
_BY_NAME = {"l1": l1, "l2": l2, "linf": linf}


def as_norm(norm: Norm | str, space: Any = None) -> Norm:
    """Return the norm, by its name if that is given: "crps" is that of the set, a `Cdf`.

    Examples
    --------
    >>> as_norm("linf")
    linf
    """
    found: Any = norm
    if isinstance(norm, str):
        found = getattr(space, "crps", None) if norm == "crps" else _BY_NAME.get(norm)
    if isinstance(found, Norm):
        return found
    if isinstance(norm, str) and norm == "crps":
        raise ParameterError("the norm 'crps' is that of a tc.Cdf, or of a tc.Simplex of ordered classes.")
    raise ParameterError.expected("norm", norm, "'l1', 'l2', 'linf', 'crps' or a Norm", hint="for other ℓp, Lp(p).")


def as_distance(distance: Distance | str, space: Any = None) -> Distance:
    """Return the distance, or the norm of a given name.

    Examples
    --------
    >>> as_distance("l2"), as_distance(l2.squared)
    (l2, l2.squared)
    """
    return distance if isinstance(distance, Distance) else as_norm(distance, space)
