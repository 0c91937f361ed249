"""What the groups of a `Recalibrator` have seen, and which arrays can be that."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._states import check_array, check_finite, check_sums, slack
from treecal._typing import Array
from treecal._validate import HEAVIEST
from treecal.correctors._forgetting import check_trust
from treecal.exceptions import SnapshotError, UnsupportedError
from treecal.forecasters import Forecaster
from treecal.geometry import ConvexSet, l2
from treecal.geometry._convex import LARGEST


@dataclass(frozen=True)
class GroupState:
    """What a group has seen, as arrays that are replaced and never changed; and its forecaster, if groups have one."""

    number: int
    first: Array
    sums: Array  # (3, 3 + 2·dim): weight, ‖y‖², ‖y − b‖², y, b; what rounding took from them; those not from a log
    copies: Array  # (copies that forget, 1 + dim): weight, and the sum of `y` or `y − b`
    trust: Array  # in the copy that never forgets, which is `sums`, and in the others
    forecaster: Forecaster | None

    def copied(self) -> GroupState:
        """Return one whose arrays may be changed."""
        arrays = self.first.copy(), self.sums.copy(), self.copies.copy(), self.trust.copy()
        return GroupState(self.number, *arrays, self.forecaster)


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


def check_seen(space: ConvexSet, groups: int, first: Array, sums: Array, *, rounds: int, whole: bool) -> None:
    """Raise unless so many groups can have seen this in so many rounds, of weights 0 and 1 if they are `whole`."""
    dim = space.dim
    check_array("first", first, (groups, dim))
    check_array("sums", sums, (groups, 3, 3 + 2 * dim))
    check_sums("the groups' first forecasts", first, np.ones(groups), space, rounds=1)
    weights, scored = sums[:, 0, 0], sums[:, 2]
    if groups > rounds or (weights <= 0).any() or weights.sum() > HEAVIEST * rounds:
        raise SnapshotError(f"{groups} groups do not have the weights of {rounds} rounds.")
    if whole and ((weights != np.rint(weights)).any() or weights.sum() > rounds or sums[:, 1, 0].any()):
        raise SnapshotError(f"the groups' rounds are not whole numbers with a sum of at most {rounds}.")
    if (scored[:, 0] < 0).any() or (scored[:, 0] > weights * (1 + slack(rounds))).any():
        raise SnapshotError("the groups learned more in rounds than in all.")
    for total in (sums[:, 0], sums[:, 0] + sums[:, 1], scored):  # without and with what rounding lost
        counts = weights if total is not scored else scored[:, 0]
        for what, part in (("outcomes", total[:, 3 : 3 + dim]), ("forecasts", total[:, 3 + dim :])):
            check_sums(f"the groups' {what}", part, counts, space, rounds=rounds)
        _check_squares(space, total, counts, rounds)


def _check_squares(space: ConvexSet, total: Array, counts: Array, rounds: int) -> None:
    """Raise unless `Σ‖y‖²` and `Σ‖y − b‖²` lie between what the sums of `y` and `y − b` imply and what can be."""
    dim, met = space.dim, counts > 0
    y, b, counts = total[met, 3 : 3 + dim], total[met, 3 + dim :], counts[met]
    most = LARGEST**2 * dim
    with suppress(UnsupportedError):
        low, high = space.bounds()
        most = float((np.maximum(np.abs(low), np.abs(high)) ** 2).sum())
    near = 10 * slack(rounds) * counts * max(most, 1.0)
    for squares, sums, factor in ((total[met, 1], y, 1), (total[met, 2], y - b, 4)):
        least = l2.square(sums) / counts
        if (squares < least - near).any() or (squares > factor * most * counts + near).any():
            raise SnapshotError("the groups' squares are not those of their outcomes and forecasts.")
    if total[~met].any():
        raise SnapshotError("the groups' sums are not 0 where nothing was added up.")


def check_copies(
    space: ConvexSet,
    counts: list[int],
    most: Array,
    copies: Array,
    trust: Array,
    *,
    rounds: int,
    errors: float | None = None,
) -> None:
    """Raise unless groups can have such copies, so many each, and so much trust in them.

    Their weights are at most `most`, by group. Their sums are of outcomes; or of errors, each at most `errors` large.
    """
    check_array("the copies", copies, (sum(counts) - len(counts), 1 + space.dim))
    check_array("the trust in the copies", trust, (sum(counts),))
    heaviest = np.repeat(most, np.array(counts, np.int64) - 1) * (1 + 1e-6)
    if (copies[:, 0] <= 0).any() or (copies[:, 0] > heaviest).any():
        raise SnapshotError("the copies' weights are not between 0 and those of the groups.")
    if errors is None:
        check_sums("the copies' outcomes", copies[:, 1:], copies[:, 0], space, rounds=rounds)
    elif (np.abs(copies[:, 1:]) > copies[:, :1] * (errors * (1 + 1e-6))).any():
        raise SnapshotError("the copies' errors are larger than the set.")
    end = 0
    for count in counts:
        end += count
        check_trust(trust[end - count : end], count)
