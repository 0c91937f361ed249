"""Convex functions R, and the Bregman divergences that turn calibration into swap regret (Lemma 2.2).

Strong convexity is in the paper's convention, which carries no ½: R is α-strongly convex in ‖·‖ when
`D_R(y|p) >= α‖y − p‖²`. `modulus` gives the best α we can prove, or None.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import GeometryError, ParameterError
from treecal.geometry._norms import Distance, Lp, Mahalanobis, Norm, as_norm, l2, positive_definite
from treecal.geometry._value import Value


class Regularizer(Value, Distance):
    """A convex function `R`, vectorised over leading axes, and the divergence it gives.

    As a distance it measures `D_R(y|p) = R(y) − R(p) − <∇R(p), y − p>`, so that `ledger.error(R)` is the paper's
    `Cal^{D_R}`.

    Examples
    --------
    >>> R = NegativeEntropy()
    >>> isinstance(R, Regularizer), round(float(R.between([0.5, 0.5], [0.25, 0.75])), 3)  # KL, in nats
    (True, 0.144)
    """

    @abstractmethod
    def value(self, points: ArrayLike) -> Array:
        """Return `R(p)` over the last axis."""

    @abstractmethod
    def gradient(self, points: ArrayLike) -> Array:
        """Return `∇R(p)`, of the shape of the points."""

    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return the Bregman divergence `D_R(outcome|forecast)` over the last axis: +inf where it is, never NaN."""
        y = np.asarray(outcomes, dtype=np.float64)
        p = np.asarray(forecasts, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            slope = np.add.reduce(np.where(y == p, 0.0, self.gradient(p) * (y - p)), axis=-1)
            divergence = self.value(y) - self.value(p) - slope
        # inf − inf only arises outside the domain of R, where the divergence is +inf; and convexity makes it
        # non-negative, which rounding does not know.
        return np.maximum(np.where(np.isnan(divergence), np.inf, divergence), 0.0)[()]

    def modulus(self, norm: Norm | str, *, dim: int) -> float | None:
        """Return an α with `D_R(y|p) >= α‖y − p‖²` on the domain in R^dim, or None where none is known."""
        return None


class SquaredEuclidean(Regularizer):
    """`R(p) = ‖p‖₂²`, whose divergence is the squared Euclidean distance: 1-strongly convex in ℓ2.

    Examples
    --------
    >>> SquaredEuclidean().between([1.0, 0.0], [0.0, 1.0])
    np.float64(2.0)
    >>> SquaredEuclidean().modulus("l1", dim=4)
    0.25
    """

    _fields = ()

    def value(self, points: ArrayLike) -> Array:
        """Return `‖p‖₂²`."""
        return l2.square(points)

    def gradient(self, points: ArrayLike) -> Array:
        """Return `2p`."""
        return 2 * np.asarray(points, dtype=np.float64)

    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return `‖outcome − forecast‖₂²`, with no cancellation."""
        return l2.squared.between(outcomes, forecasts)

    def modulus(self, norm: Norm | str, *, dim: int) -> float | None:
        """Return the least `‖x‖₂² / ‖x‖²`: `d^(1−2/p)` for p < 2, 1 for p >= 2, `1/λ_max` for an ellipsoid."""
        norm = as_norm(norm)
        if isinstance(norm, Lp):
            return math.pow(dim, min(0.0, 1 - 2 / norm.p))
        return 1 / float(np.linalg.eigvalsh(norm.matrix)[-1]) if isinstance(norm, Mahalanobis) else None


class NegativeEntropy(Regularizer):
    """`R(p) = Σ p_i ln p_i` on the non-negative orthant; its divergence is Kullback and Leibler's.

    On the simplex `KL(y|p)` is at least `½‖y − p‖₁²` (Pinsker), hence at least `‖y − p‖₂²` and `2‖y − p‖_∞²`, since a
    zero-sum vector has `‖x‖₂² <= ½‖x‖₁²` and `‖x‖_∞ <= ½‖x‖₁`. The paper calls it 1-strongly convex in ℓ1; in the
    paper's own convention it is ½ (erratum 3). Its divergence is infinite where a forecast gives an outcome
    probability 0. Entries down to −1e-9 count as 0, as they do for the sets; below that R is +inf.

    Examples
    --------
    >>> NegativeEntropy().between([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]])
    array([ 0., inf])
    >>> NegativeEntropy().modulus("l1", dim=7)
    0.5
    """

    _fields = ()

    @staticmethod
    def _domain(points: ArrayLike) -> Array:
        array = np.asarray(points, dtype=np.float64)
        return np.where(array < 0, np.where(array >= -1e-9, 0.0, -1.0), array)

    def value(self, points: ArrayLike) -> Array:
        """Return `Σ p_i ln p_i`, with `0 ln 0 = 0`, and +inf outside the orthant."""
        from scipy.special import entr

        entropy: Array = np.add.reduce(entr(self._domain(points)), axis=-1)
        return -entropy

    def gradient(self, points: ArrayLike) -> Array:
        """Return `1 + ln p_i`, which is −inf where `p_i = 0`."""
        with np.errstate(divide="ignore"):
            return 1 + np.log(np.maximum(self._domain(points), 0))

    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return `Σ y_i ln(y_i/p_i) − y_i + p_i`."""
        from scipy.special import kl_div

        divergence: Array = np.add.reduce(kl_div(self._domain(outcomes), self._domain(forecasts)), axis=-1)
        return divergence

    def modulus(self, norm: Norm | str, *, dim: int) -> float | None:
        """Return the modulus on the simplex: ½ in ℓ1, rising to 1 in ℓ2 and 2 in ℓ∞."""
        norm = as_norm(norm)
        # Between 1 and ∞ the norm of a zero-sum vector is at most 2^(1/p − 1) times its ℓ1 norm.
        return 0.5 * 4 ** (1 - 1 / norm.p) if isinstance(norm, Lp) else None


class SmoothedEntropy(Regularizer):
    """`R(p) = 8 Σ q_i ln q_i` with `q = (p + u)/2`, `u` uniform: the entropy, bounded (erratum 3).

    1-strongly convex in ℓ1 on the simplex, as the paper's proofs need, and `D_R <= 4 ln(d + 1)` there.

    Parameters
    ----------
    dim
        Number of coordinates `d`.

    Examples
    --------
    >>> R = SmoothedEntropy(3)
    >>> bool(1 <= R.between([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]) <= 4 * np.log(4))
    True
    """

    _fields = ("dim",)

    def __init__(self, dim: int) -> None:
        self.dim = whole_number("dim", dim, least=1)

    def _smooth(self, points: ArrayLike) -> Array:
        return (np.asarray(points, dtype=np.float64) + 1 / self.dim) / 2

    def value(self, points: ArrayLike) -> Array:
        """Return `8 Σ q_i ln q_i`."""
        return 8 * NegativeEntropy().value(self._smooth(points))

    def gradient(self, points: ArrayLike) -> Array:
        """Return `4 (1 + ln q_i)`."""
        return 4 * NegativeEntropy().gradient(self._smooth(points))

    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return `8 KL(q_y | q_p)`."""
        return 8 * NegativeEntropy().between(self._smooth(outcomes), self._smooth(forecasts))

    def modulus(self, norm: Norm | str, *, dim: int) -> float | None:
        """Return the modulus on the simplex: twice the plain entropy's, so 1 in ℓ1."""
        plain = NegativeEntropy().modulus(norm, dim=dim)
        return None if plain is None else 2 * plain


class PNorm(Regularizer):
    """`R(p) = ‖p‖_q²` for an exponent `1 < q`; (q − 1)-strongly convex in ℓq when `q <= 2`.

    Parameters
    ----------
    exponent
        `q`. Near `1 + 1/ln d` it serves the ℓ1 ball almost as entropy serves the simplex.

    Examples
    --------
    >>> PNorm(1.5).modulus(Lp(1.5), dim=10)
    0.5
    """

    _fields = ("exponent",)

    def __init__(self, exponent: float) -> None:
        if not 1 < exponent < np.inf:
            raise ParameterError.expected("exponent", exponent, "a number above 1")
        self.exponent = float(exponent)

    def value(self, points: ArrayLike) -> Array:
        """Return `‖p‖_q²`."""
        return np.square(Lp(self.exponent)(points))

    def gradient(self, points: ArrayLike) -> Array:
        """Return `2‖p‖_q · sign(p_i)(|p_i|/‖p‖_q)^(q−1)`, which is 0 at 0."""
        p = np.asarray(points, dtype=np.float64)
        size = Lp(self.exponent)(p)[..., None]
        shape = np.divide(p, size, out=np.zeros_like(p), where=size > 0)
        return 2 * size * np.sign(shape) * np.abs(shape) ** (self.exponent - 1)

    def modulus(self, norm: Norm | str, *, dim: int) -> float | None:
        """Return `q − 1` in ℓq for `q <= 2`, corrected by the ratio of the two norms in ℓp."""
        norm = as_norm(norm)
        if self.exponent > 2 or not isinstance(norm, Lp):
            return None
        return (self.exponent - 1) * math.pow(dim, 2 * min(0.0, 1 / self.exponent - 1 / norm.p))


class QuadraticForm(Regularizer):
    """`R(p) = pᵀ A p`: 1-strongly convex in `Mahalanobis(A)`.

    Parameters
    ----------
    matrix
        `A`, symmetric and positive definite.

    Examples
    --------
    >>> QuadraticForm([[2.0, 0.0], [0.0, 1.0]]).between([1.0, 1.0], [0.0, 0.0])
    np.float64(3.0000000000000004)
    """

    _fields = ("matrix",)

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = positive_definite(matrix)
        self._norm = Mahalanobis(self.matrix)

    def value(self, points: ArrayLike) -> Array:
        """Return `pᵀ A p`."""
        return self._norm.square(points)

    def gradient(self, points: ArrayLike) -> Array:
        """Return `2 A p`."""
        return 2 * np.asarray(points, dtype=np.float64) @ self.matrix

    def between(self, outcomes: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return `(y − p)ᵀ A (y − p)`, with no cancellation."""
        return self._norm.squared.between(outcomes, forecasts)

    def modulus(self, norm: Norm | str, *, dim: int) -> float | None:
        """Return the least `xᵀAx / ‖x‖²`: by eigenvalues for ellipsoids, through ℓ2 for ℓp."""
        norm = as_norm(norm)
        if isinstance(norm, Mahalanobis):
            whitened = np.linalg.solve(norm.matrix, self.matrix)
            return float(np.linalg.eigvals(whitened).real.min())
        in_l2 = SquaredEuclidean().modulus(norm, dim=dim)
        return None if in_l2 is None else in_l2 * float(np.linalg.eigvalsh(self.matrix)[0])


class CustomRegularizer(Regularizer):
    """Any convex function, from its value and its gradient.

    Parameters
    ----------
    value
        Maps points `(..., d)` to `R(p)` of shape `(...)`.
    gradient
        Maps points `(..., d)` to `∇R(p)` of the same shape.

    Examples
    --------
    >>> quartic = CustomRegularizer(lambda p: (p**4).sum(-1), lambda p: 4 * p**3)
    >>> quartic.between([1.0], [0.0])
    np.float64(1.0)
    """

    def __init__(self, value: Callable[[Array], Array], gradient: Callable[[Array], Array]) -> None:
        self._value = value
        self._gradient = gradient

    def _ask(self, what: str, function: Callable[[Array], Array], points: ArrayLike, shape_drop: int) -> Array:
        array = np.asarray(points, dtype=np.float64)
        answer = np.asarray(function(array), dtype=np.float64)
        expected = array.shape[: array.ndim - shape_drop]
        if answer.shape != expected:
            raise GeometryError(f"the {what} has shape {answer.shape} for points {array.shape}, expected {expected}.")
        if np.isnan(answer).any():
            raise GeometryError(f"the {what} is NaN at a point of the set.", hint="return +inf outside its domain.")
        return answer[()]

    def value(self, points: ArrayLike) -> Array:
        """Return the given function's value."""
        return self._ask("value", self._value, points, 1)

    def gradient(self, points: ArrayLike) -> Array:
        """Return the given gradient."""
        return self._ask("gradient", self._gradient, points, 0)
