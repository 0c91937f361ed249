"""What every set of outcomes offers.

Every set has a centre and knows which points it contains; most have a size in any norm, a linear minimiser, a Euclidean
projection and a way to draw points. What a set does not support raises with the reason. Methods are vectorised over
leading axes.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from typing import ClassVar, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._typing import Array
from treecal._validate import finite_array
from treecal.exceptions import GeometryError, ParameterError, UnsupportedError
from treecal.geometry._norms import Norm, as_norm, l2
from treecal.geometry._value import Value

TOLERANCE = 1e-9
"""How far outside a set a point may lie and still count as inside, relative to the size of the set."""

ROUNDING = 1e-6
"""How far from the simplex forecasts may lie by default: as far as float32 and six decimals round them."""

LARGEST = 2.0**500
"""The largest coordinate a set may have: sums of 2^60 outcomes, and squares of their gaps, then stay finite."""


class Extent(float):
    """A length, and whether it is exact or an upper bound.

    Examples
    --------
    >>> Extent(2.0), Extent(2.5, exact=False)
    (2.0, 2.5 (upper bound))
    """

    exact: bool

    def __new__(cls, value: SupportsFloat, *, exact: bool = True) -> Extent:
        """Make the number."""
        self = super().__new__(cls, value)
        self.exact = exact
        return self

    def __repr__(self) -> str:
        return float.__repr__(self) + ("" if self.exact else " (upper bound)")


class ConvexSet(Value):
    """A bounded convex set in R^dim. A subclass needs only `dim`, `centre` and `contains`.

    Everything else has a default: sizes follow from `minimise` where it exists, and what is not supported raises.

    Examples
    --------
    >>> from treecal.geometry import l2
    >>> class Disc(ConvexSet):
    ...     dim, centre = 2, np.zeros(2)
    ...     def contains(self, points, *, tol=TOLERANCE):
    ...         return l2(points) <= 1 + tol
    >>> Disc().diameter("l2")
    Traceback (most recent call last):
    ...
    treecal.exceptions.UnsupportedError: <Disc> has no linear minimiser: its class defines no minimise().
    """

    dim: int
    centre: Array
    default_norm: ClassVar[Norm] = l2
    """The norm of errors on the set where none is named: ℓ1 on the simplex, ℓ2 elsewhere."""

    @abstractmethod
    def contains(self, points: ArrayLike, *, tol: float = TOLERANCE) -> NDArray[np.bool_]:
        """Return whether each point along the last axis lies in the set, within `tol` times the set's size."""

    def admits(self, outcome: Array) -> bool:
        """Return whether one float64 vector of the right length is a valid outcome: finite and inside."""
        return bool(np.abs(outcome).max() <= LARGEST) and bool(self.contains(outcome))

    def complaint(self, outcome: Array) -> str:
        """Return how a point lies outside the set, for error messages."""
        return "contains() is False"

    def minimise(self, direction: ArrayLike) -> Array:
        """Return a point `q` of the set with the least `<q, direction>`."""
        raise UnsupportedError.by(self, "linear minimiser", "its class defines no minimise()")

    def project(self, points: ArrayLike) -> Array:
        """Return the nearest point of the set in Euclidean distance."""
        raise UnsupportedError.by(self, "Euclidean projection", "its class defines no project()")

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array:
        """Draw one point, or `size` points, from the set: uniformly where that is easy."""
        raise UnsupportedError.by(self, "sampling", "its class defines no sample()")

    def bounds(self) -> tuple[Array, Array]:
        """Return the least and the greatest value of each coordinate over the set."""
        axes = np.eye(self.dim)
        return np.diagonal(self.minimise(axes)).copy(), np.diagonal(self.minimise(-axes)).copy()

    def radius(self, norm: Norm | str, *, about: ArrayLike | None = None) -> Extent:
        """Return the greatest distance of a point of the set from `about`, by default the centre."""
        low, high = self.bounds()
        point = self._point("about", about)
        return box_norm(as_norm(norm), np.maximum(high - point, point - low))

    def circumradius(self, norm: Norm | str) -> Extent:
        """Return the radius of the smallest ball of this norm that holds the set."""
        return Extent(self.radius(norm), exact=False)

    def diameter(self, norm: Norm | str) -> Extent:
        """Return the greatest distance between two points of the set."""
        low, high = self.bounds()
        return Extent(min(box_norm(as_norm(norm), high - low), 2 * self.circumradius(norm)), exact=False)

    def _point(self, name: str, value: ArrayLike | None) -> Array:
        """Return a vector of R^dim, by default the centre."""
        point = self.centre if value is None else finite_array(name, value, ndim=1)
        if point.shape != (self.dim,):
            raise ParameterError(f"{name} has shape {point.shape}, expected ({self.dim},).")
        return point


def frozen(array: Array) -> Array:
    """Return a read-only float64 copy."""
    array = np.array(array, dtype=np.float64)
    array.setflags(write=False)
    return array


def within_reach(name: str, value: ArrayLike, *, ndim: int | None = None) -> Array:
    """Return a read-only float64 copy whose sums and squares stay finite; others raise."""
    array = finite_array(name, value, ndim=ndim)
    if array.size and np.abs(array).max() > LARGEST:
        raise GeometryError(
            f"{name} reaches {np.abs(array).max():g}; beyond {LARGEST:.2g} sums and squares overflow.",
            hint="rescale the units.",
        )
    return array


def box_norm(norm: Norm, reach: Array) -> Extent:
    """Return the greatest `‖x‖` over `|x_i| <= reach_i`."""
    if norm.absolute:
        return Extent(norm(reach))
    if len(reach) <= 12:  # a convex function is largest at the corners
        corners = np.array(list(itertools.product([-1.0, 1.0], repeat=len(reach))))
        return Extent(norm(corners * reach).max())
    return Extent(norm(np.eye(len(reach))) @ reach, exact=False)


def farthest_pair(norm: Norm, vertices: Array) -> Extent:
    """Return the greatest distance between two of the vertices."""
    return Extent(max(float(norm(vertices[i:] - vertex).max()) for i, vertex in enumerate(vertices)))
