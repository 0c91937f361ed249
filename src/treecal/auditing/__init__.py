"""Audits of logs of forecasts: how calibrated they are, exactly and in bins, overall and by group.

An engine counts: DuckDB and Arrow here, Spark in `treecal.auditing.spark`. All else is shared.
"""

from treecal.auditing._exact import Exact
from treecal.auditing._log import Progress, audit
from treecal.auditing._result import Audit, Calibration
from treecal.measures import Bins

__all__ = ["Audit", "Bins", "Calibration", "Exact", "Progress", "audit"]
