"""The paper transcribed literally, in exact rationals, with no thought of speed.

Line numbers in comments are those of the paper's algorithms. Nothing here is shared with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

Point = tuple[Fraction, ...]
Node = tuple[int, int]
Mixture = list[tuple[Node, Point, Fraction]]  # (height, index of the interval), point, weight


def mean(points: Sequence[Point]) -> Point:
    return tuple(sum(column, Fraction(0)) / len(points) for column in zip(*points, strict=True))


def digits(number: int, base: int, length: int) -> list[int]:
    """The base-`base` representation h_1 … h_length of `number`, most significant first."""
    return [number // base ** (length - 1 - i) % base for i in range(length)]


def treecal(outcomes: Sequence[Point], H: int, L: int, start: Point) -> list[Mixture]:
    """Algorithm 1. Returns x_1 … x_T."""
    T = len(outcomes)
    assert T <= H**L
    p: dict[tuple[int, ...], Point] = {}
    nu: dict[tuple[int, ...], Point] = {}
    played = []
    for t in range(1, T + 1):
        h = digits(t - 1, H, L)
        for level in range(1, L + 1):
            k = tuple(h[: level - 1])
            h_l = h[level - 1]
            if all(later == 0 for later in h[level:]) or level == L:
                if h_l > 0:  # line 6
                    gamma = [s for s in range(1, t) if tuple(digits(s - 1, H, L)[:level]) == (*k, h_l - 1)]
                    assert len(gamma) == H ** (L - level)
                    nu[(*k, h_l - 1)] = mean([outcomes[s - 1] for s in gamma])
                p[(*k, h_l)] = mean([nu[(*k, i)] for i in range(h_l)]) if h_l > 0 else start  # line 7
        path = []
        for level in range(1, L + 1):
            prefix = tuple(h[:level])
            index = sum(digit * H ** (level - 1 - i) for i, digit in enumerate(prefix))
            path.append(((L - level, index), p[prefix], Fraction(1, L)))
        played.append(path)
    return played


def sample_treecal(
    outcomes: Sequence[Point], H: int, L: int, S: int, start: Point, draw: Callable[[Mixture], int]
) -> list[tuple[Node, Point]]:
    """Algorithm 3, with the draws from outside. Returns the pure forecasts p_1 … p_T."""
    T = len(outcomes)
    assert T % S == 0
    block_means = [mean(outcomes[i * S : (i + 1) * S]) for i in range(T // S)]
    pure = []
    for x in treecal(block_means, H, L, start):
        for _ in range(S):
            node, point, _weight = x[draw(x)]
            pure.append((node, point))
    return pure


def growing(outcomes: Sequence[Point], H: int, start: Point) -> list[Mixture]:
    """TreeCal without a horizon, from its definition: in rounds H^(m−1) <= t − 1 < H^m the path has m heights."""
    played = []
    for t in range(1, len(outcomes) + 1):
        m = 1
        while t - 1 >= H**m:
            m += 1
        path = []
        for height in range(m):
            index = (t - 1) // H**height
            begins = index * H**height
            parent_begins = (t - 1) // H ** (height + 1) * H ** (height + 1)
            seen = outcomes[parent_begins:begins]
            path.append(((height, index), mean(seen) if seen else start, Fraction(1, m)))
        played.append(path)
    return played


def calibration(
    played: Sequence[Mixture],
    outcomes: Sequence[Point],
    distance: Callable[[Point, Point], Fraction],
    *,
    per_node: bool = False,
) -> Fraction:
    """Cal^D: Σ_p (Σ_t x_t(p)) · D(ν_p, p), over points, or over points with their labels."""
    mass: dict[object, Fraction] = {}
    total: dict[object, list[Fraction]] = {}
    where: dict[object, Point] = {}
    for x, y in zip(played, outcomes, strict=True):
        for node, point, weight in x:
            key: object = (point, node) if per_node else point
            where[key] = point
            mass[key] = mass.get(key, Fraction(0)) + weight
            before = total.get(key, [Fraction(0)] * len(y))
            total[key] = [a + weight * b for a, b in zip(before, y, strict=True)]
    error = Fraction(0)
    for name, m in mass.items():
        nu = tuple(entry / m for entry in total[name])
        error += m * distance(nu, where[name])
    return error


def one_norm(a: Point, b: Point) -> Fraction:
    return sum((abs(x - y) for x, y in zip(a, b, strict=True)), Fraction(0))


def squared_two_norm(a: Point, b: Point) -> Fraction:
    return sum(((x - y) ** 2 for x, y in zip(a, b, strict=True)), Fraction(0))
