"""treecal inside other libraries: `treecal.integrations.river` and `treecal.integrations.sklearn`.

Both wrap a classifier with a corrector of `treecal.correctors`, and both read calibration errors from a `Ledger`.
"""

from treecal.integrations._common import checked_label
