"""Millions of keyed streams: `advance` is the pure step; `local` runs it in a pool, `spark` and `streaming` on Spark.

Nothing heavy is imported before it is used; the extra `spark` installs it.
"""

from treecal.keyed._packing import shard_of
from treecal.keyed._shard import Errors, Step, advance, correct, errors, forecasts, no_state
from treecal.keyed._tables import arrow, arrow_schema, pyspark, spark_schema

# Names that are imported and not listed are for the other rooms of the package.
__all__ = ["Errors", "Step", "advance", "correct", "errors", "forecasts", "no_state", "shard_of"]
