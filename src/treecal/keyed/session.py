"""A Spark session with the settings this package needs, or what to install first."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treecal.exceptions import UnsupportedError
from treecal.keyed._tables import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.maxConcurrentOutputFileWriters": "4",  # an epoch's tables are written side by side, unsorted
    "spark.sql.shuffle.partitions": "32",
    PROVIDER: ROCKSDB,
}
"""Settings of every session that `session` makes."""


def session(
    master: str | None = None, *, name: str = "treecal", settings: dict[str, str] | None = None
) -> SparkSession:
    """Return the current Spark session, or start one.

    Workers run the current Python, unless `PYSPARK_PYTHON` says otherwise.

    Parameters
    ----------
    master
        Where Spark runs: `local[2]` for two cores of this machine, or the address of a cluster. By default the one of
        `spark-submit`; without it, all cores of this machine.
    name
        The session's name in Spark's web pages.
    settings
        More Spark settings; they override `SETTINGS`.
    """
    sql = pyspark("pyspark.sql")
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and (Path(home) / "bin" / "java").exists())):
        raise UnsupportedError(
            "Spark needs Java, and no `java` was found.",
            hint="install Java 17 (apt install openjdk-17-jre-headless, or brew install openjdk@17), or set JAVA_HOME.",
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = sql.SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (SETTINGS | (settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()  # type: ignore[no-any-return] # a builder of builders has no type
