"""What the groups of a `Recalibrator` have seen, and their visits: one arithmetic for a round and for many."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._elementary import power
from treecal._states import check_array, check_finite
from treecal._typing import Array, Integers
from treecal.correctors._forgetting import mixed, trusted
from treecal.exceptions import SnapshotError
from treecal.forecasters import Forecaster


class GroupArrays(NamedTuple):
    """What a group has seen, as visits change it: see `GroupState`."""

    first: Array
    sums: Array
    copies: Array
    trust: Array


class Rule(NamedTuple):
    """How visits are learned: what copies keep, and the weight from which on there is another one."""

    kept: Array
    most: float
    prior: float
    ends: float
    shift: bool
    scale: float
    share: float
    lasting: float
    scored: bool


class Visits(NamedTuple):
    """Rounds of a group, and the steps that they are learned in: a row and a weight each."""

    forecasts: Array
    outcomes: Array
    rows: Integers
    weights: Array


@strict
def means(first: Array, sums: Array, copies: Array, prior: float, ends: float, found: Array) -> None:
    """Write the mean of each copy, first of the one that never forgets, which has the prior.

    Those that forget count one more outcome of the weight `ends`, half of it at each end: see `Levels`.
    """
    dim = len(first)
    weight = prior + sums[0, 0]
    for k in range(dim):
        found[0, k] = (prior * first[k] + sums[0, 3 + k] + sums[1, 3 + k]) / weight
        for copy in range(len(copies)):
            found[1 + copy, k] = (copies[copy, 1 + k] + 0.5 * ends) / (copies[copy, 0] + ends)


@strict
def corrected(group: GroupArrays, prior: float, ends: float, found: Array) -> None:
    """Write the mean by trust of what the copies of a group of means forecast."""
    points = np.empty((len(group.trust), len(group.first)))
    means(group.first, group.sums, group.copies, prior, ends, points)
    mixed(group.trust, points, found)


@strict
def _add(sums: Array, at: int, amount: float, scored: bool) -> None:
    """Add to a sum, and keep what the rounding lost (Knuth's error-free addition)."""
    before = sums[0, at]
    total = before + amount
    seen = total - before
    sums[0, at] = total
    sums[1, at] += (before - (total - seen)) + (amount - seen)
    if scored:
        sums[2, at] += amount


@strict
def visit(group: GroupArrays, rule: Rule, points: Array, b: Array, y: Array, weight: float) -> None:
    """Learn one visit: sums, the copies that forget, and the trust in them, by the points that they forecast."""
    _, sums, copies, trust = group
    scored = rule.scored
    dim = len(y)
    squares = 0.0
    errors = 0.0
    for k in range(dim):
        squares += y[k] * y[k]
        errors += (y[k] - b[k]) * (y[k] - b[k])
    _add(sums, 0, weight, scored)
    _add(sums, 1, weight * squares, scored)
    _add(sums, 2, weight * errors, scored)
    for k in range(dim):
        _add(sums, 3 + k, weight * y[k], scored)
        _add(sums, 3 + dim + k, weight * b[k], scored)
    count = len(trust)
    if count == 1:
        return
    losses = np.empty(count)
    for copy in range(count):
        loss = 0.0
        for k in range(dim):
            loss += (y[k] - points[copy, k]) * (y[k] - points[copy, k])
        losses[copy] = loss / rule.scale
    trusted(trust, losses, sums[0, 0], weight, rule.share, rule.lasting)
    for copy in range(count - 1):
        keeps = rule.kept[1 + copy]
        left = keeps
        counts = 1.0
        if weight != 1.0:
            left = power(keeps, weight)
            counts = (1.0 - left) / (1.0 - keeps)
        copies[copy, 0] = left * copies[copy, 0] + counts
        for k in range(dim):
            copies[copy, 1 + k] = left * copies[copy, 1 + k] + counts * (y[k] - b[k] if rule.shift else y[k])


@strict
def visits(group: GroupArrays, rule: Rule, steps: Visits, at: int, announced: Array) -> int:
    """Learn the steps of a group of means from `at` on, in order; one of weight 0 only announces.

    Returns the next step, which is not the last if there is weight for another copy, from `rule.most` on.
    """
    first, sums, copies, trust = group
    forecasts, outcomes, rows, weights = steps
    points = np.empty((len(trust), len(first)))
    for step in range(at, len(rows)):
        row = rows[step]
        weight = weights[step]
        met = sums[0, 0] > 0.0
        if met:
            means(first, sums, copies, rule.prior, rule.ends, points)
        if step == 0 or rows[step - 1] != row:
            if met:
                mixed(trust, points, announced[row])
            else:
                copy_into(announced[row], forecasts[row])
        if weight == 0.0:
            continue
        if not met:
            copy_into(first, forecasts[row])
        visit(group, rule, points, forecasts[row], outcomes[row], weight)
        if sums[0, 0] >= rule.most:
            return step + 1
    return len(rows)


class GroupState(NamedTuple):
    """What a group has seen, as arrays that are replaced and never changed; and its forecaster, if groups have one."""

    number: int
    first: Array
    sums: Array  # (3, 3 + 2·dim): weight, ‖y‖², ‖y − b‖², y, b; what rounding took from them; those not from a log
    copies: Array  # (copies that forget, 1 + dim): weight, and the sum of `y` or `y − b`
    trust: Array  # in the copy that never forgets, which is `sums`, and in the others
    forecaster: Forecaster | None

    @property
    def arrays(self) -> GroupArrays:
        """The arrays, as kernels take them."""
        return GroupArrays(self.first, self.sums, self.copies, self.trust)

    def copied(self) -> GroupState:
        """Return one whose arrays may be changed."""
        number, first, sums, copies, trust, forecaster = self
        return GroupState(number, first.copy(), sums.copy(), copies.copy(), trust.copy(), forecaster)


def checked_names(names: Any) -> list[Hashable]:
    """Return the names of groups: all different, and tuples where a file has lists."""
    if not isinstance(names, list):
        raise SnapshotError("the groups' names are not a list.")
    found = [tuple(name) if isinstance(name, list) else name for name in names]
    try:
        different = len(set(found)) == len(found)
        check_finite("the groups' names", found)
    except TypeError:  # not hashable
        different = False
    if not different:
        raise SnapshotError("the groups' names are not all different.")
    return found


def check_seen(dim: int, groups: int, first: Array, sums: Array, rounds: int) -> None:
    """Raise unless so many groups can have such sums: each has met some of the rounds."""
    check_array("first", first, (groups, dim))
    check_array("sums", sums, (groups, 3, 3 + 2 * dim))
    if groups > rounds or (sums[:, 0, 0] <= 0).any():
        raise SnapshotError(f"{groups} groups do not have the weights of {rounds} rounds.")


def check_copies(dim: int, counts: list[int], copies: Array, trust: Array) -> None:
    """Raise unless groups can have such copies, so many each, and such trust in them."""
    check_array("the copies", copies, (sum(counts) - len(counts), 1 + dim))
    check_array("the trust in the copies", trust, (sum(counts),))
    if (copies[:, 0] <= 0).any():
        raise SnapshotError("the copies' weights are not more than 0.")
