"""Hard sequences of outcomes, fixed in advance."""

from __future__ import annotations

import numpy as np

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import UnsupportedError
from treecal.geometry import ConvexSet, vertices


def sign_tree(depth: int, width: int, rng: np.random.Generator) -> Array:
    """Return SignTree: `2**depth` outcomes on `Simplex(2·depth·width + 1)` that are unpredictable at every scale.

    Every dyadic interval at every level draws a random sign for each of its `width` coordinates; the outcome of a round
    shows the signs of all the intervals it lies in, each 1/(depth·width) long, mapped from the ℓ1 ball to the simplex.
    The ℓ1 error per round of every forecaster tried lies above `1/depth`, a floor that is measured, not proven.

    Examples
    --------
    >>> sign_tree(3, 2, np.random.default_rng(0)).shape
    (8, 13)
    """
    depth = whole_number("depth", depth, least=1)
    width = whole_number("width", width, least=1)
    rounds = 2**depth
    signs = np.concatenate(
        [
            np.repeat(rng.choice([-1.0, 1.0], (2**level, width)), rounds >> level, axis=0)
            for level in range(1, depth + 1)
        ],
        axis=1,
    )
    # φ of Lemma D.1: positive and negative parts side by side, and the remainder
    outcomes = np.zeros((rounds, 2 * depth * width + 1))
    outcomes[:, 0:-1:2] = np.maximum(signs, 0) / (depth * width)
    outcomes[:, 1:-1:2] = np.maximum(-signs, 0) / (depth * width)
    return outcomes


def alternation(space: ConvexSet, rounds: int, *, arity: int) -> Array:
    """Return outcomes that alternate in step with a tree: each interval contradicts the one before, at every height.

    The outcome of round t is vertex `(digit sum of t in base arity) mod (number of vertices)`.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> alternation(Simplex(2), 4, arity=2)[:, 0]
    array([1., 0., 0., 1.])
    """
    rounds = whole_number("rounds", rounds, least=1)
    arity = whole_number("arity", arity, least=2)
    corners = vertices(space)
    if corners is None:
        axes = np.eye(space.dim)
        try:
            corners = np.concatenate([space.minimise(-axes), space.minimise(axes)])
        except UnsupportedError as error:
            raise UnsupportedError(f"alternation needs extreme points of the set. {error}") from None
    left = np.arange(rounds)
    swing = np.zeros(rounds, np.int64)
    while left.any():
        left, digit = np.divmod(left, arity)
        swing += digit
    return np.asarray(corners[swing % len(corners)])
