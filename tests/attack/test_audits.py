"""Audits of random logs, of every type and from every source, against a few lines of NumPy."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from treecal.measures import bin_edges

NORMS: dict[str, Callable[[Any], float]] = {
    "l1": lambda v: float(np.abs(v).sum()),
    "l2": lambda v: float(np.sqrt((v**2).sum())),
    "linf": lambda v: float(np.abs(v).max()),
}
FILES = ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"]
SOURCES = [*FILES, "arrow", "pandas", "polars", "mapping", "relation"]
WORDS = ["a", "b", "it's", 'a "b"', "x,y", "two\nlines", "[spam]", "=1+1", "é", "007", "NULL", "nan", "true", "-"]


class Log(NamedTuple):
    """A log: its columns of probabilities, and what its rows mean."""

    names: list[str]
    p: Any
    labels: list[Any]
    groups: list[Any]
    classes: list[Any]
    single: bool


def probabilities(rng: random.Random, rows: int, classes: int) -> Any:
    """Forecasts that repeat, lie on the edges of bins, are one-hot, or are like no other."""
    kind = rng.choice(["sixteenths", "edges", "free", "one-hot", "few"])
    draw = np.random.default_rng(rng.getrandbits(32))
    if kind == "one-hot":
        return np.eye(classes)[draw.integers(classes, size=rows)] - 0.0
    if kind == "sixteenths":
        return draw.multinomial(16, np.ones(classes) / classes, size=rows) / 16
    if kind == "edges":
        steps = rng.choice([10, 15, 22, 50, 100])
        return draw.multinomial(steps, np.ones(classes) / classes, size=rows) / steps
    p = draw.dirichlet(np.ones(classes), size=rows)
    return p if kind == "free" else p[draw.integers(min(rows, 3), size=rows)]


def log(rng: random.Random, source: str) -> tuple[Log, dict[str, Any]]:
    """A log, and its columns as Arrow arrays."""
    rows, classes = rng.choice([1, 2, 9, 60]), rng.choice([2, 2, 3, 5, 12])
    p = probabilities(rng, rows, classes)
    text = source not in ("parquet", "arrow", "pandas", "polars", "mapping", "relation")
    if np.array_equal(p * 16, np.round(p * 16)) and not text and rng.random() < 0.5:
        kind = rng.choice(["halffloat", "float", "double", "decimal", "string"])
        if kind == "halffloat" and source in ("polars", "parquet"):
            kind = "float"
    else:
        kind = rng.choice(["double", "double", "string"]) if not text else "double"
    names = [f"p{k}" for k in range(classes)]
    arrays = {name: array(column, kind) for name, column in zip(names, p.T, strict=True)}
    single = classes == 2 and rng.random() < 0.4
    if single:
        p = np.column_stack([1 - p[:, 1], p[:, 1]])
        arrays, names = {"p": arrays["p1"]}, ["p"]
    values: list[Any] = rng.sample(WORDS, classes) if rng.random() < 0.6 else list(range(classes))
    labels = rng.choices(values, k=rows)
    groups = grouping(rng, rows, text)
    arrays |= {"y": pa.array(labels), "g": groups}
    return Log(names, p, labels, groups.to_pylist(), values, single), arrays


def array(column: Any, kind: str) -> Any:
    if kind == "string":
        return pa.array([repr(float(x)) for x in column])
    if kind == "halffloat":
        return pa.array(column.astype(np.float16))
    return pa.array(column).cast(pa.decimal128(10, 6) if kind == "decimal" else kind)


def grouping(rng: random.Random, rows: int, text: bool) -> Any:
    """A column to group by, with gaps."""
    kinds = ["words", "integers"] if text else ["words", "integers", "floats", "single", "booleans", "dates", "codes"]
    kind = rng.choice(kinds)
    values: dict[str, list[Any]] = {
        "words": [*rng.sample(WORDS, 4), None],
        "codes": [*rng.sample(WORDS, 4), None],
        "integers": [0, -1, 2**53, 7, None],
        "floats": [0.0, -0.0, float("nan"), None, 0.1, float("inf")],
        "single": [0.0, -0.0, float("nan"), None, 0.25],
        "booleans": [True, False, None],
        "dates": [date(2020, 1, 1) + timedelta(days=k) for k in (0, 40, -99999)] + [None],
    }
    column = pa.array(
        rng.choices(values[kind], k=rows), {"single": "float", "words": "string", "codes": "string"}.get(kind)
    )
    if pa.types.is_null(column.type):
        column = column.cast("string")
    return column.dictionary_encode() if kind == "codes" else column


def written(arrays: dict[str, Any], source: str, folder: Path, rng: random.Random) -> Any:
    """The same columns as this kind of source."""
    table = pa.table(arrays)
    if source == "arrow":
        return table
    if source == "pandas":
        return table.to_pandas()
    if source == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    if source == "mapping":
        return {name: np.asarray(column.to_pylist() if is_words(column) else column) for name, column in arrays.items()}
    if source == "relation":
        import duckdb

        return duckdb.connect().from_arrow(table) if not has_half(table) else table
    path = folder / f"{rng.choice(['log', 'log[1]', 'p=0.5', 'a*b', '~', 'q?'])}.{source}"
    if source == "parquet":
        pq.write_table(
            table,
            path,
            row_group_size=rng.choice([1, 7, 1000]),
            write_page_checksum=rng.random() < 0.5,
            compression=rng.choice(["none", "snappy", "zstd"]),
        )
        return path
    rows = table.to_pylist()
    if source.startswith("jsonl"):
        content = "".join(json.dumps(row, ensure_ascii=rng.random() < 0.5) + "\n" for row in rows)
    else:
        file = io.StringIO()
        sheet = csv.DictWriter(
            file,
            table.column_names,
            lineterminator=rng.choice(["\n", "\r\n"]),
            delimiter=rng.choice(",;\t|"),
            quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
        )
        sheet.writeheader()
        sheet.writerows(rows)
        content = file.getvalue()
    data = content.encode()
    path.write_bytes(gzip.compress(data) if source.endswith("gz") else data)
    return path


def is_words(column: Any) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_dictionary(column.type))


def has_half(table: Any) -> bool:
    return any(pa.types.is_float16(kind) for kind in table.schema.types)


def key_of(value: Any) -> Any:
    """A group as text, as CSV and JSON have it; pandas makes floats of integers with gaps."""
    if value is None or value != value or (isinstance(value, str) and not value.strip(" ")):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            str(int(value))
            if value % 1 == 0
            else repr(float(np.float32(value)) if value == np.float32(value) else value)
        )
    return str(value).strip(" ") if isinstance(value, str) else str(value)


def expected(p: Any, y: Any, bins: int) -> dict[str, Any]:
    """The errors of an audit, by their definitions."""
    rows, classes = p.shape
    top = p.argmax(axis=1)
    hits = np.eye(classes)[y]

    def ece(q: Any, hit: Any) -> float:
        home = np.minimum(np.searchsorted(bin_edges(bins), q, side="right") - 1, bins - 1)
        gaps = [abs(q[home == b].mean() - hit[home == b].mean()) * (home == b).sum() for b in np.unique(home)]
        return float(sum(gaps) / rows)

    def exact(points: Any, outcomes: Any, norm: Callable[[Any], float]) -> tuple[int, float]:
        of = defaultdict(list)
        for point, outcome in zip(points + 0.0, outcomes, strict=True):
            of[tuple(point.tolist())].append(outcome)
        return len(of), sum(len(ys) * norm(np.mean(ys, axis=0) - np.array(x)) for x, ys in of.items()) / rows

    return {
        "rounds": rows,
        "brier": ((p - hits) ** 2).sum(axis=1).mean(),
        "top": ece(p.max(axis=1), (top == y).astype(float)),
        "classes": [ece(p[:, k], hits[:, k]) for k in range(classes)],
        "forecasts": exact(p, hits, NORMS["l1"])[0],
        "errors": [exact(p, hits, norm)[1] for norm in NORMS.values()],
        "exact classes": [exact(p[:, k : k + 1], hits[:, k : k + 1], NORMS["l1"])[1] for k in range(classes)],
    }


def measured(part: Any) -> dict[str, Any]:
    """The same numbers of an audit."""
    return {
        "rounds": part.rounds,
        "brier": part.brier,
        "top": part.top_label.ece,
        "classes": [bins.ece for bins in part.classes.values()],
        "forecasts": part.exact.forecasts,
        "errors": [part.exact.errors[name] for name in NORMS],
        "exact classes": list(part.exact.classes),
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.allclose(one[name], other[name], rtol=0, atol=1e-9) for name in one)


def attempt(rng: random.Random, folder: Path) -> str:
    """Audit one log; return what went wrong, or nothing."""
    source = rng.choice(SOURCES)
    made, arrays = log(rng, source)
    bins = rng.choice([1, 2, 10, 15, 22, 100])
    given = written(arrays, source, folder, rng)
    try:
        found = tc.audit(
            given, forecast=made.names, outcome="y", by="g", classes=made.classes, bins=bins, norms=list(NORMS)
        )
    except Exception as error:  # whatever it is, it is reported
        return f"{source}: {type(error).__name__}: {error}"
    y = np.array([made.classes.index(label) for label in made.labels])
    keys = [key_of(value) for value in made.groups]
    if not same(measured(found.whole), expected(made.p, y, bins)):
        return f"{source}: all rows differ: {measured(found.whole)} {expected(made.p, y, bins)}"
    groups = {key_of(key[0]): part for key, part in found.groups.items()}
    if set(groups) != set(keys) or len(groups) < len(found.groups):
        return f"{source}: the groups are {list(found.groups)}, expected {set(keys)}"
    for key, part in groups.items():
        chosen = np.array([other == key for other in keys])
        if not same(measured(part), expected(made.p[chosen], y[chosen], bins)):
            return f"{source}: group {key!r} differs"
    return ""


def run(count: int, seed: int, seconds: float = np.inf) -> Counter[str]:
    """Audit so many random logs; return how many were tried, and what failed."""
    counts: Counter[str] = Counter(tried=0, failures=0)
    start = time.monotonic()
    for number in range(count):
        if time.monotonic() - start > seconds:
            break
        with tempfile.TemporaryDirectory() as folder:
            wrong = attempt(random.Random(f"{seed} {number}"), Path(folder))
        counts["tried"] += 1
        if wrong:
            counts["failures"] += 1
            print(f"attack {seed} {number}: {wrong}")
    return counts


def test_audits_agree_with_numpy() -> None:
    assert run(10, 0) == Counter(tried=10, failures=0)


@pytest.mark.attack
def test_two_thousand_audits_agree_with_numpy(attack_seed: int, attack_seconds: float) -> None:
    counts = run(2000, attack_seed, attack_seconds)
    print(f"audits, seed {attack_seed}: {dict(counts)}")
    assert counts["tried"]
    assert not counts["failures"]
