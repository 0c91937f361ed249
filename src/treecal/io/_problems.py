"""Rows that cannot be taken: stop at the first, skip and count, or collect them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from treecal.exceptions import FileError, ParameterError
from treecal.io._sources import Source

OnError = Literal["stop", "skip", "collect"]
"""What a bad row does: end the reading, be left out and counted, or be left out and kept with what is wrong with it."""
_SHOWN = 5
_MOST = 1_000_000


class Problem(NamedTuple):
    """A row that cannot be taken.

    Attributes
    ----------
    row
        Its 1-based number.
    line
        In a text file, the line it begins on.
    what
        What is wrong with it.
    """

    row: int
    line: int | None
    what: str

    def __str__(self) -> str:
        where = f"row {self.row:,}" if self.line is None else f"line {self.line:,} (row {self.row:,})"
        return f"{where}: {self.what}"


class Problems:
    """The bad rows of one pass: how many (`count`), and which; with "skip" the first few are kept, with "collect" all.

    Parameters
    ----------
    source
        What is read.
    on_error
        "stop" raises at the first bad row; "skip" goes on, and keeps the first five; "collect" keeps a million.
    """

    def __init__(self, source: Source, on_error: OnError) -> None:
        if on_error not in get_args(OnError):
            raise ParameterError.expected("on_error", on_error, "'stop', 'skip' or 'collect'")
        self.on_error = on_error
        self.count = 0
        self._source = source
        self._noted: list[tuple[int, str]] = []
        self._kept: list[Problem] = []

    def add(self, record: int, what: str, *, hint: str | None = None) -> None:
        """Take note of a bad row by the order in which it came; or stop there."""
        if self.on_error == "stop":
            place, why = self._source.first_bad(record, what)
            raise FileError.at(self._source.name, *place, why, hint=hint if why == what else None)
        self.count += 1
        if self.count <= (_SHOWN if self.on_error == "skip" else _MOST):
            self._noted.append((record, what))
        elif self.on_error == "collect":
            raise FileError(f"{self._source.name} has more than {_MOST:,} bad rows.", hint="is it the right file?")

    @property
    def enough(self) -> bool:
        """Whether what is wrong with the next bad row will not be kept."""
        return self.on_error == "skip" and self.count >= _SHOWN

    def close(self) -> None:
        """Add the pieces that were no rows at all, and find out on which lines all of them stand."""
        torn = [Problem(*place, why) for place, why in self._source.torn()]
        if torn and self.on_error == "stop":
            raise FileError.at(self._source.name, *torn[0])
        places = self._source.places([record for record, _ in self._noted])
        found = [Problem(*place, what) for place, (_, what) in zip(places, self._noted, strict=True)]
        self.count += len(torn)
        self._kept = sorted(found + torn)[: _SHOWN if self.on_error == "skip" else None]

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._kept)

    def __str__(self) -> str:
        if not self.count:
            return "no bad rows"
        lines = "".join(f"\n  {problem}" for problem in self._kept[:_SHOWN])
        more = f"\n  and {self.count - _SHOWN:,} more" if self.count > _SHOWN else ""
        return f"{self.count:,} bad row{'s' * (self.count != 1)} left out:{lines}{more}"
