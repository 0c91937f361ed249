"""Forecasters: `predict()` announces a distribution over points of the set, `update(y)` learns the outcome."""

from treecal.forecasters._base import REGISTRY, Forecaster
from treecal.forecasters._base import checked_space as checked_space
from treecal.forecasters._base import reach as reach
from treecal.forecasters._base import register as register
from treecal.forecasters._binary_grid import Biases as Biases
from treecal.forecasters._binary_grid import BinaryGrid
from treecal.forecasters._binary_grid import choose_points as choose_points
from treecal.forecasters._codebook import BETTER as BETTER
from treecal.forecasters._codebook import CAPACITY as CAPACITY
from treecal.forecasters._codebook import CHANCE as CHANCE
from treecal.forecasters._codebook import LOOK_AHEAD as LOOK_AHEAD
from treecal.forecasters._codebook import SIZES as SIZES
from treecal.forecasters._codebook import Book as Book
from treecal.forecasters._codebook import Books as Books
from treecal.forecasters._codebook import Candidate as Candidate
from treecal.forecasters._codebook import Codebook
from treecal.forecasters._codebook import Shelf as Shelf
from treecal.forecasters._guarded import RESERVE as RESERVE
from treecal.forecasters._guarded import Guard as Guard
from treecal.forecasters._guarded import Guarded, GuardReport
from treecal.forecasters._guarded import default_safe as default_safe
from treecal.forecasters._harmonic import Harmonic, harmonic_error
from treecal.forecasters._harmonic import harmonic_rows as harmonic_rows
from treecal.forecasters._recommend import ORDINARY as ORDINARY
from treecal.forecasters._recommend import Choice, Recommendation, recommend
from treecal.forecasters._running_mean import RunningMean
from treecal.forecasters._sampled import Sampled, SampleTreeCal
from treecal.forecasters._simplex_grid import MOST_POINTS as MOST_POINTS
from treecal.forecasters._simplex_grid import SimplexGrid
from treecal.forecasters._simplex_grid import points as points
from treecal.forecasters._tally import Tally as Tally
from treecal.forecasters._tracker import SHARE as SHARE
from treecal.forecasters._tracker import Experts as Experts
from treecal.forecasters._tracker import Tracker
from treecal.forecasters._tree.adaptive import AdaptiveState as AdaptiveState
from treecal.forecasters._tree.adaptive import AdaptiveTreeCal
from treecal.forecasters._tree.adaptive import Rule as Rule
from treecal.forecasters._tree.adaptive import node_costs as node_costs
from treecal.forecasters._tree.path import Path as Path
from treecal.forecasters._tree.path import TreeState as TreeState
from treecal.forecasters._tree.steps import Costs as Costs
from treecal.forecasters._tree.steps import Mix as Mix
from treecal.forecasters._tree.steps import TreeArgs as TreeArgs
from treecal.forecasters._tree.steps import Weighed as Weighed
from treecal.forecasters._tree.steps import carry as carry
from treecal.forecasters._tree.steps import carry_up as carry_up
from treecal.forecasters._tree.steps import coordinate as coordinate
from treecal.forecasters._tree.steps import kernel_args as kernel_args
from treecal.forecasters._tree.steps import place as place
from treecal.forecasters._tree.steps import place_rows as place_rows
from treecal.forecasters._tree.steps import rises as rises
from treecal.forecasters._tree.steps import weigh_piece as weigh_piece
from treecal.forecasters._tree.treecal import TreeCal
from treecal.forecasters._tree.treecal import heights_of as heights_of
from treecal.forecasters._tree.weighting import Weighting as Weighting
from treecal.forecasters._tree.weighting import weigh as weigh

__all__ = [
    "REGISTRY",
    "AdaptiveTreeCal",
    "BinaryGrid",
    "Choice",
    "Codebook",
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
