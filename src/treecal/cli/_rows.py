"""Rows on the command line: from a file or standard input, one by one, with a progress bar; and points as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from treecal._typing import Array
from treecal.cli._progress import Done, progress
from treecal.cli._terminal import Exit, say
from treecal.correctors import Corrector
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster
from treecal.geometry import ConvexSet, Simplex
from treecal.io import Decoder, Kind, Problems, Row, open_source
from treecal.io._sources import LOG, check_file
from treecal.io._text import kind_of, text_rows


def source_name(path: str) -> str:
    """Return what to call a file, or standard input, in messages."""
    return "standard input" if path == "-" else Path(path).name


@contextmanager
def rows(path: str, decoder: Decoder, *, kind: Kind | None = None) -> Iterator[Iterator[Row]]:
    r"""Open a file, or standard input for "-", and give its rows, with a progress bar where that helps.

    Parameters
    ----------
    path
        The file.
    decoder
        What will read the rows: the columns it needs must be there.
    kind
        What is in it; by default as its name ends, and JSON lines or bare words on standard input.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "days.csv").write_text("day,weather\n1,rain\n2, sun\n")
    ...     with rows(f"{folder}/days.csv", Decoder(Simplex(2), outcome=["weather"])) as lines:
    ...         [(str(row.place), row.value["weather"]) for row in lines]
    [('line 2 (row 1)', 'rain'), ('line 3 (row 2)', 'sun')]
    """
    words, name = path == "-" and kind is None, source_name(path)
    kind = "jsonl" if words else kind or kind_of(path)
    if kind is None:
        raise ParameterError(f"{path} is of no known kind, by its name.", hint="--kind jsonl, csv or parquet.")
    if path == "-":
        if kind == "parquet":
            raise ParameterError("Parquet cannot be read from standard input.", hint="give a file.")
        if sys.stdin.isatty():
            say("reading what you type, a row a line; Ctrl-D ends it.")
    else:
        check_file(Path(path))
    if kind == "parquet":
        source = open_source(path, kind=kind)
        decoder.check(name, list(source.types))
        counted = source.one(f"SELECT count(*) FROM {LOG}")
        with progress("rows", total=counted[0] if counted else None, show=not sys.stdout.isatty()) as done:
            yield _watched(source.rows(decoder.columns), lambda row: row.place.row, done)
        return
    with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
        found = text_rows(file, kind, name, check=decoder.check, words=words)
        if not os.path.isfile(path):
            yield found
            return
        with progress("bytes", total=os.path.getsize(path), show=not sys.stdout.isatty()) as done:
            yield _watched(found, lambda row: file.tell(), done)


def _watched(found: Iterator[Row], reached: Callable[[Row], int], done: Done) -> Iterator[Row]:
    for row in found:
        yield row
        done(reached(row))


def named(space: ConvexSet, vector: Array) -> dict[str, float] | list[float]:
    """Return the vector as JSON: by class, where classes have names.

    Examples
    --------
    >>> import numpy as np
    >>> named(Simplex(classes=["rain", "sun"]), np.array([0.25, 0.75]))
    {'rain': 0.25, 'sun': 0.75}
    """
    classes = space.classes if isinstance(space, Simplex) else None
    return vector.tolist() if classes is None else dict(zip(classes, vector.tolist(), strict=True))


def line(keeper: Forecaster | Corrector, x: Forecast, *, points: bool) -> dict[str, Any]:
    """Return a forecast for the next round as JSON: its mean, and with `points` the whole distribution."""
    found: dict[str, Any] = {"round": keeper.rounds + 1, "mean": named(keeper.space, x.mean)}
    if points:
        found |= {"points": [named(keeper.space, point) for point in x.points], "weights": x.weights}
    return found


def end(problems: Problems) -> Exit:
    """Say which rows were left out, and return how the command ends."""
    if not problems.count:
        return Exit.FINE
    say(problems.listing())
    return Exit.FLAWED
