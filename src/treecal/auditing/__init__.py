"""Audits of logs of forecasts: how calibrated they are, exactly and in bins, overall and by group.

An engine counts: DuckDB and Arrow here, Spark in `treecal.auditing.spark`. All else is shared.
"""

from treecal.auditing._calibration import Calibration
from treecal.auditing._cells import DIGITS, LOG_SCALE, MAGIC, SCORES, AuditRows, BinCounts
from treecal.auditing._counts import Actions, AuditCounts, tally
from treecal.auditing._exact import Exact
from treecal.auditing._few import check_known
from treecal.auditing._groups import Groups
from treecal.auditing._labels import LabelsAudit, audit_labels
from treecal.auditing._log import Progress, audit
from treecal.auditing._number_audit import NumberAudit, NumberCalibration
from treecal.auditing._number_rows import Columns, NumberRows
from treecal.auditing._number_sums import NumberSums
from treecal.auditing._result import Audit, shown
from treecal.auditing._sample import LabelSample, sample_labels
from treecal.auditing._stated import Stated, advice, gathered, read_answers, read_confidences, stated
from treecal.measures import Bins

# Names that are imported and not listed are for the other rooms of the package.
__all__ = [
    "Audit",
    "Bins",
    "Calibration",
    "Exact",
    "LabelSample",
    "LabelsAudit",
    "NumberAudit",
    "NumberCalibration",
    "Progress",
    "Stated",
    "audit",
    "audit_labels",
    "sample_labels",
    "stated",
]
