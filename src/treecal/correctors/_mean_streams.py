"""Many streams of group means or shifts: a `Recalibrator` with groups by `TopClass` that does not forget."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from treecal._sums import two_sum
from treecal._typing import Array, Integers, Outcomes
from treecal.columns import ROUNDS, ColumnStreams, Field, Schema, waves
from treecal.exceptions import SnapshotError


class MeanStreams(ColumnStreams):
    """A stream has a row for each group: the first forecast, and sums of weights, outcomes and forecasts.

    A batch is taken apart into waves, the first round of each group in it, then the second, and so on, and each wave is
    a few array operations.
    """

    def __init__(self, thing: Any) -> None:
        self._dim = thing.space.dim
        self._groups = thing.groups
        self._places = self._dim * self._groups.bins
        first, sums = self._start(thing)
        super().__init__(
            thing, Schema((ROUNDS, Field("first", first.shape, new=first), Field("sums", sums.shape, new=sums)))
        )

    def _start(self, thing: Any) -> tuple[Array, Array]:
        """Return what a new stream has: a corrector that was fitted has met some groups."""
        d = self._dim
        first = np.zeros((self._places, d))
        sums = np.zeros((self._places, 2, 1 + 2 * d))
        for name, group in thing._groups().items():
            top, at = name  # as TopClass names them
            row = top * self._groups.bins + at
            first[row] = group.first
            sums[row] = group.sums[:2, [0, *range(3, 3 + 2 * d)]]
        return first, sums

    def _of_groups(self) -> tuple[Array, Array]:
        """Return the arrays with a row for each group of each stream."""
        first = self.columns["first"]
        sums = self.columns["sums"]
        return first.reshape(-1, self._dim), sums.reshape(-1, *sums.shape[2:])

    def _homes(self, rows: Integers, forecasts: Array) -> Integers:
        top, at = self._groups.places(forecasts)
        return np.asarray(rows * self._places + (top * self._groups.bins + at))

    def announce(self, rows: Integers, forecasts: Array | None) -> Array:
        assert forecasts is not None
        homes, (first, sums) = self._homes(rows, forecasts), self._of_groups()
        return self._means(first[homes], sums[homes], forecasts)

    def _means(self, first: Array, sums: Array, forecasts: Array) -> Array:
        """Return what groups with these states announce."""
        of = self.thing
        d = self._dim
        prior, (total, lost) = 1.0 if of.prior is None else of.prior, sums.swapaxes(0, 1)
        weight = prior + total[:, :1]
        y = slice(1, 1 + d)
        b = slice(1 + d, None)
        met = total[:, 0] > 0
        if of.make == "shift":
            added = total[:, y] - total[:, b] + (lost[:, y] - lost[:, b])
        else:
            added = prior * first + total[:, y] + lost[:, y]
        means = np.divide(added, weight, where=met[:, None], out=np.zeros_like(added))
        found = of.space.project(forecasts + means) if of.make == "shift" else means
        return np.where(met[:, None], found, forecasts)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array:
        """Learn on copies of the groups' states, which are put in place at the end."""
        assert forecasts is not None
        Y = outcomes if outcomes.ndim == 2 else np.eye(self._dim)[outcomes]
        touched, home = np.unique(self._homes(rows, forecasts), return_inverse=True)
        all_first, all_sums = self._of_groups()
        first = all_first[touched]
        sums = all_sums[touched]
        announced = np.empty(forecasts.shape)
        for wave in waves(home):
            own = home[wave]
            b = forecasts[wave]
            before = sums[own]
            announced[wave] = self._means(first[own], before, b)
            total, lost = before.swapaxes(0, 1)
            first[own] = np.where(total[:, :1] > 0, first[own], b)
            total, more = two_sum(total, np.concatenate([np.ones((len(total), 1)), Y[wave], b], axis=1))
            sums[own] = np.stack([total, lost + more], axis=1)
        self.torn = True
        all_first[touched] = first
        all_sums[touched] = sums
        np.add.at(self.rounds, rows, 1)
        self.torn = False
        return announced

    def with_rows(self, columns: Any) -> Self:
        twin = super().with_rows(columns)
        if (twin.columns["sums"][:, :, 0, 0] < 0).any():
            raise SnapshotError("a group has a negative number of rounds.")
        return twin
