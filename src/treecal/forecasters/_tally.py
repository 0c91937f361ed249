"""Tally: the total calibration error of a sequence of rounds, kept up to date round by round."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.forecast import Forecast, TreeForecast
from treecal.geometry import Lp, Norm


class Tally:
    """The sum over all forecast points `p` of `‖V_p‖`, where `V_p` adds up `x(p)·(y − p)` over the rounds.

    Points on a tree are counted by node: the per-node error, which is never less than the exact one. Nodes that ended
    are never forecast again, so only those of the path are kept. Other points are kept for ever.
    """

    def __init__(self, norm: Norm, dim: int) -> None:
        self.norm, self.dim = norm, dim
        self.rounds = 0
        self.closed = 0.0  # of nodes that ended, or of all points where there is no tree
        self.path = np.zeros((0, dim))  # V of the path's nodes
        self.biases: dict[bytes, Array] = {}
        self.open = 0.0  # of the path's nodes
        self.last = 0  # rounds before the path's forecast

    @property
    def total(self) -> float:
        """The error of all rounds."""
        return self.closed + self.open

    def record(self, x: Forecast, outcome: Array) -> None:
        """Add a round."""
        moves = x.weights[:, None] * (outcome - x.points)
        if isinstance(x, TreeForecast):
            self._record_path(x, moves)
            return
        keys = [point.tobytes() for point in x.points + 0.0]
        if len(set(keys)) < len(keys):
            self.record(x.merged(), outcome)
            return
        nothing = np.zeros(self.dim)
        before = np.array([self.biases.get(key, nothing) for key in keys])
        after = before + moves
        closed = self.closed + (total_size(self.norm, after) - total_size(self.norm, before))
        self.biases.update(zip(keys, after, strict=True))
        self.closed, self.rounds = closed, self.rounds + 1

    def _record_path(self, x: TreeForecast, moves: Array) -> None:
        """Add a round on a tree: nodes that the path has left since the last one are closed, lowest first."""
        path, closed, ended, last, now = self.path, self.closed, 0, self.last, x.rounds
        while ended < len(path) and last != now:
            ended, last, now = ended + 1, last // x.arity, now // x.arity
        if ended:
            closed += total_size(self.norm, path[:ended])
        moves[ended : len(path)] += path[ended:]
        self.path, self.closed, self.open = moves, closed, total_size(self.norm, moves)
        self.last, self.rounds = x.rounds, self.rounds + 1

    def state(self) -> dict[str, Any]:
        """Return the state, as arrays and numbers."""
        points = np.array([np.frombuffer(key) for key in self.biases]).reshape(-1, self.dim)
        biases = np.array([*self.biases.values()]).reshape(-1, self.dim)
        numbers = {"rounds": self.rounds, "last": self.last, "closed": self.closed}
        return numbers | {"path": self.path.copy(), "points": points, "biases": biases}

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self.rounds, self.last = int(state["rounds"]), int(state["last"])
        self.closed, self.path = float(state["closed"]), np.array(state["path"])
        self.biases = {
            p.tobytes(): v for p, v in zip(np.array(state["points"]), np.array(state["biases"]), strict=True)
        }
        self.open = total_size(self.norm, self.path) if len(self.path) else 0.0


def total_size(norm: Norm, rows: Array) -> float:
    """Return the sum of the rows' norms, added in the order in which compiled code adds."""
    if isinstance(norm, Lp) and norm.p in (1, 2):
        sizes = np.add.accumulate(np.abs(rows) if norm.p == 1 else rows * rows, axis=1)[:, -1]
        sizes = sizes if norm.p == 1 else np.sqrt(sizes)
    else:
        sizes = norm(rows)
    return float(np.add.accumulate(sizes)[-1])
