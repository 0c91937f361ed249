"""A round that awaits its outcome, as it is kept and saved."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._states import check_array, check_count, check_names
from treecal._typing import Array
from treecal.correctors._batch import Group
from treecal.correctors._names import saved_names
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet


class Opened(NamedTuple):
    """A round that awaits its outcome."""

    rounds: int
    """Those learned before it."""
    forecast: Array
    group: Group
    announced: Forecast

    def state(self) -> dict[str, Any]:
        """Return arrays and JSON values."""
        x = self.announced
        nodes = np.empty((0, 2), np.int64) if x.nodes is None else x.nodes
        return self._asdict() | {"announced": {"points": x.points, "weights": x.weights, "nodes": nodes}}


def checked_opened(state: Any, rounds: int, space: ConvexSet) -> Opened:
    """Return the open round of a state, or raise unless so many rounds and the set allow it.

    The forecast is as it was given: whoever knows what a forecast is reads it.
    """
    check_names("the open round", state, Opened._fields)
    check_count("the open round's number", state["rounds"], most=rounds)
    check_names("what was announced", state["announced"], ("points", "weights", "nodes"))
    points, weights, nodes = (state["announced"][name] for name in ("points", "weights", "nodes"))
    (group,) = saved_names([state["group"]])
    for name, array in (("points", points), ("weights", weights), ("nodes", nodes)):
        check_array(name, array, np.shape(array), np.int64 if name == "nodes" else np.float64)
    x = Forecast(points, weights=weights, nodes=nodes if len(nodes) else None, space=space)
    return Opened(int(state["rounds"]), state["forecast"], group, x)
