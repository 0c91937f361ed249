"""Keys that are names: as many as memory holds, in one array of bytes."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal._states import check_array, check_names
from treecal._typing import Integers
from treecal.engine._keys import Rows
from treecal.engine._texts import read_names
from treecal.exceptions import ParameterError, SnapshotError

if TYPE_CHECKING:
    from treecal.engine._name_kernels import Table, Text

_MOST = 2**32 - 2  # rows, which slots hold in 32 bits
_LONGEST = 2**22  # bytes of a name: places hold its length in 22 bits


class Names:
    """Keys that are text, and the row of each."""

    def __init__(self) -> None:
        self.rows = Rows()
        self._used = self._wasted = 0  # bytes
        self._data, self._key = np.empty(0, np.uint8), np.frombuffer(os.urandom(16), np.uint64)
        self._places, self._slots = np.empty(0, np.int64), np.zeros(8, np.uint64)

    def __len__(self) -> int:
        return len(self.rows)

    def _table(self) -> Table:
        from treecal.engine._name_kernels import Table

        return Table(self._data, self._places, self._slots, self._key)

    @property
    def listed(self) -> Any:
        """The names, in the order of their rows."""
        return self.of(self.rows.all())

    def of(self, rows: Integers) -> Any:
        """Return the names of rows."""
        text = self._text(rows)
        data, ends = text.data.tobytes(), text.ends.tolist()
        names = [data[a:b].decode() for a, b in pairwise(ends)]
        return np.array(names, np.dtypes.StringDType())

    def _text(self, rows: Integers) -> Text:
        from treecal.engine._name_kernels import Text, gathered

        size = int(self._sizes(rows).sum())
        text = Text(np.empty(size, np.uint8), np.zeros(len(rows) + 1, np.int64))
        gathered(self._table(), rows, text)
        return text

    def _sizes(self, rows: Integers) -> Integers:
        """Return the bytes of rows' names; 0 for one that has none."""
        places = self._places[rows]
        return np.where(places < 0, 0, places & (_LONGEST - 1))

    def find(self, names: Any) -> Integers:
        """Return the rows of names, or raise."""
        text, rows = self._looked_up(names)
        if len(rows) and (unknown := rows < 0).any():
            at = int(unknown.argmax())
            name = _name(text, at)
            raise ParameterError(
                f"key {at} is {name!r}, which is no name of a stream here.",
                hint=f"bank.add([{name!r}]) adds one; bank.update(..., add=True) adds all that are new.",
            )
        return rows

    def _looked_up(self, names: Any) -> tuple[Text, Integers]:
        """Return names as bytes, and their rows, −1 for those that are not there."""
        from treecal.engine._name_kernels import find

        text = read_names(names)
        if (sizes := np.diff(text.ends)).max(initial=0) >= _LONGEST:
            at = int(sizes.argmax())
            raise ParameterError(f"key {at} is a name of {sizes[at]:,} bytes, expected fewer than {_LONGEST:,}.")
        rows = np.empty(len(text.ends) - 1, np.int64)
        find(text, self._table(), rows)
        return text, rows

    def shown(self, row: int) -> str:
        """Return the name of a row, for errors."""
        return repr(_name(self._text(np.array([row])), 0))

    def found_or_added(self, names: Any) -> tuple[Integers, Integers]:
        """Return the rows of names, new ones for those that are not there, and which rows are new."""
        text, rows = self._looked_up(names)
        return rows, self._entered(text, rows)

    def add(self, names: Any) -> Integers:
        """Return the rows of new names; one that is there already, or twice, raises."""
        if isinstance(names, int):
            raise ParameterError.expected("names", names, "a list of names, since streams have names here")
        text, rows = self._looked_up(names)
        if len(rows) and rows.max() >= 0:
            at = int((rows >= 0).argmax())
            raise ParameterError(f"name {at} is {_name(text, at)!r}, which is there already.")
        new = self._entered(text, rows)
        if len(new) < len(rows):
            self.drop(new)
            first = np.unique(rows, return_index=True)[1]
            at = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            raise ParameterError(f"name {at} is {_name(text, at)!r}, which is there twice.")
        return rows

    def _entered(self, text: Text, rows: Integers) -> Integers:
        """Enter the names whose row is −1, and write their rows; return the rows that are new."""
        from treecal.engine._name_kernels import enter

        unknown = int((rows < 0).sum())
        if not unknown:
            return rows[:0]
        fresh = np.append(self.rows.next(unknown), 0)
        if fresh.max() >= _MOST:
            raise ParameterError(f"{fresh.max():,} names are too many for one bank, expected fewer than {_MOST:,}.")
        done = new = 0
        while True:
            done = enter(text, self._table(), self._used, len(self) + new, rows, done, fresh, new)
            before, new = new, int(fresh[-1])
            self._used += int(self._sizes(fresh[before:new]).sum())
            if done == len(rows):
                break
            size = int(text.ends[done + 1] - text.ends[done])
            self._make_room(streams=len(self) + new + 1, size=size, row=int(fresh[new]))
        self.rows.take(fresh[:new])
        return fresh[:new]

    def _make_room(self, *, streams: int, size: int, row: int) -> None:
        """Make room for so many names, so many more bytes, and this row."""
        if 3 * streams > 2 * len(self._slots):
            self._rehash(2 * len(self._slots))
        if self._used + size > len(self._data):
            data = np.empty(max(self._used + size, len(self._data) * 3 // 2), np.uint8)
            data[: self._used] = self._data[: self._used]
            self._data = data
        if row >= (room := len(self._places)):
            more = max(row + 1, room * 3 // 2) - room
            self._places = np.concatenate([self._places, np.full(more, -1)])

    def _rehash(self, slots: int) -> None:
        from treecal.engine._name_kernels import rehash

        new = np.zeros(slots, np.uint64)
        rehash(self._slots, new)
        self._slots = new

    def drop(self, rows: Integers) -> None:
        """Forget the names of these rows, which have one, each once."""
        from treecal.engine._name_kernels import remove

        self._wasted += int(remove(rows, self._table()))
        self.rows.give_back(rows)
        if 2 * self._wasted > self._used:
            own = self.rows.all()
            text = self._text(own)
            self._places[own] = text.ends[:-1] * _LONGEST + np.diff(text.ends)
            self._data = text.data
            self._used, self._wasted = len(text.data), 0

    def state(self) -> dict[str, Any]:
        """Return the names of all rows as UTF-8, where each ends, and which rows were dropped."""
        text = self._text(np.arange(self.rows.used))
        return {"text": text.data, "ends": text.ends[1:], **self.rows.state()}

    def resumed(self, state: dict[str, Any], rows: int) -> Names:
        """Return the names of a state of so many rows, or raise."""
        from treecal.engine._name_kernels import Text

        check_names("the keys", state, ["text", "ends", *["dropped"] * ("dropped" in state)])
        data, ends = state["text"], state["ends"]
        check_array("the names", data, np.shape(data)[:1], np.uint8)
        check_array("the names' ends", ends, (rows,), np.int64)
        ends = np.append(0, ends)
        if (np.diff(ends) < 0).any() or ends[-1] != len(data) or np.diff(ends).max(initial=0) >= _LONGEST:
            raise SnapshotError("the names' ends are not those of their text.")
        try:
            data.tobytes().decode()
        except UnicodeDecodeError:
            raise SnapshotError("the names are not text in UTF-8.") from None
        starts = ends[:-1][np.diff(ends) > 0]
        if (data[starts] & 0xC0 == 0x80).any():
            raise SnapshotError("a name ends within a character.")
        twin, gone = Names(), Rows.resumed(state, rows)
        own = gone.all()
        if len(data) != np.diff(ends)[own].sum():
            raise SnapshotError("a stream that was dropped has a name.")
        places = np.full(len(own), -1)
        twin._entered(Text(data, np.append(ends[own], len(data))), places)  # those that were dropped are empty
        if len(twin) < len(own):
            raise SnapshotError("two streams have one name.")
        if len(own) < rows:
            twin._moved(own, rows)
        twin.rows = gone
        return twin

    def _moved(self, rows: Integers, used: int) -> None:
        """Give the names of the first rows to these rows, in order."""
        places = np.full(used, -1)
        places[rows] = self._places[: len(rows)]
        full = np.flatnonzero(self._slots)
        tags, own = self._slots[full] >> 32 << 32, (self._slots[full] & 0xFFFFFFFF).astype(np.int64)
        self._slots[full] = tags | (rows[own - 1] + 1).astype(np.uint64)
        self._places = places


def _name(text: Text, at: int) -> str:
    return text.data[text.ends[at] : text.ends[at + 1]].tobytes().decode()
