"""Millions of keyed streams: `advance` is the pure step; `local` runs it in a pool, `spark` and `streaming` on Spark.

Nothing heavy is imported before it is used; the extra `spark` installs it.
"""

from treecal.keyed._packing import shard_of
from treecal.keyed._shard import Errors, Step, advance, correct, errors, forecasts, no_state
from treecal.keyed._tables import (
    arrow as arrow,
    arrow_schema as arrow_schema,
    pyspark as pyspark,
    spark_schema as spark_schema,
)

# Imported `as` themselves are names that only other rooms of the package use.
__all__ = [
    "Errors",
    "Step",
    "advance",
    "correct",
    "errors",
    "forecasts",
    "no_state",
    "shard_of",
]
