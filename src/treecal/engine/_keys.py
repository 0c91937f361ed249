"""Which row of a bank each key stands for, a number or a name, and which rows are in use."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._states import check_array, check_names
from treecal._typing import Integers, Saved
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

    def state(self) -> Saved:
        """Return which rows were dropped, in the order in which they come back; nothing if none was."""
        return {"dropped": self._free[::-1].copy()} if len(self._free) else {}

    @classmethod
    def resumed(cls, state: Saved, used: int) -> Rows:
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

    def state(self) -> Saved:
        """Return which of the rows were dropped, if any were."""
        return self.rows.state()

    def resumed(self, state: Saved, rows: int) -> Numbers:
        """Return the keys of a state of so many rows, or raise."""
        check_names("the keys", state, ["dropped"] * ("dropped" in state))
        twin = Numbers()
        twin.rows = Rows.resumed(state, rows)
        return twin


class Names:
    """Keys that are text, and the row of each."""

    def __init__(self) -> None:
        self.rows = Rows()
        self._places: dict[str, int] = {}
        self._named: list[str] = []  # by row; an empty text where a row was dropped

    def __len__(self) -> int:
        return len(self._places)

    @property
    def listed(self) -> Any:
        """The names, in the order of their rows."""
        return self.of(self.rows.all())

    def of(self, rows: Integers) -> Any:
        """Return the names of rows."""
        return np.array([self._named[row] for row in rows.tolist()], np.dtypes.StringDType())

    def find(self, names: Any) -> Integers:
        """Return the rows of names, or raise."""
        given = read_names(names)
        rows = self._found(given)
        if len(rows) and (unknown := rows < 0).any():
            at = int(unknown.argmax())
            name = given[at]
            raise ParameterError(
                f"key {at} is {name!r}, which is no name of a stream here.",
                hint=f"bank.add([{name!r}]) adds one; bank.update(..., add=True) adds all that are new.",
            )
        return rows

    def _found(self, names: list[str]) -> Integers:
        """Return the rows of names, −1 for those that are not there."""
        return np.fromiter(map(self._places.get, names, repeat(-1)), np.int64, len(names))

    def shown(self, row: int) -> str:
        """Return the name of a row, for errors."""
        return repr(self._named[row])

    def found_or_added(self, names: Any) -> tuple[Integers, Integers]:
        """Return the rows of names, new ones for those that are not there, and which rows are new."""
        given = read_names(names)
        rows = self._found(given)
        new = self._entered([given[at] for at in np.flatnonzero(rows < 0).tolist()])
        return self._found(given) if len(new) else rows, new

    def add(self, names: Any) -> Integers:
        """Return the rows of new names; one that is there already, or twice, raises."""
        if isinstance(names, int):
            raise ParameterError.expected("names", names, "a list of names, since streams have names here")
        given = read_names(names)
        rows = self._found(given)
        if len(rows) and rows.max() >= 0:
            at = int((rows >= 0).argmax())
            raise ParameterError(f"name {at} is {given[at]!r}, which is there already.")
        seen: set[str] = set()
        for at, name in enumerate(given):
            if name in seen:
                raise ParameterError(f"name {at} is {name!r}, which is there twice.")
            seen.add(name)
        return self._entered(given)

    def _entered(self, names: list[str]) -> Integers:
        """Enter names that are not there, each once or more often; return their rows."""
        new = list(dict.fromkeys(names))
        rows = self.rows.next(len(new))
        self._named += [""] * (int(rows.max(initial=-1)) + 1 - len(self._named))
        for name, row in zip(new, rows.tolist(), strict=True):
            self._named[row] = name
        self._places.update(zip(new, rows.tolist(), strict=True))
        self.rows.take(rows)
        return rows

    def drop(self, rows: Integers) -> None:
        """Forget the names of these rows, which have one, each once."""
        for row in rows.tolist():
            del self._places[self._named[row]]
            self._named[row] = ""
        self.rows.give_back(rows)

    def state(self) -> Saved:
        """Return the names of all rows as UTF-8, where each ends, and which rows were dropped."""
        parts = [name.encode() for name in self._named]
        ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
        return {"text": np.frombuffer(b"".join(parts), np.uint8), "ends": ends, **self.rows.state()}

    def resumed(self, state: Saved, rows: int) -> Names:
        """Return the names of a state of so many rows, or raise."""
        check_names("the keys", state, ["text", "ends", *["dropped"] * ("dropped" in state)])
        data = state["text"]
        ends = state["ends"]
        check_array("the names", data, np.shape(data)[:1], np.uint8)
        check_array("the names' ends", ends, (rows,), np.int64)
        ends = np.append(0, ends)
        if (np.diff(ends) < 0).any() or ends[-1] != len(data):
            raise SnapshotError("the names' ends are not those of their text.")
        text = data.tobytes()
        twin = Names()
        twin.rows = Rows.resumed(state, rows)
        try:
            twin._named = [text[start:end].decode() for start, end in pairwise(ends.tolist())]
        except UnicodeDecodeError:
            raise SnapshotError("the names are not text in UTF-8.") from None
        own = twin.rows.all().tolist()
        if sum(map(len, twin._named)) > sum(len(twin._named[row]) for row in own):
            raise SnapshotError("a stream that was dropped has a name.")
        twin._places = {twin._named[row]: row for row in own}
        if len(twin) < len(own):
            raise SnapshotError("two streams have one name.")
        return twin


def read_names(names: Any) -> list[str]:
    """Return names as a list of text that UTF-8 can hold, or raise.

    Examples
    --------
    >>> read_names(np.array(["Oslo", "Århus"]))
    ['Oslo', 'Århus']
    """
    if isinstance(names, str | bytes):
        raise ParameterError.expected("keys", names, "a list of names", hint=f"[{names!r}].")
    ways = (getattr(names, way, None) for way in ("to_pylist", "tolist", "to_list"))  # Arrow; NumPy, pandas; polars
    try:
        listed: Any = next(filter(None, ways), partial(list, names))()
    except TypeError:
        listed = None
    if not isinstance(listed, list):
        raise ParameterError(f"keys are a {type(names).__name__}, expected names: text, one for each row.")
    try:
        "".join(listed).encode()
    except (TypeError, UnicodeEncodeError):
        at, name = next((at, name) for at, name in enumerate(listed) if not _is_text(name))
        hint = "a bank without names= has integers as keys." if isinstance(name, int) else None
        what = "text that UTF-8 can hold" if isinstance(name, str) else "a name"
        raise ParameterError.expected(f"key {at}", name, what, hint=hint) from None
    return listed


def _is_text(name: object) -> bool:
    with suppress(AttributeError, UnicodeEncodeError):
        name.encode()  # type: ignore[attr-defined]
        return True
    return False
