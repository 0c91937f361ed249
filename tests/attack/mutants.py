"""Parquet files of every encoding, compression and version of pages, damaged, and read in a process of their own.

    python -m tests.attack.mutants SEED FIRST COUNT FOLDER

A bit that is flipped in a footer can end a process by a signal, with no message. So the number of each file is written
down before it is read, and whoever started the process can name the file. It prints how many ended how, as JSON.
"""

from __future__ import annotations

import faulthandler
import io
import json
import random
import resource
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import treecal as tc
from tests.attack.test_audits import expected, measured, same
from tests.attack.test_files import damaged
from treecal.exceptions import TreeCalError
from treecal.io import Decoder, _outcomes, open_source, read_outcomes

WORDS = ["rain", "sun"]
COMPRESSIONS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
NUMBERS = ["PLAIN", "BYTE_STREAM_SPLIT", "dictionary"]
LABELS = {
    "string": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "dictionary"],
    "int64": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "dictionary"],
    "int8": ["PLAIN", "DELTA_BINARY_PACKED", "dictionary"],
    "bool": ["PLAIN", "RLE"],
}
_MEMORY = 8 << 30


def written(rng: random.Random) -> tuple[bytes, list[Any]]:
    """A small file, and its classes."""
    rows, kind = rng.choice([1, 12, 70]), rng.choice([*LABELS])
    p = [rng.choice([0.25, 0.5, 1.0, rng.random()]) for _ in range(rows)]
    classes: list[Any] = WORDS if kind == "string" else [0, 1]
    number = rng.choice(["double", "float"])
    table = pa.table(
        {
            "a": pa.array(p, number),
            "b": pa.array([1 - x for x in p], number),
            "y": pa.array(rng.choices([False, True] if kind == "bool" else classes, k=rows), kind),
            "g": pa.array(rng.choices(["u", "v", None], k=rows), "string"),
        }
    )
    if rng.random() < 0.3:  # columns without levels
        fields = [field.with_nullable(field.name == "g") for field in table.schema]
        table = table.cast(pa.schema(fields))
    encodings = {"a": rng.choice(NUMBERS), "b": rng.choice(NUMBERS), "y": rng.choice(LABELS[kind]), "g": "dictionary"}
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        row_group_size=rng.choice([7, 100]),
        write_page_checksum=rng.random() < 0.3,
        write_page_index=rng.random() < 0.3,
        use_dictionary=[name for name, encoding in encodings.items() if encoding == "dictionary"],
        column_encoding={name: encoding for name, encoding in encodings.items() if encoding != "dictionary"},
        compression=rng.choice(COMPRESSIONS),
        data_page_version=rng.choice(["1.0", "2.0"]),
        data_page_size=rng.choice([16, 1 << 20]),
        write_batch_size=rng.choice([4, 1024]),
        store_schema=rng.random() < 0.5,
    )
    return file.getvalue(), classes


def mutant(rng: random.Random) -> tuple[bytes, list[Any]]:
    """A file that is damaged: anywhere, or a few bits of its footer or of its pages; some are whole."""
    content, classes = written(rng)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    bounds = {
        "schema": (footer, min(footer + 150, len(content))),
        "footer": (footer, len(content)),
        "pages": (4, footer),
    }
    where = rng.choice([*bounds, "anywhere", "nowhere"])
    if where == "anywhere":
        return damaged(content, rng), classes
    found = bytearray(content)
    for _ in range(0 if where == "nowhere" else rng.choice([1, 1, 1, 2, 6])):
        at = rng.randrange(*bounds[where])
        found[at] = rng.randrange(256) if rng.random() < 0.3 else found[at] ^ (1 << rng.randrange(8))
    return bytes(found), classes


def by_arrow(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    """The rows as Arrow reads them, all at once or row group by row group; it raises an error where it does neither."""
    file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
    try:
        table = file.read(columns)
    except (OSError, pa.ArrowException):  # a column that is stated to be longer than its row groups
        table = pa.concat_tables([file.read_row_group(k, columns) for k in range(file.num_row_groups)])
    table.validate(full=True)
    return [{name: as_text(value) for name, value in row.items()} for row in table.to_pylist()]


def as_text(value: Any) -> Any:
    """Bytes that are no longer marked as text are text to DuckDB."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def fits(row: dict[str, Any], classes: list[Any]) -> bool:
    """Whether a row is valid."""
    p = [row["a"], row["b"]]
    numbers = all(isinstance(x, int | float) for x in p)
    return numbers and sum(p) >= 1 - 1e-6 and sum(map(abs, p)) <= 1 + 1e-6 and row["y"] in classes


def attempt(rng: random.Random, path: Path) -> tuple[str, str]:
    """Damage one file and read it; return how that ended, and what was wrong with it."""
    content, classes = mutant(rng)
    path.write_bytes(content)
    how = rng.choice(["audit", "groups", "exact", "replay", "rows"])
    try:
        read(how, path, classes, given=rng.random() < 0.5)
    except TreeCalError as error:
        return "refused", "" if len(str(error)) < 900 else f"{how}: a long message: {error!s:.300}"
    except AssertionError as error:
        return "wrong", f"{how}: {error!s:.300}"
    except Exception as error:  # whatever it is, it is reported
        return "wrong", f"{how}: {type(error).__name__}: {error!s:.300}"
    return "read", ""


def read(how: str, path: Path, classes: list[Any], *, given: bool) -> None:
    """Read a file as a command does, and assert that its rows are those that Arrow reads.

    Unless they are `given`, the classes are looked for in the file.
    """
    labels = list(map(str, classes))
    if how == "rows":  # as forecast, recalibrate and monitor read
        decoder = Decoder(tc.Simplex(classes=labels), outcome=["y"])
        source = open_source(path)
        decoder.check(path.name, list(source.types))
        found = [{name: as_text(value) for name, value in row.value.items()} for row in source.rows(["a", "b", "y"])]
        source.check_complete(len(found), columns=["a", "b", "y"], valid=0)
        assert alike(found, by_arrow(path, ["a", "b", "y"])), "other rows than Arrow's"
        return
    if how == "replay":
        outcomes = read_outcomes(
            path, outcome="y", forecast=["a", "b"], classes=classes if given else None, on_error="skip"
        )
        points = [(x, y) for chunk in outcomes for x, y in zip(forecasts(chunk), chunk.outcomes.tolist(), strict=True)]
        rows = by_arrow(path, ["a", "b", "y"])
        classes = values_of(outcomes.classes or (), rows, classes)
        check_labels(rows, classes, given=given)
        there = [
            ([max(row["a"], 0.0), max(row["b"], 0.0)], classes.index(row["y"])) for row in rows if fits(row, classes)
        ]
        assert points == there, "other rows than Arrow's"
        assert outcomes.problems.count == len(rows) - len(there), "other invalid rows than Arrow's"
        return
    options: dict[str, Any] = {"by": "g"} if how == "groups" else {}
    if given:
        options["classes"] = classes
    audited = tc.audit(path, forecast=["a", "b"], outcome="y", on_error="skip", exact=how == "exact", **options)
    rows = by_arrow(path, ["a", "b", "y", *(["g"] if how == "groups" else [])])
    classes = values_of(audited.classes, rows, classes)
    check_labels(rows, classes, given=given)
    valid = [row for row in rows if fits(row, classes)]
    counts = audited.whole.rounds, audited.problems.count
    assert counts == (len(valid), len(rows) - len(valid)), "other rows than Arrow's"
    p = np.maximum(np.array([[row["a"], row["b"]] for row in valid]), 0.0)
    y = np.array([classes.index(row["y"]) for row in valid])
    ours, theirs = measured(audited.whole) if how == "exact" else {"brier": audited.whole.brier}, expected(p, y, 10)
    assert same(ours, theirs), f"{ours}, expected {theirs}"
    if how == "groups":
        groups = {as_text(key): part.rounds for (key,), part in audited.groups.items()}
        assert groups == Counter(row["g"] for row in valid), "other groups than Arrow's"


def values_of(names: Sequence[str], rows: list[dict[str, Any]], classes: list[Any]) -> list[Any]:
    """Return the values of the classes of these names, as Arrow reads them."""
    try:
        return [type(classes[0])(name) for name in names]
    except ValueError:  # integers that are marked as times of a day, which Arrow makes nothing of
        return sorted({row["y"] for row in rows})


def check_labels(rows: list[dict[str, Any]], classes: list[Any], *, given: bool) -> None:
    """Assert that classes that were looked for are all that there are."""
    there = {row["y"] for row in rows} - {None, ""}
    assert given or there <= set(classes), f"the classes {classes}, where there are {there}"


def forecasts(chunk: Any) -> list[list[float]]:
    assert chunk.forecasts is not None
    return chunk.forecasts.tolist()  # type: ignore[no-any-return] # of floats


def alike(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether rows are equal; NaN is NaN."""
    return json.dumps(one, default=repr) == json.dumps(other, default=repr)


def run(seed: int, first: int, count: int, folder: Path) -> Counter[str]:
    """Read so many files; return how many ended how."""
    counts: Counter[str] = Counter(read=0, refused=0, wrong=0)
    _outcomes._LEAST, _outcomes._ROWS = 1, 10  # several threads count small files, as they do large ones
    path = folder / "log.parquet"
    with (folder / "number").open("w") as note:
        for number in range(first, first + count):
            note.seek(0)
            note.write(f"{number}\n")
            note.flush()
            ended, why = attempt(random.Random(f"{seed} {number}"), path)
            counts[ended] += 1
            if why:
                print(f"attack {seed} {number}: {why}", file=sys.stderr)
    return counts


if __name__ == "__main__":
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))  # a length that is damaged asks for more than there is
    seed, first, count = map(int, sys.argv[1:4])
    print(json.dumps(run(seed, first, count, Path(sys.argv[4]))))
