"""Harmonic: averaging and replay with the weights 1, 1/3, 1/5, …, and its whole run's error by FFT."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._elementary import LN2, applied, exp, expm1, log
from treecal._states import State, check_array, check_count
from treecal._sums import two_sum
from treecal._typing import Array, Integers, Saved
from treecal._validate import finite_array, whole_number
from treecal.exceptions import OutcomeError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space, reach
from treecal.geometry import ConvexSet, Lp, Mahalanobis, Norm, as_norm, checked_start, l2
from treecal.theory import TABULATED, Certificate, blocks_total, euclidean, unit_total

_STEP = 0.25  # of ln u: the relative error of every weight is then 2·|Γ(1 + 2πi/_STEP)| < 2e-16
_SLOWEST = -53 * LN2  # ln(2u·t) of a rate that over the whole past has faded by no more than a rounding
_FASTEST = math.ceil(log(40) / _STEP)  # e^(−u) < 1e-17 beyond
_FIRST_RATES = _FASTEST + 1 - math.floor((_SLOWEST - LN2) / _STEP)  # which matter in the first round


@dataclass(frozen=True, eq=False)
class HarmonicState(State):
    """The stored points; `h_t`, and what rounding lost of it; the fading sums and the plain sum of the outcomes.

    They are those of the block; `before` counts the rounds of earlier ones.
    """

    points: Array
    norm: list[float]
    sums: Array
    plain: Array
    before: int = 0


class Harmonic(Forecaster):
    """Harmonic averaging and replay: no parameters, no horizon, and a better rate than any tree.

    After round `t` it stores the harmonically weighted mean of the outcomes, `p_t ∝ Σ_{s≤t} y_s / (2(t−s)+1)`; in round
    `t` it announces the points stored so far with the same weights, `p_s` with `1 / (h_t·(2(t−s)−1))`, where
    `h_t = Σ_{j<t} 1/(2j+1)`. The calibration error per round is at most `9γ/h_T`, with `γ <= π/2` on the unit ball in
    ℓ2 and `γ = O(log d)` on the simplex in ℓ1 and on the cube in ℓ∞.

    The mean is not summed from scratch: `1/(2k+1) = ∫ e^{−(2k+1)u} du`, and the trapezoidal rule in `ln u` with step
    1/4 is right to a relative `2|Γ(1 + 8πi)| < 2e-16` for every `k` at once. So the stored point is a combination of
    sums that fade at fixed rates; slower ones are added as rounds go by, and no horizon is needed. An update costs
    `O(dim·log T)`: `4·ln T + 170` rates. What remains is rounding. Measured, the relative error is 2e-13 after 10^5
    rounds of a constant outcome, where all roundings point one way, and grows like `T` there; elsewhere it is 2e-15.

    A forecast is a view of the stored points: announcing it and drawing from it cost O(1), its weights are computed
    when first read, and recording it in a ledger costs `O(T·dim)`. All points are kept: memory is `O(T·dim)`. With
    `block` it starts anew after so many rounds, and memory and certificate stay as they are then, for ever. For a whole
    run's error at once see `harmonic_error`.

    Parameters
    ----------
    space
        The set outcomes lie in.
    start
        The first forecast; by default the set's centre.
    block
        Rounds after which it starts anew; by default never.

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

    _fields = ("space", "start", "block")

    def __init__(self, space: ConvexSet, *, start: ArrayLike | None = None, block: int | None = None) -> None:
        self.space = checked_space(space)
        self.start = checked_start(space, start)
        self.block = None if block is None else whole_number("block", block, least=1)
        self._state = self._begun(0)
        self._store = _Store(self._state.points)

    def _begun(self, before: int) -> HarmonicState:
        """Return the state at the beginning of a block."""
        nothing = np.zeros(self.space.dim)
        sums = np.tile(nothing, (_FIRST_RATES, 1))
        return HarmonicState(np.empty((0, self.space.dim)), [0.0, 0.0], sums, nothing, before)

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return int(self._state.before) + len(self._state.points)

    def _announce(self) -> Forecast:
        state = self._state
        if not len(state.points):
            return Forecast.trusted(self.start[None], uniform(1), np.array([[1, state.before]]), self.space)
        return _Replay(state.points, sum(state.norm), state.before, self.space)

    _fork = Forecaster._light_fork

    def _after(self, state: HarmonicState, outcome: Array) -> HarmonicState:
        past = state
        sums = state.sums
        rounds = len(state.points)
        if rounds + 1 == self.block:  # nothing of the block will be announced again
            return self._begun(state.before + self.block)
        total, lost = two_sum(np.float64(past.norm[0]), np.float64(1 / (2 * rounds + 1)))  # type: ignore[arg-type]
        norm = [float(total), past.norm[1] + float(lost)]
        if rounds >= _rates(len(sums)).enough:
            sums = np.concatenate([sums, past.plain[None]])
        fade, share, _ = _rates(len(sums))
        sums = sums - fade * sums
        sums += outcome
        # Added up row by row, not by BLAS, so that no class is rounded differently from another.
        point = np.add.reduce(share * sums, axis=0) / sum(norm)
        self._store, points = _appended(self._store, past.points, point)
        return HarmonicState(points, norm, sums, past.plain + outcome, past.before)

    def _own_state(self) -> Saved:
        state = super()._own_state()
        if self.block is None:
            del state["before"]
        return state

    def _check(self, state: HarmonicState) -> None:
        rounds = len(state.points)
        check_count("the rounds before", state.before)
        if self.block is not None and (state.before % self.block or rounds >= self.block):
            raise SnapshotError(f"there are {state.before} rounds before, and {rounds} in a block of {self.block}.")
        dim = self.space.dim
        check_array("points", state.points, (rounds, dim))
        check_array("sums", state.sums, (rates_after(rounds), dim))
        check_array("plain", state.plain, (dim,))
        if [type(part) for part in state.norm or ()] != [float, float]:
            raise SnapshotError("the norm is not a list of two numbers.")

    name = "harmonic"

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        """Certify by what is tabulated for ℓ2 in the unit ball, up to about a million rounds.

        It carries over to a norm with `‖x‖² <= ‖x‖₂²/α` on the directions of the set. Beyond, a round adds the diameter
        to the total error at most; or, if that is less, the bound is `9γ/h`, `γ = π/2` (Fishelson and Mohri's).

        The totals of blocks are added up. With `r` the error per round of a whole block, `r·n` and the most by which a
        shorter one exceeds `r` times its rounds is never less, and grows by `r` a round at least, as `_rate` promises.
        """
        if self.block is None or self.block > TABULATED:
            return self._once(norm, rounds)
        radius, away = self._radii(norm)
        bound = blocks_total(rounds, self.block) / rounds * radius
        bound += away * math.ceil(rounds / self.block) / rounds
        return Certificate(bound, f"spectral certificate, blocks of {self.block:,}")

    def _once(self, norm: Norm, rounds: int) -> Certificate:
        """Certify one that never starts anew."""
        radius, away = self._radii(norm)
        if rounds <= TABULATED:
            return Certificate((unit_total(rounds) * radius + away) / rounds, "spectral certificate")
        logarithm = math.fsum(1 / (2 * j + 1) for j in range(1000)) + math.log((2 * rounds + 1) / 2001) / 2
        analytic = 9 * math.pi / 2 * radius / logarithm
        more = (rounds - TABULATED) * reach(self.space, norm)
        extended = (unit_total(TABULATED) * radius + away + more) / rounds
        if extended <= analytic:
            return Certificate(extended, f"spectral certificate of the first {TABULATED:,} rounds")
        return Certificate(analytic, "analytic bound, 9γ/h")

    def _radii(self, norm: Norm) -> tuple[float, float]:
        """Return the circumradius, times the factor between the norms; and how much farther the start point is."""
        gap = euclidean(self.space, norm)
        if gap is None:
            raise UnsupportedError(f"{norm!r} is not within a known factor of an ellipsoidal norm.")
        radius = math.sqrt(gap.value)
        # The first forecast is the start point, which need not be the centre of the smallest ball.
        first = float(self.space.radius(norm if isinstance(norm, Lp | Mahalanobis) else l2, about=self.start))
        return radius, max(0.0, first - radius)

    def _rate(self, norm: Norm) -> float:
        if self.block is None or self.block > TABULATED:
            return 0.0
        return unit_total(self.block) / self.block * self._radii(norm)[0]

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Harmonic:
        """Return one that starts anew where the table of certificates ends."""
        return cls(space, block=TABULATED if rounds > TABULATED else None)


class _Replay(Forecast):
    """The first points of the store, weighted 1, 1/3, 1/5, … from the newest back."""

    __slots__ = ("_before", "_total", "_written")

    def __init__(self, points: Array, total: float, before: int, space: ConvexSet) -> None:
        points = np.asarray(memoryview(points.data).toreadonly())  # which NumPy does not let anyone make writable
        self._points = points
        self._total = total
        self._before = before  # points of earlier blocks
        self._space = space
        self._written: tuple[Array, Integers] | None = None

    def _write_out(self) -> tuple[Array, Integers]:
        """Return weights and nodes, computed when first read: a draw needs neither."""
        if self._written is None:
            count = len(self)
            weights = odd_reciprocals(count)[::-1] / self._total
            nodes = np.column_stack([np.zeros(count, np.int64), self._before + np.arange(count)])
            weights.setflags(write=False)
            nodes.setflags(write=False)
            self._written = weights, nodes
        return self._written

    @property
    def _weights(self) -> Array:  # type: ignore[override] # computed
        return self._write_out()[0]

    @property
    def nodes(self) -> Integers:
        """The stored points, each under its number, `(n, 2)` as (0, number), read-only."""
        return self._write_out()[1]

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw one point, in O(1): by inversion under `1/(2k+1) <= ½ ln((k+1)/k)`, rejecting 1 draw in 27 or fewer."""
        count = len(self)
        while True:
            at = rng.random() * (1 + math.log(count) / 2)
            lag = 0 if at < 1 else min(int(math.exp(2 * (at - 1))), count - 1)
            if lag == 0 or rng.random() * (2 * lag + 1) * math.log1p(1 / lag) <= 2:
                return np.asarray(self._points[count - 1 - lag])

    def __reduce__(self) -> tuple[Any, ...]:
        return _Replay, (self._points, self._total, self._before, self.space)


class _Rates(NamedTuple):
    """Rates `u = e^{ih}` of sums that fade by `e^{−2u}` a round, and make up `Σ_s y_s / (2(t−s)+1)`.

    `Σ_{i∈Z} h·u_i·e^{−(2k+1)u_i} = (1 + Σ_{n≠0} Γ(1 + 2πin/h)·(2k+1)^{−2πin/h}) / (2k+1)` (Poisson's summation), so
    the rule's relative error is at most `2Σ_n |Γ(1 + 2πin/h)|`, for all k. Rates `i` above `_FASTEST` add nothing to
    that. Slow ones add nothing as long as `2u·t < 2^-53`; a rate is added when it passes that, with the plain sum of
    all outcomes before, of which it has forgotten nothing.
    """

    fade: Array  # subtracting this share keeps the rate to full precision, however slow
    share: Array
    enough: float  # rounds until the next rate will matter


@lru_cache(maxsize=256)
def _rates(count: int) -> _Rates:
    """Return the fastest rates, `count` of them."""
    index = _FASTEST - np.arange(count)
    rates = applied(exp, _STEP * index)
    enough = exp(_SLOWEST - _STEP * (index[-1] - 1)) / 2
    shares = _STEP * rates * applied(exp, -rates)
    return _Rates(-applied(expm1, -2 * rates)[:, None], shares[:, None], enough)


def rates_after(rounds: int) -> int:
    """Return how many rates there are after so many rounds, of which each adds one at most."""
    count = _FIRST_RATES
    now = 0
    while (now := max(now, math.ceil(_rates(count).enough))) < rounds:
        count = count + 1
        now = now + 1
    return count


class _Store:
    """Room for points: views of the first ones stay valid as more are added, and each place is given out once."""

    def __init__(self, points: Array, room: int = 0) -> None:
        self.buffer = np.concatenate([points, np.empty((room, points.shape[1]))])
        self.used = len(points)


def _appended(store: _Store, points: Array, point: Array) -> tuple[_Store, Array]:
    """Return the points and one more, and the store they are in: this one while it has room."""
    count = len(points)
    if points.base is not store.buffer or count == len(store.buffer) or count != store.used:
        store = _Store(points, max(16, count))  # doubled, so that points cost O(1) each
    store.used = count + 1  # in another thread the same points get another store
    store.buffer[count] = point
    return store, np.asarray(store.buffer[: count + 1])


def odd_reciprocals(count: int) -> Array:
    """Return the first of 1, 1/3, 1/5, …, read-only."""
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
    points, weights, sums = harmonic_rows(y, checked_start(space, start))
    error = math.fsum(as_norm(norm, space)(sums - weights[:, None] * points))
    return error if total else error / len(y)


def harmonic_rows(outcomes: Array, start: Array) -> tuple[Array, Array, Array]:
    """Return all points of a run of `Harmonic`, the start first, with their weights and outcome sums."""
    lags = odd_reciprocals(len(outcomes))
    totals = np.cumsum(lags)[:, None]  # h_1, …, h_T
    stored = _convolve(lags, outcomes)[:-1] / totals[:-1]
    # Backwards in time replaying is the same convolution: round t = s + 1 + k meets point s with weight 1/(2k+1).
    met = np.column_stack([np.ones(len(outcomes) - 1), outcomes[1:]]) / totals[:-1]
    met = np.concatenate([[[1.0, *outcomes[0]]], _convolve(lags[:-1], met[::-1])[::-1]])
    return np.concatenate([start[None], stored]), met[:, 0], met[:, 1:]


def _convolve(lags: Array, columns: Array) -> Array:
    """Return `Σ_{k<=t} lags[k]·columns[t−k]` for every t."""
    from scipy.fft import irfft, next_fast_len, rfft

    count = len(columns)
    if count == 0:
        return columns
    size = next_fast_len(2 * count - 1, real=True)
    product = rfft(lags, size)[:, None] * rfft(columns, size, axis=0)
    return np.asarray(irfft(product, size, axis=0)[:count])
