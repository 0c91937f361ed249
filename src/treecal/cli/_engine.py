"""Work that can be given to Spark in place of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treecal.exceptions import ParameterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def start(master: str | None) -> SparkSession:
    """Return a Spark session there."""
    from treecal.keyed.session import session

    return session(master)


def only_spark(engine: str, master: str | None) -> None:
    """Refuse a master that nobody would obey.

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
    name = path.removesuffix(".gz").lower()
    if name.endswith((".csv", ".tsv")):
        return spark.read.csv(path, header=True, inferSchema=True, sep="\t" if name.endswith(".tsv") else ",")
    return spark.read.json(path) if name.endswith((".json", ".jsonl", ".ndjson")) else spark.read.parquet(path)
