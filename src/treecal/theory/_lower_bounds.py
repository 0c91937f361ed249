"""What no forecaster can do: the paper's lower bounds, as far as they are numbers.

Their constant `c` is not given in the paper, nor in the swap-regret lower bound they rest on (Daskalakis, Farina,
Golowich, Sandholm and Zhang 2024): only that some small positive one exists. So `c` is an argument here, and a figure
that comes out is a statement about its value, not about the world.
"""

from __future__ import annotations

import math

import numpy as np

from treecal._validate import whole_number
from treecal.exceptions import ParameterError


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
    for name, value in (("error", error), ("c", c)):
        if not (isinstance(value, int | float | np.number) and 0 < value < math.inf):
            raise ParameterError.expected(name, value, "a positive number")
    return c * min(math.exp(math.log(dim) / 14), math.pow(error, -1 / root))
