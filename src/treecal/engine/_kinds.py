"""Which kind of streams a bank keeps for a forecaster or corrector."""

from __future__ import annotations

from copy import copy
from typing import Any

from treecal.engine._guard_streams import GuardStreams, is_compiled
from treecal.engine._streams import Streams
from treecal.engine._tree_streams import TreeStreams
from treecal.exceptions import ParameterError
from treecal.forecasters import AdaptiveTreeCal, Forecaster, TreeCal


def streams_of(thing: Any) -> Streams:
    """Return no streams yet, each of which will be a copy of the thing."""
    if isinstance(thing, Forecaster) and thing.rounds:
        raise ParameterError.expected("thing", thing, "a new one", hint="this one has seen outcomes.")
    if type(thing) in (TreeCal, AdaptiveTreeCal):
        return TreeStreams(copy(thing))
    if is_compiled(thing):
        return GuardStreams(copy(thing))
    raise ParameterError.expected("thing", thing, "a set, a TreeCal or an AdaptiveTreeCal")
