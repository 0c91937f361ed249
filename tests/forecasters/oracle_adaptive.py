"""AdaptiveTreeCal as its description reads: every round from the list of outcomes, node by node, top down."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from treecal._typing import Array

Node = tuple[int, int]


class Oracle:
    """Weights and labels of the nodes on each round's path, `path[t][height] = (label, weight)`."""

    def __init__(
        self,
        outcomes: Array,
        *,
        arity: int,
        depth: int | None,
        norm: Callable[[Array], Array],
        rule: str,
        rate: float,
        start: Array,
        diameter: float,
    ) -> None:
        self.y, self.arity, self.depth, self.norm = outcomes, arity, depth, norm
        self.rule, self.rate, self.start, self.diameter = rule, rate, start, diameter
        self.labels: dict[Node, Array] = {}
        self.weights: dict[Node, float] = {}
        self.born: dict[Node, int] = {}
        self.head_start: dict[int, float] = {}  # what a height's running cost began with
        self.path = [self.play(t) for t in range(len(outcomes))]

    def heights(self, t: int) -> int:
        if self.depth is not None:
            return self.depth
        m = 1
        while t >= self.arity**m:
            m += 1
        return m

    def cost(self, node: Node) -> float:
        height, index = node
        length: int = self.arity**height
        mean = self.y[index * length : (index + 1) * length].mean(axis=0)
        return length * float(self.norm(mean - self.labels[node]))

    def running_cost(self, height: int, t: int, since: int = 0) -> float:
        ended = [n for n in self.labels if n[0] == height and (n[1] + 1) * self.arity**height <= t]
        return self.head_start.get(height, 0.0) + sum(self.cost(n) for n in ended if self.born[n] >= since)

    def play(self, t: int) -> list[tuple[Array, float]]:
        m = self.heights(t)
        grown = t > 0 and m > self.heights(t - 1)
        if grown and self.rule == "stick":
            costs = [self.running_cost(j, t) for j in range(m - 1)]
            self.head_start[m - 1] = min(costs) - (sum(costs) / len(costs) - min(costs)) / 2
        path = [(j, t // self.arity**j) for j in range(m)]
        for height, index in path:
            length = self.arity**height
            if (height, index) not in self.labels:
                assert index * length == t
                parent = index // self.arity * self.arity * length
                seen = self.y[parent:t]
                self.labels[height, index] = seen.mean(axis=0) if index % self.arity else self.start
                self.born[height, index] = t
        if self.rule == "stick":
            self.break_stick(t, path)
        elif path[-1] not in self.weights:
            self.hedge(t, m)
        for node in path:
            self.weights.setdefault(node, self.hedged[node[0]] if self.rule == "block" else math.nan)
        return [(self.labels[node], self.weights[node]) for node in path]

    def break_stick(self, t: int, path: list[Node]) -> None:
        costs = [self.running_cost(j, t) for j in range(len(path))]
        ended = [n for n in self.labels if (n[1] + 1) * self.arity ** n[0] <= t]
        scale = max((self.cost(n) / self.arity ** n[0] for n in ended), default=0.0)
        eta = self.rate / (scale * (1 + math.sqrt(t * self.arity ** (len(path) - 1)))) if scale else 0.0
        handed_down = 1.0
        for height in reversed(range(len(path))):
            if path[height] not in self.weights:
                least = min(costs[: height + 1])
                w = [math.exp(-eta * (c - least)) for c in costs[: height + 1]]
                self.weights[path[height]] = handed_down * w[height] / sum(w)
            handed_down -= self.weights[path[height]]

    def hedge(self, t: int, m: int) -> None:
        since = 0 if self.depth is not None or m == 1 else self.arity ** (m - 1)
        rounds = self.arity if self.depth is not None or m == 1 else self.arity - 1
        eta = math.sqrt(8 * math.log(m) / rounds) / (self.diameter * self.arity ** (m - 1))
        w = np.array([math.exp(-eta * self.running_cost(j, t, since)) for j in range(m)])
        self.hedged = w / w.sum()
