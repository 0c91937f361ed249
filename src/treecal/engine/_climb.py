"""Walking up the tree of a whole stream, piece by piece.

A stream is cut into pieces of `arity**heights` rounds, so that each piece is one node of that height. Within a piece
all is done at once; its sum is then one leaf of the tree `Above`. So the memory needed does not depend on the length of
the stream, pieces can be worked on side by side, and what comes out depends neither on how the stream came in nor on
the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers
from treecal.engine._outcomes import Outcomes, as_array, as_float_or_class, first_refused, refuse
from treecal.engine._state import TreeForecaster, kernel_args
from treecal.forecasters._path import Path
from treecal.geometry import TOLERANCE, Simplex
from treecal.tree import Tree

_PIECE = 2**22  # numbers in a piece, at most: 32 MB
_FEW = 6  # loops over so few coordinates are written out


class Level(NamedTuple):
    """Nodes of one height, side by side, from the `start`-th on.

    `sums` are their outcome sums and `rounds` their lengths (the last may be unfinished); `parts` is the number of
    heights the tree had while a node was played, 0 for a node that never was.
    """

    height: int
    start: int
    sums: Array
    points: Array
    rounds: Integers
    parts: Integers


class Plan:
    """A tree forecaster's parameters, as kernels take them, and how streams are cut into pieces."""

    def __init__(self, forecaster: TreeForecaster) -> None:
        self.space, self.tree, self.path = forecaster.space, forecaster.tree, forecaster._path
        arity, depth = self.tree.arity, self.tree.depth
        self.heights = 1  # within a piece
        while self.heights != depth and arity ** (self.heights + 1) * self.space.dim <= _PIECE:
            self.heights += 1
        self.piece: int = arity**self.heights
        heights = np.arange(self.tree.most_heights + 1)
        self.shares = np.full(1, 1 / depth) if depth else 1 / np.maximum(heights, 1)  # of a node, by the tree's heights

    def cut(self, chunks: Iterable[Any]) -> Iterator[NDArray[Any]]:
        """Cut chunks of any sizes anew into pieces, as they come in; all but the last are whole."""
        parts: list[NDArray[Any]] = []
        held = seen = start = 0
        whole = not isinstance(chunks, Iterator)
        for chunk in chunks:
            rows = as_array(self.space, chunk, before=seen)
            seen += len(rows)
            self.tree.check(seen)
            while len(rows):
                part, rows = rows[: self.piece - held], rows[self.piece - held :]
                parts.append(part if whole else part.copy())  # an iterator may fill one buffer again and again
                held += len(part)
                if held == self.piece:
                    yield self._joined(parts, start)
                    parts, held, start = [], 0, start + self.piece
        if parts:
            yield self._joined(parts, start)

    def _joined(self, parts: list[NDArray[Any]], start: int) -> NDArray[Any]:
        if len(parts) == 1:
            return parts[0]
        if len({part.ndim for part in parts}) > 1:  # classes first, rows later
            before = start + np.cumsum([0, *map(len, parts[:-1])])
            parts = [self.dense(as_float_or_class(self.space, *p)) for p in zip(parts, before.tolist(), strict=True)]
        return np.concatenate(parts)

    def levels(self, sums: Array, rounds: int, index: int, *, lowest: int = 0) -> tuple[list[Level], Array]:
        """Return the levels within a piece, from `lowest` up, whose sums are given, and the sum of the whole piece.

        The piece has so many rounds, the first of them number `index`.
        """
        from treecal.engine._kernels import place_rows

        tree, mix = kernel_args(self.path)
        levels = []
        for height in range(lowest, self.heights):
            count, size = self.tree.arity**height, len(sums)
            points, above = np.empty_like(sums), np.empty((-(-size // self.tree.arity), sums.shape[1]))
            place_rows(sums, count, tree, mix, points, above)
            points += 0.0  # −0.0 is 0.0
            lengths = np.full(size, count)
            lengths[-1] = rounds - (size - 1) * count
            start = index // count
            levels.append(Level(height, start, sums, points, lengths, self.tree.parts(height, start, size)))
            sums = above
        return levels, sums[0]

    def dense(self, rows: Outcomes) -> Array:
        """Return outcomes as rows."""
        if rows.ndim == 2:
            return rows
        dense = np.zeros((len(rows), self.space.dim))
        dense[np.arange(len(rows)), rows] = 1.0
        return dense


class Piece(NamedTuple):
    """One piece: its outcomes, their sum, and the errors inside it, by height, the tree's heights, and norm.

    The norms are ℓ1, ℓ2 and ℓ2².
    """

    rows: Outcomes
    total: Array
    errors: Array


def climb_piece(plan: Plan, raw: NDArray[Any], index: int) -> Piece:
    """Read and check one piece, whose first round is number `index`, and climb it."""
    from treecal.engine import _kernels as kernels

    tree, mix = kernel_args(plan.path)
    rows = as_float_or_class(plan.space, raw, before=index)
    size, leaves = len(rows), kernels.Span(0, index, 1, 1)
    sizes = [-(-size // tree.arity**height) for height in range(1, plan.heights + 1)]
    nodes, errors = np.empty((sum(sizes), plan.space.dim)), np.zeros((plan.heights, len(plan.shares), 3))
    above, bad = nodes[: sizes[0]], -1
    few = (0,) * plan.space.dim if plan.space.dim <= _FEW else ()
    if rows.ndim == 1 and mix is None:
        kernels.climb_classes(rows, index, tree, above, errors[0])
    elif isinstance(plan.space, Simplex):
        if not kernels.climb(plan.dense(rows), leaves, tree, mix, TOLERANCE, above, errors[0], few):
            bad = kernels.first_off_simplex(plan.dense(rows), TOLERANCE)
    else:
        refused = first_refused(plan.space, rows)
        bad = -1 if refused is None else refused
        kernels.climb(rows, leaves, tree, mix, None, above, errors[0], few)
    if bad >= 0:
        refuse(plan.space, rows[bad], index + bad + 1)
    kernels.climb_inner(size, index, tree, mix, nodes, errors, few)
    return Piece(rows, nodes[-1].copy(), errors)  # a view would keep all nodes in memory


def inner_errors(plan: Plan, piece: Piece) -> list[list[float]]:
    """Return the per-node errors inside a piece, weighted, by norm (ℓ1, ℓ2, ℓ2²) and height."""
    weighted: list[list[float]] = np.einsum("hen,e->nh", piece.errors, plan.shares).tolist()
    return weighted


def node_errors(level: Level) -> tuple[float, float, float]:
    """Return the errors of a single node above the pieces, weighted, in ℓ1, ℓ2 and ℓ2²."""
    rounds, parts = int(level.rounds[0]), int(level.parts[0])
    if not parts:
        return 0.0, 0.0, 0.0
    gap = level.sums[0] - rounds * level.points[0]
    squares = float(gap.dot(gap))
    return float(np.abs(gap).sum()) / parts, math.sqrt(squares) / parts, squares / (rounds * parts)


class Above:
    """The heights above the pieces: the tree whose leaves are whole pieces."""

    def __init__(self, plan: Plan) -> None:
        self.plan, tree = plan, plan.tree
        heights = None if tree.depth is None else tree.depth - plan.heights
        self.top = heights == 0  # a piece is the whole tree, and nothing is above
        self.path = Path(
            plan.space, Tree(tree.arity, heights or None), mix=plan.path.mix, start=plan.path.start, unit=plan.piece
        )
        self.now = self.path.fresh()

    def open(self, total: Array, rounds: int) -> Iterator[Level]:
        """Yield the nodes that are open, lowest first, as they stand after so many rounds of the current piece."""
        if self.top:
            return
        pieces, sums, points = self.now
        plan, tree = self.plan, self.path.tree
        for step, point in enumerate(points):
            height, index = plan.heights + step, pieces // tree.arity**step
            if rounds:
                # The tree has all these heights now; only its very first node of a height was over before it grew.
                parts = plan.tree.depth or (plan.heights + len(sums) if index else 0)
                yield Level(height, index, total[None], point[None] + 0.0, np.array([rounds]), np.array([parts]))
            total = sums[step] + total
            rounds += tree.count(pieces, step) * plan.piece

    def end(self, total: Array) -> list[Level]:
        """Take the sum of a whole piece; return the nodes that end with it."""
        if self.top:
            return []
        ended = []
        for level in self.open(total, self.plan.piece):
            if level.rounds[0] < self.plan.tree.arity**level.height:
                break
            ended.append(level)
        self.now = self.path.step(self.now, total)
        return ended
