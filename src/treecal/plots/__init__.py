"""Pictures. Every function takes `ax=` and returns it; they need matplotlib: `pip install "treecal[plots]"`.

What a picture shows is worked out by a function of its own (`reliability`, `interval_tree`), which needs no matplotlib.
"""

from treecal.plots.curve import plot_error_over_time
from treecal.plots.race import plot_errors, plot_ranking, plot_times
from treecal.plots.reliability import plot_reliability, reliability
from treecal.plots.ternary import plot_ternary
from treecal.plots.tree import interval_tree, plot_tree

__all__ = [
    "interval_tree",
    "plot_error_over_time",
    "plot_errors",
    "plot_ranking",
    "plot_reliability",
    "plot_ternary",
    "plot_times",
    "plot_tree",
    "reliability",
]
