"""Algorithm 2 (TreeSwap) transcribed literally, in plain Python, with no thought of speed.

A learner is a function from the list of losses it has seen to its next play. Nothing here is shared with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Vector = tuple[float, ...]
Alg = Callable[[list[Vector]], Vector]
Path = list[tuple[tuple[int, int], Vector]]  # (height, index of the interval) and play, the leaf first


def average(losses: Sequence[Vector]) -> Vector:
    return tuple(math.fsum(column) / len(losses) for column in zip(*losses, strict=True))


def hedge(n: int, rate: Callable[[int], float]) -> Alg:
    """Exponential weights: in its h-th step with the rate for step h."""

    def play(losses: list[Vector]) -> Vector:
        eta = rate(len(losses) + 1)
        weights = [math.exp(-eta * math.fsum(loss[i] for loss in losses)) for i in range(n)]
        return tuple(w / math.fsum(weights) for w in weights)

    return play


def digits(number: int, base: int, length: int) -> list[int]:
    return [number // base ** (length - 1 - i) % base for i in range(length)]


def treeswap(losses: Sequence[Vector], H: int, L: int, alg: Alg) -> list[Path]:
    """Algorithm 2, line by line. Returns the labelled plays of every round."""
    T = len(losses)
    assert T <= H**L
    ell: dict[tuple[int, ...], Vector] = {}
    p: dict[tuple[int, ...], Vector] = {}
    played = []
    for t in range(1, T + 1):
        h = digits(t - 1, H, L)  # line 3
        for level in range(1, L + 1):
            k, h_l = tuple(h[: level - 1]), h[level - 1]
            if all(later == 0 for later in h[level:]) or level == L:  # line 6
                if h_l > 0:  # line 7
                    gamma = [s for s in range(1, t) if tuple(digits(s - 1, H, L)[:level]) == (*k, h_l - 1)]
                    assert len(gamma) == H ** (L - level)
                    ell[(*k, h_l - 1)] = average([losses[s - 1] for s in gamma])
                p[(*k, h_l)] = alg([ell[(*k, i)] for i in range(h_l)])  # line 8
        path = []
        for level in range(L, 0, -1):
            prefix = tuple(h[:level])
            index = sum(digit * H ** (level - 1 - i) for i, digit in enumerate(prefix))
            path.append(((L - level, index), p[prefix]))
        played.append(path)
    return played


def growing(losses: Sequence[Vector], H: int, alg: Alg) -> list[Path]:
    """TreeSwap without a horizon, from its definition: in rounds H^(m−1) <= t − 1 < H^m the path has m heights."""
    played = []
    for t in range(1, len(losses) + 1):
        m = 1
        while t - 1 >= H**m:
            m += 1
        path = []
        for height in range(m):
            size = H**height
            index = (t - 1) // size
            first = index - index % H
            seen = [average(losses[child * size : (child + 1) * size]) for child in range(first, index)]
            path.append(((height, index), alg(seen)))
        played.append(path)
    return played
