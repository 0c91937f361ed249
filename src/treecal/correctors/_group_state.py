"""What the groups of a `Recalibrator` have seen, and which arrays can be that."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from treecal._states import check_array, check_finite
from treecal._typing import Array
from treecal.exceptions import SnapshotError
from treecal.forecasters import Forecaster
from treecal.geometry import ConvexSet


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


def check_seen(space: ConvexSet, groups: int, first: Array, sums: Array, rounds: int) -> None:
    """Raise unless so many groups can have such sums: each has met some of the rounds."""
    check_array("first", first, (groups, space.dim))
    check_array("sums", sums, (groups, 3, 3 + 2 * space.dim))
    if groups > rounds or (sums[:, 0, 0] <= 0).any():
        raise SnapshotError(f"{groups} groups do not have the weights of {rounds} rounds.")


def check_copies(space: ConvexSet, counts: list[int], copies: Array, trust: Array) -> None:
    """Raise unless groups can have such copies, so many each, and such trust in them."""
    check_array("the copies", copies, (sum(counts) - len(counts), 1 + space.dim))
    check_array("the trust in the copies", trust, (sum(counts),))
    if (copies[:, 0] <= 0).any():
        raise SnapshotError("the copies' weights are not more than 0.")
