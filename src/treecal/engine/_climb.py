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

from treecal._typing import Array
from treecal.engine._outcomes import Outcomes, as_array, as_float_or_class, first_refused, refuse
from treecal.exceptions import HorizonError
from treecal.forecasters import AdaptiveTreeCal, TreeCal
from treecal.forecasters._treecal import LabelledPath
from treecal.geometry import ConvexSet, Simplex
from treecal.geometry._convex import TOLERANCE

_PIECE = 2**22  # numbers in a piece, at most: 32 MB
EPOCHS = 64  # more heights than any tree of 2^63 rounds has


class Level(NamedTuple):
    """Nodes of one height, side by side, from the `start`-th on.

    `sums` are their outcome sums and `rounds` their lengths (the last may be unfinished); `parts` is the number of
    heights the tree had while a node was played, 0 for a node that never was.
    """

    height: int
    start: int
    sums: Array
    labels: Array
    rounds: NDArray[np.int64]
    parts: NDArray[np.int64]


class Plan:
    """The tree's parameters, as kernels take them, and how streams are cut into pieces."""

    def __init__(self, forecaster: TreeCal | AdaptiveTreeCal) -> None:
        path = forecaster if isinstance(forecaster, LabelledPath) else forecaster._path
        self.space: ConvexSet = forecaster.space
        self.arity, self.depth, self.grows = forecaster.arity, forecaster.depth, forecaster.depth is None
        self.first, self.mix, self.pull, self.start = path.first, path.mix, path.pull, path.start
        self.heights = 1  # within a piece
        while self.heights != self.depth and self.arity ** (self.heights + 1) * self.space.dim <= _PIECE:
            self.heights += 1
        self.piece: int = self.arity**self.heights
        self.shares = np.array([1 / (self.depth or max(epoch, 1)) for epoch in range(EPOCHS)])  # of a node, by epoch

    def cut(self, chunks: Iterable[Any]) -> Iterator[NDArray[Any]]:
        """Cut chunks of any sizes anew into pieces, as they come in; all but the last are whole."""
        parts: list[NDArray[Any]] = []
        held = seen = start = 0
        whole = not isinstance(chunks, Iterator)
        for chunk in chunks:
            rows = as_array(self.space, chunk, before=seen)
            seen += len(rows)
            if self.depth is not None and seen > self.arity**self.depth:
                raise HorizonError(
                    f"{seen} rounds are too many: arity {self.arity} and depth {self.depth} make "
                    f"{self.arity**self.depth}.",
                    hint="a greater depth, or none at all: without depth= the tree grows as long as the stream does.",
                )
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
        from treecal.engine._kernels import label_rows

        levels = []
        for height in range(lowest, self.heights):
            count, size = self.arity**height, len(sums)
            labels, above = np.empty_like(sums), np.empty((-(-size // self.arity), sums.shape[1]))
            label_rows(sums, self.arity, count, self.first, self.mix, self.pull, labels, above)
            labels += 0.0  # −0.0 is 0.0
            lengths = np.full(size, count)
            lengths[-1] = rounds - (size - 1) * count
            start = index // count
            levels.append(Level(height, start, sums, labels, lengths, self.parts(height, start, size)))
            sums = above
        return levels, sums[0]

    def parts(self, height: int, index: int, size: int) -> NDArray[np.int64]:
        """Return how many heights the tree has when each of these nodes is played."""
        if self.depth is not None:
            return np.full(size, self.depth)
        nodes = np.arange(index, index + size)
        parts, limit = np.full(size, height + 1), self.arity
        while limit < index + size:
            parts += nodes >= limit
            limit *= self.arity
        if index == 0 and height:
            parts[0] = 0  # when the tree grew above it, it was over
        return parts

    def dense(self, rows: Outcomes) -> Array:
        """Return outcomes as rows."""
        if rows.ndim == 2:
            return rows
        dense = np.zeros((len(rows), self.space.dim))
        dense[np.arange(len(rows)), rows] = 1.0
        return dense


class Piece(NamedTuple):
    """One piece: its outcomes, their sum, and the errors inside it, by height, epoch and norm (ℓ1, ℓ2, ℓ2²)."""

    rows: Outcomes
    total: Array
    errors: Array


def climb_piece(plan: Plan, raw: NDArray[Any], index: int) -> Piece:
    """Read and check one piece, whose first round is number `index`, and climb it."""
    from treecal.engine import _kernels as kernels

    rows = as_float_or_class(plan.space, raw, before=index)
    size, tree = len(rows), (plan.arity, plan.grows, plan.first)
    sizes = [-(-size // plan.arity**height) for height in range(1, plan.heights + 1)]
    nodes, errors = np.empty((sum(sizes), plan.space.dim)), np.zeros((plan.heights, EPOCHS, 3))
    above, bad = nodes[: sizes[0]], -1
    few = (0,) * plan.space.dim if plan.space.dim <= 6 else ()  # loops of so few turns are written out
    if rows.ndim == 1 and not plan.mix:
        kernels.climb_classes(rows, index, *tree, above, errors[0])
    elif isinstance(plan.space, Simplex) and not plan.mix:
        if not kernels.climb_leaves(rows, index, *tree, TOLERANCE, above, errors[0], few):
            bad = kernels.first_off_simplex(rows, TOLERANCE)
    else:
        dense = plan.dense(rows)
        refused = first_refused(plan.space, dense)
        bad = -1 if refused is None else refused
        draw = plan.mix, plan.pull
        kernels.climb(dense, 0, index, plan.arity, 1, 1, plan.grows, plan.first, *draw, above, errors[0], few)
    if bad >= 0:
        refuse(plan.space, rows[bad], index + bad + 1)
    kernels.climb_inner(size, plan.heights, index, *tree, plan.mix, plan.pull, nodes, errors, few)
    return Piece(rows, nodes[-1].copy(), errors)  # a view would keep all nodes in memory


def inner_errors(plan: Plan, piece: Piece) -> list[list[float]]:
    """Return the labelled errors inside a piece, weighted, by norm (ℓ1, ℓ2, ℓ2²) and height."""
    weighted: list[list[float]] = np.einsum("hen,e->nh", piece.errors, plan.shares).tolist()
    return weighted


def node_errors(level: Level) -> tuple[float, float, float]:
    """Return the labelled errors of a single node above the pieces, weighted, in ℓ1, ℓ2 and ℓ2²."""
    rounds, parts = int(level.rounds[0]), int(level.parts[0])
    if not parts:
        return 0.0, 0.0, 0.0
    gap = level.sums[0] - rounds * level.labels[0]
    squares = float(gap.dot(gap))
    return float(np.abs(gap).sum()) / parts, math.sqrt(squares) / parts, squares / (rounds * parts)


class Above:
    """The heights above the pieces: the tree whose leaves are whole pieces."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        heights = None if plan.depth is None else plan.depth - plan.heights
        self.top = heights == 0  # a piece is the whole tree, and nothing is above
        self.path = LabelledPath(
            plan.space, arity=plan.arity, depth=heights or None, mix=plan.mix, start=plan.start, unit=plan.piece
        )

    def open(self, total: Array, rounds: int) -> Iterator[Level]:
        """Yield the nodes that are open, lowest first, as they stand after so many rounds of the current piece."""
        if self.top:
            return
        path, plan = self.path, self.plan
        for step, digit in enumerate(path.clock.digits):
            height, index = plan.heights + step, path.clock.rounds // plan.arity**step
            if rounds:
                # The tree has all these heights now; only its very first node of a height was over before it grew.
                parts = plan.depth or (plan.heights + len(path.sums) if index else 0)
                label = path.labels[step][None] + 0.0
                yield Level(height, index, total[None], label, np.array([rounds]), np.array([parts]))
            total = path.sums[step] + total
            rounds += digit * plan.arity**height

    def end(self, total: Array) -> list[Level]:
        """Take the sum of a whole piece; return the nodes that end with it."""
        if self.top:
            return []
        ended = []
        for level in self.open(total, self.plan.piece):
            if level.rounds[0] < self.plan.arity**level.height:
                break
            ended.append(level)
        self.path.add(total)
        return ended
