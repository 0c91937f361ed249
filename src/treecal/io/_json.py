"""JSON lines: one value per line, mostly an object; row by row as they come, by DuckDB, and written."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from treecal.exceptions import FileError, Reason, TreeCalError
from treecal.io._duckdb import columns_of_type, identifier
from treecal.io._formats import Format
from treecal.io._scan import File, FileSource
from treecal.io._source import LOG
from treecal.io._text import LINE, TOO_LONG, Place, Row, begins_with_mark, check_case, is_gzip, open_lines, read_blocks

_SAMPLE = 100  # lines whose keys are the columns


def json_rows(lines: Iterator[bytes], *, words: bool = False) -> Iterator[Row]:
    """Yield the values of JSON lines."""
    row = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row += 1
            whole = line.endswith(b"\n") or len(line) > LINE  # of which the end is not read
            yield Row(Place(row, number), *_json_value(line, words=words), whole)


class _TwiceError(FileError):
    """An object has a key twice."""


def _json_value(line: bytes, *, words: bool) -> tuple[Any, Reason | None]:
    """Return the value, or None and why it cannot be read."""
    if len(line) > LINE:
        return None, TOO_LONG
    try:
        text = line.decode().strip()
        return json.loads(text, object_pairs_hook=_object), None
    except UnicodeDecodeError:
        looks = {b"PAR1": "Parquet: --kind parquet", b"\x1f\x8b": "gzip: zcat first"}
        hint = next((f"it looks like {like}." for start, like in looks.items() if line.startswith(start)), None)
        return None, FileError("it is not text in UTF-8.", hint=hint)
    except RecursionError:
        return None, "it is nested too deeply."
    except TreeCalError as error:
        return None, error
    except ValueError:
        return (text, None) if words and text[0] not in '{["' else (None, "it is not JSON.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of two values for one key none is the right one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(f"it has the key {next(key for key in keys if keys.count(key) > 1)!r} twice.")
    return found


def json_columns(path: Path) -> list[str] | None:
    """Return the keys of the first hundred objects, in order of appearance; None where lines are bare values."""
    if begins_with_mark(path):
        raise FileError(
            f"{path.name} begins with a byte order mark, expected JSON lines in plain UTF-8.",
            hint="leave out the first three bytes: tail -c +4.",
        )
    with open_lines(path) as lines:
        sample = list(islice(json_rows(lines), _SAMPLE))
    if not sample:
        raise FileError(f"{path.name} is empty, expected JSON lines: one object per line.")
    names = dict.fromkeys(name for row in sample if isinstance(row.value, dict) for name in row.value)
    if names:
        check_case(path.name, names)
        return list(names)
    first = sample[0]
    entries = first.value if isinstance(first.value, list) else []
    if first.problem is not None or any(isinstance(entry, list | dict) for entry in entries):
        problem = first.problem or "it is not a JSON object."
        raise FileError.at(path.name, *first.place, problem, hint="expected JSON lines: one object per line.")
    return None


def json_count(blocks: Iterable[bytes], names: Sequence[str]) -> tuple[int, int | None]:
    r"""Return the number of lines in a file, and how often the most frequent of these names is in it, in quotes.

    The second is None where characters are escaped, as names may be, too.

    Examples
    --------
    >>> json_count([b'{"p": 1}\n{"p": 0, "q": "p"}'], ["p"])
    (2, 3)
    """
    found = {f'"{name}"'.encode(): 0 for name in names}
    lines = 0
    escaped = False
    rest = b""
    for block in blocks:
        whole, _, rest = (rest + block).rpartition(b"\n")  # a name may lie across two blocks, but not across lines
        lines += block.count(b"\n")
        escaped = escaped or b"\\u" in block
        for name in found:
            found[name] += whole.count(name)
    for name in found:
        found[name] += rest.count(name)
    return lines + bool(rest), None if escaped else max(found.values(), default=0)


class JsonLines(FileSource):
    """A file of JSON lines."""

    def __init__(self, file: File, connection: Any, *, names: Sequence[str] | None) -> None:
        if is_gzip(file.path.name):  # it is checked before DuckDB believes it
            deque(read_blocks(file.path), maxlen=0)
        options = {"format": "'newline_delimited'", "ignore_errors": "true", "maximum_object_size": f"{LINE + 2}"}
        self._lines = options
        options = {
            "columns": columns_of_type(names or ["outcome"], "JSON"),
            "records": f"{names is not None}",
            **options,
        }
        super().__init__(file, connection, "read_json", options)

    def key(self, name: str) -> str:
        if name in self.partition:
            return identifier(name)
        return f"NULLIF({identifier(name)} ->> '$', '')"  # text without its quotes, as in CSV

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        with open_lines(self.path) as lines:
            for row in json_rows(lines):
                yield row._replace(value=row.value | self.partition) if isinstance(row.value, dict) else row

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        lines, named = json_count(read_blocks(self.path), columns)
        if rows != lines:
            held = sum(1 for _ in self.rows())  # without blank lines
            if rows != held:
                raise FileError(f"{self.name} cannot be read: it has {held:,} rows, of which {rows:,} were found.")
        # Where each valid row has each key once, and there are no more of them, no row has a key twice.
        if named is None or named > valid:
            options = {"records": "false", "columns": columns_of_type(["line"], "JSON"), **self._lines}
            whole = FileSource(File(self.path, self.name, {}), self._connection, "read_json", options)
            keys = f"SELECT DISTINCT json_keys(line) AS keys FROM {LOG}"
            if whole.one(f"SELECT 1 FROM ({keys}) WHERE len(keys) > len(list_distinct(keys)) LIMIT 1") is not None:
                for row in self.rows():
                    if isinstance(row.problem, _TwiceError):
                        raise FileError.at(self.name, *row.place, row.problem)


def _sources(files: Sequence[File], connection: Any) -> list[JsonLines]:
    keys = [json_columns(file.path) for file in files]
    every = list(dict.fromkeys(name for names in keys for name in names or ()))  # missing where a file has no such key
    return [
        JsonLines(file, connection, names=None if names is None else every)
        for file, names in zip(files, keys, strict=True)
    ]


def _write(path: Path, name: str, columns: Mapping[str, set[str]], rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


JSON_LINES = Format(
    "jsonl",
    "JSON lines",
    (".jsonl", ".ndjson", ".json"),
    _sources,
    _write,
    lines=lambda lines, name, check: json_rows(lines),  # which have no header to be checked
    headed=False,
    begins=lambda head: head.lstrip()[:1] in (b"{", b"["),
)
