"""Certificates: bounds on TreeCal's calibration error on any sequence, with every constant.

The argument, for a set, a norm, and `R` with `D_R(y|p) >= ‖y − p‖²` and Jensen gap `J`; the page
`docs/explanation/certificate.md` has the details. Let node h of a parent cover `w_h` rounds with mean outcome `ν_h`,
let `W_h` be the rounds up to and including it, `p_h` its point (the mean of its elder siblings) and `p̃_h`
Be-The-Leader's (which includes its own outcomes).

1. *Telescoping.* Be-The-Leader loses no more than the parent's mean does, so
   `Σ_h w_h D_R(ν_h|p̃_h) <= Σ_h w_h D_R(ν_h|ν_parent)`, which is the parent's total Jensen gap less its children's.
   Over all heights the sum is the root's, at most `rounds · J`. With weight `1/depth` on each height,
   `Σ weight · w_h ‖ν_h − p̃_h‖² <= rounds · κ · J` with `κ = 1/depth`, for any number of rounds.
2. *Movement.* `p̃_h` lies on the segment from `p_h` to `ν_h`: `ν_h − p_h = a_h (ν_h − p̃_h)` with
   `a_h = W_h/(W_h − w_h)`, for every child but the first, whose error is at most the radius about the start point.
3. *The worst an adversary can do* with errors `z_h = ‖ν_h − p_h‖ <= D` within the budget `Σ (z_h/a_h)² <= κJ`, sums
   weighted by the share of rounds, is a knapsack with a closed solution. Squares: the budget buys `z² = D²` where
   `a_h` is greatest first. Norms: `z_h = min(D, s·a_h²)`, with the `s` that spends the budget.

Step 3 replaces Minkowski's inequality, `(√(κJ) + √(r²μ₀ + D²μ₁))²`, which uses the same facts and so is never less. It
is reported beside the bound, and so is the paper's own with its constants corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.geometry import ConvexSet, Lp, Mahalanobis, Norm, as_norm, checked_start
from treecal.theory._jensen import JensenGap, jensen_gap
from treecal.tree import MOST_LEAVES, Tree


def hedge_rate(arity: int, depth: int, *, grows: bool) -> float:
    """Return Hedge's rate for costs in [0, 1]: `√(8 ln depth / N)`, `N` the top nodes of the tree, or of its epoch."""
    top_nodes = arity - 1 if grows and depth > 1 else arity
    return math.sqrt(8 * math.log(depth) / top_nodes)


def block_regret(rounds: int, *, arity: int, depth: int | None = None, diameter: float) -> float:
    """Return the most that `AdaptiveTreeCal(rule="block")` can lose to the best height, and so to TreeCal, in total.

    Hedge's rounds are the top nodes, `N` of them of `B = arity^(depth−1)` rounds, and a height's cost in each is at
    most `diameter` times its rounds. With rate `η = √(8 ln depth / N) / (diameter·B)` the per-node error is at most
    `min_j E_j + ln(depth)/η + η·Σ(diameter·length)²/8`; when all are complete the last two sum to
    `diameter·B·√(N ln(depth)/2)`. `min_j E_j` is at most the mean of the `E_j`, which is TreeCal's per-node error. A
    tree without `depth` sums over epochs, `N = arity − 1` in each, with the least `E_j` of each.

    Parameters
    ----------
    rounds
        Rounds played.
    arity, depth
        As for the forecaster.
    diameter
        Of the set, in the norm of the heights' costs.

    Examples
    --------
    >>> block_regret(8**4, arity=8, depth=4, diameter=2.0) == 2 * 8**3 * math.sqrt(8 * math.log(4) / 2)
    True
    >>> round(block_regret(64**4, arity=64, diameter=2.0) / 64**4, 2)  # per round
    0.21
    """
    tree = Tree(arity, depth)
    rounds = whole_number("rounds", rounds, least=0)
    tree.check(rounds)
    epochs = tree.epochs(rounds)
    return math.fsum(_epoch_regret(end - begin, arity, m, grows=depth is None) for begin, end, m in epochs) * diameter


def _epoch_regret(rounds: int, arity: int, depth: int, *, grows: bool) -> float:
    """Return the regret of one run of Hedge, at diameter 1."""
    if depth == 1:
        return 0.0
    longest: int = arity ** (depth - 1)
    rate = hedge_rate(arity, depth, grows=grows)
    complete, part = divmod(rounds, longest)
    regret = longest * (math.log(depth) / rate + rate * (complete + (part / longest) ** 2) / 8)
    return min(regret, float(rounds))  # no round costs more than the diameter


class Shares(NamedTuple):
    """How the rounds of a tree are divided among its nodes.

    Attributes
    ----------
    kappa
        κ: the average over rounds of the weight of one height; `1/depth` at fixed depth.
    first
        μ₀: the share of all weight that falls on first children.
    later
        The share of other children, in groups of equal stretch.
    stretch
        `a_h = W_h / (W_h − w_h)` of each group, greatest first.
    """

    kappa: float
    first: float
    later: Array
    stretch: Array

    @property
    def moved(self) -> float:
        """μ₁: the sum over later children of their share times `(w_h / W_h)²`."""
        return float(self.later @ np.square(1 - 1 / self.stretch))


def shares(rounds: int, *, arity: int, depth: int | None = None) -> Shares:
    """Return the exact shares of a tree after any number of rounds, in O(depth · arity)."""
    rounds = whole_number("rounds", rounds, least=1)
    tree = Tree(arity, depth)
    if rounds <= MOST_LEAVES:
        tree.check_countable()
    elif depth is not None and depth > rounds.bit_length():
        raise ParameterError.expected("depth", depth, f"at most {rounds.bit_length()}, enough for arity 2")
    tree.check(rounds)
    spans = tree.epochs(rounds)  # each height has weight 1/m where there are m
    first = 0.0
    weights = []
    stretches = []
    for begins, ends, heights in spans:
        for height in range(heights):
            head, stretch, covered = _children(begins, ends, tree.arity**height, tree.arity)
            first += head / heights
            weights.append(covered / heights)
            stretches.append(stretch)
    # The old root is child 0 of the new one: it was played at lower heights only, and telescopes as one finished child.
    kappa = math.fsum((ends - begins) / m for begins, ends, m in spans)
    if depth is None:
        kappa = rounds / spans[-1][2] + math.fsum(ends * (1 / m - 1 / (m + 1)) for _, ends, m in spans[:-1])
    stretch = np.concatenate(stretches)
    weight = np.concatenate(weights)
    order = np.argsort(-stretch, kind="stable")
    return Shares(kappa / rounds, first / rounds, weight[order] / rounds, stretch[order])


def _children(begins: int, ends: int, size: int, arity: int) -> tuple[float, Array, Array]:
    """Return the rounds of [begins, ends) in first children of `size` rounds; and stretch and rounds of the others."""
    parent = size * arity
    # Whole parents are all equal; there may be a partial one at either end.
    whole_from = -(-begins // parent)
    whole_to = ends // parent
    pieces = [(begins, min(whole_from * parent, ends), 1), (max(whole_to * parent, begins), ends, 1)]
    if whole_from > whole_to:  # both ends lie in one parent
        pieces = [(begins, ends, 1)]
    elif whole_to > whole_from:
        pieces.append((whole_from * parent, (whole_from + 1) * parent, whole_to - whole_from))
    first = 0.0
    stretch = []
    rounds = []
    for low, high, times in pieces:
        if low >= high:
            continue
        start = low // parent * parent
        elder = np.arange((low - start) // size, -(-(high - start) // size)) * float(size)  # rounds of elder siblings
        covered = np.minimum(elder + size, float(high - start)) - elder
        if elder[0] == 0:
            first += float(covered[0]) * times
            elder = elder[1:]
            covered = covered[1:]
        stretch.append((elder + covered) / elder)
        rounds.append(covered * times)
    return first, np.concatenate(stretch), np.concatenate(rounds)


@dataclass(frozen=True, eq=False)
class Certificate:
    """A bound on a forecaster's calibration error per round, for every sequence of outcomes.

    Attributes
    ----------
    bound
        The bound.
    why
        What proves it.

    Examples
    --------
    >>> import treecal as tc
    >>> found = tc.Harmonic(tc.Ball(3)).certificate("l2", rounds=200)
    >>> round(found.bound, 2), found.why
    (0.55, 'spectral certificate')
    >>> print(found)
    at most 0.548 (spectral certificate)
    """

    bound: float
    why: str

    def __str__(self) -> str:
        return f"at most {self.bound:.3g} ({self.why})"


@dataclass(frozen=True, eq=False)
class TreeCertificate(Certificate):
    """The certificate of a tree, with its terms. It bounds the per-node error, and so the plain one.

    Attributes
    ----------
    bound
        For the norm.
    why
        "tree certificate"; under the block rule, with Hedge's regret.
    squared
        For the squared norm.
    minkowski, minkowski_squared
        The same by the simpler route, `√(κJ) + √(r²μ₀ + D²μ₁)` and its square; never less.
    paper, paper_squared
        The paper's own, `6ρ/depth + (π²/3)D²/arity`, with its constants corrected; None where ρ is unknown or the tree
        has no fixed depth.
    gap
        The Jensen gap used, with its regularizer.
    kappa, mu0, mu1
        κ, μ₀ and μ₁.
    radius, diameter
        r about the start point, and D.
    rounds, arity, depth
        What it holds for.
    hedge
        What the block rule adds; 0 for TreeCal.
    """

    squared: float
    minkowski: float
    minkowski_squared: float
    paper: float | None
    paper_squared: float | None
    gap: JensenGap
    kappa: float
    mu0: float
    mu1: float
    radius: float
    diameter: float
    rounds: int
    arity: int
    depth: int | None
    hedge: float = 0.0


def certificate(
    space: ConvexSet,
    norm: Norm | str,
    *,
    rounds: int,
    arity: int = 8,
    depth: int | None = None,
    start: ArrayLike | None = None,
    gap: JensenGap | None = None,
    rule: Literal["uniform", "block"] = "uniform",
) -> TreeCertificate:
    """Return the certificate of `TreeCal`: a bound on its calibration error per round after `rounds` rounds.

    Parameters
    ----------
    space, norm
        The set and the norm.
    rounds
        Rounds played.
    arity, depth, start
        TreeCal's parameters.
    gap
        The Jensen gap; by default the least in closed form. `jensen_gap(space, norm, optimise=True)` may find a better.
    rule
        "uniform" for TreeCal; "block" for `AdaptiveTreeCal(rule="block")` with the same norm, whose bounds are
        TreeCal's plus `hedge`, what Hedge over the heights may lose to it.

    Examples
    --------
    >>> import treecal as tc
    >>> c = tc.certificate(tc.Ball(3), "l2", rounds=32**4, arity=32, depth=4)
    >>> round(c.bound, 3), round(c.minkowski, 3), round(c.paper, 3)
    (0.595, 0.829, 2.532)
    """
    norm = as_norm(norm, space)
    gap = jensen_gap(space, norm) if gap is None else gap
    share = shares(rounds, arity=arity, depth=depth)
    radius = float(space.radius(norm, about=checked_start(space, start)))
    diameter = float(space.diameter(norm))
    tree = from_shares(share, gap, radius, diameter, rounds, arity, depth)
    if rule == "uniform":
        return tree
    if rule != "block":
        raise ParameterError.expected("rule", rule, "'uniform' or 'block'")
    hedge = block_regret(rounds, arity=arity, depth=depth, diameter=diameter) / rounds
    bound = min(tree.bound + hedge, diameter)
    minkowski = tree.minkowski + hedge
    return replace(
        tree,
        bound=bound,
        why="tree certificate and Hedge's regret",
        squared=diameter * bound,  # as no gap is larger than the diameter
        minkowski=minkowski,
        minkowski_squared=diameter * minkowski,
        paper=None,
        paper_squared=None,
        hedge=hedge,
    )


def from_shares(
    share: Shares, gap: JensenGap, radius: float, diameter: float, rounds: int, arity: int, depth: int | None
) -> TreeCertificate:
    """Return the certificate of a tree whose shares are known."""
    budget = share.kappa * gap.value
    minkowski = math.sqrt(budget) + math.sqrt(radius**2 * share.first + diameter**2 * share.moved)
    paper = None
    if depth is not None and gap.rate is not None:
        paper = 6 * gap.rate / depth + math.pi**2 / 3 * diameter**2 / arity
    return TreeCertificate(
        why="tree certificate",
        bound=radius * share.first + _worst_norm(share, budget, diameter),
        squared=radius**2 * share.first + _worst_square(share, budget, diameter),
        minkowski=minkowski,
        minkowski_squared=minkowski**2,
        paper=None if paper is None else math.sqrt(paper),
        paper_squared=paper,
        gap=gap,
        kappa=share.kappa,
        mu0=share.first,
        mu1=share.moved,
        radius=radius,
        diameter=diameter,
        rounds=rounds,
        arity=arity,
        depth=depth,
    )


def _worst_square(share: Shares, budget: float, diameter: float) -> float:
    """Maximise `Σ m_h z_h²` over `0 <= z_h <= D` with `Σ m_h (z_h/a_h)² <= budget`: greatest stretch first."""
    price = share.later * np.square(diameter / share.stretch)  # of z_h = D for the whole group
    spent = np.minimum(price, np.maximum(budget - (np.cumsum(price) - price), 0.0))
    return float(spent @ np.square(share.stretch)) * (1 + 1e-12)  # rounding must not lower a bound


def _worst_norm(share: Shares, budget: float, diameter: float) -> float:
    """Maximise `Σ m_h z_h` over the same: `z_h = min(D, s·a_h²)`, with the s that spends the budget."""
    if diameter == 0 or budget <= 0:
        return 0.0
    square = np.square(share.stretch)
    # What is spent once the first k groups, those of greatest stretch, are at the cap and the others at s·a²: for each
    # k, with the s at which the next group reaches the cap. It grows with k, and the budget falls between two of them.
    capped = np.concatenate([[0.0], np.cumsum(share.later * diameter**2 / square)])
    rest = np.concatenate([np.cumsum((share.later * square)[::-1])[::-1], [0.0]])
    spent = capped[:-1] + rest[:-1] * np.square(diameter / square)
    k = int(np.searchsorted(spent, budget))
    free = math.sqrt(max(budget - capped[k], 0.0) * rest[k])  # s·rest, with s = √((budget − capped)/rest)
    return float(diameter * share.later[:k].sum() + free) * (1 + 1e-12)


def sampling_cost(space: ConvexSet, norm: Norm | str, *, depth: int, block: int) -> float:
    """Return a bound on what SampleTreeCal's draws add to the error per round, in expectation: `K·D·√(depth/block)`.

    For each point of a block's mixture the sum of `(p − y)(1[drawn] − 1/depth)` is a martingale of second moment at
    most `K²·D²·block/depth`, K the norm's martingale type-2 constant; sum over `depth` points and divide by the block.
    Against the paper's Rademacher bound this saves a factor √depth.

    Examples
    --------
    >>> import treecal as tc
    >>> sampling_cost(tc.Ball(3), "l2", depth=4, block=400)
    0.2
    """
    depth = whole_number("depth", depth, least=1)
    block = whole_number("block", block, least=1)
    norm = as_norm(norm, space)
    return type_two(norm, space.dim) * float(space.diameter(norm)) * math.sqrt(depth / block)


def type_two(norm: Norm, dim: int) -> float:
    """Return a constant K with `E‖Σ d_i‖² <= K² Σ E‖d_i‖²` for all martingale differences in R^dim.

    1 for ellipsoidal norms (orthogonality); `√(p − 1)` for ℓp with p >= 2 (Ball, Carlen and Lieb 1994); through ℓ2 at
    the price `d^(1/p − 1/2)` for p < 2; and for ℓ∞ through the best ℓq, `√(q − 1)·d^(1/q)`.
    """
    if isinstance(norm, Mahalanobis):
        return 1.0
    if not isinstance(norm, Lp):
        raise UnsupportedError.by(norm, "type-2 constant here", "it is known only for ℓp and ellipsoidal norms")
    if norm.p <= 2:
        return math.pow(dim, 1 / norm.p - 1 / 2)
    tried = [q for q in (2.0, *np.geomspace(2, 64, 200)) if q <= norm.p] + ([norm.p] if norm.p < math.inf else [])
    # ‖x‖_p <= ‖x‖_q <= d^(1/q − 1/p)‖x‖_p for q <= p
    return min(math.sqrt(q - 1) * math.pow(dim, 1 / q - 1 / norm.p) for q in tried)


def sample_certificate(
    space: ConvexSet,
    norm: Norm | str,
    *,
    rounds: int,
    block: int,
    arity: int = 8,
    depth: int | None = None,
    start: ArrayLike | None = None,
) -> float:
    """Return a bound on the expected pure calibration error of `SampleTreeCal` per round.

    TreeCal's certificate on the finished blocks, plus the cost of sampling; rounds of an unfinished block count with
    the diameter.

    Examples
    --------
    >>> import treecal as tc
    >>> round(sample_certificate(tc.Ball(3), "l2", rounds=32**4 * 10_000, block=10_000, arity=32, depth=4), 3)
    0.635
    """
    rounds = whole_number("rounds", rounds, least=1)
    block = whole_number("block", block, least=1)
    blocks, rest = divmod(rounds, block)
    diameter = float(space.diameter(norm))
    if blocks == 0:
        return diameter
    mixtures = certificate(space, norm, rounds=blocks, arity=arity, depth=depth, start=start).bound
    sampling = sampling_cost(space, norm, depth=Tree(arity, depth).heights(blocks - 1), block=block)
    return ((mixtures + sampling) * (rounds - rest) + diameter * rest) / rounds
