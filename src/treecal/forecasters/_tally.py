"""Tally: the total calibration error of a sequence of rounds, kept up to date round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal._states import Entries, check_array, check_count, check_names, check_number
from treecal._typing import Array, Saved
from treecal.exceptions import SnapshotError
from treecal.forecast import Forecast, TreeForecast
from treecal.geometry import ConvexSet, Lp, Norm

_MOST = float(np.finfo(np.float64).max)


Biases = Entries[bytes, tuple[Array, float]]
"""`V` of points and its norm, by the points' bytes."""


class Tally(NamedTuple):
    """The sum over all forecast points `p` of `‖V_p‖`, where `V_p` adds up `x(p)·(y − p)` over the rounds.

    Points on a tree are counted by node: the per-node error, which is never less than the exact one. Nodes that ended
    are never forecast again, so only those of the path are kept. Other points are kept for ever.
    """

    norm: Norm
    path: Array
    """`V` of the path's nodes, `(heights, d)`."""
    places: Array
    """Their points, `(heights, d)`."""
    biases: Biases
    """Those of other points."""
    rounds: int = 0
    last: int = 0
    """Rounds before the path's forecast."""
    closed: float = 0.0
    """The error of nodes that ended and of points that are on no tree."""
    sizes: Sequence[float] = ()
    """The error of each of the path's nodes."""
    open: float = 0.0
    """That of all of them."""

    @classmethod
    def empty(cls, norm: Norm, dim: int) -> Tally:
        """Return the tally of no rounds."""
        none = np.zeros((0, dim))
        return cls(norm, none, none, Biases())

    @property
    def total(self) -> float:
        """The error of all rounds."""
        return self.closed + self.open

    def after(self, x: Forecast, outcome: Array) -> Tally:
        """Return the tally of one more round."""
        if isinstance(x, TreeForecast):
            return self._along(x, outcome)
        known, before, after = self.biases.read(), 0.0, 0.0
        change: dict[bytes, tuple[Array, float]] = {}
        for point, weight in zip(x._points + 0.0, x._weights.tolist(), strict=True):  # so that 0 has one sign
            key, bias = point.tobytes(), outcome - point
            if key in change:
                return self.after(x.merged(), outcome)
            if weight != 1:
                bias *= weight
            if key in known:
                so_far, size = known[key]
                bias, before = so_far + bias, before + size
            size = _norms(self.norm, bias).item()
            change[key] = bias, size
            after += size
        biases, closed = self.biases.after(change), self.closed + (after - before)
        return Tally(
            self.norm, self.path, self.places, biases, self.rounds + 1, self.last, closed, self.sizes, self.open
        )

    def _along(self, x: TreeForecast, outcome: Array) -> Tally:
        """Return the tally of one more round on a tree: nodes that the path has left are closed, lowest first."""
        moves = outcome - x._points
        moves *= x._weights[:, None]
        path, ended, last, now, points = self.path, 0, self.last, x.rounds, x._points
        while ended < len(path) and last != now:
            ended, last, now = ended + 1, last // x.arity, now // x.arity
        kept = path[ended:]
        if self.places[ended:].tobytes() != points[ended : len(path)].tobytes():
            # A node has one point as long as it lasts, so this is another tree.
            ended, kept = len(path), path[:0]
        closed = self.closed + _added(self.sizes[:ended]) if ended else self.closed
        if len(kept):
            lasting = moves[ended : len(path)]
            lasting += kept
        sizes, rounds = _norms(self.norm, moves).tolist(), self.rounds + 1
        return Tally(self.norm, moves, points, self.biases, rounds, x.rounds, closed, sizes, _added(sizes))

    def named(self, points: Array, biases: Array) -> Biases:
        """Return biases and their norms by the bytes of their points."""
        named = {}
        for point, bias in zip(points + 0.0, biases.copy(), strict=True):
            named[point.tobytes()] = bias, float(_norms(self.norm, bias))
        return Biases(named)

    def get_state(self) -> Saved:
        """Return the state, as arrays and numbers."""
        biases, dim = self.biases.read(), self.path.shape[1]
        points = np.array([np.frombuffer(key) for key in biases]).reshape(-1, dim)
        numbers = {"rounds": self.rounds, "last": self.last, "closed": self.closed}
        return numbers | {
            "path": self.path.copy(),
            "places": self.places.copy(),
            "points": points,
            "biases": np.array([bias for bias, _ in biases.values()]).reshape(-1, dim),
        }

    def resumed(self, state: Any, space: ConvexSet) -> Tally:
        """Return the tally of such a state, once it is found to be valid."""
        check_names("a tally", state, ("rounds", "last", "closed", "path", "places", "points", "biases"))
        rounds, path, points, biases = (state[name] for name in ("rounds", "path", "points", "biases"))
        check_count("a tally's rounds", rounds)
        check_count("a tally's last round", state["last"])
        check_number("a tally's error", state["closed"], least=-_MOST, most=_MOST)
        heights, known = np.shape(path)[0] if np.ndim(path) else 0, np.shape(points)[0] if np.ndim(points) else 0
        check_array("a tally's path", path, (heights, space.dim))
        check_array("a tally's places", state["places"], (heights, space.dim))
        check_array("a tally's points", points, (known, space.dim))
        check_array("a tally's biases", biases, (known, space.dim))
        named = self.named(points, biases)
        if len(named.read()) < known:
            raise SnapshotError("a point of a tally appears twice.")
        last, closed = int(state["last"]), float(state["closed"])
        sizes = _norms(self.norm, path).tolist() if len(path) else ()
        places = state["places"].copy()
        return Tally(self.norm, path.copy(), places, named, int(rounds), last, closed, sizes, _added(sizes))


def _norms(norm: Norm, vectors: Array) -> Array:
    """Return the norm of a vector, or of each row, added from left to right as in compiled code."""
    if not (isinstance(norm, Lp) and norm.p in (1, 2)):
        return np.asarray(norm(vectors))
    if norm.p == 1:
        return np.asarray(np.add.accumulate(np.abs(vectors), -1)[..., -1])
    return np.asarray(np.sqrt(np.add.accumulate(vectors * vectors, axis=-1)[..., -1]))


def _added(sizes: Sequence[float]) -> float:
    """Return the sum, from left to right: Python's own adds in another way since 3.12."""
    total = 0.0
    for size in sizes:
        total += size
    return total
