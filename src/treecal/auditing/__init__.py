"""Auditing a log of anybody's forecasts: how calibrated they were, exactly and in bins, in all and by group.

An engine counts: DuckDB and Arrow here, Spark in `treecal.auditing.spark`. What is made of the counts is the same.
"""

from treecal.auditing._exact import Exact
from treecal.auditing._log import Progress, audit
from treecal.auditing._result import Audit, Bins, Calibration

__all__ = ["Audit", "Bins", "Calibration", "Exact", "Progress", "audit"]
