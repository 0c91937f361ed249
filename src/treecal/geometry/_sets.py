"""Where outcomes live: the simplex, boxes, balls, and products of sets."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import GeometryError, ParameterError, UnsupportedError
from treecal.geometry._convex import (
    TOLERANCE,
    ConvexSet,
    Extent,
    box_norm,
    farthest_pair,
    frozen,
    within_reach,
)
from treecal.geometry._norms import Lp, Norm, Rps, as_norm, as_points, l1, l2

_LEAST = 1 - TOLERANCE
_MOST = 1 + TOLERANCE
SIGNS = slice(7 if sys.byteorder == "little" else 0, None, 8)
"""Where the bytes with the signs of a float64 vector are."""
_COORDINATES = 2**40  # the most that any memory holds
_NAMES = 6  # the most class names in a repr


@lru_cache(maxsize=8)
def _corners(dim: int) -> frozenset[bytes]:
    """Return the bytes of the unit vectors, to recognise a class without arithmetic; none if there are many."""
    return frozenset(row.tobytes() for row in np.eye(dim)) if dim <= 128 else frozenset()


class Simplex(ConvexSet):
    """The probability simplex: `dim` non-negative numbers that sum to 1.

    A vector is inside when its sum is 1 within `tol` and its negative entries sum to at most `tol` in size.

    Its classes may have names. They do not affect arithmetic, but they are part of the set: they are saved with it, and
    sets whose names differ, also in order, are not equal.

    Parameters
    ----------
    dim
        Number of classes.
    classes
        Names of the classes in the order of the coordinates, in place of `dim`.
    ordered
        Whether the classes have an order, as grades have: then the set has the norm "crps", whose square is the ranked
        probability score. Nothing else changes.

    Examples
    --------
    >>> space = Simplex(3)
    >>> space.contains([[0.2, 0.3, 0.5], [0.5, 0.5, 0.5]])
    array([ True, False])
    >>> space.diameter("l1"), space.circumradius("l2")
    (2.0, 0.816496580927726)
    >>> sky = Simplex(classes=["rain", "snow", "sun"])
    >>> sky.dim, sky.classes, sky == space
    (3, ('rain', 'snow', 'sun'), False)
    >>> grades = Simplex(classes=["low", "middle", "high"], ordered=True)
    >>> grades.crps.square([1.0, 0.0, -1.0]), grades.diameter("crps")
    (np.float64(2.0), 1.4142135623730951)
    """

    _fields = ("dim", "classes", "ordered")
    default_norm = l1

    def __init__(self, dim: int | None = None, *, classes: Sequence[str] | None = None, ordered: bool = False) -> None:
        if not isinstance(ordered, bool):
            raise ParameterError.expected("ordered", ordered, "True or False")
        self.ordered = ordered
        if (dim is None) == (classes is None):
            raise ParameterError("Simplex takes either the number of classes or their names, not both or neither.")
        self.classes = None if classes is None else _class_names(classes)
        self.dim = len(self.classes) if self.classes else whole_number("dim", dim, least=1, most=_COORDINATES)
        self.centre = frozen(np.full(self.dim, 1 / self.dim))
        self._ones = np.ones(self.dim)
        self._total = self._ones.dot
        self._corners = _corners(self.dim)
        self._index = {name: k for k, name in enumerate(self.classes or ())}
        self._digits = any(name.removeprefix("-").isdecimal() for name in self._index)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments: the names if there are any, otherwise their number; and the order."""
        found: dict[str, Any] = {"dim": self.dim} if self.classes is None else {"classes": self.classes}
        return found | ({"ordered": True} if self.ordered else {})

    @property
    def crps(self) -> Rps | None:
        """The norm "crps" of ordered classes, whose square is the ranked probability score; None without an order."""
        return Rps(self.dim) if self.ordered else None

    def contains(self, points: ArrayLike, *, tol: float = TOLERANCE) -> NDArray[np.bool_]:
        """Return whether each vector is a probability vector, within `tol`."""
        p = as_points(self, points)
        # Two sums decide, also for NaN: Σp >= 1 − tol and Σ|p| <= 1 + tol.
        return np.asarray((p.dot(self._ones) >= 1 - tol) & (np.abs(p).dot(self._ones) <= 1 + tol))[()]

    def admits(self, outcome: Array) -> bool:
        """Return whether the vector is a probability vector."""
        raw = outcome.tobytes()
        if raw in self._corners:
            return True
        if not raw[SIGNS].isascii():  # a sign bit is set
            return bool(self.contains(outcome))
        total = sum(outcome.tolist()) if self.dim <= 16 else self._total(outcome)  # each faster than the other there
        return bool(_LEAST <= total <= _MOST)  # NaN fails

    def complaint(self, outcome: Array) -> str:
        """Return which entry is negative, or what the entries sum to."""
        if outcome.min() < -TOLERANCE:
            return f"entry {outcome.argmin()} is {outcome.min():.6g}, expected 0 or more"
        return f"entries sum to {outcome.sum():.10g}, expected 1 within {TOLERANCE:g}"

    def minimise(self, direction: ArrayLike) -> Array:
        """Return the vertex of the least coordinate, the first where several tie."""
        v = as_points(self, direction)
        vertex = np.zeros(v.shape)
        np.put_along_axis(vertex, np.argmin(v, axis=-1, keepdims=True), 1.0, axis=-1)
        return vertex

    def project(self, points: ArrayLike) -> Array:
        """Return the nearest probability vector."""
        return _project_simplex(as_points(self, points), 1.0)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array:
        """Draw uniformly from the simplex."""
        return rng.dirichlet(self._ones, size)

    def bounds(self) -> tuple[Array, Array]:
        """Return 0 and 1 (for one class, 1 and 1)."""
        return np.full(self.dim, 1.0 if self.dim == 1 else 0.0), np.ones(self.dim)

    def radius(self, norm: Norm | str, *, about: ArrayLike | None = None) -> Extent:
        """Return the distance of the farthest vertex: exact in every norm. In ℓp it is that of the least coordinate."""
        norm, point = as_norm(norm, self), self._point("about", about)
        vertices = self.minimise(point)[None] if isinstance(norm, Lp) else np.eye(self.dim)
        return Extent(np.max(norm(vertices - point)))

    def circumradius(self, norm: Norm | str) -> Extent:
        """Return the radius about the uniform vector: exact in ℓp, which no permutation changes.

        Of ordered classes in their own norm it is that about the middle of the outer two, as of a `Cdf`.
        """
        norm = as_norm(norm, self)
        if isinstance(norm, Rps):
            return Extent(math.sqrt(self.dim - 1) / 2)
        return Extent(self.radius(norm), exact=isinstance(as_norm(norm), Lp))

    def diameter(self, norm: Norm | str) -> Extent:
        """Return the distance of the farthest two vertices: exact in every norm, `2^(1/p)` in ℓp."""
        norm = as_norm(norm, self)
        if isinstance(norm, Lp):
            return Extent(2 ** (1 / norm.p) if self.dim > 1 else 0.0)
        return farthest_pair(norm, np.eye(self.dim))

    def __repr__(self) -> str:
        order = ", ordered=True" if self.ordered else ""
        if self.classes is None:
            return f"Simplex({self.dim}{order})"
        more = f", … {self.dim} in all" if self.dim > _NAMES else ""
        return f"Simplex(classes=[{', '.join(map(repr, self.classes[:_NAMES]))}{more}]{order})"


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = () if isinstance(classes, str) else tuple(classes)
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ParameterError.expected("classes", classes, "one or more names, distinct and not empty")
    if len(names) > _COORDINATES:
        raise ParameterError.expected("dim", len(names), f"at most {_COORDINATES:,}")
    return tuple(map(str, names))  # NumPy strings become plain ones


class Box(ConvexSet):
    """All vectors between two bounds, coordinate by coordinate.

    Parameters
    ----------
    low, high
        The bounds: vectors, or numbers that hold for every coordinate.
    dim
        Number of coordinates: by default that of the bounds, and 1 where both are numbers.

    Examples
    --------
    >>> Box(0, 1, dim=3).diameter("linf")
    1.0
    >>> Box([0.0, -1.0], [1.0, 1.0]).centre
    array([0.5, 0. ])
    """

    _fields = ("low", "high")

    def __init__(self, low: ArrayLike, high: ArrayLike, *, dim: int | None = None) -> None:
        low = within_reach("low", low)
        high = within_reach("high", high)
        sizes = {array.shape for array in (low, high) if array.shape}
        if dim is not None:
            sizes.add((whole_number("dim", dim, least=1, most=_COORDINATES),))
        shape: tuple[int, ...] = sizes.pop() if len(sizes) == 1 else () if sizes else (1,)
        if len(shape) != 1 or shape[0] == 0:
            raise GeometryError(
                f"low has shape {low.shape} and high {high.shape}, expected vectors of one length.",
                hint="for the same bounds in every coordinate, Box(0, 1, dim=3).",
            )
        self.low = frozen(np.broadcast_to(low, shape))
        self.high = frozen(np.broadcast_to(high, shape))
        if (self.low > self.high).any():
            at = int(np.argmax(self.low > self.high))
            raise GeometryError(f"low[{at}] is {self.low[at]:g}, above high[{at}], which is {self.high[at]:g}.")
        self.dim = shape[0]
        self.centre = frozen(self.low + (self.high - self.low) / 2)
        self._size = np.maximum(np.abs(self.low), np.abs(self.high))

    def contains(self, points: ArrayLike, *, tol: float = TOLERANCE) -> NDArray[np.bool_]:
        """Return whether each vector is within the bounds, within `tol` times the larger bound."""
        p = as_points(self, points)
        slack = tol * self._size
        return np.asarray(((p >= self.low - slack) & (p <= self.high + slack)).all(axis=-1))[()]

    def complaint(self, outcome: Array) -> str:
        """Return the coordinate that is farthest out of bounds."""
        at = int(np.argmax(np.maximum(self.low - outcome, outcome - self.high)))
        return f"entry {at} is {outcome[at]:.10g}, expected {self.low[at]:g} to {self.high[at]:g}"

    def minimise(self, direction: ArrayLike) -> Array:
        """Return the corner against the direction."""
        return np.where(as_points(self, direction) > 0, self.low, self.high)

    def project(self, points: ArrayLike) -> Array:
        """Return the vector clipped to the bounds."""
        return np.clip(as_points(self, points), self.low, self.high)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array:
        """Draw uniformly from the box."""
        return rng.uniform(self.low, self.high, self.dim if size is None else (size, self.dim))

    def circumradius(self, norm: Norm | str) -> Extent:
        """Return the radius about the centre: a symmetric set has its smallest ball there."""
        return self.radius(norm)

    def diameter(self, norm: Norm | str) -> Extent:
        """Return twice the circumradius: exact in ℓp, and in other norms up to 12 coordinates."""
        return box_norm(as_norm(norm), self.high - self.low)


class Ball(ConvexSet):
    """All vectors within a radius of a centre, in an ℓp norm.

    Parameters
    ----------
    dim
        Number of coordinates.
    radius
        Its radius.
    norm
        Its norm: `"l1"`, `"l2"`, `"linf"` or `Lp(p)`.
    centre
        Its centre: a vector, or a number that holds for every coordinate.

    Examples
    --------
    >>> ball = Ball(2)
    >>> ball.diameter("l2"), ball.diameter("l1")
    (2.0, 2.8284271247461903)
    >>> ball.project([3.0, 4.0])
    array([0.6, 0.8])
    """

    _fields = ("dim", "radius", "norm", "centre")

    def __init__(self, dim: int, *, radius: float = 1.0, norm: Norm | str = l2, centre: ArrayLike = 0.0) -> None:
        self.dim = whole_number("dim", dim, least=1, most=_COORDINATES)
        norm = as_norm(norm)
        if not isinstance(norm, Lp):
            raise UnsupportedError(
                f"norm is a {type(norm).__name__}, expected an ℓp norm.",
                hint="for the unit ball of a polytope's gauge use Polytope(vertices=...).",
            )
        self.norm = norm
        self._radius = float(within_reach("radius", radius, ndim=0))
        if self._radius < 0:
            raise ParameterError.expected("radius", radius, "0 or more")
        point = within_reach("centre", centre)
        if point.shape not in ((), (self.dim,)):
            raise GeometryError(f"centre has shape {point.shape}, expected ({self.dim},).")
        self.centre = frozen(np.broadcast_to(point, (self.dim,)))
        self._size = self._radius + float(np.abs(self.centre).max())

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {"dim": self.dim, "radius": self._radius, "norm": self.norm, "centre": self.centre}

    def __repr__(self) -> str:
        radius = "" if self._radius == 1 else f", radius={self._radius:g}"
        norm = "" if self.norm == l2 else f", norm={self.norm!r}"
        same = (self.centre == self.centre[0]).all()
        at = f"{self.centre[0]:g}" if same else str(self.centre.tolist())
        return f"Ball({self.dim}{radius}{norm}{'' if at == '0' else f', centre={at}'})"

    def contains(self, points: ArrayLike, *, tol: float = TOLERANCE) -> NDArray[np.bool_]:
        """Return whether each vector is within the radius, within `tol` times the size of the ball."""
        distance = self.norm(as_points(self, points) - self.centre)
        return np.asarray(distance <= self._radius + tol * self._size)[()]

    def complaint(self, outcome: Array) -> str:
        """Return how far from the centre the vector is."""
        distance = self.norm(outcome - self.centre)
        return f"its {self.norm!r} distance from the centre is {distance:.10g}, expected at most {self._radius:g}"

    def minimise(self, direction: ArrayLike) -> Array:
        """Return the point of the ball farthest against the direction."""
        v = as_points(self, direction)
        p = self.norm.p
        if p == 1:
            step = np.zeros(v.shape)
            pick = np.argmax(np.abs(v), axis=-1, keepdims=True)
            np.put_along_axis(step, pick, self._radius * np.sign(np.take_along_axis(v, pick, axis=-1)), axis=-1)
            return self.centre - step
        size = self.norm.dual(v)[..., None]
        shape = np.divide(v, size, out=np.zeros_like(v), where=size > 0)
        # Equality in Hölder: |q_i| ∝ |v_i|^(p* − 1), where p* − 1 = 1/(p − 1) and 0 for ℓ∞.
        return self.centre - self._radius * np.sign(shape) * np.abs(shape) ** (0.0 if p == math.inf else 1 / (p - 1))

    def project(self, points: ArrayLike) -> Array:
        """Return the nearest point: closed forms for p = 1, 2, ∞, else by bisection to rounding error."""
        x = as_points(self, points) - self.centre
        p = self.norm.p
        r = self._radius
        outside = self.norm(x)[..., None] > r
        if p == math.inf:
            nearest = np.clip(x, -r, r)
        elif p == 2:
            nearest = x * (r / np.where(outside, l2(x)[..., None], 1.0))
        elif p == 1:
            nearest = np.sign(x) * _project_simplex(np.abs(x), r)
        else:
            rows = zip(x.reshape(-1, self.dim), outside.ravel(), strict=True)
            nearest = np.reshape([_project_lp(row, r, p) if out else row for row, out in rows], x.shape)
        return self.centre + np.where(outside, nearest, x)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array:
        """Draw uniformly from the ball (Barthe, Guédon, Mendelson and Naor's representation)."""
        shape = (1 if size is None else size, self.dim)
        p = self.norm.p
        if p == math.inf:
            x = rng.uniform(-1, 1, shape)
        else:
            x = rng.gamma(1 / p, size=shape) ** (1 / p) * rng.choice([-1.0, 1.0], shape)
            x /= (np.sum(np.abs(x) ** p, axis=-1) + rng.exponential(size=shape[0]))[:, None] ** (1 / p)
        return self.centre + self._radius * (x[0] if size is None else x)

    def bounds(self) -> tuple[Array, Array]:
        """Return the centre less and plus the radius."""
        return self.centre - self._radius, self.centre + self._radius

    def circumradius(self, norm: Norm | str) -> Extent:
        """Return the radius about the centre in any norm: in ℓq it is `radius · d^max(0, 1/q − 1/p)`."""
        norm = as_norm(norm)
        p = self.norm.p
        if isinstance(norm, Lp):
            return Extent(self._radius * self.dim ** max(0.0, 1 / norm.p - 1 / p))
        if p == 1:  # a convex function is largest at the vertices ±e_i
            return Extent(self._radius * norm(np.eye(self.dim)).max())
        if p == math.inf:
            return box_norm(norm, np.full(self.dim, self._radius))
        # ‖x‖ <= Σ|x_i|‖e_i‖, then Hölder
        return Extent(self._radius * self.norm.dual(norm(np.eye(self.dim))), exact=False)

    def radius(self, norm: Norm | str, *, about: ArrayLike | None = None) -> Extent:
        """Return the greatest distance from `about`: exact in the ball's own norm, in others about the centre."""
        norm = as_norm(norm)
        shift = self._point("about", about) - self.centre
        own = self.circumradius(norm)
        return Extent(own + norm(shift), exact=norm == self.norm or (own.exact and not shift.any()))

    def diameter(self, norm: Norm | str) -> Extent:
        """Return twice the circumradius: the ball is symmetric."""
        half = self.circumradius(norm)
        return Extent(2 * half, exact=half.exact)


class Product(ConvexSet):
    """The Cartesian product of several sets: vectors with one part in each.

    Parameters
    ----------
    *sets
        The parts, in order; their dimensions add.

    Examples
    --------
    >>> space = Product(Simplex(2), Box(0, 1, dim=1))
    >>> space.dim, space.diameter("l1")
    (3, 3.0)
    """

    _fields = ("sets",)

    def __init__(self, *sets: ConvexSet) -> None:
        if not sets or not all(isinstance(part, ConvexSet) for part in sets):
            raise GeometryError(f"sets are {sets!r}, expected one ConvexSet or more.")
        self.sets = sets
        self.dim = sum(part.dim for part in sets)
        self.centre = frozen(np.concatenate([part.centre for part in sets]))
        self._cuts = list(itertools.accumulate(part.dim for part in sets))[:-1]

    def _split(self, points: ArrayLike) -> list[Array]:
        return np.split(as_points(self, points), self._cuts, axis=-1)

    def contains(self, points: ArrayLike, *, tol: float = TOLERANCE) -> NDArray[np.bool_]:
        """Return whether every part of each vector lies in its set."""
        inside = [part.contains(p, tol=tol) for part, p in zip(self.sets, self._split(points), strict=True)]
        return np.asarray(np.logical_and.reduce(inside))[()]

    def complaint(self, outcome: Array) -> str:
        """Return the first part that lies outside its set, and how."""
        for index, (part, p) in enumerate(zip(self.sets, self._split(outcome), strict=True)):
            if not part.admits(p):
                return f"part {index} lies outside {part!r}: {part.complaint(p)}"
        return super().complaint(outcome)

    def minimise(self, direction: ArrayLike) -> Array:
        """Return the minimisers of the parts."""
        return np.concatenate([s.minimise(v) for s, v in zip(self.sets, self._split(direction), strict=True)], axis=-1)

    def project(self, points: ArrayLike) -> Array:
        """Return the projections of the parts."""
        return np.concatenate([s.project(p) for s, p in zip(self.sets, self._split(points), strict=True)], axis=-1)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array:
        """Draw each part from its set, independently."""
        return np.concatenate([part.sample(rng, size) for part in self.sets], axis=-1)

    def bounds(self) -> tuple[Array, Array]:
        """Return the bounds of the parts."""
        lows, highs = zip(*(part.bounds() for part in self.sets), strict=True)
        return np.concatenate(lows), np.concatenate(highs)

    def radius(self, norm: Norm | str, *, about: ArrayLike | None = None) -> Extent:
        """Return the ℓp norm of the parts' radii; in norms that mix coordinates, a bound."""
        norm = as_norm(norm)
        if not isinstance(norm, Lp):
            return super().radius(norm, about=about)
        parts = self._split(self._point("about", about))
        return _combine(norm, [s.radius(norm, about=p) for s, p in zip(self.sets, parts, strict=True)])

    def circumradius(self, norm: Norm | str) -> Extent:
        """Return the ℓp norm of the parts' circumradii; in norms that mix coordinates, a bound."""
        norm = as_norm(norm)
        if not isinstance(norm, Lp):
            return super().circumradius(norm)
        return _combine(norm, [part.circumradius(norm) for part in self.sets])

    def diameter(self, norm: Norm | str) -> Extent:
        """Return the ℓp norm of the parts' diameters; in norms that mix coordinates, a bound."""
        norm = as_norm(norm)
        if not isinstance(norm, Lp):
            return super().diameter(norm)
        return _combine(norm, [part.diameter(norm) for part in self.sets])

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.sets))})"


def _combine(norm: Lp, parts: list[Extent]) -> Extent:
    return Extent(norm(np.array(parts)), exact=all(part.exact for part in parts))


def _project_simplex(points: Array, total: float) -> Array:
    """Return the nearest points with non-negative entries that sum to `total` (Held, Wolfe and Crowder 1974)."""
    descending = -np.sort(-points, axis=-1)
    excess = (np.cumsum(descending, axis=-1) - total) / np.arange(1, points.shape[-1] + 1)
    support = np.count_nonzero(descending > excess, axis=-1, keepdims=True)
    return np.maximum(points - np.take_along_axis(excess, np.maximum(support, 1) - 1, axis=-1), 0.0)


def _project_lp(x: Array, radius: float, p: float) -> Array:
    """Return the nearest point with ℓp norm `radius`, for an x outside: `z + λ p z^(p−1) = |x|` in each coordinate."""
    from scipy.optimize import brentq

    size = float(np.abs(x).max())
    goal = np.abs(x) / size
    target = radius / size

    def shrunk(multiplier: float) -> Array:
        low = np.zeros_like(goal)
        high = goal.copy()
        for _ in range(60):
            middle = (low + high) / 2
            over = middle + multiplier * p * middle ** (p - 1) > goal
            low = np.where(over, low, middle)
            high = np.where(over, middle, high)
        return (low + high) / 2

    norm = Lp(p)
    top = 1.0
    while norm(shrunk(top)) > target:
        top *= 4
    multiplier = brentq(lambda m: float(norm(shrunk(m))) - target, 0.0, top, xtol=1e-15, rtol=1e-15, maxiter=300)
    z = shrunk(multiplier)
    return np.asarray(np.sign(x) * z * (radius / norm(z)))
