"""Spectral certificates: worst-case bounds in ℓ2 and ellipsoidal norms for every averaging-and-replay forecaster.

**The family.** Forecast n is stored as an average of outcomes, `p_n = Σ_t P_nt·y_t + (1 − Σ_t P_nt)·s`, the rest of its
weight on a start point s; round t announces it with weight `Q_tn`, and the rest of round t's weight is on s, unstored.
With `m_n = Σ_t Q_tn` and `G = Qᵀ − diag(m)·P`, row n of G sums to `m_n·(1 − Σ_t P_nt)`, so forecast n's gap is exactly
`m_n(ν_n − p_n) = Σ_t G_nt·(y_t − s)`. TreeCal's first children, which play s, are rows with P = 0 and need no more,
but the set is then measured from s. A row that sums to 0 gives the same for every s; where all do, as in harmonic
replay, the set is measured from the centre of its smallest ball. What is announced unstored (harmonic's first forecast)
adds at most its weight times the radius about s.

**The bound.** If all `‖y_t − s‖ <= r`, then for any positive c, e, by Cauchy and Schwarz twice,

    Σ_n ‖(G(y − s))_n‖ = max {Σ_nt G_nt <u_n, y_t − s> : ‖u_n‖ <= 1} <= r · ‖C^(−1/2) G E^(−1/2)‖₂ · √(Σc·Σe).

An ellipsoidal norm is ℓ2 after a linear map, with which averages commute: G stays, only r changes. This is the per-node
error; the plain one is no larger.

**The best weights.** The least right side over c, e is the dual of the semidefinite program that maximises
`Σ G_nt <u_n, y_t>` over unit vectors of any dimension, and equals it: the best weights' bound is *attained*, by a
stream in a ball of enough dimensions. A pair is stationary when `(Gy)_n = c_n·u_n` and `(Gᵀu)_t = e_t·y_t`, and at
the maximum these c, e make the norm 1. So the half-steps `u_n ∝ (Gy)_n` and `y_t ∝ (Gᵀu)_t`, each the exact maximum
over its block, with momentum between them, find the hard stream and the weights together. Stopping early costs only
tightness: every c, e gives a true bound.

**The norm, from above.** Iterations give eigenvalues from below; a bound from above takes an argument. Let λ be the top
eigenvalue of `B = AᵀA`, v its unit eigenvector, τ any guess of λ, b a standard Gaussian vector and `T_k` the Chebyshev
polynomial. If λ > τ then `T_k(2λ/τ − 1)·|<b, v>| <= ‖T_k(2B/τ − 1)·b‖ =: g`, and `<b, v>`, one Gaussian number, is less
than `δ√(π/2)` in size with probability less than δ. So, except with probability δ (over our draw, not over outcomes),

    λ <= τ·(1 + cosh(arccosh(g / (δ√(π/2))) / k)) / 2:

the rate of Kuczyński and Woźniakowski's theorem on Lanczos with a random start (1992), in O(T) memory and without
reorthogonalisation. Rounding in the recurrence grows like k², far below the factor 2 that g is given for it. Up to
`DENSE_ROUNDS` rounds a dense SVD involves no chance. A bound on the rounding in products with G is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array, whole_number
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.geometry import ConvexSet, Lp, Mahalanobis, Norm, as_norm
from treecal.tree import Tree

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

DENSE_ROUNDS = 256
"""The most rounds for which the norm is computed by a dense SVD."""

_EPS = 2.0**-52
_LEAST_WEIGHT = 1e-2  # of a weight, relative to the weight of its forecast or to one round: keeps the scaling tame
_Product = Callable[[Array], Array]  # over the last axis


@dataclass(frozen=True, eq=False)
class Replay:
    """One member of the averaging-and-replay family over a number of rounds, as its matrix G, never formed.

    Attributes
    ----------
    operator
        `G`, forecasts × rounds, as a SciPy `LinearOperator`.
    weights
        The total weight `m_n` of each stored forecast, all positive.
    opening
        The total weight of start points announced without being stored.
    centred
        Whether every row of G sums to 0: no stored forecast is made of the start point.

    Examples
    --------
    >>> replay = Replay.tree(4, arity=2)  # four leaves, and the interval of the last two
    >>> replay.weights, replay.operator.matvec(np.array([1.0, 1.0, -1.0, 1.0]))
    (array([1. , 1. , 0.5, 0.5, 1. ]), array([ 1. ,  0. , -0.5,  1. , -1. ]))
    """

    operator: LinearOperator = field(repr=False)
    weights: Array = field(repr=False)
    opening: float
    centred: bool

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return int(self.operator.shape[1])

    @classmethod
    def tree(cls, rounds: int, *, arity: int = 8, depth: int | None = None) -> Replay:
        """Return TreeCal's, with fixed depth or growing: by sums within the tree, O(rounds) a product."""
        rounds = whole_number("rounds", rounds, least=1)
        tree = Tree(arity, depth)
        tree.check(rounds)
        levels = _tree_levels(tree, rounds)
        weights = np.concatenate([level.weights for level in levels])
        cuts = np.cumsum([len(level.weights) for level in levels])[:-1]

        def gaps(y: Array) -> Array:
            sums = y
            out = []
            for level in levels:
                total, before = level.family_sums(sums)
                out.append((level.share * sums - level.pull * before)[..., level.first :])
                sums = total
            return np.concatenate(out, axis=-1)

        def adjoint(u: Array) -> Array:
            above = np.zeros((*u.shape[:-1], 1))
            for level, part in zip(reversed(levels), reversed(np.split(u, cuts, axis=-1)), strict=True):
                nodes = np.append(np.zeros((*u.shape[:-1], level.first)), part, axis=-1)
                # What a node takes from the finished children before it: sums over the later ones, hence backwards.
                _, later = level.family_sums(level.pull * nodes, backwards=True)
                above = level.share * nodes - later + np.repeat(above, level.width, axis=-1)[..., : len(level.share)]
            return above

        return cls(_operator(len(weights), rounds, gaps, adjoint), weights, 0.0, False)

    @classmethod
    def harmonic(cls, rounds: int) -> Replay:
        """Return harmonic averaging and replay (Fishelson and Mohri): by FFT, O(rounds·log rounds) a product.

        With `h_t = Σ_{j<t} 1/(2j+1)`, `P_nt = 1/(h_{n+1}(2(n−t)+1))` and `Q_tn = 1/(h_t(2(t−n)−1))`; the first round
        announces the start point, and the last forecast, never announced, is left out.
        """
        from scipy.fft import irfft, next_fast_len, rfft

        n = whole_number("rounds", rounds, least=1) - 1
        if n == 0:
            return cls.dense(np.empty((0, 1)), np.empty((1, 0)))
        kernel = 1 / (2.0 * np.arange(n) + 1)
        h = np.cumsum(kernel)
        size = next_fast_len(2 * n, real=True)
        transfer = rfft(kernel, size)

        def past(x: Array) -> Array:
            return np.asarray(irfft(rfft(x, size) * transfer, size)[..., :n])

        def future(x: Array) -> Array:
            return np.asarray(irfft(rfft(x, size) * transfer.conj(), size)[..., :n])

        weights = future(1 / h)
        ratio = weights / h

        def gaps(y: Array) -> Array:
            return future(y[..., 1:] / h) - ratio * past(y[..., :-1])

        def adjoint(u: Array) -> Array:
            out = np.zeros((*u.shape[:-1], n + 1))
            out[..., 1:] = past(u) / h
            out[..., :-1] -= future(ratio * u)
            return out

        return cls(_operator(n, n + 1, gaps, adjoint), weights, 1.0, True)

    @classmethod
    def dense(cls, averages: ArrayLike, replays: ArrayLike) -> Replay:
        """Return any other member, from its matrices.

        Parameters
        ----------
        averages
            `P`, forecasts × rounds, non-negative; the rest of a row to 1 is the weight of the start point.
        replays
            `Q`, rounds × forecasts, non-negative; the rest of a row to 1 is announced as the start point. A forecast
            may be announced only after the last outcome in it.
        """
        P = finite_array("averages", averages, ndim=2)
        Q = finite_array("replays", replays, ndim=2)
        if not P.shape[1] or P.shape != Q.shape[::-1]:
            raise ParameterError(
                f"averages has shape {P.shape} and replays {Q.shape}, expected (forecasts, rounds) and its transpose."
            )
        for name, matrix in (("averages", P), ("replays", Q)):
            if matrix.min(initial=0.0) < 0:
                raise ParameterError(f"{name} holds {matrix.min():g}, expected 0 or more.")
            if (most := matrix.sum(axis=1).max(initial=0.0)) > 1 + 1e-9:
                raise ParameterError(f"{name} has a row that sums to {most:.10g}, expected at most 1.")
        rounds = P.shape[1]
        known = np.where(P > 0, np.arange(rounds), -1).max(axis=1, initial=-1)
        if (early := (Q > 0) & (np.arange(rounds)[:, None] <= known)).any():
            t, n = np.argwhere(early)[0].tolist()
            raise ParameterError(
                f"round {t} (counted from 0) announces forecast {n}, which averages outcomes up to round {known[n]}.",
                hint="a round may announce only what was stored before it.",
            )
        weights = Q.sum(axis=0)
        P = P[weights > 0]
        Q = Q[:, weights > 0]
        weights = weights[weights > 0]
        G = Q.T - weights[:, None] * P
        opening = float(np.maximum(1 - Q.sum(axis=1), 0).sum())
        centred = bool((np.abs(P.sum(axis=1) - 1) <= 1e-12).all())
        return cls(_operator(len(weights), rounds, lambda y: y @ G.T, lambda u: u @ G), weights, opening, centred)


@dataclass(frozen=True, eq=False)
class SpectralCertificate:
    """A worst-case bound on the per-node error per round, and its terms.

    Attributes
    ----------
    bound
        `(radius·(norm + tolerance)·√(Σc·Σe) + opening·start_radius) / rounds`: no stream in the set does worse.
    attained
        The error per round of `radius·stream`, in a ball of that radius about the start point with at least as many
        dimensions: no certificate for that ball can be lower.
    norm, tolerance
        The norm of `C^(−1/2) G E^(−1/2)` as computed, from below; and what was added to make it an upper bound.
    c, e
        The weights of forecasts and of rounds.
    radius, start_radius
        The radius used for stored forecasts, and the radius about the start point.
    stream
        The hard stream, `(rounds, dim)`, in the unit ball about the start point.
    method, failure
        `"svd"`, or `"chebyshev"` with the probability, over its random start, that the bound is wrong.
    """

    bound: float
    attained: float
    norm: float
    tolerance: float
    radius: float
    start_radius: float
    method: str
    failure: float
    c: Array = field(repr=False)
    e: Array = field(repr=False)
    stream: Array = field(repr=False)


def spectral_certificate(
    replay: Replay,
    *,
    space: ConvexSet | None = None,
    norm: Norm | str = "l2",
    start: ArrayLike | None = None,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
    dim: int = 8,
    steps: int = 50,
    tolerance: float = 1e-3,
    failure: float = 1e-9,
    rng: np.random.Generator | None = None,
) -> SpectralCertificate:
    """Bound the per-node error per round of a forecaster, over all streams, in ℓ2 or an ellipsoidal norm.

    Costs about `2·steps·dim` products with G for the weights and, beyond `DENSE_ROUNDS` rounds, some
    `30/√tolerance` more for the norm.

    Parameters
    ----------
    replay
        The forecaster, over a number of rounds.
    space
        The set outcomes lie in; without it, the unit ball of the norm, in any dimension.
    norm
        ℓ2, or a `Mahalanobis` norm.
    start
        The forecaster's start point; by default the set's centre.
    weights
        Positive `(c, e)` to use in place of the best.
    dim, steps
        Dimension of the hard stream that gives the weights, and steps towards it. More is slower and tighter.
    tolerance
        The relative error to aim for in the norm.
    failure
        The accepted probability of a wrong bound; 0 computes the dense SVD at any number of rounds.
    rng
        Gives the random start; by default the same one each time.

    Examples
    --------
    >>> import treecal as tc
    >>> found = spectral_certificate(Replay.harmonic(200))
    >>> round(found.bound, 2), round(found.attained, 2)
    (0.55, 0.55)
    >>> round(spectral_certificate(Replay.tree(200, arity=8), space=tc.Simplex(3)).bound, 2)
    0.66
    """
    if not isinstance(replay, Replay):
        raise ParameterError.expected("replay", replay, "a Replay", hint="for example Replay.tree(1000, arity=8).")
    dim = whole_number("dim", dim, least=1)
    steps = whole_number("steps", steps, least=1)
    for name, value, low in (("tolerance", tolerance, 1e-6), ("failure", failure, 0.0)):
        if not (isinstance(value, int | float | np.number) and low <= value < 1):
            raise ParameterError.expected(name, value, f"a number from {low:g} to less than 1")
    radius, start_radius = _radii(replay, space, as_norm(norm, space), start)
    rng = np.random.default_rng(0) if rng is None else rng
    c, e, stream, reached = _hard_stream(replay, dim, steps, rng)
    if weights is not None:
        c, e = _checked_weights(replay, weights)
    exact = failure == 0 or replay.rounds <= DENSE_ROUNDS or not len(c)
    if exact:
        found, most = _norm_by_svd(replay, c, e)
    else:
        found, most = _norm_by_chebyshev(replay, c, e, tolerance=float(tolerance), failure=float(failure), rng=rng)
    most += _rounding(replay, c, e)
    stored = most * math.sqrt(math.fsum(c) * math.fsum(e))
    return SpectralCertificate(
        bound=(radius * stored + start_radius * replay.opening) / replay.rounds,
        attained=radius * (reached + replay.opening) / replay.rounds,
        norm=found,
        tolerance=most - found,
        radius=radius,
        start_radius=start_radius,
        method="svd" if exact else "chebyshev",
        failure=0.0 if exact else float(failure),
        c=c,
        e=e,
        stream=stream,
    )


def _radii(replay: Replay, space: ConvexSet | None, norm: Norm, start: ArrayLike | None) -> tuple[float, float]:
    """Return the radius for the stored forecasts, and the one about the start point."""
    if not (isinstance(norm, Mahalanobis) or (isinstance(norm, Lp) and norm.p == 2)):
        why = "the proof, by Cauchy and Schwarz, is for ℓ2 and Mahalanobis norms"
        hint = "use a Mahalanobis norm that is nowhere smaller; TreeCal has Jensen-gap bounds in every norm."
        raise UnsupportedError.by(norm, "spectral certificate", why, hint=hint)
    if space is None:
        if start is not None:
            raise ParameterError("start is given without a space, expected both or neither.")
        return 1.0, 1.0
    about = float(space.radius(norm, about=start))
    return (min(about, float(space.circumradius(norm))) if replay.centred else about), about


def _checked_weights(replay: Replay, weights: tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    c = finite_array("c", weights[0], ndim=1)
    e = finite_array("e", weights[1], ndim=1)
    for name, array, size in (("c", c, len(replay.weights)), ("e", e, replay.rounds)):
        if len(array) != size or array.min(initial=1.0) <= 0:
            raise ParameterError(f"{name} has {len(array)} weights, expected {size} positive ones.")
    return c, e


def _hard_stream(replay: Replay, dim: int, steps: int, rng: np.random.Generator) -> tuple[Array, Array, Array, float]:
    """Return c, e, the stream they belong to, and its total error: block ascent on Σ G_nt <u_n, y_t>, with momentum."""
    product = replay.operator.matmat
    adjoint = replay.operator.rmatmat
    y, _ = _units(rng.standard_normal((replay.rounds, dim)))
    before = y
    for step in range(steps):
        ahead, _ = _units(y + step / (step + 3) * (y - before))
        before = y
        y, e = _units(adjoint(_units(product(ahead))[0]))
    c = _units(product(y))[1]
    return np.maximum(c, _LEAST_WEIGHT * replay.weights), np.maximum(e, _LEAST_WEIGHT), y, math.fsum(c)


def _units(vectors: Array) -> tuple[Array, Array]:
    """Return the rows scaled to length 1, and their lengths; a row of zeros stays."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return vectors / np.where(lengths > 0, lengths, 1.0)[:, None], lengths


def _norm_by_svd(replay: Replay, c: Array, e: Array) -> tuple[float, float]:
    """Return the norm of C^(−1/2) G E^(−1/2) and an upper bound, which differ by the SVD's backward error."""
    matrix = replay.operator.matmat(np.diag(1 / np.sqrt(e))) / np.sqrt(c)[:, None]
    largest = float(np.linalg.svd(matrix, compute_uv=False).max(initial=0.0))
    return largest, largest * (1 + 16 * _EPS * max(matrix.shape))


def _norm_by_chebyshev(
    replay: Replay, c: Array, e: Array, *, tolerance: float, failure: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the norm of C^(−1/2) G E^(−1/2) from below, and from above except with probability `failure`."""
    product = replay.operator.matvec
    adjoint = replay.operator.rmatvec
    root = np.sqrt(e)

    def square(x: Array) -> Array:
        return np.asarray(adjoint(product(x / root) / c) / root)

    def grown(x: Array, top: float, degree: int) -> Array:
        older = x
        newer = 2 / top * square(x) - x
        for _ in range(degree - 1):
            older, newer = newer, 4 / top * square(newer) - 2 * newer - older
        return newer

    # Each polynomial amplifies what lies above the last estimate; the Rayleigh quotient of the result is the next one.
    x = rng.standard_normal(replay.rounds)
    top = 0.0
    for degree in (0, 8, 24, 72):
        x = grown(x, top, degree) if degree else x
        x /= math.sqrt(x @ x)
        top = max(top, float(x @ square(x)))
    least = failure * math.sqrt(math.pi / 2)  # of b along the top eigenvector, except with probability `failure`
    aim = 2 * math.sqrt(replay.rounds) / least
    degree = math.ceil(math.acosh(aim) / math.acosh(1 + 4 * tolerance))
    growth = 2 * float(np.linalg.norm(grown(rng.standard_normal(replay.rounds), top, degree)))
    ratio = (1 + math.cosh(math.acosh(max(growth / least, 1.0)) / degree)) / 2
    return math.sqrt(top), math.sqrt(top * ratio)


def _rounding(replay: Replay, c: Array, e: Array) -> float:
    """Bound what rounding in the products can take from the norm of C^(−1/2) G E^(−1/2).

    Whatever its order, a sum over the rounds errs by `rounds·eps`, and an FFT by O(eps·log rounds), times
    `‖|G|‖ <= √(‖|G|‖_∞·‖|G|‖_1)`, whose rows sum to at most 2m and whose columns, `Q1 + Pᵀm`, to at most `2 − Gᵀ1`.
    """
    columns = 2 - float(replay.operator.rmatvec(np.ones(len(c))).min())
    size = math.sqrt(2 * replay.weights.max(initial=0.0) * columns / (c.min(initial=1.0) * e.min()))
    return _EPS * (replay.rounds + 64 * math.log2(replay.rounds + 1)) * size


@dataclass(frozen=True, eq=False)
class _Level:
    """The nodes of one height: `(Gy)_n = share_n·(sum over n) − pull_n·(sum over the earlier nodes of its family)`."""

    share: Array
    pull: Array
    weights: Array  # of the nodes that are announced: those from `first` on
    first: int
    width: int  # nodes in a family

    def family_sums(self, nodes: Array, *, backwards: bool = False) -> tuple[Array, Array]:
        """Return the sum over each family, and for each node that over the earlier (or later) nodes of its family."""
        *lead, count = nodes.shape
        families = np.append(nodes, np.zeros((*lead, -count % self.width)), axis=-1).reshape(*lead, -1, self.width)
        turn = slice(None, None, -1 if backwards else 1)
        others = np.zeros_like(families)
        np.cumsum(families[..., turn][..., :-1], axis=-1, out=others[..., 1:])
        return families.sum(axis=-1), others[..., turn].reshape(*lead, -1)[..., :count]


def _tree_levels(tree: Tree, rounds: int) -> list[_Level]:
    """Return the levels of the tree over `rounds` rounds."""
    levels = []
    for height in range(tree.heights(rounds - 1)):
        span = min(tree.arity**height, rounds)  # a longer interval is one node, cut short; and no integer overflows
        index = np.arange(-(-rounds // span))
        starts = index * span
        digit = index % tree.arity
        share = 1.0 / tree.heights(starts)
        weights = share * np.minimum(span, rounds - starts)
        pull = np.where(digit > 0, weights / (np.maximum(digit, 1) * span), 0.0)
        # A growing tree's first interval of each height was never announced: the tree was lower then.
        first = int(tree.depth is None and height > 0)
        levels.append(_Level(share, pull, weights[first:], first, min(tree.arity, len(index))))
    return levels


def _operator(rows: int, columns: int, product: _Product, adjoint: _Product) -> LinearOperator:
    """Return the operator of two functions over the last axis; SciPy has vectors along the first."""
    from scipy.sparse.linalg import LinearOperator

    def first_axis(function: _Product) -> _Product:
        return lambda x: function(np.asarray(x, dtype=np.float64).T).T

    forth = first_axis(product)
    back = first_axis(adjoint)
    return LinearOperator((rows, columns), matvec=forth, rmatvec=back, matmat=forth, rmatmat=back, dtype=np.float64)
