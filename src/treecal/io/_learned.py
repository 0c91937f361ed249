"""How far files have been learned: by the content of their rows, so that a file that has grown is learned once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from treecal._states import MOST_ROUNDS
from treecal.exceptions import SnapshotError
from treecal.io._text import Row

_MOST = 1000  # files that are remembered, the last ones


class Learned(NamedTuple):
    """The first rows of a file that were learned: its name then, their number, and the SHA-256 of their values."""

    name: str
    rows: int
    digest: str


class LearnedFiles:
    """Which rows of which files have been learned.

    A file is known by its first rows, not by its name: one that was renamed, or compressed, is the same. Its rows
    must stay as they were; new ones are appended.

    Parameters
    ----------
    learned
        What `to_list` returned earlier.

    Examples
    --------
    >>> from treecal.io import Place, Row
    >>> days = [Row(Place(i + 1, None), {"sky": sky}) for i, sky in enumerate(["rain", "sun", "sun"])]
    >>> files = LearnedFiles()
    >>> files.begin("days.csv", days[:2])
    0
    >>> files.learned(days[:2])
    >>> LearnedFiles(files.to_list()).begin("days.csv", days)
    2
    >>> LearnedFiles(files.to_list()).begin("other.csv", days[1:]) is None
    True
    """

    def __init__(self, learned: Any = ()) -> None:
        if not isinstance(learned, Sequence) or not all(map(_is_learned, learned)):
            raise SnapshotError("the snapshot's notes on files that were learned cannot be read.")
        self._files = [Learned(*each) for each in learned]
        self._name = ""
        self._rows = 0
        self._digest = hashlib.sha256()

    @property
    def last(self) -> Learned | None:
        """The file that was learned last, but for the one that is being learned."""
        return self._files[-1] if self._files else None

    def begin(self, name: str, rows: Iterable[Row], *, new: bool = False) -> int | None:
        """Return how many of a file's rows were learned already; None if it is not known, unless it may be `new`."""
        digests: dict[int, set[str]] = {}
        for file in self._files:
            digests.setdefault(file.rows, set()).add(file.digest)
        self._name = name
        self._rows = 0
        self._digest = hashlib.sha256()
        last = max(digests, default=0)
        digest = hashlib.sha256()
        for count, row in enumerate(rows if last else (), start=1):
            digest.update(_content(row))
            if count in digests and digest.hexdigest() in digests[count]:
                self._rows = count
                self._digest = digest.copy()
            if count == last:
                break
        if self._files and not (self._rows or new):
            return None
        known = self._rows, self._digest.hexdigest()
        self._files = [file for file in self._files if (file.rows, file.digest) != known]
        return self._rows

    def learned(self, rows: Sequence[Row]) -> None:
        """Take note of the next rows."""
        self._rows += len(rows)
        self._digest.update(b"".join(map(_content, rows)))

    def to_list(self) -> list[list[Any]]:
        """Return what has been learned, as JSON values."""
        now = [Learned(self._name, self._rows, self._digest.hexdigest())] if self._rows else []
        return [list(file) for file in [*self._files, *now][-_MOST:]]


def _content(row: Row) -> bytes:
    return repr((row.value, None if row.problem is None else str(row.problem))).encode(errors="surrogatepass") + b"\n"


def _is_learned(value: Any) -> bool:
    match value:
        case [str(), int(rows), str()]:
            return 0 < rows <= MOST_ROUNDS
    return False
