"""Invalid rows: stop at the first, skip and count them, or collect them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

from treecal.exceptions import FileError, ParameterError, Reason
from treecal.io._text import Place

OnError = Literal["stop", "skip", "collect"]
"""What to do at an invalid row: raise an error; leave it out and count it; or also keep it with its reason."""
_SHOWN = 5
_MOST = 1_000_000


class Problem(NamedTuple):
    """An invalid row: its 1-based number, in a text file the line it begins on, the reason; among several, its file."""

    row: int
    line: int | None
    reason: str
    file: str | None = None

    def __str__(self) -> str:
        return f"{'' if self.file is None else f'{self.file}, '}{Place(self.row, self.line)}: {self.reason}"


class Problems:
    """The invalid rows of one pass: their number, `count`, and the first of them.

    Parameters
    ----------
    source
        Name of what is read.
    on_error
        "stop" raises at the first invalid row; "skip" keeps the first five; "collect" keeps a million.

    Examples
    --------
    >>> problems = Problems("days.csv", "skip")
    >>> problems.add(Place(row=3, line=4), "sky is 'hail', expected one of rain, sun.")
    >>> print(problems)
    1 invalid row left out:
      line 4 (row 3): sky is 'hail', expected one of rain, sun.
    """

    def __init__(self, source: str, on_error: OnError) -> None:
        if on_error not in get_args(OnError):
            raise ParameterError.expected("on_error", on_error, "'stop', 'skip' or 'collect'")
        self.on_error = on_error
        self.count = 0
        self.most = {"stop": 1, "skip": _SHOWN, "collect": _MOST}[on_error]
        self._source = source
        self._kept: list[Problem] = []

    def add(self, place: Place, reason: Reason, *, stop: bool = False, file: str | None = None) -> None:
        """Count an invalid row, and keep it if it is among the first; or raise an error, with "stop" or `stop`.

        If there are several files, `file` is its own.
        """
        if stop or self.on_error == "stop":
            raise FileError.at(file or self._source, *place, reason)
        self.count += 1
        if len(self._kept) < self.most:
            self._kept.append(Problem(*place, reason if isinstance(reason, str) else reason.message, file))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._kept)

    def to_dict(self) -> dict[str, Any]:
        """Return their number and those that were kept, as JSON values."""
        rows = [problem._asdict() for problem in self._kept]
        if not any(row["file"] for row in rows):
            for row in rows:
                del row["file"]
        return {"invalid": self.count, "invalid_rows": rows}

    def __str__(self) -> str:
        return self.listing(_SHOWN)

    def listing(self, most: int | None = None) -> str:
        """Return their number and the first of them, by default all that were kept."""
        if not self.count:
            return "no invalid rows"
        shown = self._kept[:most]
        lines = "".join(f"\n  {problem}" for problem in shown)
        more = f"\n  and {self.count - len(shown):,} more" if lines and self.count > len(shown) else ""
        return f"{self.count:,} invalid row{'s' * (self.count != 1)} left out{':' if lines else '.'}{lines}{more}"
