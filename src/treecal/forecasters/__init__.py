"""Forecasters: `predict()` announces a distribution over points of the set, `update(y)` learns the outcome."""

from treecal.forecasters._adaptive import AdaptiveTreeCal
from treecal.forecasters._base import Forecaster
from treecal.forecasters._grids import BinaryGrid, SimplexGrid, binary_grid_bound, simplex_grid_bound
from treecal.forecasters._harmonic import Harmonic, harmonic_error
from treecal.forecasters._running_mean import RunningMean
from treecal.forecasters._sampled import SampleTreeCal
from treecal.forecasters._treecal import TreeCal

__all__ = [
    "AdaptiveTreeCal",
    "BinaryGrid",
    "Forecaster",
    "Harmonic",
    "RunningMean",
    "SampleTreeCal",
    "SimplexGrid",
    "TreeCal",
    "binary_grid_bound",
    "harmonic_error",
    "simplex_grid_bound",
]
