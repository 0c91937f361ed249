"""Rows on the command line: from a file or standard input, in blocks, with a progress bar."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from treecal._typing import Array
from treecal.cli._progress import Done, progress
from treecal.cli._reader import Batch
from treecal.cli._terminal import Exit, by_class, json_texts, say
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex
from treecal.io import (
    FORMATS,
    LOG,
    Block,
    Format,
    Lines,
    Problems,
    Row,
    Source,
    check_file,
    format_named,
    format_of,
    in_blocks,
    json_rows,
    open_lines,
    open_source,
    open_stream,
)

_STEP = 4096  # rows after which progress is shown
_FIRST = 100  # rows that tell which columns a file without a header has


def source_name(path: str) -> str:
    """Return the name of a file, or of standard input, in messages."""
    return "standard input" if path == "-" else Path(path).name


def is_file(path: str) -> bool:
    """Return whether rows come from a file that stays: neither standard input nor a pipe or device with a name."""
    return path != "-" and os.path.isfile(path)


class Columns(Protocol):
    """Which columns to read, none for all; and a check of those that a table has."""

    @property
    def columns(self) -> Sequence[str]: ...

    def check(self, source: str, there: Sequence[str]) -> None: ...


@contextmanager
def blocks(path: str, decoder: Columns, *, kind: str | None = None, quiet: bool = False) -> Iterator[Iterator[Block]]:
    r"""Open a file, or standard input for "-", and give its rows in blocks, with a progress bar where that helps.

    It would be in the way where a terminal shows the rows, unless the command is `quiet`. A block of a pipe has the
    rows that are there.

    Examples
    --------
    >>> import tempfile
    >>> from treecal.geometry import Simplex
    >>> from treecal.io import Decoder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "days.csv").write_text("day,weather\n1,rain\n2, sun\n")
    ...     with blocks(f"{folder}/days.csv", Decoder(Simplex(2), outcome=["weather"])) as found:
    ...         [(str(row.place), row.value["weather"]) for block in found for row in block.rows]
    [('line 2 (row 1)', 'rain'), ('line 3 (row 2)', 'sun')]
    """
    name = source_name(path)
    format_ = _format(path, kind)
    if path != "-":
        check_file(Path(path))
    elif sys.stdin.isatty():
        say("reading standard input, one row per line; Ctrl-D ends it.")
    show = quiet or not sys.stdout.isatty()
    if format_.lines is None:
        with _opened(path, format_) as source:
            decoder.check(name, list(source.types))
            (counted,) = source.one(f"SELECT count(*) FROM {LOG}") or (0,)
            source.check_complete(counted, columns=decoder.columns or list(source.types), valid=0)
            with progress("rows", total=counted, show=show) as done:
                yield _watched(_in_steps(source.rows(decoder.columns)), done)
        return
    with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
        lines = Lines(file, name)
        if path == "-" and kind is None:  # a line that is not JSON is the name of a class
            found = in_blocks(lines, json_rows(lines, words=True))
        elif format_.blocks is not None:
            found = format_.blocks(lines, name, decoder.check)
        else:
            found = in_blocks(lines, format_.lines(lines, name, decoder.check))
        if not is_file(path):
            yield found
            return
        with progress("bytes", total=os.path.getsize(path), show=show) as done:
            yield _watched(found, done, file.tell)


def _format(path: str, kind: str | None) -> Format:
    """Return the format of a file; standard input is JSON lines, unless another kind is asked for."""
    if kind is not None:
        return format_named(kind)
    found = format_named("jsonl") if path == "-" else format_of(path)
    if found is None:
        raise ParameterError(f"the name of {path} does not tell its format.", hint=f"--kind {' or '.join(FORMATS)}.")
    return found


def _opened(path: str, format_: Format) -> AbstractContextManager[Source]:
    """Open rows that are no lines of text; those of standard input are kept in a file until the end."""
    if path == "-":
        return open_stream(sys.stdin.buffer, source_name(path), kind=format_.kind)
    return nullcontext(open_source(path, kind=format_.kind))


def first_rows(path: str, *, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the first objects in a file of text without a header, as JSON lines; of other files and of pipes, none."""
    found = format_of(path) if kind is None else format_named(kind)
    if not is_file(path) or found is None or found.headed or found.lines is None:
        return []
    with open_lines(path) as lines:
        rows = found.lines(lines, source_name(path), lambda name, columns: None)
        return [row.value for row in islice(rows, _FIRST) if isinstance(row.value, dict)]


def _in_steps(rows: Iterator[Row]) -> Iterator[Block]:
    while found := list(islice(rows, _STEP)):
        yield Block(found)


def _watched(found: Iterator[Block], done: Done, reached: Callable[[], int] | None = None) -> Iterator[Block]:
    """Yield the rows in smaller blocks, and tell how far they reach: by default how many rows there were."""
    before = 0
    for block in found:
        after = before + len(block) if reached is None else reached()
        for at in range(0, len(block), _STEP):
            yield block[at : at + _STEP]
            done(before + (after - before) * min(at + _STEP, len(block)) // len(block))
        before = after


def line(space: ConvexSet, number: int, x: Forecast, *, points: bool) -> dict[str, Any]:
    """Return a forecast for a round as JSON: its mean, and with `points` the whole distribution."""
    found: dict[str, Any] = {"round": number, "mean": by_class(space, x.mean)}
    if points:
        found |= {"points": [by_class(space, point) for point in x.points], "weights": x.weights}
    return found


def lines_of(space: ConvexSet, first: int, batch: Batch, means: Array) -> list[str]:
    """Return what `line` and `News.labelled` say of rounds in which points were announced, as JSON texts."""
    names = space.classes if isinstance(space, Simplex) else None
    mean = ", ".join(["%r"] * space.dim if names is None else [f"{_quoted(name)}: %r" for name in names])
    template = f'"mean": [{mean}]' if names is None else f'"mean": {{{mean}}}'
    columns: list[Sequence[Any]] = [range(first, first + len(means))]
    if batch.ids is not None:
        template = f"%s{template}"
        columns.append(
            ["" if name is None else f'"id": {json.dumps(name, ensure_ascii=False)}, ' for name in batch.ids]
        )
    columns += means.T.tolist()
    if batch.other:
        cells = ", ".join(f"{_quoted(name)}: %s" for name in batch.other)
        template = f'{template}, "row": {{{cells}}}'
        columns += [json_texts(batch.row[name]) for name in batch.other]
    template = f'{{"round": %d, {template}}}'
    return [template % cells for cells in zip(*columns, strict=True)]


def _quoted(name: str) -> str:
    """Return a name in JSON, in a template."""
    return json.dumps(name, ensure_ascii=False).replace("%", "%%")


def end(problems: Problems) -> Exit:
    """Report the invalid rows, and return the exit code."""
    if not problems.count:
        return Exit.FINE
    say(problems.listing())
    return Exit.FLAWED
