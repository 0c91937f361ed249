"""Many streams of group means or shifts: a `Recalibrator` with groups by `TopClass` that does not forget."""

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np

from treecal._states import check_array, check_names, check_rounds, check_sums
from treecal._sums import two_sum
from treecal._typing import Array, Integers
from treecal.correctors import Recalibrator, TopClass
from treecal.engine._outcomes import Outcomes
from treecal.engine._streams import Streams, waves
from treecal.exceptions import SnapshotError

EPS = float(np.finfo(np.float64).eps)


def has_columns(corrector: Recalibrator) -> bool:
    """Return whether each group of a stream is a few numbers, and there are equally many groups for all."""
    return not corrector.forget and isinstance(corrector.make, str) and isinstance(corrector.groups, TopClass)


class MeanStreams(Streams):
    """A stream has a row for each group: the first forecast, and sums of weights, outcomes and forecasts.

    A batch is taken apart into waves, the first round of each group in it, then the second, and so on, and each wave is
    a few array operations.
    """

    thing: Recalibrator

    def __init__(self, thing: Recalibrator) -> None:
        super().__init__(thing)
        self._dim, self._groups = thing.space.dim, cast(TopClass, thing.groups)
        self._places = self._dim * self._groups.bins
        self._fresh_first, self._fresh_sums = self._start()
        self._first, self._sums = self._fresh_first[:0], self._fresh_sums[:0]
        self._rounds = np.zeros(0, np.int64)

    def _start(self) -> tuple[Array, Array]:
        """Return the state of a new stream."""
        d = self._dim
        first, sums = np.zeros((self._places, d)), np.zeros((self._places, 2, 1 + 2 * d))
        for name, group in self.thing._groups().items():
            top, at = cast(tuple[int, int], name)  # as TopClass names them
            row = top * self._groups.bins + at
            first[row], sums[row] = group.first, group.sums[:2, [0, *range(3, 3 + 2 * d)]]
        return first, sums

    @property
    def rounds(self) -> Integers:
        return self._rounds

    def reserve(self, rows: int) -> None:
        more = rows - len(self._rounds)
        self._rounds = np.concatenate([self._rounds, np.zeros(more, np.int64)])
        self._first = np.concatenate([self._first, np.tile(self._fresh_first, (more, 1))])
        self._sums = np.concatenate([self._sums, np.tile(self._fresh_sums, (more, 1, 1))])

    def clear(self, rows: Integers) -> None:
        self._rounds[rows] = 0
        homes = rows[:, None] * self._places + np.arange(self._places)
        self._first[homes], self._sums[homes] = self._fresh_first, self._fresh_sums

    def _homes(self, rows: Integers, forecasts: Array) -> Integers:
        top, at = self._groups.places(forecasts)
        return np.asarray(rows * self._places + (top * self._groups.bins + at))

    def announce(self, rows: Integers, forecasts: Array | None) -> Array:
        assert forecasts is not None
        homes = self._homes(rows, forecasts)
        return self._means(self._first[homes], self._sums[homes], forecasts)

    def _means(self, first: Array, sums: Array, forecasts: Array) -> Array:
        """Return what groups with these states announce."""
        of, d = self.thing, self._dim
        prior, (total, lost) = 1.0 if of.prior is None else of.prior, sums.swapaxes(0, 1)
        weight, y, b = prior + total[:, :1], slice(1, 1 + d), slice(1 + d, None)
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
        first, sums, announced = self._first[touched], self._sums[touched], np.empty(forecasts.shape)
        for wave in waves(home):
            own, b = home[wave], forecasts[wave]
            before = sums[own]
            announced[wave] = self._means(first[own], before, b)
            total, lost = before.swapaxes(0, 1)
            first[own] = np.where(total[:, :1] > 0, first[own], b)
            total, more = two_sum(total, np.concatenate([np.ones((len(total), 1)), Y[wave], b], axis=1))
            sums[own] = np.stack([total, lost + more], axis=1)
        self.torn = True
        self._first[touched], self._sums[touched] = first, sums
        np.add.at(self._rounds, rows, 1)
        self.torn = False
        return announced

    def state(self, rows: Integers) -> dict[str, Any]:
        homes = (rows[:, None] * self._places + np.arange(self._places)).ravel()
        return {"rounds": self._rounds[rows], "first": self._first[homes], "sums": self._sums[homes]}

    def resumed(self, state: dict[str, Any]) -> Self:
        check_names("the state", state, ("rounds", "first", "sums"))
        rounds = check_rounds("rounds", state["rounds"], np.size(state["rounds"]))
        for name, fresh in (("first", self._fresh_first), ("sums", self._fresh_sums)):
            check_array(name, state[name], (len(rounds) * self._places, *fresh.shape[1:]))
        twin = type(self)(self.thing)
        twin._first, twin._sums = (np.array(state[name], order="C") for name in ("first", "sums"))
        twin._rounds = rounds.copy()
        twin._check()
        return twin

    def _check(self) -> None:
        """Raise unless streams of so many rounds can have these sums."""
        first, sums, rounds = self._first, self._sums, self._rounds
        counts = sums[:, 0, 0].reshape(len(rounds), self._places)
        # What came since the start is a number of rounds, but for rounding: the start may have any weight.
        (start, less), lost = self._fresh_sums[:, :, 0].T, sums[:, 1, 0].reshape(counts.shape)
        own, near = (counts - start) + (lost - less), 8 * EPS * (1 + counts)
        if not (counts >= 0).all() or (own < -near).any() or (np.abs(own - np.rint(own)) > near).any():
            raise SnapshotError("the groups' rounds are not counted in whole numbers.")
        if (np.abs(own.sum(axis=1) - rounds) > near.sum(axis=1)).any():
            raise SnapshotError("the groups' rounds are not those of their streams.")
        met, d, most, space = counts.ravel() > 0, self._dim, float(counts.sum()), self.thing.space
        check_sums("the groups' first forecasts", first[met], np.ones(met.sum()), space, rounds=1)
        for total in (sums[met, 0], sums[met].sum(axis=1)):  # without and with what rounding lost
            for what, part in (("outcomes", total[:, 1 : 1 + d]), ("forecasts", total[:, 1 + d :])):
                check_sums(f"the groups' {what}", part, total[:, 0], space, rounds=most)
        if sums[~met].any() or first[~met].any():
            raise SnapshotError("a group without rounds is not empty.")
