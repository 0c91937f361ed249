"""Malformed input: one paragraph that a person can act on, and never a library's traceback."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treecal.exceptions import FileError, ParameterError, TreeCalError
from treecal.io import LOG, Outcomes, open_source, read_outcomes

HEAD = "p_a,p_b,y\n"
JUNK = random.Random(0).randbytes(5000)


def read(source: Any, **options: Any) -> Outcomes:
    outcomes = read_outcomes(source, **{"outcome": "y", "forecast": ["p_a", "p_b"], **options})
    for _ in outcomes:
        pass
    return outcomes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"log\.csv is empty"),
        ("\n", "has an empty first line, expected the names of the columns"),
        (HEAD, "there are no rows in"),
        (HEAD.strip(), "there are no rows in"),
        (JUNK, "is not text in UTF-8"),
        ("p_A,p_b,y\n0.5,0.5,a\n", r"no column 'p_a'. It has p_A, p_b, y.\n\nHint: did you mean p_A\?"),
        ("0.4,0.6,a\n0.5,0.5,b\n", "the first line seems to be a row"),
        ("y,y\n1,2\n", "two columns named 'y'"),
        (",p_b,y\n1,2,3\n", "no name for column 1"),
        (
            "p_a;p_b;y\n0,5;0,5;a\n",
            r"line 2 \(row 1\): p_a is '0,5', expected a number.\n\nHint: write decimals with a p",
        ),
        (HEAD + "0.5,0.5,a\n0.1,x,b\n", r"line 3 \(row 2\): p_b is 'x', expected a number"),
        (HEAD + "0.5,0.5,a\n0.1,,b\n", r"line 3 \(row 2\): p_b is missing"),
        (HEAD + "0.5,0.5,a\n0.1,0.87,b\n", r"line 3 \(row 2\): the probabilities sum to 0.97, expected 1 within 1e-06"),
        (HEAD + "0.5,0.5,a\n0.1,nan,b\n", "p_b is nan, expected a probability"),
        (HEAD + "0.5,0.5,a\n0.1,inf,b\n", "p_b is inf, expected a probability"),
        (HEAD + "0.5,0.5,a\n1.1,-0.1,b\n", "p_b is -0.1, expected a probability"),
        (HEAD + "0.5,0.5,a\n0.5,0.5,\n", "y is missing, expected one of a, b"),
        (HEAD + "0.5,0.5\n", r"line 2 \(row 1\): it has 2 cells, expected 3"),
        (HEAD + "0.5,0.5,a\n0.5,0.5\n", r"line 3 \(row 2\): it has 2 cells, expected 3"),
        (HEAD + "0.5,0.5,a\n0.5,0.5,a,b\n0.5,0.5,a\n", r"line 3 \(row 2\): it has 4 cells, expected 3"),
        (HEAD + '0.5,0.5,"a\nb"\n\n0.5,0.4,a\n', r"line 5 \(row 2\): the probabilities sum to 0.9"),
        (HEAD.replace("\n", "\r\n") + "0.5,0.5,a\r\n0.5,0.4,a\r\n", r"line 3 \(row 2\): the probabilities sum to 0.9"),
        (HEAD + "0.5,0.5,a\n0.5,0.5,b\r\n", r"not all of it is valid CSV.\n\nHint: it may mix line endings"),
        ((HEAD + "0.5,0.5,é\n").encode("latin-1"), r"line 2 \(row 1\): it is not text in UTF-8"),
        (HEAD + "0.5,0.5,a\n0.5,0.5,b\n0.5,0.5,c\n", r"holds 3 labels \(a, b, c\), expected 2"),
    ],
)
def test_csv(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    options = {"classes": ["a", "b"]} if "one of a, b" in message or "UTF-8" in message else {}
    with pytest.raises(FileError, match=message) as caught:
        read(path, **options)
    assert str(caught.value).count("\n\n") <= 1
    assert "Hint" not in caught.value.message
    assert (caught.value.hint is not None) == ("Hint" in str(caught.value))


def test_a_byte_order_mark_and_semicolons_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\ufeffp_a;p_b;y\n0.5;0.5;a\n0.1;0.9;b\n", "utf-8")
    assert read(path).classes == ("a", "b")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.parquet", JUNK, "magic bytes not found.*not a Parquet file, or it is truncated"),
        ("log.parquet", b"PAR1", "not a Parquet file, or it is truncated"),
        ("log.jsonl", "no json\n", r"line 1 \(row 1\): it is not JSON"),
        ("log.jsonl", "\n\n", "is empty, expected JSON lines"),
        ("log.jsonl", '[{"p_a": 1}]', "expected JSON lines: one object per line"),
        (
            "log.jsonl",
            '{"p_a":0.5,"p_b":0.5,"y":"a"}\n\n{"p_a":0.5,"p_b":{},"y":"a"}',
            r"line 3 \(row 2\): p_b is {}, expected a number",
        ),
        ("log.jsonl", '{"p_a":0.5,"p_b":0.5,"y":"a"}\n{"p_a":0.5,', r"line 2 \(row 2\): it is not JSON"),
        ("log.csv.gz", "no gzip", "cannot be read: it is not a complete gzip file"),
        ("log.docx", "words", "the format of .* is unknown"),
        ("log.csv", None, "there is no file"),
    ],
)
def test_other_files(tmp_path: Path, name: str, content: str | bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FileError, match=rf"(?s){message}"):
        read(path)
    with pytest.raises(FileError, match=rf"(?s){message}|there is no file in the folder"):
        read(tmp_path)


def test_damaged_parquet(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    pq.write_table(pa.table({"p_a": p, "p_b": 1 - p, "y": rng.integers(2, size=20_000)}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    with pytest.raises(FileError, match="truncated or damaged"):
        read(path)
    path.write_bytes(whole[:2000] + JUNK + whole[7000:])
    with pytest.raises(TreeCalError):
        read(path)


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress((HEAD + "".join(f"0.{i},0.{9 - i},a\n" for i in range(10)) * 50).encode())[:-60])
    with pytest.raises(FileError, match=r"log.csv.gz"):
        read(path)


def test_tables_in_memory() -> None:
    with pytest.raises(FileError, match=r"mixed types.*p_a"):
        read(_frame({"p_a": [0.5, "x"], "p_b": [0.5, 0.5], "y": ["a", "b"]}))
    with pytest.raises(FileError, match="the table, row 2: p_a is missing"):
        read(pa.table({"p_a": [0.5, None], "p_b": [0.5, 0.5], "y": ["a", "b"]}))
    with pytest.raises(FileError, match="the table, row 3: y is missing, expected one of 0, 1"):
        read(_frame({"p_a": [0.5] * 3, "p_b": [0.5] * 3, "y": [1, 0, None]}))
    with pytest.raises(FileError, match=r"the relation, row 2: the probabilities sum to 1\.1"):
        read(duckdb.sql("SELECT 0.5 AS p_a, 0.5 AS p_b, 'a' AS y UNION ALL SELECT 0.3, 0.8, 'b'"))
    with pytest.raises(FileError, match="'p_a' of the table holds BOOLEAN values, expected numbers"):
        read(pa.table({"p_a": [True], "p_b": [0.5], "y": ["a"]}))
    with pytest.raises(ParameterError, match="the source is a list"):
        read([1, 2])
    with pytest.raises(ParameterError, match="expected one or two dimensions and equal lengths"):
        read({"p_a": np.zeros(2), "p_b": np.zeros(3), "y": np.zeros(3)})


def _frame(columns: dict[str, Any]) -> Any:
    return pa.table({"row": range(len(columns["y"]))}).to_pandas().assign(**columns)


def test_arguments() -> None:
    log = {"p_a": np.array([0.5]), "p_b": np.array([0.5]), "y": np.array([1])}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"on_error": "ignore"}, "'stop', 'skip' or 'collect'"),
        ({"tolerance": 2}, "tolerance is 2"),
        ({"classes": ["a", "a"]}, "distinct names"),
        ({"classes": ["a", "b", "c"]}, r"3 classes \(a, b, c\), expected 2"),
        ({"classes": ["a", "b"]}, "expected integers, as 'y' holds"),
        ({"forecast": ["p_a", "p_a"]}, "distinct columns"),
    ]
    for options, message in cases:
        with pytest.raises(ParameterError, match=message):
            read(log, **options)
    with pytest.raises(ParameterError, match="the limit is 'lots', expected an amount of memory such as '1GB'"):
        open_source(log, memory_limit="lots")
    with pytest.raises(FileError, match="no column 'model'"):
        read(log, keep=["model"])


def test_an_answer_that_was_abandoned_after_its_connection_closed_is_silent() -> None:
    source = open_source({"p": np.arange(10_000.0)})
    answer = source.batches(f"SELECT * FROM {LOG}", rows=10)
    next(answer)
    source._connection.close()
    answer.close()
