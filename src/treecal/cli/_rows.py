"""Rows as they come: JSON lines, CSV or Parquet, from a file or from a process that is still writing.

Each row comes with its place and a function that reads it, so that a row that cannot be read is one bad row and not
the end. Text is taken line by line, and none is read ahead.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, Literal, NoReturn

from treecal.cli._progress import Done, progress
from treecal.cli._terminal import Exit, say
from treecal.exceptions import HorizonError, ParameterError, TreeCalError
from treecal.io import OnError
from treecal.io._sources import library

Kind = Literal["jsonl", "csv", "parquet"]
Row = tuple[str, Callable[[], Any]]
"""Where it stands, and what reads it."""
_ENDINGS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_DELIMITERS = (",", ";", "\t", "|")
_BOM = b"\xef\xbb\xbf"


class RowError(TreeCalError):
    """A row that cannot be read or taken, with its number."""


@contextmanager
def rows(path: str, *, kind: Kind | None = None) -> Iterator[Iterator[Row]]:
    r"""Open a file, or standard input for "-", and give its rows, with a progress bar where that helps.

    Parameters
    ----------
    path
        The file.
    kind
        What is in it; by default as its name ends, and JSON lines on standard input.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "days.csv").write_text("day,weather\n1,rain\n2,sun\n")
    ...     with rows(f"{folder}/days.csv") as lines:
    ...         [(place, read()) for place, read in lines]
    [('line 2', {'day': '1', 'weather': 'rain'}), ('line 3', {'day': '2', 'weather': 'sun'})]
    """
    name = path.lower().removesuffix(".gz")
    if kind is None:
        kind = "jsonl" if path == "-" else _ENDINGS.get(os.path.splitext(name)[1])
    if kind is None:
        raise ParameterError(
            f"{path!r} does not say by its ending what is in it.", hint="--kind jsonl, csv or parquet."
        )
    if kind == "parquet":
        with _parquet(path) as found:
            yield found
        return
    if path == "-" and sys.stdin.isatty():
        say("reading what you type, a row a line; Ctrl-D ends it.")
    with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
        total = os.path.getsize(path) if os.path.isfile(path) else None
        with progress("bytes", total=total, show=total is not None and not sys.stdout.isatty()) as done:
            lines = _lines(file, done, zipped=name != path.lower())
            yield _json(lines) if kind == "jsonl" else _csv(lines, "standard input" if path == "-" else path)


def _lines(file: BinaryIO, done: Done, *, zipped: bool) -> Iterator[bytes]:
    text: Iterable[bytes] = gzip.GzipFile(fileobj=file) if zipped else file
    read, at = 0, iter(text)
    while True:
        try:
            line = next(at)
        except StopIteration:
            return
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TreeCalError(f"it is not a whole gzip file: {error}") from None
        yield line if read else line.removeprefix(_BOM)
        read += len(line)
        done(file.tell() if zipped else read)


def _json(lines: Iterable[bytes]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"line {number}", partial(_parse_json, line)


def _refuse(word: str) -> NoReturn:
    raise TreeCalError(f"it holds {word}, expected finite numbers.")


_JSON = json.JSONDecoder(parse_constant=_refuse)


def _parse_json(line: bytes) -> Any:
    text = _text(line).strip()
    try:
        return _JSON.decode(text)
    except RecursionError:
        raise TreeCalError("it is nested too deeply.") from None
    except json.JSONDecodeError:
        return Bare(text)  # a class may come without its quotes


class Bare(str):
    """A line that is not JSON: perhaps the name of a class, as it is."""


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        kinds = {b"PAR1": "it looks like Parquet: --kind parquet", b"\x1f\x8b": "it looks like gzip: zcat first"}
        hint = next((hint for magic, hint in kinds.items() if line.startswith(magic)), None)
        raise TreeCalError("it is not text in UTF-8.", hint=hint and f"{hint}.") from None


def _csv(lines: Iterable[bytes], name: str) -> Iterator[Row]:
    # Bytes that are no UTF-8 pass through here and are refused in the row they are in.
    texts = (line.decode(errors="surrogateescape") for line in lines)
    first = next(texts, "")
    if not first.strip():
        raise TreeCalError(f"the first line of {name} is empty, expected the names of the columns.")
    reader = csv.reader(chain([first], texts), delimiter=max(_DELIMITERS, key=first.count), strict=True)
    header: list[str] | None = None
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            if header is None:
                raise TreeCalError(f"{name} is not CSV: {error}.") from None
            yield f"line {reader.line_num}", partial(_raise, f"it is not CSV: {error}.")
            continue
        if header is not None:
            if cells or len(header) == 1:  # an only column may be blank
                yield f"line {reader.line_num}", partial(_parse_cells, header, cells or [""])
            continue
        header = [_text(cell.encode(errors="surrogateescape")).strip() for cell in cells]
        if len(set(header)) < len(header) or "" in header:
            raise TreeCalError(f"the header of {name} is {header}, expected a different name for each column.")


def _raise(message: str) -> NoReturn:
    raise TreeCalError(message)


def _parse_cells(header: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(header):
        raise TreeCalError(f"it has {len(cells)} cells, expected {len(header)}, as in the header.")
    return {name: _text(cell.encode(errors="surrogateescape")) for name, cell in zip(header, cells, strict=True)}


@contextmanager
def _parquet(path: str) -> Iterator[Iterator[Row]]:
    if path == "-":
        raise ParameterError("Parquet cannot be read from standard input.", hint="give a file.")
    try:
        file = library("pyarrow.parquet").ParquetFile(path)
    except library("pyarrow").ArrowInvalid:
        raise TreeCalError(f"{path!r} is not a whole Parquet file.", hint="was it cut short?") from None
    with file, progress("rows", total=file.metadata.num_rows, show=not sys.stdout.isatty()) as done:
        yield _records(file, done)


def _records(file: Any, done: Done) -> Iterator[Row]:
    number = 0
    for batch in file.iter_batches(batch_size=4096):
        for row in batch.to_pylist():
            number += 1
            yield f"row {number}", row.copy
        done(number)


class Faults:
    """What to do about bad rows: stop at the first, go on and count them, or go on and list them at the end.

    Parameters
    ----------
    on_error
        "stop", "skip" or "collect".

    Examples
    --------
    >>> faults = Faults("skip")
    >>> faults.add("line 7", TreeCalError("no such class."))
    >>> faults.count
    1
    """

    _MOST = 1000  # listed: a stream may go on for ever

    def __init__(self, on_error: OnError) -> None:
        self.on_error = on_error
        self.count = 0
        self._listed: list[str] = []

    def add(self, place: str, error: TreeCalError) -> None:
        """Take note of a bad row; or stop there, as at the horizon, after which every row would be bad."""
        message = f"{place}: {error}"
        if self.on_error == "stop" or isinstance(error, HorizonError):
            raise RowError(message) from None
        self.count += 1
        if self.on_error == "collect" and len(self._listed) < self._MOST:
            self._listed.append(message)

    def end(self) -> Exit:
        """Say what was left out, and return how the command ends."""
        for fault in self._listed:
            say(fault)
        if rest := self.count - len(self._listed):
            say(f"{rest:,} {'more ' * bool(self._listed)}bad row{'s' * (rest != 1)} left out.")
        return Exit.FLAWED if self.count else Exit.FINE
