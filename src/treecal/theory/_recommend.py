"""Which forecaster? The one with the least certified error for a set, a norm and a number of rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from treecal._validate import whole_number
from treecal.exceptions import UnsupportedError
from treecal.forecasters._grids import MOST_POINTS, binary_grid_bound, simplex_grid_bound
from treecal.geometry import ConvexSet, Lp, Mahalanobis, Norm, Simplex, as_norm, l2
from treecal.theory._certificates import certificate
from treecal.theory._jensen import euclidean, jensen_gap
from treecal.theory._plan import best_tree
from treecal.theory._spectral import Replay, spectral_certificate


@dataclass(frozen=True)
class Choice:
    """One forecaster, and the calibration error per round that it is certain not to exceed.

    Attributes
    ----------
    forecaster
        How to make it, as one would type it.
    bound
        The certified error; None where no certificate covers the case.
    why
        Where the certificate comes from, or why there is none.

    Examples
    --------
    >>> import treecal as tc
    >>> tc.recommend(tc.Simplex(2), "l1", rounds=2_000).best.why
    'grid certificate'
    """

    forecaster: str
    bound: float | None
    why: str


@dataclass(frozen=True)
class Recommendation:
    """The forecaster of least certified error, and the table it was chosen from.

    Attributes
    ----------
    best
        The choice.
    table
        All choices, the least bound first; those without a certificate last.
    trivial
        The error that always saying the centre cannot exceed: a certificate above it promises nothing.
    """

    best: Choice
    table: tuple[Choice, ...]
    trivial: float

    def __str__(self) -> str:
        width = max(len(choice.forecaster) for choice in self.table)
        bounds = ("" if choice.bound is None else f"{choice.bound:.3f}" for choice in self.table)
        rows = [f"{b:>6}  {c.forecaster:<{width}}  {c.why}" for b, c in zip(bounds, self.table, strict=True)]
        if self.best.bound is None or self.best.bound >= self.trivial:
            rows.append(
                f"None promises more than always saying the centre ({self.trivial:.3f}): choose by measurement."
            )
        return "\n".join(rows)


def recommend(space: ConvexSet, norm: Norm | str, *, rounds: int, numerical_rounds: int = 100_000) -> Recommendation:
    """Return the forecaster with the least certified error, among all that have a certificate.

    Certificates speak of the worst sequence there is. With two outcomes grids win by far; in many dimensions harmonic
    averaging and trees do. On ordinary streams errors are much lower and another order may hold.

    Parameters
    ----------
    space, norm
        The set and the norm.
    rounds
        Rounds to be played.
    numerical_rounds
        Up to so many rounds harmonic averaging is certified numerically, which takes seconds at 10^4 rounds and most
        of a minute at 10^5; beyond, by its analytic bound, which is several times larger.

    Examples
    --------
    >>> import treecal as tc
    >>> tc.recommend(tc.Simplex(2), "l1", rounds=10**6).best.forecaster
    'SimplexGrid(space, resolution=63)'
    >>> tc.recommend(tc.Ball(50), "l2", rounds=1000).best.forecaster
    'Harmonic(space)'
    """
    norm, rounds = as_norm(norm), whole_number("rounds", rounds, least=1)
    choices = [
        _tree(space, norm, rounds),
        _adaptive(space, norm, rounds),
        harmonic(space, norm, rounds=rounds, numerical=rounds <= numerical_rounds),
        _binary_grid(space, norm, rounds),
        _simplex_grid(space, norm, rounds),
    ]
    diameter = float(space.diameter(norm))  # no error is greater, whoever makes it
    choices = [c if c.bound is None else replace(c, bound=min(c.bound, diameter)) for c in choices]
    known = sorted((c for c in choices if c.bound is not None), key=lambda choice: choice.bound or 0.0)
    unknown = [choice for choice in choices if choice.bound is None]
    if not known:
        raise UnsupportedError(
            f"no forecaster has a certificate on {space!r} in {norm!r}: {unknown[0].why}.",
            hint="ℓp and ellipsoidal norms, and polytopes given by their vertices, are covered.",
        )
    return Recommendation(known[0], (*known, *unknown), float(space.radius(norm)))


def _tree(space: ConvexSet, norm: Norm, rounds: int) -> Choice:
    try:
        best = best_tree(space, norm, jensen_gap(space, norm), rounds)
    except UnsupportedError as error:
        return Choice("TreeCal(space)", None, str(error).split(".")[0])
    depth = "" if best.depth is None else f", depth={best.depth}"
    return Choice(f"TreeCal(space, arity={best.arity}{depth})", best.bound, "tree certificate")


def _adaptive(space: ConvexSet, norm: Norm, rounds: int) -> Choice:
    """TreeCal's certificate on the same tree, plus what Hedge over the heights may lose."""
    arities = (8, 16, 32, 64, 128)
    try:
        tried = [(certificate(space, norm, rounds=rounds, arity=a, rule="block").bound, a) for a in arities]
    except UnsupportedError as error:
        return Choice('AdaptiveTreeCal(space, rule="block")', None, str(error).split(".")[0])
    bound, arity = min(tried)
    name = f'AdaptiveTreeCal(space, arity={arity}, rule="block", norm={norm!r})'
    return Choice(name, bound, "tree certificate and Hedge's regret")


@lru_cache(maxsize=64)
def _harmonic_in_the_unit_ball(rounds: int) -> float:
    return spectral_certificate(Replay.harmonic(rounds)).bound


def harmonic(space: ConvexSet, norm: Norm | str, *, rounds: int, numerical: bool = True) -> Choice:
    """Return the certificate of `Harmonic`: the numerical one, or `9γ/h_T` with `γ = (π/2)·radius`.

    Both are for ℓ2 and carry over to a norm with `‖x‖² <= ‖x‖₂²/α` on the directions of the set. The analytic bound is
    that of Fishelson and Mohri (2026) for the unit ball; above the diameter it says nothing.

    Examples
    --------
    >>> from treecal.geometry import Ball
    >>> harmonic(Ball(3), "l2", rounds=200).bound < 0.6
    True
    """
    norm = as_norm(norm)
    gap = euclidean(space, norm)
    if gap is None:
        return Choice("Harmonic(space)", None, f"{norm!r} is not within a known factor of an ellipsoidal norm")
    reach = math.sqrt(gap.value)  # the circumradius, times the factor between the norms
    if numerical:
        unit = _harmonic_in_the_unit_ball(rounds)
        # The first announcement is measured from the centre, which need not be the centre of the smallest ball.
        shift = max(0.0, float(space.radius(norm if isinstance(norm, Lp | Mahalanobis) else l2)) - reach) / rounds
        return Choice("Harmonic(space)", unit * reach + shift, "spectral certificate")
    logarithm = math.fsum(1 / (2 * j + 1) for j in range(1000)) + math.log((2 * rounds + 1) / 2001) / 2
    return Choice("Harmonic(space)", 9 * math.pi / 2 * reach / logarithm, "analytic bound, 9γ/h")


def _binary_grid(space: ConvexSet, norm: Norm, rounds: int) -> Choice:
    if not isinstance(space, Simplex) or space.dim != 2 or not isinstance(norm, Lp):
        return Choice("BinaryGrid()", None, "for two outcomes and ℓp norms")
    # √(n+1)·(a + b/n), the bound of n bins, is least where a·n² = b·(n + 2).
    a, b = 1 / math.sqrt(rounds), 1 / math.sqrt(8)
    least = int((b + math.sqrt(b * b + 8 * a * b)) / (2 * a))
    bins = min((least, least + 1), key=lambda n: binary_grid_bound(rounds, bins=n))
    # An error of δ in one coordinate is (δ, −δ).
    bound = 2 ** (1 / norm.p) * binary_grid_bound(rounds, bins=bins)
    return Choice(f"BinaryGrid(bins={bins})", bound, "grid certificate")


def _simplex_grid(space: ConvexSet, norm: Norm, rounds: int) -> Choice:
    gap = euclidean(space, norm) if isinstance(space, Simplex) and space.dim > 1 else None
    if gap is None:
        return Choice("SimplexGrid(space)", None, "for the simplex and ℓp norms")
    factor = math.sqrt(gap.value / (1 - 1 / space.dim))  # of the norm to ℓ2 on zero-sum vectors
    sizes = [r for r in range(1, MOST_POINTS) if math.comb(r + space.dim - 1, space.dim - 1) <= MOST_POINTS]
    if not sizes:
        return Choice("SimplexGrid(space)", None, f"{space.dim} classes need more than {MOST_POINTS} points")
    bound, size = min((simplex_grid_bound(rounds, dim=space.dim, resolution=r), r) for r in sizes)
    return Choice(f"SimplexGrid(space, resolution={size})", factor * bound, "grid certificate")
