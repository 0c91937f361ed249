"""Forecasters: `predict()` announces a distribution over points of the set, `update(y)` learns the outcome."""

from treecal.forecasters._adaptive import AdaptiveTreeCal
from treecal.forecasters._base import REGISTRY, Forecaster
from treecal.forecasters._binary_grid import BinaryGrid
from treecal.forecasters._codebook import Codebook
from treecal.forecasters._guarded import Guarded, GuardReport
from treecal.forecasters._harmonic import Harmonic, harmonic_error
from treecal.forecasters._recommend import Choice, Recommendation, recommend
from treecal.forecasters._running_mean import RunningMean
from treecal.forecasters._sampled import Sampled, SampleTreeCal
from treecal.forecasters._simplex_grid import SimplexGrid
from treecal.forecasters._tracker import Tracker
from treecal.forecasters._treecal import TreeCal

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
