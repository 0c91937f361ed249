"""Forecasters: `predict()` announces a distribution over points of the set, `update(y)` learns the outcome."""

from treecal.forecasters._base import (
    REGISTRY,
    Forecaster,
    as_measure as as_measure,
    certified as certified,
    checked_space as checked_space,
    largest_error as largest_error,
    reach as reach,
    register as register,
)
from treecal.forecasters._binary_grid import BinaryGrid
from treecal.forecasters._codebook import (
    CAPACITY as CAPACITY,
    Book as Book,
    Candidate as Candidate,
    Codebook,
    Shelf as Shelf,
)
from treecal.forecasters._decisions import Decisions
from treecal.forecasters._guarded.guard import (
    BUDGET as BUDGET,
    Guard as Guard,
    Guarded,
    GuardReport,
    default_safe as default_safe,
    guarded_measure as guarded_measure,
)
from treecal.forecasters._guarded.streams import GuardStreams as GuardStreams
from treecal.forecasters._harmonic import (
    Harmonic,
    harmonic_error,
    harmonic_rows as harmonic_rows,
)
from treecal.forecasters._recommend import ORDINARY as ORDINARY, Choice, Recommendation, recommend
from treecal.forecasters._regrets import Regrets as Regrets, balanced as balanced, play_game as play_game
from treecal.forecasters._running_mean import RunningMean
from treecal.forecasters._sampled import Sampled, SampleTreeCal
from treecal.forecasters._simplex_grid import MOST_POINTS as MOST_POINTS, SimplexGrid, points as points
from treecal.forecasters._tracker import Tracker
from treecal.forecasters._tree.adaptive import (
    AdaptiveState as AdaptiveState,
    AdaptiveTreeCal,
    Rule as Rule,
    node_costs as node_costs,
)
from treecal.forecasters._tree.path import Path as Path, TreeState as TreeState
from treecal.forecasters._tree.steps import (
    Costs as Costs,
    Weighed as Weighed,
    carry as carry,
    first_off_simplex as first_off_simplex,
    kernel_args as kernel_args,
    place_rows as place_rows,
    weigh_piece as weigh_piece,
)
from treecal.forecasters._tree.treecal import TreeCal, climb as climb

__all__ = [
    "REGISTRY",
    "AdaptiveTreeCal",
    "BinaryGrid",
    "Choice",
    "Codebook",
    "Decisions",
    "Forecaster",
    "GuardReport",
    "Guarded",
    "Harmonic",
    "Recommendation",
    "RunningMean",
    "SampleTreeCal",
    "Sampled",
    "SimplexGrid",
    "Tracker",
    "TreeCal",
    "harmonic_error",
    "recommend",
]
