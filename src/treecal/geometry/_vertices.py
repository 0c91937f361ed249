"""The vertices of those sets that have a list of them."""

from __future__ import annotations

import itertools
import math

import numpy as np

from treecal._typing import Array
from treecal.geometry._convex import ConvexSet
from treecal.geometry._polytope import Polytope
from treecal.geometry._sets import Ball, Box, Product, Simplex


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
