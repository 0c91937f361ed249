"""Online Platt, temperature and vector scaling: a few numbers learned by the online Newton step."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from treecal._states import State, check_array
from treecal._typing import Array
from treecal._validate import positive_number
from treecal.correctors._base import Corrector, Kept
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex

LEAST = 1e-6
"""Smaller probabilities are read as this one, so that all logarithms are finite."""
_STEEPEST = 1e6  # the square of a gradient, at most: logarithms are at least −14, and features products of a few

TINIEST = 1e-9
"""Of rate and ridge: with less, curvatures of rounds and ridge differ by more than floats can hold."""
LARGEST = 1e9
"""Of the radius."""


@dataclass(eq=False)
class Newton(State):
    """The state of the online Newton step: the parameters `θ`, and the curvature `A` of the losses so far."""

    theta: Array
    curvature: Array


class Scaling(Corrector):
    """Announces `softmax(F(b)·θ)`, where `F(b)` holds logarithms of the forecast and `θ` is learned online.

    Each round takes one online Newton step on the log loss: with its gradient `∇ = F(b)ᵀ(p − y)`, `A += ∇∇ᵀ`, then
    `θ ← θ − A⁻¹∇/rate`, projected onto `‖θ‖ <= radius` in the norm of `A`. The start is `A = ridge·I` and the identity:
    forecasts stay as they are until outcomes give a reason to change them.

    For any outcomes and any fixed `φ` in the ball, with `c_t = ∇_t·(θ_t − φ)`,
    `Σ(c_t − rate·c_t²/2) <= rate·ridge·‖θ_1 − φ‖²/2 + Σ ∇ᵀA⁻¹∇/(2·rate)`, where for `k` parameters
    `Σ ∇ᵀA⁻¹∇ <= k·ln(1 + Σ‖∇‖²/(k·ridge))`. Where the loss is as curved as `rate` needs, that is, it exceeds its
    tangent by `rate·c²/2` or more, the left side bounds the regret, which is then `O(k log T)`. A subclass defines the
    identity parameters and `F`.

    Parameters
    ----------
    space
        A simplex.
    rate, ridge, radius
        The online Newton step's `γ`, `A_0 = ridge·I`, both at least 1e-9, and the largest `‖θ‖`, at most 1e9.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    A temperature for all classes, and an offset for each:

    >>> from treecal.geometry import Simplex
    >>> class BiasCorrected(Scaling):
    ...     def _identity(self):
    ...         return np.append(1.0, np.zeros(self.space.dim))
    ...
    ...     def _features(self, logs):
    ...         return np.column_stack([logs, np.eye(len(logs))])
    >>> f = BiasCorrected(Simplex(3))
    >>> for _ in range(100):
    ...     x = f.predict([0.2, 0.3, 0.5])
    ...     f.update([1, 0, 0])
    >>> bool(f.predict([0.2, 0.3, 0.5]).mean[0] > 0.9)
    True
    """

    _state: Newton
    method: ClassVar[str]
    """Its name in `treecal recalibrate --method`."""
    _fields = ("space", "rate", "ridge", "radius", "scores", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        *,
        rate: float = 0.1,
        ridge: float = 100.0,
        radius: float = 100.0,
        scores: Kept | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        if not isinstance(space, Simplex):
            raise ParameterError.expected("space", space, "a Simplex, because scaling needs probabilities")
        super().__init__(space, scores=scores, tolerance=tolerance)
        self.rate, self.ridge = (_large_enough(*given) for given in (("rate", rate), ("ridge", ridge)))
        self.radius, identity = positive_number("radius", radius), self._identity()
        if self.radius > LARGEST:
            raise ParameterError.expected("radius", radius, f"at most {LARGEST:g}: a greater one limits nothing")
        if (size := math.sqrt(identity @ identity)) > self.radius:
            raise ParameterError.expected("radius", radius, f"at least {size:g}, the norm of the identity")
        self._state = Newton(identity, self.ridge * np.eye(len(identity)))

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the default, and one whose parameters reach the edge of their ball."""
        with suppress(ParameterError):
            yield cls(space)
            yield cls(space, rate=0.2, ridge=0.5, radius=1.01 * math.sqrt(space.dim))

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return the one method of the class."""
        return {cls.method: cls}

    @property
    def theta(self) -> Array:
        """The current parameters."""
        return np.array(self._state.theta)

    @abstractmethod
    def _identity(self) -> Array:
        """Return the parameters that change nothing."""

    @abstractmethod
    def _features(self, logs: Array) -> Array:
        """Return `F(b)`, `(dim, parameters)`, from the logarithms of `b`."""

    def _map(self, forecast: Array) -> tuple[Array, Array]:
        """Return `F(b)`, and the probabilities it gives."""
        features = self._features(np.log(np.clip(forecast, LEAST, 1.0)))
        scores = features @ self._state.theta
        shares = np.exp(scores - scores.max())
        return features, shares / shares.sum()

    def _announce(self, forecast: Array) -> Forecast:
        return self._point(self._map(forecast)[1])

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        features, p = self._map(forecast)
        gradient = (p - outcome) @ features
        curvature = self._state.curvature + np.multiply.outer(gradient, gradient)
        step = _solve(curvature, gradient, self.ridge) / self.rate
        return {"_state": Newton(project(self._state.theta - step, curvature, radius=self.radius), curvature)}

    def _check(self, state: Newton, rounds: int) -> None:
        count, theta, A = len(self._identity()), state.theta, state.curvature
        check_array("theta", theta, (count,))
        check_array("curvature", A, (count, count))
        if np.abs(theta).max() > LARGEST or np.abs(A).max() > self.ridge + rounds * _STEEPEST:
            raise SnapshotError(f"theta or the curvature is more than {rounds} rounds can give.")
        if math.sqrt(theta @ theta) > self.radius * (1 + 1e-9):
            raise SnapshotError(f"theta is longer than the radius {self.radius:g}.")
        values = np.linalg.eigvalsh(A)
        lost = rounds * float(np.finfo(np.float64).eps) * values[-1]  # of ridge·I, when outer products are added to it
        if not np.allclose(A, A.T, rtol=1e-9, atol=0) or values[0] < self.ridge / 2 - lost:
            raise SnapshotError(f"the curvature is not a symmetric matrix of at least ridge·I, ridge={self.ridge:g}.")


class PlattScaling(Scaling):
    """Two classes: announces `sigmoid(a·logit(b) + c)`, from `a = 1`, `c = 0`. `O(1)` a round.

    Parameters
    ----------
    space
        `Simplex(2)`.
    rate, ridge, radius, scores, tolerance
        As for every `Scaling`; `radius` is the largest `‖(a, c)‖`.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, f = np.random.default_rng(0), tc.PlattScaling(tc.Simplex(2))
    >>> for _ in range(3000):
    ...     b = rng.random()
    ...     odds = np.sqrt(b / (1 - b))  # the model's log odds are twice what they should be
    ...     x = f.predict([1 - b, b])
    ...     f.update([0, 1] if rng.random() < odds / (1 + odds) else [1, 0])
    >>> f.theta.round(1)
    array([0.6, 0. ])

    References
    ----------
    Gupta and Ramdas, "Online Platt Scaling with Calibeating", 2023.
    Hazan, Agarwal and Kale, "Logarithmic regret algorithms for online convex optimization", 2007.
    """

    method = "platt"

    def _identity(self) -> Array:
        if self.space.dim != 2:
            raise ParameterError.expected("space", self.space, "Simplex(2)", hint="for more classes, VectorScaling.")
        return np.array([1.0, 0.0])

    def _features(self, logs: Array) -> Array:
        return np.array([[0.0, 0.0], [logs[1] - logs[0], 1.0]])


class TemperatureScaling(Scaling):
    """One number for any number of classes: announces `softmax(θ·ln b)`, `1/θ` the temperature. `O(dim)` a round.

    Parameters
    ----------
    space
        A simplex.
    rate, ridge, radius, scores, tolerance
        As for every `Scaling`.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.TemperatureScaling(tc.Simplex(3))
    >>> f.predict([0.2, 0.3, 0.5]).mean
    array([0.2, 0.3, 0.5])

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017.
    """

    method = "temperature"

    def _identity(self) -> Array:
        return np.ones(1)

    def _features(self, logs: Array) -> Array:
        return logs[:, None]


class VectorScaling(Scaling):
    """A slope and an offset for each class: announces `softmax(w_i·ln b_i + c_i)`. `O(dim³)` a round.

    Parameters
    ----------
    space
        A simplex.
    rate, ridge, radius, scores, tolerance
        As for every `Scaling`.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.VectorScaling(tc.Simplex(3))
    >>> for y in np.tile(np.eye(3)[:2], (100, 1)):
    ...     x = f.predict([0.2, 0.3, 0.5])
    ...     f.update(y)
    >>> bool(f.predict([0.2, 0.3, 0.5]).mean[2] < 0.1)  # the third class was never the outcome
    True

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017.
    """

    method = "vector"

    def _identity(self) -> Array:
        return np.repeat([1.0, 0.0], self.space.dim)

    def _features(self, logs: Array) -> Array:
        return np.hstack([np.diag(logs), np.eye(len(logs))])


def _large_enough(name: str, value: float) -> float:
    number = positive_number(name, value)
    if number < TINIEST:
        raise ParameterError.expected(name, value, f"{TINIEST:g} or more: floats cannot tell less from 0")
    return number


def _solve(curvature: Array, gradient: Array, ridge: float) -> Array:
    """Return `A⁻¹∇`; where rounding swallowed the ridge and `A` is singular, the shortest solution."""
    try:
        return np.asarray(np.linalg.solve(curvature, gradient))
    except np.linalg.LinAlgError:
        if ridge > np.finfo(np.float64).eps * curvature.trace():
            raise
        return np.asarray(np.linalg.lstsq(curvature, gradient)[0])


def project(point: Array, matrix: Array, *, radius: float) -> Array:
    """Return the point of the Euclidean ball that is nearest in the norm of a positive definite matrix.

    It minimises `(θ − u)ᵀA(θ − u)` over `‖θ‖ <= radius`. For `u` outside the ball `A(θ − u) + λθ = 0`, with the one
    `λ > 0` that puts `θ = (A + λI)⁻¹Au` on the sphere: a root of one variable in the eigenbasis of `A`.
    """
    size = math.sqrt(point @ point)
    if size <= radius:
        return point
    from scipy.optimize import brentq

    values, basis = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-300)  # rounding may make the least of them 0, or less
    inside = basis.T @ point

    def shrunk(multiplier: float) -> Array:
        return np.asarray(values * inside / (values + multiplier))

    def excess(multiplier: float) -> float:
        theta = shrunk(multiplier)
        # 1/‖θ‖ is nearly linear in λ, which suits root finders.
        length = math.sqrt(theta @ theta)
        return radius / length - 1 if length else math.inf

    # Each coordinate shrinks by at most Λ_min/(Λ_min + λ), and at least by Λ_max/(Λ_max + λ).
    low, high = (float(value) * (size / radius - 1) for value in (values[0], values[-1]))
    if excess(low) < 0 < excess(high):
        low = brentq(excess, low, high, xtol=1e-300, rtol=1e-15, maxiter=500)
    theta = shrunk(low if abs(excess(low)) <= abs(excess(high)) else high)
    return np.asarray(basis @ theta * (radius / math.sqrt(theta @ theta)))
