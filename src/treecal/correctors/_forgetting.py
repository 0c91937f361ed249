"""Forgetting without a knob: copies that forget at different speeds, each trusted by its past success.

One copy never forgets; another one of half-life `2^k` joins when there have been `2^k` rounds, as a copy of the first.
A round multiplies the trust in a copy by `exp(−loss)`, and then moves a small share of all trust back to where it
began (fixed share). What is announced is the mean of the copies' forecasts by trust, so where `exp(−loss)` is concave
in the forecast its loss is within `tracking_bound` of that of any sequence of copies.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from treecal._compile import strict
from treecal._elementary import LN2, applied, exp
from treecal._typing import Array, Integers
from treecal._validate import positive_number, whole_number
from treecal.correctors._batch import Batch

# Chosen on synthetic streams of two classes (no drift, slow, fast and periodic drift, abrupt changes, a stretch that
# fades; 4,000 rounds, 20 groups, 30 seeds each). Group means that forget have a Brier score 19 % lower in the last
# quarter of the fast drift, and one 0.4 % higher there, 0.2 % in all, without drift. That is a choice: with LASTING of
# 1/4 it is 20 % and 0.45 %, with 1/2 17 % and 0.23 %, and a shortest half-life of 8 in place of 16 visits costs 0.6 %
# for 21 %. SHARE hardly matters: from 0.001 to 0.005 the 19 % change by one.
SHARE = 0.002
LASTING = 1 / 3
"""The trust that the copy which never forgets has from the start, at least, and its part of each share."""


MOST_STEPS = 16
"""In which a round of any weight is learned."""


def steps_of(batch: Batch) -> tuple[Integers, Array]:
    """Return the row and the weight of each step in which rounds are learned.

    A weight is learned in equal steps: a whole number up to 16 in steps of 1, any other in as few as are not heavier,
    but in no more than 16. A weight of 0 is one step, of weight 0.

    Examples
    --------
    >>> three = np.zeros((3, 2))
    >>> rows, weights = steps_of(Batch(three, three, weights=np.array([3.0, 0.3, 1000.0])))
    >>> rows[:5].tolist(), weights[:5].tolist()
    ([0, 0, 0, 1, 2], [1.0, 1.0, 1.0, 0.3, 62.5])
    """
    rows = np.arange(len(batch))
    if batch.weights is None:
        return rows, np.ones(len(batch))
    counts = np.clip(np.ceil(batch.weights), 1, MOST_STEPS).astype(np.int64)
    return rows.repeat(counts), (batch.weights / counts).repeat(counts)


def copies(rounds: float, first: int) -> int:
    """Return how many copies there are after so many rounds, of half-lives from `2^first` on and with no end.

    Examples
    --------
    >>> [copies(rounds, 4) for rounds in (0, 15, 16, 31, 32, 1000)]
    [1, 1, 2, 2, 3, 7]
    """
    return 1 + (max(0, math.frexp(rounds)[1] - first) if rounds >= 1 else 0)


@lru_cache
def kept(count: int, first: int) -> Array:
    """Return what each of so many copies keeps of its past in a round: 1, all of it, and `2^(−1/half-life)`."""
    return _fixed(applied(exp, [0.0, *(-LN2 * 0.5**k for k in range(first, first + count - 1))]))


@lru_cache
def start(count: int) -> Array:
    """Return where trust begins, and goes back to."""
    return _fixed(np.ones(1) if count == 1 else np.append(LASTING, np.full(count - 1, (1 - LASTING) / (count - 1))))


def _fixed(array: Array) -> Array:
    array.setflags(write=False)
    return array


def joined(trust: Array, count: int) -> Array:
    """Return the trust in so many copies, the last of which are new and take theirs from the first.

    Of what the first had at the start, the one that joins as number `j` takes `(1 − LASTING)/(j(j+1))`.
    """
    found = trust.tolist()
    for j in range(len(found), count):
        left = 1 - (1 - LASTING) * (1 - 1 / j)
        part = (1 - LASTING) / (j * (j + 1)) / left
        found.append(found[0] * part)
        found[0] *= 1 - part
    return np.array(found)


def tracking_bound(rounds: int, *, first: int = 4, changes: int = 0) -> float:
    """Return the most that the mean by trust loses to a sequence of copies, in units of the loss, over all rounds.

    The shares `γ_t = min(0.002, 1/t)` vanish, so against the copy that never forgets, with no changes, it is
    `O(log T)`: `ln 3 + Σ_t −ln(1 − 2γ_t/3)`. With `N` copies at the end, `N·γ_t <= 1`, a sequence with `k` changes
    has at least `(1/3)·(2γ_T/(3N))^k·Π_t(1 − γ_t)` of the trust before its own losses.

    Rounds of `fit` are among the rounds. For those after it alone the bound holds with one change more: trust in the
    copy that never forgets may have fallen in the log, but no lower than its part of a share.

    Parameters
    ----------
    rounds
        Rounds played, of weight 1.
    first
        The shortest half-life is `2^first`.
    changes
        How often the sequence goes from one copy to another; it begins with the one that never forgets.

    Examples
    --------
    >>> [round(tracking_bound(rounds), 1) for rounds in (100, 10_000, 1_000_000)]
    [1.2, 3.8, 6.8]
    """
    rounds = whole_number("rounds", rounds, least=1)
    changes = whole_number("changes", changes, least=0)
    shares = np.minimum(SHARE, 1 / np.arange(1, min(rounds, 10**6) + 1))
    lost = -math.fsum(np.log1p(-shares * (1 - LASTING if not changes else 1.0)))
    if rounds > 10**6:  # the rest of a sum of decreasing terms
        lost += math.log(rounds / 10**6) / (1 - 1e-6)
    each = math.log(copies(rounds, first) * max(rounds, 1 / SHARE) / (1 - LASTING))
    return lost - math.log(LASTING) + changes * each


@strict
def mixed(trust: Array, points: Array, mean: Array) -> None:
    """Write the mean of the copies' points by trust."""
    for k in range(len(mean)):
        total = trust[0] * points[0, k]
        for copy in range(1, len(trust)):
            total += trust[copy] * points[copy, k]
        mean[k] = total


@strict
def trusted(trust: Array, losses: Array, seen: float, weight: float, share: float, lasting: float) -> None:
    """Update the trust in each copy by its loss in a round, the last of so many.

    A weight multiplies the losses; the share is the same for all, but a part of it for a weight below 1.
    """
    copies = len(trust)
    if copies == 1:
        return
    least = losses.min()
    total = 0.0
    for copy in range(copies):
        trust[copy] *= exp(-weight * (losses[copy] - least))
    for copy in range(copies):
        total += trust[copy]
    part = min(share, 1.0 / max(seen, 1.0)) * min(weight, 1.0)
    for copy in range(copies):
        start = lasting if copy == 0 else (1.0 - lasting) / (copies - 1)
        trust[copy] = (1.0 - part) * (trust[copy] / total) + part * start


def calibeating_bound(rounds: int, *, groups: int, diameter: float, prior: float = 1.0, forget: bool = False) -> float:
    """Return the most that simple calibeating can lose to the best constants, in Brier score per round.

    With `κ` the prior, `m_t = (κs + Σ_{i≤t} y_i)/(κ + t)` minimises `κ‖q − s‖² + Σ_{i≤t} ‖y_i − q‖²`, and that minimum
    grows by `(1 − 1/(κ+t))·‖y_t − m_{t−1}‖²` in round `t`. So a group of `n` rounds has
    `Σ_t ‖y_t − m_{t−1}‖² <= Σ_t ‖y_t − ȳ‖² + κ‖ȳ − s‖² + Σ_t ‖y_t − m_{t−1}‖²/(κ+t)`, and loses at most
    `D²·(κ + Σ_{t≤n} 1/(κ+t))`, with `κ = 0` too. That is concave in `n`: the worst case is groups of equal size.

    Parameters
    ----------
    rounds
        Rounds played.
    groups
        Number of groups met.
    diameter
        The set's ℓ2 diameter: `√2` on the simplex. For shifts, twice that.
    prior
        As for `Recalibrator`.
    forget
        Whether groups forget: adds `2D²·tracking_bound(rounds of a group)` for each.

    Examples
    --------
    >>> round(calibeating_bound(10_000, groups=20, diameter=math.sqrt(2)), 4)
    0.0272
    """
    rounds = whole_number("rounds", rounds, least=1)
    groups = whole_number("groups", groups, least=1)
    prior = positive_number("prior", prior, or_zero=True)
    groups = min(groups, rounds)
    each, more = divmod(rounds, groups)
    lost = groups * (prior + math.fsum(1 / (prior + np.arange(1, each + 1)))) + more / (prior + each + 1)
    if forget:
        sizes = ((groups - more, each), (more, each + 1))
        lost += 2 * sum(count * tracking_bound(size) for count, size in sizes if count)
    return float(diameter**2 * lost / rounds)
