"""Adversaries, which see the forecast before they choose the outcome, and hard sequences that are fixed in advance."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import UnsupportedError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Norm, as_norm, vertices


class Adversary(ABC):
    """Chooses each outcome after the forecast is announced. Subclasses define `outcome`.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> class Stubborn(Adversary):
    ...     def outcome(self, forecast):
    ...         return self.extremes(forecast.mean)[0]
    >>> Stubborn(Simplex(3)).outcome(Forecast([[0.2, 0.3, 0.5]]))
    array([1., 0., 0.])
    """

    def __init__(self, space: ConvexSet) -> None:
        self.space = space
        self._corners = vertices(space)

    def extremes(self, direction: Array) -> Array:
        """Return extreme points to choose from: all vertices, or those farthest along the direction and the axes."""
        if self._corners is not None:
            return self._corners
        axes = np.eye(self.space.dim)
        return self.space.minimise(np.concatenate([-direction[None], direction[None], axes, -axes]))

    @abstractmethod
    def outcome(self, forecast: Forecast) -> Array:
        """Return the outcome that answers the forecast; called once a round."""


class MeanAdversary(Adversary):
    """Plays the point farthest in the direction away from the mean forecast: on the simplex, the least likely class.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> MeanAdversary(Simplex(3)).outcome(Forecast([[0.2, 0.3, 0.5]]))
    array([1., 0., 0.])
    """

    def outcome(self, forecast: Forecast) -> Array:
        """Return the minimiser of `<y, mean − centre>`."""
        return self.space.minimise(forecast.mean - self.space.centre)


class LedgerAdversary(Adversary):
    """Plays the extreme point that raises the calibration error most, given all rounds so far.

    It keeps `V_p = Σ_t x_t(p)(y_t − p)` for every point; the error is `Σ_p ‖V_p‖`, and an outcome y moves the points of
    the forecast by `x(p)(y − p)`.

    Parameters
    ----------
    space
        The set.
    norm
        Norm of the error.
    rng
        Breaks ties; without it the first of equal candidates is played. Early ties are common and steer the rest of
        the game, so average over several seeds to compare forecasters.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import LedgerAdversary, play
    >>> space = tc.Simplex(2)
    >>> play(tc.TreeCal(space, arity=4), LedgerAdversary(space), rounds=500).error("l1") > 0.3
    True
    """

    def __init__(self, space: ConvexSet, *, norm: Norm | str = "l1", rng: np.random.Generator | None = None) -> None:
        super().__init__(space)
        self.norm = as_norm(norm, space)
        self.rng = rng
        self._biases: dict[bytes, Array] = {}

    def outcome(self, forecast: Forecast) -> Array:
        """Return a candidate of greatest error."""
        x = forecast
        names = _names(forecast)
        if len(set(names)) < len(names):
            x = forecast.merged()
            names = _names(x)
        nothing = np.zeros(self.space.dim)
        biases = np.array([self._biases.get(name, nothing) for name in names])
        candidates = self.extremes(x.weights @ biases)
        moved = biases + x.weights[:, None] * (candidates[:, None] - x.points)
        error = self.norm(moved).sum(axis=1)
        ties = np.flatnonzero(error >= error.max() * (1 - 1e-12))
        best = int(ties[0] if self.rng is None else self.rng.choice(ties))
        self._biases.update(zip(names, moved[best], strict=True))
        return np.asarray(candidates[best])


def _names(forecast: Forecast) -> list[bytes]:
    return [row.tobytes() for row in forecast.points + 0.0]


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
