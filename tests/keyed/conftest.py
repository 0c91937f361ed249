from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from treecal.keyed.session import session


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """The one session of all tests of a process."""
    settings = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "1g", "spark.log.level": "ERROR"}
    # Most of what a short run costs is Java's second compiler and collector.
    settings["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = session("local[2]", name="tests", settings=settings)
    yield spark
    spark.stop()
