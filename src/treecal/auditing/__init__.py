"""Audits of logs of forecasts: how calibrated they are, exactly and in bins, overall and by group.

An engine counts: DuckDB and Arrow here, Spark in `treecal.auditing.spark`. All else is shared.
"""

from treecal.auditing._calibration import Calibration
from treecal.auditing._counts import (
    DIGITS as DIGITS,
    LOG_SCALE as LOG_SCALE,
    MAGIC as MAGIC,
    SCORES as SCORES,
    AuditCounts as AuditCounts,
    AuditRows as AuditRows,
    BinCounts as BinCounts,
)
from treecal.auditing._exact import Exact
from treecal.auditing._groups import Groups as Groups
from treecal.auditing._log import Progress, audit
from treecal.auditing._pass import tally as tally
from treecal.auditing._result import Audit, shown as shown
from treecal.auditing._words import acted as acted, watched as watched
from treecal.measures import Bins

# Imported `as` themselves are names that only other rooms of the package use.
__all__ = [
    "Audit",
    "Bins",
    "Calibration",
    "Exact",
    "Progress",
    "audit",
]
