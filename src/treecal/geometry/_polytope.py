"""Polytopes, from their vertices or from their halfspaces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._typing import Array
from treecal._validate import finite_array
from treecal.exceptions import GeometryError
from treecal.geometry._cdf import Cdf
from treecal.geometry._convex import TOLERANCE, ConvexSet, Extent, farthest_pair, frozen, within_reach
from treecal.geometry._norms import Norm, as_norm, as_points, l2, linf
from treecal.geometry._sets import Ball, Box, Product, Simplex


class Polytope(ConvexSet):
    """A bounded polytope: the convex hull of points, or the intersection of halfspaces.

    From vertices, sizes are exact in every norm, and membership and projection are one non-negative least-squares
    problem a point. From halfspaces, membership is a product with `A`, the minimiser is a linear program, and sizes are
    those of the bounding box: exact in ℓ∞, upper bounds elsewhere.

    Parameters
    ----------
    vertices
        Points `(n, d)`, whose mean is the centre. Points inside the hull of the others only move the centre.
    halfspaces
        `(A, b)` for the set `{x : A x <= b}`; its centre is that of the largest ball inside. Give one of the two.

    Examples
    --------
    >>> triangle = Polytope(vertices=[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> triangle.contains([[0.2, 0.2], [1.0, 1.0]])
    array([ True, False])
    >>> triangle.diameter("l1")
    2.0
    >>> square = Polytope(halfspaces=([[1, 0], [-1, 0], [0, 1], [0, -1]], [1, 1, 1, 1]))
    >>> square.diameter("linf"), square.diameter("l1")
    (2.0, 4.0 (upper bound))
    """

    def __init__(
        self, *, vertices: ArrayLike | None = None, halfspaces: tuple[ArrayLike, ArrayLike] | None = None
    ) -> None:
        if (vertices is None) == (halfspaces is None):
            raise GeometryError("Polytope takes either vertices= or halfspaces=(A, b), not both or neither.")
        self.vertices: Array | None = None
        self.halfspaces: tuple[Array, Array] | None = None
        if vertices is not None:
            self.vertices = within_reach("vertices", vertices, ndim=2)
            if self.vertices.size == 0:
                raise GeometryError(f"vertices has shape {self.vertices.shape}, expected one point or more.")
            self.dim = self.vertices.shape[1]
            self.centre = frozen(self.vertices.mean(axis=0))
            self._box = frozen(self.vertices.min(axis=0)), frozen(self.vertices.max(axis=0))
        elif halfspaces is not None:
            A = finite_array("A", halfspaces[0], ndim=2)
            b = finite_array("b", halfspaces[1], ndim=1)
            if len(A) != len(b) or A.size == 0:
                raise GeometryError(f"A has shape {A.shape} and b {b.shape}, expected (m, d) and (m,).")
            steep = l2(A)[:, None]
            if not steep.all():
                raise GeometryError(f"row {int(np.argmin(steep))} of A is all zeros, expected a direction.")
            self.halfspaces = (A, b)
            self._unit = (A / steep, b / steep[:, 0])  # rows of length 1: slacks are then distances
            self.dim = A.shape[1]
            self.centre = frozen(self._chebyshev_centre())
            low, high = super().bounds()
            self._box = within_reach("halfspaces", low), within_reach("halfspaces", high)
        self._size = float(np.abs(self._box).max())

    _fields = ("vertices", "halfspaces")

    def _chebyshev_centre(self) -> Array:
        A, b = self._unit
        # Largest ball inside: maximise ρ with A c + ρ <= b.
        free = [(None, None)] * self.dim
        return _linear_program(np.r_[np.zeros(self.dim), -1.0], np.c_[A, np.ones(len(A))], b, [*free, (0, None)])[:-1]

    def contains(self, points: ArrayLike, *, tol: float = TOLERANCE) -> NDArray[np.bool_]:
        """Return whether each point lies in the polytope, within `tol` times its largest coordinate."""
        p = as_points(self, points)
        if self.halfspaces is not None:
            A, b = self._unit
            with np.errstate(invalid="ignore", over="ignore"):
                return np.asarray((p @ A.T <= b + tol * self._size).all(axis=-1))[()]
        finite = np.abs(p).max(axis=-1) <= 2 * self._size + tol  # far-off, infinite and NaN points need no program
        nearest = self.project(np.where(finite[..., None], p, self.centre))
        return np.asarray(finite & (l2(np.where(finite[..., None], p - nearest, 0.0)) <= tol * self._size))[()]

    def complaint(self, outcome: Array) -> str:
        """Name the halfspace most violated, or the distance from the hull."""
        if self.halfspaces is not None:
            A, b = self.halfspaces
            at = int(np.argmax(self._unit[0] @ outcome - self._unit[1]))
            return f"row {at} of A gives {A[at] @ outcome:.10g}, expected at most {b[at]:g}"
        return f"it is {l2(outcome - self.project(outcome)):.3g} away from the hull of the vertices"

    def minimise(self, direction: ArrayLike) -> Array:
        """Return a vertex with the least inner product, the first where several tie."""
        v = as_points(self, direction)
        if self.vertices is not None:
            return np.asarray(self.vertices[np.argmin(v @ self.vertices.T, axis=-1)])
        free = [(None, None)] * self.dim
        rows = [_linear_program(row, *self._unit, free) for row in v.reshape(-1, self.dim)]
        return np.reshape(rows, v.shape)

    def project(self, points: ArrayLike) -> Array:
        """Return the nearest point, by non-negative least squares (Lawson and Hanson 1974)."""
        p = as_points(self, points)
        onto = self._onto_hull if self.vertices is not None else self._onto_halfspaces
        return np.reshape([onto(row) for row in p.reshape(-1, self.dim)], p.shape)

    def _onto_hull(self, x: Array) -> Array:
        from scipy.optimize import nnls

        assert self.vertices is not None
        # min ‖Σ u_i (v_i − x)‖² + (Σ u_i − 1)² over u >= 0 is solved by a multiple of the barycentric weights:
        # along the ray s·w the least value is m/(1 + m), increasing in m = ‖Σ w_i v_i − x‖².
        rays = self.vertices - x
        scale = max(float(np.abs(rays).max()), np.finfo(float).tiny)
        weights, _ = nnls(np.vstack([rays.T / scale, np.ones(len(rays))]), np.r_[np.zeros(self.dim), 1.0])
        return np.asarray((weights / weights.sum()) @ self.vertices)

    def _onto_halfspaces(self, x: Array) -> Array:
        from scipy.optimize import nnls

        A, b = self._unit
        slack = b - A @ x
        if (slack >= 0).all():
            return x
        # Least-distance programming: z = x + the shortest step with −A·step >= −slack.
        scale = float(np.abs(slack).max())
        system = np.vstack([-A.T, -slack / scale])
        target = np.r_[np.zeros(self.dim), 1.0]
        weights, _ = nnls(system, target)
        residual = system @ weights - target
        return np.asarray(x - scale * residual[:-1] / residual[-1])

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array:
        """Draw mixtures of vertices with uniform weights: from the whole polytope, but not uniformly."""
        count = 1 if size is None else size
        corners = self.vertices
        if corners is None:
            corners = np.vstack([self.minimise(rng.standard_normal((4 * self.dim, self.dim))), self.centre])
        drawn = rng.dirichlet(np.ones(len(corners)), count) @ corners
        return np.asarray(drawn[0] if size is None else drawn)

    def bounds(self) -> tuple[Array, Array]:
        """Return the bounding box."""
        return self._box

    def radius(self, norm: Norm | str, *, about: ArrayLike | None = None) -> Extent:
        """Return the greatest distance from `about`: exact from vertices, and in ℓ∞."""
        norm = as_norm(norm)
        if self.vertices is not None:
            return Extent(norm(self.vertices - self._point("about", about)).max())
        return Extent(super().radius(norm, about=about), exact=norm == linf)

    def circumradius(self, norm: Norm | str) -> Extent:
        """Return half the longest side of the bounding box in ℓ∞; elsewhere a bound, the best of three centres.

        The centres tried are the polytope's own, that of its bounding box, and that of its smallest Euclidean ball,
        which makes the ℓ2 bound sharp to the solver's tolerance.
        """
        norm = as_norm(norm)
        low, high = self.bounds()
        if norm == linf:
            return Extent((high - low).max() / 2)
        centres = [self.centre, low + (high - low) / 2]
        if self.vertices is not None:
            centres.append(self._enclosing_centre)
        return Extent(min(self.radius(norm, about=centre) for centre in centres), exact=False)

    @cached_property
    def _enclosing_centre(self) -> Array:
        """The centre c of the smallest enclosing Euclidean ball: the least s with ‖v_i − c‖² <= s for all i."""
        from scipy.optimize import minimize

        assert self.vertices is not None
        offsets = (self.vertices - self.centre) / (self._size or 1.0)
        inside = {
            "type": "ineq",
            "fun": lambda z: z[-1] - np.square(l2(offsets - z[:-1])),
            "jac": lambda z: np.c_[2 * (offsets - z[:-1]), np.ones(len(offsets))],
        }
        solve: Any = minimize  # its stubs do not know constraints as plain dictionaries
        found = solve(
            lambda z: float(z[-1]),
            np.r_[np.zeros(self.dim), np.square(l2(offsets)).max()],
            jac=lambda z: np.r_[np.zeros(len(z) - 1), 1.0],
            constraints=inside,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 300},
        )
        return np.asarray(self.centre + found.x[:-1] * (self._size or 1.0))

    def diameter(self, norm: Norm | str) -> Extent:
        """Return the greatest distance between two points: exact from vertices, and in ℓ∞."""
        norm = as_norm(norm)
        if self.vertices is not None:
            return farthest_pair(norm, self.vertices)
        return Extent(super().diameter(norm), exact=norm == linf)


def _linear_program(cost: Array, A: Array, b: Array, limits: Sequence[tuple[float | None, float | None]]) -> Array:
    from scipy.optimize import linprog

    solution = linprog(cost, A_ub=A, b_ub=b, bounds=limits, method="highs")
    if solution.x is None:
        raise GeometryError(
            f"halfspaces give no bounded set: {solution.message.strip()}",
            hint="a bounded polytope in R^d needs at least d + 1 halfspaces with a common point.",
        )
    return np.asarray(solution.x)


def log_vertices(space: ConvexSet) -> float | None:
    """Return the logarithm of the number of vertices, or None for a set without a known list of vertices.

    Examples
    --------
    >>> from treecal.geometry import Box, Simplex
    >>> round(math.exp(log_vertices(Box(0, 1, dim=3))))
    8
    """
    if isinstance(space, Simplex):
        return math.log(space.dim)
    if isinstance(space, Cdf):
        return math.log(space.dim + 1)
    if isinstance(space, Box):
        return math.log(2) * int(np.count_nonzero(space.high > space.low))
    if isinstance(space, Ball):
        if space.norm.p == 1 or space.dim == 1:
            return math.log(2 * space.dim)
        return math.log(2) * space.dim if space.norm.p == math.inf else None
    if isinstance(space, Polytope):
        return None if space.vertices is None else math.log(len(np.unique(space.vertices, axis=0)))
    if isinstance(space, Product):
        parts = [log_vertices(part) for part in space.sets]
        return None if None in parts else math.fsum(part for part in parts if part is not None)
    return None


def vertices(space: ConvexSet, *, most: int = 512) -> Array | None:
    """Return the vertices, one a row, or None when they are not known or too many to list.

    Examples
    --------
    >>> from treecal.geometry import Ball
    >>> vertices(Ball(2, norm="l1")).tolist()
    [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    """
    log_count = log_vertices(space)
    if log_count is None or log_count > math.log(most) + 1e-9:
        return None
    if isinstance(space, Simplex):
        return np.eye(space.dim)
    if isinstance(space, Cdf):
        return space.corners()
    if isinstance(space, Polytope):
        assert space.vertices is not None
        return np.unique(space.vertices, axis=0)
    if isinstance(space, Product):
        parts = [vertices(part, most=most) for part in space.sets]
        return np.array([np.concatenate(pick) for pick in itertools.product(*(p for p in parts if p is not None))])
    if isinstance(space, Ball) and space.norm.p == 1:
        reach = float(space.radius(space.norm))
        return space.centre + reach * np.concatenate([np.eye(space.dim), -np.eye(space.dim)])
    low, high = space.bounds()
    return np.unique(list(itertools.product(*zip(low, high, strict=True))), axis=0)
