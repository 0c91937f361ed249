"""Forecasters: `predict()` announces a distribution over points of the set, `update(y)` learns the outcome."""

from treecal.forecasters.base import Forecaster
from treecal.forecasters.baselines import RunningMean
from treecal.forecasters.sampled import SampleTreeCal
from treecal.forecasters.treecal import TreeCal

__all__ = ["Forecaster", "RunningMean", "SampleTreeCal", "TreeCal"]
