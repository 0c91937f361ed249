"""The tree of intervals, as arithmetic on round numbers: the only odometer of the package. No outcomes in here.

After `t` rounds the coming round is leaf `t`, counted from 0. The node of height `j` above it covers `arity**j` rounds
(a leaf has height 0; the paper's level is `depth − j`) and is named `(j, t // arity**j)`: the paper's digit string
`h_1…h_l` read as a number, which does not change when a tree without a horizon grows a new root.

`digits` and `carries` are plain functions of integers, so that kernels compile them as they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import overload

import numpy as np

from treecal._compile import also_compiled
from treecal._typing import Integers
from treecal._validate import whole_number
from treecal.exceptions import HorizonError, ParameterError

MOST_LEAVES = 2**63
"""The leaves of the largest tree: nodes are counted in 64 bits."""


@also_compiled
def digits(t: int, arity: int) -> int:
    """Return how many digits `t` has in base `arity`: the heights of a growing tree after `t` rounds.

    Examples
    --------
    >>> [digits(t, 2) for t in range(5)]
    [1, 1, 2, 2, 3]
    """
    count = 1
    while t >= arity:
        t //= arity
        count += 1
    return count


@also_compiled
def carries(t: int, arity: int) -> int:
    """Return how many zeros `t > 0` ends in: the t-th round is the last of the nodes up to that height, and no higher.

    Examples
    --------
    >>> [carries(t, 2) for t in range(1, 9)]
    [0, 1, 0, 2, 0, 1, 0, 3]
    """
    count = 0
    while t % arity == 0:
        t //= arity
        count += 1
    return count


@dataclass(frozen=True)
class Tree:
    """The `arity`-ary tree of intervals that rounds are the leaves of.

    Parameters
    ----------
    arity
        Children of each node (the paper's H).
    depth
        Heights below the root (the paper's L), for at most `arity**depth` rounds. Without it the tree grows: in rounds
        `arity**(m−1) <= t < arity**m` the path has `m` heights, and the old root becomes child 0 of a new one.

    Examples
    --------
    >>> tree = Tree(2)
    >>> tree.heights(5), tree.path(5).tolist()
    (3, [[0, 5], [1, 2], [2, 1]])
    >>> tree.count(5, 0), tree.count(5, 2)  # rounds in the finished siblings of a node on the path
    (1, 4)
    >>> Tree(2, depth=3).horizon
    8
    """

    arity: int
    depth: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arity", whole_number("arity", self.arity, least=2))
        if self.depth is not None:
            object.__setattr__(self, "depth", whole_number("depth", self.depth, least=1))

    @property
    def horizon(self) -> int | None:
        """The rounds that the tree has leaves for; None when it grows."""
        return None if self.depth is None else self.arity**self.depth

    @overload
    def heights(self, t: int) -> int: ...
    @overload
    def heights(self, t: Integers) -> Integers: ...
    def heights(self, t: int | Integers) -> int | Integers:
        """Return the number of heights on the path after `t` rounds."""
        if isinstance(t, np.ndarray):
            if self.depth is not None:
                return np.full(t.shape, self.depth)
            powers = [self.arity**j for j in range(1, digits(int(t.max(initial=0)), self.arity))]
            return 1 + np.searchsorted(powers, t, side="right")
        return digits(t, self.arity) if self.depth is None else self.depth

    @property
    def most_heights(self) -> int:
        """The heights of the longest path that rounds counted in 64 bits can lead to."""
        return self.depth or digits(MOST_LEAVES - 1, self.arity)

    def count(self, t: int, height: int) -> int:
        """Return the rounds in the finished siblings of the node on the path: what its point is the mean of."""
        length: int = self.arity**height
        return t // length % self.arity * length

    def path(self, t: int) -> Integers:
        """Return the nodes on the path after `t` rounds, `(height, index)` from leaf to root, as `(heights, 2)`."""
        return path_nodes(t, self.arity, self.heights(t))

    def parts(self, height: int, start: int, size: int) -> Integers:
        """Return the heights of the path while each of the nodes `start` to `start + size` of a height is played.

        A node's weight in TreeCal is the inverse. 0 for a node that never is on a path: the growing tree's first one of
        each height but the lowest, which had ended when the tree grew above it.
        """
        if self.depth is not None:
            return np.full(size, self.depth)
        parts = height + self.heights(np.arange(start, start + size))
        if start == 0 and height:
            parts[:1] = 0
        return parts

    def epochs(self, rounds: int) -> list[tuple[int, int, int]]:
        """Return the stretches of rounds with a constant number of heights, as `(begin, end, heights)`.

        Examples
        --------
        >>> Tree(4).epochs(20)
        [(0, 4, 1), (4, 16, 2), (16, 20, 3)]
        """
        if self.depth is not None:
            return [(0, rounds, self.depth)]
        edges = [0, *(self.arity**m for m in range(1, digits(max(rounds - 1, 0), self.arity))), rounds]
        return [(begin, end, m + 1) for m, (begin, end) in enumerate(pairwise(edges))]

    def check(self, rounds: int) -> None:
        """Raise unless the tree has leaves for that many rounds."""
        if self.depth is not None and rounds > self.arity**self.depth:
            raise HorizonError(
                f"round {rounds} is beyond the horizon: arity {self.arity} and depth {self.depth} make "
                f"{self.arity**self.depth} rounds.",
                hint="a greater depth, or none: a tree without a depth grows with the stream.",
            )

    def check_countable(self) -> None:
        """Raise if rounds of the whole tree could not be counted in 64 bits."""
        if self.arity >= MOST_LEAVES:
            raise ParameterError.expected("arity", self.arity, "less than 2**63: rounds are counted in 64 bits")
        # The depth alone first: the power of an absurd one would take for ever.
        if self.depth is not None and (self.depth > 63 or self.arity**self.depth > MOST_LEAVES):
            most = digits(MOST_LEAVES, self.arity) - 1
            raise ParameterError.expected(
                "depth",
                self.depth,
                f"at most {most} for arity {self.arity}: rounds are counted in 64 bits",
                hint="a tree without a depth grows as long as the stream does.",
            )


def path_nodes(t: int, arity: int, heights: int) -> Integers:
    """Return the nodes on a path after `t` rounds, as `Tree.path` does, given its heights.

    Examples
    --------
    >>> path_nodes(5, arity=2, heights=3).tolist()
    [[0, 5], [1, 2], [2, 1]]
    """
    path, lengths = _heights(arity, heights)
    nodes = path.copy()
    nodes[:, 1] = t // lengths
    nodes.setflags(write=False)
    return nodes


@lru_cache(maxsize=64)
def _heights(arity: int, count: int) -> tuple[Integers, Integers]:
    """Return the rows (height, 0) for `count` heights, and the rounds that a node of each height covers."""
    lengths = np.array([arity**height for height in range(count)])
    return np.column_stack([np.arange(count), np.zeros(count, np.int64)]), lengths
