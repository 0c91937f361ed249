"""The H-ary clock: which intervals of the tree start and end in a round. No outcomes in here.

A node of height `j` covers `arity**j` rounds (a leaf has height 0; the paper's level is `depth − j`), and is named by
`(height, index)`: the `index`-th interval of that length, counted from the first round. That name is the paper's digit
string `h_1…h_l` read as a number, and does not change when a tree without a horizon grows a new root.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from treecal._typing import Integers
from treecal._validate import whole_number
from treecal.exceptions import HorizonError


class Clock:
    """An odometer over the rounds: one digit for each height on the path from the root to the current leaf.

    Parameters
    ----------
    arity
        Children of each node (the paper's H).
    depth
        Heights below the root (the paper's L), for at most `arity**depth` rounds. Without it the tree grows: in rounds
        `arity**(m−1) <= t − 1 < arity**m` the path has `m` heights, and the old root becomes child 0 of a new one.

    Examples
    --------
    >>> clock = Clock(2, depth=3)
    >>> [clock.tick() for _ in range(7)]
    [0, 1, 0, 2, 0, 1, 0]
    >>> clock.digits, clock.nodes().tolist()
    ([1, 1, 1], [[0, 7], [1, 3], [2, 1]])
    """

    __slots__ = ("arity", "depth", "digits", "powers", "rounds")

    def __init__(self, arity: int, depth: int | None = None) -> None:
        self.arity = whole_number("arity", arity, least=2)
        self.depth = None if depth is None else whole_number("depth", depth, least=1)
        self.seek(0)

    @property
    def height(self) -> int:
        """Number of heights on the path now."""
        return len(self.digits)

    @property
    def horizon(self) -> int | None:
        """The number of rounds the tree has leaves for; None when it grows."""
        return None if self.depth is None else self.arity**self.depth

    def seek(self, rounds: int) -> None:
        """Set the clock to the moment after `rounds` rounds."""
        self.rounds = rounds
        self.digits: list[int] = []
        while len(self.digits) < (self.depth or 1) or (self.depth is None and rounds):
            rounds, digit = divmod(rounds, self.arity)
            self.digits.append(digit)
        self.powers = [self.arity**j for j in range(len(self.digits))]

    def check(self) -> None:
        """Raise if the tree has no leaf for another round."""
        if self.depth is not None and self.rounds >= self.arity**self.depth:
            raise HorizonError(
                f"round {self.rounds + 1} is one too many: arity {self.arity} and depth {self.depth} make "
                f"{self.arity**self.depth} rounds.",
                hint="a greater depth, or none at all: without depth= the tree grows as long as the stream does.",
            )

    def tick(self) -> int:
        """Pass one round; return the height whose digit rose.

        The nodes on the path up to that height have ended, and new ones of the same heights start: first children
        (digit 0) below it, and a later child at it. It equals `height` when the last round of a fixed tree ends.
        """
        self.rounds += 1
        digits, arity = self.digits, self.arity
        for height, digit in enumerate(digits):
            if digit + 1 < arity:
                digits[height] = digit + 1
                return height
            digits[height] = 0
        if self.depth is None:
            digits.append(1)
            self.powers.append(self.powers[-1] * arity)
            return len(digits) - 1
        return len(digits)

    def nodes(self) -> Integers:
        """Return the nodes on the path, `(height, index)` from leaf to root, as an `(n, 2)` integer array."""
        return path_nodes(self.rounds, self.arity, len(self.digits))


def path_nodes(rounds: int, arity: int, height: int) -> Integers:
    """Return the nodes on a path of so many heights, after so many rounds, as `Clock.nodes` does."""
    path, powers = _heights(arity, height)
    nodes = path.copy()
    nodes[:, 1] = rounds // powers
    nodes.setflags(write=False)
    return nodes


@lru_cache(maxsize=64)
def _heights(arity: int, count: int) -> tuple[Integers, Integers]:
    """Return so many rows (height, 0), and the rounds that a node of each height covers, as far as int64 counts."""
    powers = np.array([min(arity**height, 2**63 - 1) for height in range(count)])
    return np.column_stack([np.arange(count), np.zeros(count, np.int64)]), powers
