"""Climbing the tree of a whole stream, piece by piece.

A stream is cut into pieces of `arity**heights` rounds, so that each piece is one node of that height. Within a piece
all nodes are computed at once; its sum is then one leaf of the tree `Above`. So memory does not depend on the length of
the stream, pieces can be climbed in parallel, and results depend neither on how the stream was chunked nor on the
number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers, Outcomes
from treecal.engine._outcomes import as_array, as_float_or_class, as_leaves, first_refused, refuse
from treecal.exceptions import ParameterError
from treecal.forecasters import (
    AdaptiveState,
    AdaptiveTreeCal,
    Costs,
    Path,
    TreeCal,
    Weighed,
    climb,
    kernel_args,
    node_costs,
    place_rows,
    weigh_piece,
)
from treecal.geometry import TOLERANCE, ConvexSet, Distance, Simplex, l1, l2
from treecal.tree import Tree

_PIECE = 2**22  # numbers in a piece, at most: 32 MB
_MANY = 10_000  # terms of a sum that are kept
KERNEL_DISTANCES: tuple[Distance, ...] = (l1, l2, l2.squared)
"""What kernels measure errors in on their way up."""

TreeForecaster = TreeCal | AdaptiveTreeCal
"""What can be replayed on the tree."""


def new_tree_forecaster(forecaster: ConvexSet | TreeForecaster) -> TreeForecaster:
    """Return the forecaster if it is new and on the tree; for a set, TreeCal on it."""
    if isinstance(forecaster, ConvexSet):
        return TreeCal(forecaster)
    if type(forecaster) not in (TreeCal, AdaptiveTreeCal):
        raise ParameterError.expected("forecaster", forecaster, "a set, a TreeCal or an AdaptiveTreeCal")
    if forecaster.rounds:
        raise ParameterError.expected("forecaster", forecaster, "a new one", hint="this one has seen outcomes.")
    return forecaster


def new_treecal(forecaster: ConvexSet | TreeCal) -> TreeCal:
    """Return the forecaster if it is a new TreeCal; for a set, TreeCal on it."""
    if not isinstance(forecaster, ConvexSet) and type(forecaster) is not TreeCal:
        raise ParameterError.expected("forecaster", forecaster, "a set or a TreeCal", hint="tc.replay takes others.")
    found = new_tree_forecaster(forecaster)
    assert isinstance(found, TreeCal)
    return found


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
        self.space = forecaster.space
        self.tree = forecaster.tree
        self.path = forecaster._path
        arity = self.tree.arity
        depth = self.tree.depth
        self.heights = 1  # within a piece
        while self.heights != depth and arity ** (self.heights + 1) * self.space.dim <= _PIECE:
            self.heights += 1
        self.piece: int = arity**self.heights
        heights = np.arange(self.tree.most_heights + 1)
        self.shares = np.full(1, 1 / depth) if depth else 1 / np.maximum(heights, 1)  # of a node, by the tree's heights

    def cut(self, chunks: Iterable[Any]) -> Iterator[NDArray[Any]]:
        """Cut chunks of any sizes into pieces, as they arrive; all but the last are whole."""
        parts: list[NDArray[Any]] = []
        held = seen = start = 0
        whole = not isinstance(chunks, Iterator)
        for chunk in chunks:
            rows = as_array(self.space, chunk, before=seen)
            seen += len(rows)
            self.tree.check(seen)
            while len(rows):
                part = rows[: self.piece - held]
                rows = rows[self.piece - held :]
                parts.append(part if whole else part.copy())  # an iterator may reuse one buffer
                held += len(part)
                if held == self.piece:
                    yield self._joined(parts, start)
                    parts = []
                    held = 0
                    start += self.piece
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
        """Return the levels within a piece, from `lowest` up, whose sums are given, and the sum of the piece.

        `rounds` are the piece's, the first of them number `index`.
        """
        tree, mix = kernel_args(self.path)
        levels = []
        for height in range(lowest, self.heights):
            count = self.tree.arity**height
            size = len(sums)
            points = np.empty_like(sums)
            above = np.empty((-(-size // self.tree.arity), sums.shape[1]))
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
    """One piece: its outcomes as given, their sum, and the weighted errors in it, by kernel distance and height."""

    raw: NDArray[Any]
    total: Array
    errors: list[list[float]]


def climb_piece(plan: Plan, raw: NDArray[Any], index: int) -> Piece:
    """Read and check one piece, whose first round is number `index`, and climb it."""
    tol = TOLERANCE
    if isinstance(plan.space, Simplex):
        dense = plan.path.mix and raw.ndim == 1
        leaves = plan.dense(as_float_or_class(plan.space, raw, before=index)) if dense else as_leaves(raw)
    else:
        tol = math.inf
        leaves = as_leaves(as_float_or_class(plan.space, raw, before=index))
        if (out := first_refused(plan.space, leaves)) is not None:
            refuse(plan.space, leaves[out], index + out + 1)
    total = np.empty(plan.space.dim)
    errors = np.zeros((plan.heights, len(plan.shares), 3))
    bad = climb(plan.path, leaves, index, tol, total, errors)
    if bad >= 0:
        refuse(plan.space, raw[bad], index + bad + 1)
    return Piece(raw, total, np.einsum("hen,e->nh", errors, plan.shares).tolist())


class Errors:
    """Per-node errors, summed without rounding in between: in the kernels' distances and in others."""

    def __init__(self, others: tuple[Distance, ...] = (), *, kernels: bool = True) -> None:
        self._others = others
        self._terms: dict[Distance, list[float]] = {d: [] for d in KERNEL_DISTANCES * kernels + others}

    def add_piece(self, errors: Iterable[Iterable[float]]) -> None:
        """Add the errors inside a piece, which kernels have measured."""
        for distance, terms in zip(KERNEL_DISTANCES, errors, strict=True):
            self._add(distance, terms)

    def add_node(self, level: Level) -> None:
        """Add the error of a single node above the pieces, in the kernels' distances."""
        rounds = int(level.rounds[0])
        parts = int(level.parts[0])
        if parts:
            gap = level.sums[0] - rounds * level.points[0]
            squares = float(gap.dot(gap))
            self.add_piece([[np.abs(gap).sum() / parts], [math.sqrt(squares) / parts], [squares / (rounds * parts)]])

    def add_level(self, level: Level, weights: Array) -> None:
        """Add weight times rounds times distance, over the nodes of a level, in the other distances."""
        played = weights > 0
        rounds = level.rounds[played]
        points = level.points[played]
        means = level.sums[played] / rounds[:, None]
        for distance in self._others:
            self._add(distance, [math.fsum(weights[played] * rounds * distance.between(means, points))])

    def _add(self, distance: Distance, terms: Iterable[float]) -> None:
        kept = self._terms[distance]
        kept += terms
        if len(kept) >= _MANY:
            total = math.fsum(kept)
            kept[:] = (total, math.fsum([*kept, -total])) if math.isfinite(total) else (total,)

    def totals(self) -> dict[Distance, float]:
        """Return the sum for each distance."""
        return {distance: math.fsum(terms) for distance, terms in self._terms.items()}


class Above:
    """The heights above the pieces: the tree whose leaves are whole pieces."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        tree = plan.tree
        heights = None if tree.depth is None else tree.depth - plan.heights
        self.top = heights == 0  # a piece is the whole tree, and nothing is above
        self.path = Path(
            plan.space, Tree(tree.arity, heights or None), mix=plan.path.mix, start=plan.path.start, unit=plan.piece
        )
        self.now = self.path.fresh()
        self._nothing = np.zeros(plan.space.dim), 0
        self._part = self._nothing  # sum and rounds of an unfinished piece

    def open(self) -> Iterator[Level]:
        """Yield the nodes that are open, lowest first."""
        if self.top:
            return
        (pieces, sums, points), (total, rounds) = self.now, self._part
        plan = self.plan
        tree = self.path.tree
        for step, point in enumerate(points):
            height = plan.heights + step
            index = pieces // tree.arity**step
            if rounds:
                # The tree has all these heights now; only its very first node of a height ended before it grew.
                parts = plan.tree.depth or (plan.heights + len(sums) if index else 0)
                yield Level(height, index, total[None], point[None] + 0.0, np.array([rounds]), np.array([parts]))
            total = sums[step] + total
            rounds += tree.count(pieces, step) * plan.piece

    def add(self, total: Array, rounds: int) -> list[Level]:
        """Add a piece's sum; return the nodes that end with it. Only the last piece may have fewer rounds."""
        self._part = total, rounds
        if self.top or rounds < self.plan.piece:
            return []
        arity = self.plan.tree.arity
        ended = list(takewhile(lambda level: level.rounds[0] == arity**level.height, self.open()))
        self.now = self.path.step(self.now, total)
        self._part = self._nothing
        return ended


class WeightsAt(NamedTuple):
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
        self.states = [WeightsAt(0, float(fresh.scale[0]), costs, weights)]  # at the start of each piece, and now

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
        self.states.append(WeightsAt(state.rounds + len(inner[0]), scale, costs, weights))
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
