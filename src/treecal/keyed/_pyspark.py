"""PySpark, imported when it is needed, and schemas to and from Arrow's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treecal._optional import require

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def pyspark(module: str) -> Any:
    """Import a module of PySpark."""
    return require(module, extra="spark", what="running on Spark")


def spark_schema(schema: pa.Schema) -> Any:
    """Return an Arrow schema as Spark's."""
    return pyspark("pyspark.sql.pandas.types").from_arrow_schema(schema)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the schema of a DataFrame as Arrow's."""
    return pyspark("pyspark.sql.pandas.types").to_arrow_schema(frame.schema)
