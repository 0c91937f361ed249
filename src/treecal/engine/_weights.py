"""AdaptiveTreeCal's weights over a whole stream."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._typing import Array
from treecal.engine._climb import Level
from treecal.forecasters._adaptive import AdaptiveTreeCal
from treecal.geometry import Lp
from treecal.theory._hedge import hedge_rate

_HEIGHTS = 64


class State(NamedTuple):
    """What the past has left after some rounds: number of heights, largest gap, and cost and weight of each height."""

    rounds: int
    heights: int
    scale: float
    costs: Array
    weights: Array


class Weights:
    """The weight of every node, piece after piece: what the forecaster itself would give, bit for bit."""

    def __init__(self, forecaster: AdaptiveTreeCal) -> None:
        self._forecaster = forecaster
        fresh = forecaster.get_state()
        heights = len(fresh["weights"])
        costs, weights = np.zeros(_HEIGHTS), np.zeros(_HEIGHTS)
        weights[:heights] = fresh["weights"]
        self.states = [State(0, heights, fresh["scale"], costs, weights)]  # at the start of each piece, and now
        block, grows, arity = forecaster.rule == "block", forecaster.depth is None, forecaster.arity
        self._rates = np.full(_HEIGHTS, forecaster.rate)
        if block:
            self._rates[1:] = [hedge_rate(arity, height, grows=grows) for height in range(1, _HEIGHTS)]

    def piece(self, levels: list[Level], ended: list[Level]) -> tuple[list[Array], list[Array]]:
        """Return the weights of the nodes within the next piece, by level, and of those above that end with it."""
        from treecal.engine._weighing import weigh

        forecaster, state = self._forecaster, self.states[-1]
        costs, weights, size = state.costs.copy(), state.weights.copy(), len(levels[0].sums)
        node_costs = [self._costs(level) for level in levels]
        offsets = np.cumsum([0, *(len(cost) for cost in node_costs)])
        given, ends = np.empty(offsets[-1]), np.array([self._costs(level)[0] for level in ended])
        above = [state.weights[level.height : level.height + 1] for level in ended]
        heights, scale = weigh(
            state.rounds,
            size,
            forecaster.arity,
            offsets[:-1],
            np.concatenate(node_costs),
            ends,
            forecaster.depth is None,
            self._rates,
            forecaster.rule == "block",
            state.heights,
            state.scale,
            costs,
            weights,
            given,
        )
        self.states.append(State(state.rounds + size, heights, scale, costs, weights))
        return np.split(given, offsets[1:-1]), above

    def _costs(self, level: Level) -> Array:
        """Return what each node costs its height."""
        gaps, norm = level.sums - level.rounds[:, None] * level.labels, self._forecaster.norm
        if isinstance(norm, Lp):
            gaps = np.sort(gaps, axis=1)
            if norm.p in (1, 2, math.inf):
                return norm(gaps)
        return np.array([norm(gap) for gap in gaps])  # powers and products of one row are rounded in their own way

    def resume(self, piece: int, sums: Array) -> AdaptiveTreeCal:
        """Return a forecaster as it was when this piece started."""
        state = self.states[piece]
        forecaster = AdaptiveTreeCal(**self._forecaster.arguments())
        costs, weights = state.costs[: state.heights], state.weights[: state.heights]
        rest = {"costs": costs, "weights": weights, "scale": state.scale}
        forecaster.set_state({"rounds": state.rounds, "sums": sums[: state.heights], **rest})
        return forecaster
