"""Which row of a bank each key stands for, and which rows are in use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._states import check_array, check_names
from treecal._typing import Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError


class Rows:
    """Rows in use, `used` of them ever, and those that were dropped, which are used again first."""

    def __init__(self, used: int = 0) -> None:
        self.used = used
        self._free = np.empty(0, np.int64)
        self._dropped: NDArray[np.bool_] | None = None  # of all rows, once there are any

    def __len__(self) -> int:
        return self.used - len(self._free)

    def next(self, count: int) -> Integers:
        """Return the rows that so many new streams would get."""
        old = self._free[::-1][:count]
        return np.concatenate([old, np.arange(self.used, self.used + count - len(old))])

    def take(self, rows: Integers) -> None:
        """Use these rows, as `next` gave them."""
        again = min(len(rows), len(self._free))
        if self._dropped is not None:
            more = np.zeros(len(rows) - again, bool)
            self._dropped = np.concatenate([self._dropped, more]) if len(more) else self._dropped
            self._dropped[rows] = False
        self._free = self._free[: len(self._free) - again]
        self.used = self.used + len(rows) - again

    def give_back(self, rows: Integers) -> None:
        """Drop these rows, which are in use, each once."""
        if self._dropped is None:
            self._dropped = np.zeros(self.used, bool)
        self._dropped[rows] = True
        self._free = np.concatenate([self._free, rows[::-1]])

    def state(self) -> dict[str, Any]:
        """Return which rows were dropped, in the order in which they come back; nothing if none was."""
        return {"dropped": self._free[::-1].copy()} if len(self._free) else {}

    @classmethod
    def resumed(cls, state: dict[str, Any], used: int) -> Rows:
        """Return rows, so many ever used, with this state, or raise."""
        rows = cls(used)
        if "dropped" in state:
            gone = state["dropped"]
            check_array("the dropped rows", gone, np.shape(gone), np.int64)
            if gone.ndim != 1 or len(np.unique(gone)) < len(gone) or not ((gone >= 0) & (gone < used)).all():
                raise SnapshotError(f"the dropped rows are not different ones of {used}.")
            rows.give_back(gone)
        return rows

    def all(self) -> Integers:
        """Return the rows in use, in order."""
        return np.arange(self.used) if self._dropped is None else np.flatnonzero(~self._dropped)

    def unused(self, rows: Integers) -> NDArray[np.bool_] | None:
        """Return which of these rows, of those ever used, were dropped; None if none ever was."""
        return None if self._dropped is None or not len(self._free) else self._dropped[rows]


class Numbers:
    """Keys that are whole numbers: those of the rows."""

    def __init__(self) -> None:
        self.rows = Rows()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def listed(self) -> Integers:
        """The keys in use, in the order of their rows."""
        return self.rows.all()

    def of(self, rows: Integers) -> Integers:
        """Return the keys of rows."""
        return rows

    def find(self, keys: Any) -> Integers:
        """Return the rows of keys, or raise."""
        try:
            chosen = np.asarray(keys)
        except ValueError:  # ragged
            chosen = np.empty((), object)
        if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
            hint = (
                "tc.Bank(thing, names=[...]) has names as keys."
                if chosen.dtype.kind in "UTO" and chosen.ndim == 1
                else None
            )
            raise ParameterError(
                f"keys are {chosen.dtype} of shape {chosen.shape}, expected integers of shape (n,).", hint=hint
            )
        rows = chosen.astype(np.int64)  # our own: another thread may write to the caller's once these are checked
        if rows.size and rows.view(np.uint64).max() >= self.rows.used:  # a negative one is large there
            at = int(np.argmax((rows < 0) | (rows >= self.rows.used)))
            raise ParameterError.expected(
                f"key {at}", int(chosen[at]), f"0 to {self.rows.used - 1}", hint="bank.add(n) adds n new streams."
            )
        dropped = self.rows.unused(rows)
        if dropped is not None and dropped.any():
            at = int(dropped.argmax())
            raise ParameterError(
                f"key {at} is {chosen[at]}, which was dropped.",
                hint="bank.add(n) adds n new streams, in its room first.",
            )
        return rows

    def shown(self, row: int) -> str:
        """Return the key of a row, for errors."""
        return str(row)

    def add(self, count: Any) -> Integers:
        """Return the rows of so many new streams."""
        rows = self.rows.next(whole_number("count", count, least=0))
        self.rows.take(rows)
        return rows

    def drop(self, rows: Integers) -> None:
        """Forget the keys of these rows."""
        self.rows.give_back(rows)

    def state(self) -> dict[str, Any]:
        """Return which of the rows were dropped, if any were."""
        return self.rows.state()

    def resumed(self, state: dict[str, Any], rows: int) -> Numbers:
        """Return the keys of a state of so many rows, or raise."""
        check_names("the keys", state, ["dropped"] * ("dropped" in state))
        twin = Numbers()
        twin.rows = Rows.resumed(state, rows)
        return twin
