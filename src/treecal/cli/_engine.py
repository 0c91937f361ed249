"""Work that can be given to Spark in place of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treecal.exceptions import ParameterError
from treecal.io._text import kind_of, read_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def start(master: str | None) -> SparkSession:
    """Return a Spark session there."""
    from treecal.keyed.session import session

    return session(master)


def only_spark(engine: str, master: str | None) -> None:
    """Refuse a master where Spark is not asked for.

    Examples
    --------
    >>> only_spark("duckdb", "local[2]")
    Traceback (most recent call last):
    ...
    treecal.exceptions.ParameterError: --master is 'local[2]', expected nothing, unless --engine spark.
    """
    if master is not None and engine != "spark":
        raise ParameterError.expected("--master", master, "nothing, unless --engine spark")


def read(spark: SparkSession, path: str) -> DataFrame:
    """Return a file, or a folder of files, as Spark sees it: CSV, JSON lines, or else Parquet."""
    kind = kind_of(path)
    if kind == "csv":
        first = spark.read.text(path).first()
        header = read_header("" if first is None else first[0], path)
        table = spark.read.options(header=True, inferSchema=True, sep=header.delimiter)
        return table.options(ignoreLeadingWhiteSpace=True, ignoreTrailingWhiteSpace=True).csv(path)
    return spark.read.json(path) if kind == "jsonl" else spark.read.parquet(path)
