"""Audits of logs of forecasts: how calibrated they are, exactly and in bins, overall and by group.

An engine counts: DuckDB and Arrow here, Spark in `treecal.auditing.spark`. All else is shared.
"""

from treecal.auditing._calibration import Calibration
from treecal.auditing._counts import DIGITS as DIGITS
from treecal.auditing._counts import LOG_SCALE as LOG_SCALE
from treecal.auditing._counts import MAGIC as MAGIC
from treecal.auditing._counts import SCORES as SCORES
from treecal.auditing._counts import AuditCounts as AuditCounts
from treecal.auditing._counts import AuditRows as AuditRows
from treecal.auditing._counts import BinCounts as BinCounts
from treecal.auditing._exact import Exact
from treecal.auditing._groups import Groups as Groups
from treecal.auditing._log import Progress, audit
from treecal.auditing._pass import tally as tally
from treecal.auditing._result import Audit
from treecal.auditing._result import shown as shown
from treecal.auditing._words import acted as acted
from treecal.auditing._words import watched as watched
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
