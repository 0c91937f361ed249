"""Which kind of streams a bank keeps for a forecaster or corrector."""

from __future__ import annotations

from collections.abc import Callable
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
from treecal.forecasters import AdaptiveTreeCal, BinaryGrid, Forecaster, Guarded, RunningMean, TreeCal

Maker = Callable[[Any], Streams | None]
"""Returns no streams yet, each of which will be a copy of the thing; None if these arguments have no such streams."""

_KINDS: dict[type, Maker] = {}


def register_streams(kind: type, streams: Maker) -> None:
    """Have banks keep streams of a class in arrays, as the function returns them: of this class, not of subclasses.

    Parameters
    ----------
    kind
        The class of a forecaster or corrector.
    streams
        Given one, returns no streams yet, each of which will be a copy of it: a `ColumnStreams`, or None where only
        an object for each stream will do.

    Examples
    --------
    >>> import treecal as tc
    >>> class Mean(tc.RunningMean):
    ...     pass
    >>> register_streams(Mean, RunningMeanStreams)  # what it does to its parent, too
    >>> bank = tc.Bank(Mean(tc.Simplex(2)), streams=1)
    >>> bank.update([0], [1])
    >>> bank.predict().mean
    array([[0., 1.]])
    """
    _KINDS[kind] = streams


for _kind, _maker in {
    TreeCal: TreeStreams,
    AdaptiveTreeCal: TreeStreams,
    Guarded: lambda thing: GuardStreams(thing) if is_compiled(thing) else None,
    RunningMean: RunningMeanStreams,
    BinaryGrid: GridStreams,
    PlattScaling: ScalingStreams,
    TemperatureScaling: ScalingStreams,
    VectorScaling: ScalingStreams,
    Recalibrator: lambda thing: MeanStreams(thing) if has_columns(thing) else None,
}.items():
    register_streams(_kind, _maker)  # type: ignore[arg-type] # each takes what it is registered for


def streams_of(thing: Any) -> Streams:
    """Return no streams yet, each of which will be a copy of the thing: in arrays where its class is registered.

    A subclass may do anything, so it is an object for each stream.
    """
    if isinstance(thing, Corrector):
        own: Any = thing._unscored()
    elif not isinstance(thing, Forecaster):
        raise ParameterError.expected("thing", thing, "a forecaster, a corrector, or a set for TreeCal on it")
    elif thing.rounds:
        raise ParameterError.expected("thing", thing, "a new one", hint="this one has seen outcomes.")
    else:
        own = copy(thing)
    maker = _KINDS.get(type(own))
    found = None if maker is None else maker(own)
    return ObjectStreams(own) if found is None else found
