"""The planner (the best tree for a number of rounds, or the rounds that an error needs), and lower bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treecal._typing import Array
from treecal._validate import positive_number, whole_number
from treecal.exceptions import ParameterError
from treecal.geometry import ConvexSet, Norm, as_norm
from treecal.theory._certificates import Shares, certificate, from_shares
from treecal.theory._jensen import JensenGap, jensen_gap
from treecal.tree import MOST_LEAVES


@dataclass(frozen=True)
class Plan:
    """Parameters for `TreeCal`, and the error they guarantee.

    Attributes
    ----------
    arity, depth
        The tree; depth None for one that grows.
    bound
        The certified calibration error per round.
    log10_rounds
        The number of rounds, as a power of ten: it can be astronomical.
    sentence
        The plan as a sentence.
    """

    arity: int
    depth: int | None
    bound: float
    log10_rounds: float
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def plan(space: ConvexSet, norm: Norm | str, *, rounds: int | None = None, error: float | None = None) -> Plan:
    """Return the best tree for a number of rounds, or the rounds and the tree that an error needs. Give one of the two.

    Other forecasters may guarantee less: `tc.recommend` compares them all.

    Parameters
    ----------
    space, norm
        The set and the norm.
    rounds
        Rounds to be played.
    error
        Calibration error per round to guarantee.

    Examples
    --------
    >>> import treecal as tc
    >>> p = tc.plan(tc.Ball(3), "l2", rounds=1_000_000)
    >>> p.arity, p.depth, round(p.bound, 2)
    (32, None, 0.59)
    >>> print(tc.plan(tc.Simplex(2), "l1", rounds=1_000_000))
    With arity 32, growing, TreeCal's l1 error is at most 0.594 after 1,000,000 rounds, whatever happens.
    >>> print(tc.plan(tc.Ball(3), "l2", error=0.1))
    An l2 error of 0.1 is guaranteed after 10^270 rounds, with arity 150 and depth 124; at 10^6 rounds the guarantee...
    """
    norm = as_norm(norm, space)
    if (rounds is None) == (error is None):
        raise ParameterError("give either rounds or an error to reach, not both or neither.")
    gap = jensen_gap(space, norm)
    if rounds is not None:
        return best_tree(space, norm, gap, whole_number("rounds", rounds, least=1))
    return _for_error(space, norm, gap, positive_number("error", error))


_WIDEST = 10_000  # wider trees are too shallow to be the best, and slow to certify


def best_tree(space: ConvexSet, norm: Norm, gap: JensenGap, rounds: int) -> Plan:
    """Return the tree with the least certified error after `rounds` rounds."""
    trees: list[tuple[int, int | None]] = [(arity, None) for arity in (2, 3, 4, 6, 8, 12, 16, 32, 64)]
    for depth in range(1, max(rounds - 1, 1).bit_length() + 1):
        arity = max(2, round(rounds ** (1 / depth)))
        arity += arity**depth < rounds  # the least arity with enough leaves; one more may suit the rounds better
        if arity <= _WIDEST:
            trees += [(a, depth) for a in (arity, arity + 1) if rounds > MOST_LEAVES or a**depth <= MOST_LEAVES]
    tried = [(certificate(space, norm, rounds=rounds, arity=a, depth=d, gap=gap).bound, a, d) for a, d in trees]
    bound, arity, best = min(tried, key=lambda each: each[0])
    shape = f"arity {arity}" + (", growing" if best is None else f" and depth {best}")
    sentence = (
        f"With {shape}, TreeCal's {norm!r} error is at most {bound:.3g} after {rounds:,} rounds, whatever happens."
    )
    return Plan(arity, best, bound, math.log10(rounds), sentence)


def _for_error(space: ConvexSet, norm: Norm, gap: JensenGap, error: float) -> Plan:
    radius = float(space.radius(norm))
    diameter = float(space.diameter(norm))

    def bound(arity: int, depth: int) -> float:
        return from_shares(complete(arity, depth), gap, radius, diameter, 0, arity, None).bound

    def least_arity(depth: int) -> int | None:
        high = 2
        while bound(high, depth) > error:
            high *= 2
            if high > 2**200:
                return None
        low = high // 2
        while high - low > max(1, low >> 20):
            middle = (low + high) // 2
            low, high = (low, middle) if bound(middle, depth) <= error else (middle, high)
        return high

    # At infinite arity the bound is √(J/depth), which gives the least depth; a few times that is always enough.
    floor = max(1.0, gap.value / error**2)
    tried = []
    for depth in sorted({math.ceil(floor * stretch) for stretch in np.geomspace(1.001, 8, 60)}):
        arity = least_arity(depth)
        if arity is not None:
            tried.append((depth * math.log10(arity), arity, depth))
    if not tried:
        raise ParameterError.expected("error", error, "a larger one, for which float64 can plan")
    log10_rounds, arity, depth = min(tried)
    at_million = best_tree(space, norm, gap, 10**6).bound
    sentence = (
        f"An {norm!r} error of {error:g} is guaranteed after {_power(log10_rounds)} rounds, "
        f"with arity {arity:,} and depth {depth:,}; at 10^6 rounds the guarantee is {at_million:.2f}."
    )
    return Plan(arity, depth, bound(arity, depth), log10_rounds, sentence)


def _power(log10: float) -> str:
    return f"{round(10**log10):,}" if log10 < 6 else f"10^{math.ceil(log10):,}"


def complete(arity: int, depth: int) -> Shares:
    """Return the shares of a complete tree, of any size.

    Children beyond the 256th are grouped, each group at its greatest stretch: an upper bound, in time that hardly grows
    with the arity.
    """
    single = np.arange(2, min(arity, 256) + 1, dtype=np.float64)
    edges = [257.0]
    while edges[-1] <= arity:
        edges.append(math.floor(edges[-1] * 1.02) + 1.0)
    edges[-1] = min(edges[-1], arity + 1.0)
    counts: Array = np.concatenate([np.ones_like(single), np.diff(edges)])
    child = np.concatenate([single, edges[:-1]])
    return Shares(1 / depth, 1 / arity, counts / arity, child / (child - 1))


# Neither the paper nor the swap-regret lower bound it rests on (Daskalakis, Farina, Golowich, Sandholm and Zhang 2024)
# gives the constant `c` of its lower bounds, only that some small positive one exists: so `c` is an argument.


def log_rounds_simplex(dim: int, error: float, *, c: float) -> float:
    """Return the logarithm of a number of rounds within which ℓ1 error `error` on the simplex can be forced.

    Theorem 4.3: for every `T <= exp(c·min{d^(1/14), ε^(−1/6)})` some oblivious adversary keeps the ℓ1 calibration
    error per round of every forecaster on `Simplex(dim)` at `error` or more.

    Examples
    --------
    >>> round(log_rounds_simplex(2**14, 0.01, c=1.0), 9)
    2.0
    """
    return _log_rounds(dim, error, c, 6)


def log_rounds_ball(dim: int, error: float, *, c: float) -> float:
    """Return the same for ℓ2 error on the unit ball: `c·min{d^(1/14), ε^(−1/7)}` (Theorem D.2).

    Examples
    --------
    >>> round(log_rounds_ball(10**30, 1e-7, c=0.5), 9)
    5.0
    """
    return _log_rounds(dim, error, c, 7)


def _log_rounds(dim: int, error: float, c: float, root: int) -> float:
    dim = whole_number("dim", dim, least=1)
    error = positive_number("error", error)
    c = positive_number("c", c)
    return c * min(math.exp(math.log(dim) / 14), math.pow(error, -1 / root))
