"""Millions of keyed streams: `advance` is the pure step; `local` runs it in a pool, `spark` and `streaming` on Spark.

Nothing heavy is imported before it is used; the extra `spark` installs it.
"""

from treecal.keyed._errors import Errors, errors
from treecal.keyed._pyspark import arrow_schema as arrow_schema
from treecal.keyed._pyspark import pyspark as pyspark
from treecal.keyed._pyspark import spark_schema as spark_schema
from treecal.keyed._shard import Step, advance, correct, forecasts, no_state, shard_of
from treecal.keyed._tables import arrow as arrow

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
