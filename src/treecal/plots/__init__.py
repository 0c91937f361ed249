"""Plots. Every function takes `ax=` and returns it; they need matplotlib: the extra `plots`.

`reliability`, `likeliest` and `interval_tree` return what some of them show, and need no matplotlib.
"""

from treecal.plots._audit import draw_audit, plot_audit, plot_decisions, plot_windows
from treecal.plots._ledger import heaviest, plot_error_over_time, plot_ternary
from treecal.plots._numbers import plot_coverage, plot_fan, plot_numbers, plot_pit
from treecal.plots._race import plot_errors, plot_ranking, plot_scores, plot_times
from treecal.plots._reliability import Reliability, draw_panel, plot_reliability, reliability
from treecal.plots._sources import bins_of, likeliest
from treecal.plots._style import PALETTE, VERMILION, colour, drawing, short, svg
from treecal.plots._tree import IntervalTree, Row, interval_tree, plot_tree

# Names that are imported and not listed are for the other rooms of the package.
__all__ = [
    "IntervalTree",
    "Reliability",
    "Row",
    "colour",
    "drawing",
    "interval_tree",
    "likeliest",
    "plot_audit",
    "plot_coverage",
    "plot_decisions",
    "plot_error_over_time",
    "plot_errors",
    "plot_fan",
    "plot_numbers",
    "plot_pit",
    "plot_ranking",
    "plot_reliability",
    "plot_scores",
    "plot_ternary",
    "plot_times",
    "plot_tree",
    "plot_windows",
    "reliability",
    "svg",
]
