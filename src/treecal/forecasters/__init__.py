"""Forecasters: `predict()` announces a distribution over points of the set, `update(y)` learns the outcome."""

from treecal.forecasters.adaptive import AdaptiveTreeCal
from treecal.forecasters.base import Forecaster
from treecal.forecasters.baselines import RunningMean
from treecal.forecasters.grids import BinaryGrid, SimplexGrid
from treecal.forecasters.harmonic import Harmonic
from treecal.forecasters.sampled import SampleTreeCal
from treecal.forecasters.treecal import TreeCal

__all__ = [
    "AdaptiveTreeCal",
    "BinaryGrid",
    "Forecaster",
    "Harmonic",
    "RunningMean",
    "SampleTreeCal",
    "SimplexGrid",
    "TreeCal",
]
