"""Which kind of streams a bank keeps for a forecaster or corrector."""

from __future__ import annotations

from copy import copy
from typing import Any

from treecal.correctors import Corrector, PlattScaling, Recalibrator, TemperatureScaling, VectorScaling
from treecal.engine._guard_streams import GuardStreams, is_compiled
from treecal.engine._mean_streams import MeanStreams, has_columns
from treecal.engine._object_streams import ObjectStreams
from treecal.engine._scaling_streams import ScalingStreams
from treecal.engine._simple_streams import GridStreams, RunningMeanStreams
from treecal.engine._streams import Streams
from treecal.engine._tree_streams import TreeStreams
from treecal.exceptions import ParameterError
from treecal.forecasters import AdaptiveTreeCal, BinaryGrid, Forecaster, RunningMean, TreeCal


def streams_of(thing: Any) -> Streams:
    """Return no streams yet, each of which will be a copy of the thing: in arrays where a kind knows the class.

    A subclass may do anything, so it is an object for each stream.
    """
    if isinstance(thing, Corrector):
        return _correctors(thing._unscored())
    if not isinstance(thing, Forecaster):
        raise ParameterError.expected("thing", thing, "a forecaster, a corrector, or a set for TreeCal on it")
    if thing.rounds:
        raise ParameterError.expected("thing", thing, "a new one", hint="this one has seen outcomes.")
    if type(thing) in (TreeCal, AdaptiveTreeCal):
        return TreeStreams(copy(thing))  # type: ignore[arg-type]
    if is_compiled(thing):
        return GuardStreams(copy(thing))  # type: ignore[arg-type]
    if type(thing) is RunningMean:
        return RunningMeanStreams(copy(thing))
    if type(thing) is BinaryGrid:
        return GridStreams(copy(thing))
    return ObjectStreams(copy(thing))


def _correctors(thing: Corrector) -> Streams:
    if type(thing) in (PlattScaling, TemperatureScaling, VectorScaling):
        return ScalingStreams(thing)  # type: ignore[arg-type]
    if type(thing) is Recalibrator and has_columns(thing):
        return MeanStreams(thing)
    return ObjectStreams(thing)
