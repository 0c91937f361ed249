"""What swapping one piece of advice for another would have saved, and the two systems that keep it low.

`balanced` plays actions as often as their regrets ask to leave them; `play_game` solves a matrix game. Both are
elimination on small arrays, entry by entry in a written order, so every processor gives the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._states import check_array, check_count, check_names
from treecal._typing import Array, Saved
from treecal.exceptions import SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet
from treecal.measures import Losses

_NOTHING = 1e-12  # beside the greatest: what elimination may leave of zero


class Regrets(NamedTuple):
    """For each decision `R[a, b]`: what b would have cost less in the rounds with advice a, in units of the span."""

    losses: Losses
    rounds: int
    tables: tuple[Array, ...]
    total: float = 0.0
    """The swap regret, in the loss's own unit; of several decisions the greatest, in units of their spans."""

    @classmethod
    def empty(cls, losses: Losses) -> Regrets:
        """Return the regrets of no rounds."""
        return cls(losses, 0, tuple(np.zeros((len(table.actions),) * 2) for table in losses.tables))

    @classmethod
    def of(cls, losses: Losses, rounds: int, tables: tuple[Array, ...]) -> Regrets:
        """Return regrets with what they add up to: what the best other action for each would have saved."""
        most = 0.0
        for table in tables:
            total = 0.0
            for saved in table.max(axis=1).tolist():  # never below 0, which is on the diagonal
                total += saved
            most = max(most, total)
        return cls(losses, rounds, tables, losses.unit * most)

    def after(self, x: Forecast, outcome: Array) -> Regrets:
        """Return the regrets after one more round, in which this was announced."""
        after = []
        points = list(zip(x._points, x._weights.tolist(), strict=True))
        for regrets, table in zip(self.tables, self.losses.tables, strict=True):
            now = regrets.copy()
            costs = table.scaled_under(outcome)
            for point, weight in points:
                action = table.best(point)
                now[action] += weight * (costs[action] - costs)
            after.append(now)
        return Regrets.of(self.losses, self.rounds + 1, tuple(after))

    def get_state(self) -> Saved:
        """Return the state, as an array and a number."""
        return {"rounds": self.rounds, "regrets": np.concatenate([table.ravel() for table in self.tables])}

    def resumed(self, state: Any, space: ConvexSet | None = None) -> Regrets:
        """Return the regrets of such a state, once it is found to be valid."""
        check_names("the regrets", state, ("rounds", "regrets"))
        check_count("the regrets' rounds", state["rounds"])
        sizes = [table.size for table in self.tables]
        check_array("the regrets", state["regrets"], (sum(sizes),))
        parts = np.split(state["regrets"], np.add.accumulate(sizes)[:-1])
        tables = tuple(part.reshape(table.shape).copy() for part, table in zip(parts, self.tables, strict=True))
        for table in tables:
            if np.abs(table).max() > state["rounds"] * (1 + 1e-9) or table.diagonal().any():
                raise SnapshotError(f"the regrets are not those of {state['rounds']} rounds.")
        return Regrets.of(self.losses, int(state["rounds"]), tables)


def balanced(flow: Array) -> Array:
    """Return weights under which as much flows into each action as out of it, `flow[a, b]` from a to b.

    States are eliminated one by one without a subtraction (Grassmann, Taksar and Heyman), so that every weight is
    accurate to the last digits. One that nothing flows out of takes all weight.

    Examples
    --------
    >>> balanced(np.array([[0.0, 1.0], [3.0, 0.0]]))
    array([0.75, 0.25])
    """
    left = np.where(flow > _NOTHING * flow.max(), flow, 0.0)
    first = 0
    for k in range(len(left) - 1, 0, -1):
        out = _sum(left[k, :k])
        if not out:
            first = k
            break
        left[:k, k] /= out
        left[:k, :k] += left[:k, k, None] * left[k, :k]
    weights = np.zeros(len(left))
    weights[first] = 1.0
    for k in range(first + 1, len(left)):
        weights[k] = _sum(weights[:k] * left[:k, k])
        weights /= weights.max()
    return np.asarray(weights / _sum(weights))


def play_game(gains: Array) -> tuple[Array, Array]:
    """Return p, which makes the least row of `gains @ p` as great as can be, and weights of rows that prove it.

    Both are distributions, and every column of `weights @ gains` is at most the least row: von Neumann's theorem. By
    the simplex method; after many steps by Bland's rule, which cannot cycle.

    Examples
    --------
    >>> play_game(np.array([[1.0, 0.0], [0.0, 3.0]]))
    (array([0.75, 0.25]), array([0.75, 0.25]))
    """
    n, d = gains.shape
    top = gains.max()
    span = top - gains.min() or 1.0
    table = np.zeros((n + 1, d + n + 1))
    table[:n, :d] = (top - gains) / span + 1  # maximise Σu where this times u is at most 1
    table[:n, d:-1] = np.eye(n)
    table[:n, -1] = 1.0
    table[n, :d] = -1.0
    basis = np.arange(d, d + n)
    steps = 0
    while (below := table[n, :-1] < -_NOTHING).any():
        steps += 1
        enters = int(below.argmax() if steps > 10 * (n + d) else table[n, :-1].argmin())
        column = table[:n, enters]
        ratios = np.where(column > _NOTHING, table[:n, -1] / np.where(column > _NOTHING, column, 1.0), np.inf)
        ties = np.flatnonzero(ratios == ratios.min())
        leaves = int(ties[basis[ties].argmin()])
        table[leaves] /= table[leaves, enters]
        others = table[:, enters].copy()
        others[leaves] = 0.0
        table -= others[:, None] * table[leaves]
        basis[leaves] = enters
    found = np.zeros(d + n)
    found[basis] = table[:n, -1]
    return _shares(found[:d]), _shares(table[n, d:-1])


def _shares(weights: Array) -> Array:
    weights = np.maximum(weights, 0.0)
    return np.asarray(weights / _sum(weights))


def _sum(terms: Array) -> float:
    """Return the sum from left to right."""
    return float(np.add.accumulate(terms)[-1])
