"""The paper's lower bounds: errors that no forecaster can avoid.

Neither the paper nor the swap-regret lower bound it rests on (Daskalakis, Farina, Golowich, Sandholm and Zhang 2024)
gives their constant `c`, only that some small positive one exists. So `c` is an argument here, and every result depends
on the value chosen for it.
"""

from __future__ import annotations

import math

from treecal._validate import positive_number, whole_number


def log_rounds_simplex(dim: int, error: float, *, c: float) -> float:
    """Return the logarithm of a number of rounds within which ℓ1 error `error` on the simplex can be forced.

    Theorem 4.3: for every `T <= exp(c·min{d^(1/14), ε^(−1/6)})` some oblivious adversary keeps the ℓ1 calibration
    error per round of every forecaster on `Simplex(dim)` at `error` or more.

    Examples
    --------
    >>> round(log_rounds_simplex(2**14, 0.01, c=1.0), 9)
    2.0
    """
    return _log_rounds(dim, error, c, 6)


def log_rounds_ball(dim: int, error: float, *, c: float) -> float:
    """Return the same for ℓ2 error on the unit ball: `c·min{d^(1/14), ε^(−1/7)}` (Theorem D.2).

    Examples
    --------
    >>> round(log_rounds_ball(10**30, 1e-7, c=0.5), 9)
    5.0
    """
    return _log_rounds(dim, error, c, 7)


def _log_rounds(dim: int, error: float, c: float, root: int) -> float:
    dim = whole_number("dim", dim, least=1)
    error = positive_number("error", error)
    c = positive_number("c", c)
    return c * min(math.exp(math.log(dim) / 14), math.pow(error, -1 / root))
