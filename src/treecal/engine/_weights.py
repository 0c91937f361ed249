"""AdaptiveTreeCal's weights over a whole stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treecal._typing import Array
from treecal.engine._climb import Level
from treecal.forecasters import AdaptiveState, AdaptiveTreeCal, Costs, Weighed, node_costs, weigh_piece


class State(NamedTuple):
    """What remains of the past: the scale, and cost and weight of each height the tree can have."""

    rounds: int
    scale: float
    costs: Array
    weights: Array


class Weights:
    """The weight of every node, piece after piece, bit for bit as the forecaster gives it."""

    def __init__(self, forecaster: AdaptiveTreeCal) -> None:
        self._forecaster = forecaster
        costs, weights, fresh = *np.zeros((2, forecaster.tree.most_heights)), forecaster._state
        weights[: len(fresh.weights)] = fresh.weights[:, 0]
        self.states = [State(0, float(fresh.scale[0]), costs, weights)]  # at the start of each piece, and now

    def piece(self, levels: list[Level], ended: list[Level]) -> list[Array]:
        """Return the weights of the nodes within the next piece, by level, then of those above that end with it."""
        state = self.states[-1]
        rule = self._forecaster._weighting
        costs = state.costs.copy()
        weights = state.weights.copy()
        inner = [self._costs(level) for level in levels]
        offsets = np.cumsum([0, *map(len, inner)])
        given = np.empty(offsets[-1])
        above = np.array([self._costs(level)[0] for level in ended])
        ended_costs = Costs(offsets, np.concatenate(inner), above)
        scale = weigh_piece(state.rounds, ended_costs, rule, state.scale, Weighed(costs, weights, given))
        self.states.append(State(state.rounds + len(inner[0]), scale, costs, weights))
        return [*np.split(given, offsets[1:-1]), *(state.weights[level.height :][:1] for level in ended)]

    def _costs(self, level: Level) -> Array:
        """Return what each node costs its height."""
        return node_costs(self._forecaster.norm, level.sums - level.rounds[:, None] * level.points)

    def resume(self, piece: int, sums: Array) -> AdaptiveTreeCal:
        """Return a forecaster as it was when this piece started."""
        rounds, scale, costs, weights = self.states[piece]
        heights = self._forecaster.tree.heights(rounds)
        forecaster = AdaptiveTreeCal(**self._forecaster.arguments())
        sums, costs, weights = (array[:heights, None] for array in (sums, costs, weights))
        forecaster._state = AdaptiveState(np.array([rounds]), sums, costs, weights, np.array([scale]))
        return forecaster
