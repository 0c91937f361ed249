"""Files as Spark reads them, by the rules of one machine."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from treecal.exceptions import FileError
from treecal.io import FORMATS, format_of, read_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TORN = "_treecal_torn_record"


def read(spark: SparkSession, path: str) -> DataFrame:
    """Return a file, or a folder of files, as Spark sees it: CSV, JSON lines, or else Parquet.

    As on one machine, names are names, not patterns, and folders are no columns; cells of CSV and JSON lines are text,
    and an empty one is missing.
    """
    from pyspark.sql import functions

    found = format_of(path)
    kind = "parquet" if found is None else found.kind
    where = _literal(path)
    if kind == "parquet":
        return spark.read.option("recursiveFileLookup", True).parquet(where)
    if kind == "jsonl":
        rows = spark.read.options(recursiveFileLookup=True, primitivesAsString=True).json(where)
        texts = {name: rows[quoted(name)] for name, kind in rows.dtypes if kind == "string"}
        return rows.withColumns({name: functions.when(cell != "", cell) for name, cell in texts.items()})
    if kind != "csv":
        raise FileError(f"{path} is {FORMATS[kind].name}, which Spark does not read.", hint="leave out --engine spark.")
    first = spark.read.text(where, recursiveFileLookup=True).first()
    header = read_header("" if first is None else first[0].removeprefix("\ufeff"), path)
    reader = spark.read.options(recursiveFileLookup=True, header=True, sep=header.delimiter, quote='"', escape='"')
    reader = reader.options(ignoreLeadingWhiteSpace=True, ignoreTrailingWhiteSpace=True)
    reader = reader.options(columnNameOfCorruptRecord=_TORN, columnPruning=False)
    rows = reader.csv(where, schema=", ".join(f"{quoted(name)} string" for name in (*header.names, _TORN)))
    # A row with too few or too many cells has none, so that it is invalid.
    whole = functions.col(_TORN).isNull()
    cells = {name: rows[quoted(name)] for name in header.names}
    return rows.select(*(functions.when(whole & (cell != ""), cell).alias(name) for name, cell in cells.items()))


def quoted(name: str) -> str:
    """Return the name of a column as Spark takes it literally."""
    return "`" + name.replace("`", "``") + "`"


def _literal(path: str) -> str:
    r"""Return a path as Spark takes it literally; one that is on this machine is absolute, others are addresses.

    Examples
    --------
    >>> _literal("hdfs://cluster/day[1].csv")
    'hdfs://cluster/day\\[1\\].csv'
    """
    local = os.path.exists(path) or not re.match(r"[a-z][a-z0-9+.-]*://", path)
    if local and not os.path.exists(path):
        raise FileError(f"there is no file {path}.")
    whole = f"file://{os.path.abspath(path)}" if local else path
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", whole)
