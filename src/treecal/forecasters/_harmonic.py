"""Harmonic: averaging and replay with the weights 1, 1/3, 1/5, …, and its whole run's error by FFT."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._sums import two_sum
from treecal._typing import Array, Integers
from treecal._validate import finite_array
from treecal.exceptions import OutcomeError, UnsupportedError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space
from treecal.geometry import ConvexSet, Lp, Mahalanobis, Norm, as_norm, l2
from treecal.geometry._outcomes import checked_start
from treecal.theory import Certificate, Replay, spectral_certificate
from treecal.theory._jensen import euclidean

_STEP = 0.25  # of ln u: the relative error of every weight is then 2·|Γ(1 + 2πi/_STEP)| < 2e-16
_SLOWEST = -53 * math.log(2)  # ln(2u·t) of a rate that over the whole past has faded by no more than a rounding
_FASTEST = math.ceil(math.log(40) / _STEP)  # e^(−u) < 1e-17 beyond


class Harmonic(Forecaster):
    """Harmonic averaging and replay: no parameters, no horizon, and a better rate than any tree.

    After round `t` it stores the harmonically weighted mean of the outcomes, `p_t ∝ Σ_{s≤t} y_s / (2(t−s)+1)`; in round
    `t` it announces the points stored so far with the same weights, `p_s` with `1 / (h_t·(2(t−s)−1))`, where
    `h_t = Σ_{j<t} 1/(2j+1)`. The calibration error per round is at most `9γ/h_T`, with `γ <= π/2` on the unit ball in
    ℓ2 and `γ = O(log d)` on the simplex in ℓ1 and on the cube in ℓ∞.

    The mean is not summed anew each round: `1/(2k+1) = ∫ e^{−(2k+1)u} du`, and the trapezoidal rule in `ln u` with step
    1/4 is right to a relative `2|Γ(1 + 8πi)| < 2e-16` for every `k` at once. So the stored point is a combination of
    sums that fade at fixed rates; slower ones come in as rounds go by, and no horizon is needed. An update costs
    `O(dim·log T)`: `4·ln T + 170` rates. What is left is rounding. Measured, the relative error is 2e-13 after 10^5
    rounds of a constant outcome, where all roundings point one way, and grows like `T` there; elsewhere it is 2e-15.

    A forecast is a view of the stored points: announcing it and drawing from it cost O(1), its weights are written out
    when they are asked for, and recording it in a ledger costs `O(T·dim)`. The points are kept for ever, as they must
    be: memory is `O(T·dim)`. For a whole run's error at once see `harmonic_error`.

    Parameters
    ----------
    space
        The set outcomes lie in.
    start
        The first forecast; by default the set's centre.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.Harmonic(tc.Simplex(2))
    >>> for y in [[1, 0], [0, 1]]:
    ...     f.update(y)
    >>> x = f.predict()
    >>> x.points, x.weights  # p_1 = (y_0/3 + y_1) / (1 + 1/3)
    (array([[1.  , 0.  ],
           [0.25, 0.75]]), array([0.25, 0.75]))
    >>> x.sample(np.random.default_rng(0))
    array([0.25, 0.75])

    References
    ----------
    Fishelson and Mohri, the sequel to "High-Dimensional Calibration from Swap Regret", 2026.
    Beylkin and Monzón, "Approximation by exponential sums revisited", 2010, for sums of exponentials.
    """

    _fields = ("space", "start")

    def __init__(self, space: ConvexSet, *, start: ArrayLike | None = None) -> None:
        self.space = checked_space(space)
        self.start = checked_start(space, start)
        self._points = _Rows(np.empty((0, space.dim)))
        self._average = _Fading(space.dim)
        self._norm = (0.0, 0.0)  # h_t, and what rounding lost of it

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return len(self._points)

    def _announce(self) -> Forecast:
        if not self.rounds:
            return Forecast.trusted(self.start[None], uniform(1), _START, self.space)
        return _Replay(self._points.view(), sum(self._norm), self.space)

    def _learn(self, outcome: Array) -> None:
        total, lost = two_sum(np.float64(self._norm[0]), np.float64(1 / (2 * self.rounds + 1)))  # type: ignore[arg-type]
        self._norm = float(total), self._norm[1] + float(lost)
        self._points.append(self._average.add(outcome, self.rounds) / sum(self._norm))

    def get_state(self) -> dict[str, Any]:
        """Return the stored points, `h_t` in two parts, and what the next point is made from."""
        return {"points": self._points.view().copy(), "norm": list(self._norm), **self._average.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self._points = _Rows(state["points"])
        self._norm = state["norm"][0], state["norm"][1]
        self._average.set_state(state)
        self._announced = None

    name = "harmonic"

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        """Certify numerically up to 10^5 rounds, which takes most of a minute there; beyond by `9γ/h`, `γ = π/2`.

        Both are for ℓ2 in the unit ball (the second is Fishelson and Mohri's) and carry over to a norm with
        `‖x‖² <= ‖x‖₂²/α` on the directions of the set.
        """
        gap = euclidean(self.space, norm)
        if gap is None:
            raise UnsupportedError(f"{norm!r} is not within a known factor of an ellipsoidal norm.")
        reach = math.sqrt(gap.value)  # the circumradius, times the factor between the norms
        if rounds > 10**5:
            logarithm = math.fsum(1 / (2 * j + 1) for j in range(1000)) + math.log((2 * rounds + 1) / 2001) / 2
            return Certificate(9 * math.pi / 2 * reach / logarithm, "analytic bound, 9γ/h")
        # The first forecast is the start point, which need not be the centre of the smallest ball.
        first = float(self.space.radius(norm if isinstance(norm, Lp | Mahalanobis) else l2, about=self.start))
        bound = _in_the_unit_ball(rounds) * reach + max(0.0, first - reach) / rounds
        return Certificate(bound, "spectral certificate")


@lru_cache(maxsize=256)
def _in_the_unit_ball(rounds: int) -> float:
    return spectral_certificate(Replay.harmonic(rounds)).bound


_START = np.array([[1, 0]])  # the node of the first forecast, which is not a stored point


class _Replay(Forecast):
    """The first points of the store, weighted 1, 1/3, 1/5, … from the newest back."""

    __slots__ = ("_total", "_written")

    def __init__(self, points: Array, total: float, space: ConvexSet) -> None:
        points.setflags(write=False)
        self._points, self._total, self._space = points, total, space
        self._written: tuple[Array, Integers] | None = None

    def _write_out(self) -> tuple[Array, Integers]:
        """Return weights and nodes, written out when first asked for: a draw needs neither."""
        if self._written is None:
            count = len(self)
            weights = odd_reciprocals(count)[::-1] / self._total
            nodes = np.column_stack([np.zeros(count, np.int64), np.arange(count)])
            weights.setflags(write=False)
            nodes.setflags(write=False)
            self._written = weights, nodes
        return self._written

    @property
    def weights(self) -> Array:
        """The weights, `(n,)`, read-only."""
        return self._write_out()[0]

    @property
    def nodes(self) -> Integers:
        """The stored points, each under its number, `(n, 2)` as (0, number), read-only."""
        return self._write_out()[1]

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw one point, in O(1): by inversion under `1/(2k+1) <= ½ ln((k+1)/k)`, refusing 1 draw in 27 or fewer."""
        count = len(self)
        while True:
            at = rng.random() * (1 + math.log(count) / 2)
            lag = 0 if at < 1 else min(int(math.exp(2 * (at - 1))), count - 1)
            if lag == 0 or rng.random() * (2 * lag + 1) * math.log1p(1 / lag) <= 2:
                return np.asarray(self._points[count - 1 - lag])

    def __reduce__(self) -> tuple[Any, ...]:
        return _Replay, (self.points, self._total, self.space)


class _Fading:
    """`Σ_s y_s / (2(t−s)+1)` kept up in `O(dim·log t)` a round, as sums that fade by `e^{−2u}` a round, `u = e^{ih}`.

    `Σ_{i∈Z} h·u_i·e^{−(2k+1)u_i} = (1 + Σ_{n≠0} Γ(1 + 2πin/h)·(2k+1)^{−2πin/h}) / (2k+1)` (Poisson's summation), so
    the rule's relative error is at most `2Σ_n |Γ(1 + 2πin/h)|`, for all k. Rates `i` above `_FASTEST` add nothing to
    that. Slow ones add nothing as long as `2u·t < 2^-53`; a rate comes in when it passes that, with the plain sum of
    all outcomes before, of which it has forgotten nothing.
    """

    def __init__(self, dim: int) -> None:
        self._plain = np.zeros(dim)
        self._sums = np.zeros((0, dim))
        self._fit(_FASTEST + 1 - math.floor((_SLOWEST - math.log(2)) / _STEP))

    def _fit(self, count: int) -> None:
        """Have so many rates; those that are new start from the plain sum."""
        index = _FASTEST - np.arange(count)
        rates = np.exp(_STEP * index)[:, None]
        self._fade = -np.expm1(-2 * rates)  # subtracting this share keeps the rate to full precision, however slow
        self._share = _STEP * rates * np.exp(-rates)
        self._enough = math.exp(_SLOWEST - _STEP * (index[-1] - 1)) / 2  # rounds until the next rate will matter
        self._sums = np.concatenate([self._sums, np.tile(self._plain, (count - len(self._sums), 1))])

    def add(self, outcome: Array, rounds: int) -> Array:
        if rounds >= self._enough:
            self._fit(len(self._sums) + 1)
        self._sums -= self._fade * self._sums
        self._sums += outcome
        self._plain = self._plain + outcome
        # Added up row by row, not by BLAS: no class is then rounded otherwise than another.
        total: Array = np.add.reduce(self._share * self._sums, axis=0)
        return total

    def get_state(self) -> dict[str, Any]:
        return {"sums": self._sums.copy(), "plain": self._plain.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._plain, self._sums = np.array(state["plain"]), np.array(state["sums"])
        self._fit(len(self._sums))


class _Rows:
    """Rows that are only ever added to, so that a view of the first of them stays true."""

    def __init__(self, rows: Array) -> None:
        self._buffer, self._count = np.array(rows), len(rows)

    def __len__(self) -> int:
        return self._count

    def append(self, row: Array) -> None:
        if self._count == len(self._buffer):  # double, so that rows cost O(1) each
            self._buffer = np.concatenate([self._buffer, np.empty((max(16, self._count), self._buffer.shape[1]))])
        self._buffer[self._count] = row
        self._count += 1

    def view(self) -> Array:
        return self._buffer[: self._count]


def odd_reciprocals(count: int) -> Array:
    """Return 1, 1/3, 1/5, …, so many of them, read-only.

    Examples
    --------
    >>> odd_reciprocals(3)
    array([1.        , 0.33333333, 0.2       ])
    """
    return _reciprocal_table(max(count - 1, 0).bit_length())[:count]


@cache
def _reciprocal_table(bits: int) -> Array:
    table = 1 / (2 * np.arange(2**bits) + 1)
    table.setflags(write=False)
    return table


def harmonic_error(
    outcomes: ArrayLike,
    *,
    space: ConvexSet,
    norm: Norm | str = "l1",
    start: ArrayLike | None = None,
    total: bool = False,
) -> float:
    """Return the per-node calibration error of a whole run of `Harmonic`, by FFT in `O(dim·T·log T)`.

    Stored points and the outcomes they met are two convolutions with 1, 1/3, 1/5, …: with `m_s = Σ_{t>s} Q_ts` and
    `Q_ts = 1/(h_t·(2(t−s)−1))` the error is `‖y_0 − start‖ + Σ_s ‖Σ_{t>s} Q_ts·y_t − m_s·p_s‖`.

    Parameters
    ----------
    outcomes
        The outcomes in order, `(T, dim)`, `T >= 1`.
    space, start
        As for `Harmonic`.
    norm
        What gaps are measured in.
    total
        Sum over rounds instead of the mean.

    Examples
    --------
    >>> import treecal as tc
    >>> outcomes, space = np.eye(2)[[0, 1, 1, 0, 1]], tc.Simplex(2)
    >>> f, ledger = tc.Harmonic(space), tc.Ledger(space)
    >>> for y in outcomes:
    ...     ledger.record(f.predict(), y)
    ...     f.update(y)
    >>> round(ledger.error("l1", per_node=True), 12) == round(harmonic_error(outcomes, space=space), 12)
    True
    """
    y = finite_array("outcomes", outcomes, ndim=2)
    if y.shape[0] == 0 or y.shape[1] != space.dim:
        raise OutcomeError(f"outcomes have shape {y.shape}, expected (rounds, {space.dim}) with one round or more.")
    inside = space.contains(y)
    if not inside.all():
        at = int(np.argmin(inside))
        raise OutcomeError.at(at + 1, f"lies outside {space!r}: {space.complaint(y[at])}.")
    first = as_norm(norm)(y[0] - checked_start(space, start))
    lags = odd_reciprocals(len(y))
    totals = np.cumsum(lags)[:, None]  # h_1, …, h_T
    stored = _convolve(lags, y)[:-1] / totals[:-1]
    # Backwards in time replaying is the same convolution: round t = s + 1 + k meets point s with weight 1/(2k+1).
    met = np.column_stack([np.ones(len(y) - 1), y[1:]]) / totals[:-1]
    met = _convolve(lags[:-1], met[::-1])[::-1]
    error = math.fsum([float(first), *as_norm(norm)(met[:, 1:] - met[:, :1] * stored)])
    return error if total else error / len(y)


def _convolve(lags: Array, columns: Array) -> Array:
    """Return `Σ_{k<=t} lags[k]·columns[t−k]` for every t."""
    from scipy.fft import irfft, next_fast_len, rfft

    count = len(columns)
    if count == 0:
        return columns
    size = next_fast_len(2 * count - 1, real=True)
    product = rfft(lags, size)[:, None] * rfft(columns, size, axis=0)
    return np.asarray(irfft(product, size, axis=0)[:count])
