"""Harmonic's certificate in the unit ball, tabulated: `python -m treecal.theory._harmonic` computes the table."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from functools import lru_cache

from treecal.theory._spectral import Replay, spectral_certificate

_AT: tuple[int, ...] = (*range(1, 33), *(math.ceil(2 ** (k / 4)) for k in range(21, 81)))
# fmt: off
_BOUNDS = (
    1.00000, 1.50000, 1.40322, 1.32641, 1.26069, 1.20656, 1.16085, 1.12207, 1.08876, 1.05984, 1.03416, 1.01141,
    0.99090, 0.97247, 0.95575, 0.94040, 0.92600, 0.91281, 0.90064, 0.88927, 0.87864, 0.86867, 0.85931, 0.85046,
    0.84208, 0.83416, 0.82667, 0.81952, 0.81270, 0.80617, 0.79999, 0.79406, 0.75933, 0.73158, 0.70624, 0.68103,
    0.65533, 0.63365, 0.61316, 0.59383, 0.57459, 0.55733, 0.54136, 0.52628, 0.51229, 0.49873, 0.48599, 0.47406,
    0.46290, 0.45173, 0.44180, 0.43208, 0.42268, 0.41420, 0.40581, 0.39786, 0.38932, 0.38206, 0.37513, 0.36784,
    0.36136, 0.35535, 0.34907, 0.34300, 0.33794, 0.33156, 0.32674, 0.32100, 0.31614, 0.31179, 0.30667, 0.30241,
    0.29767, 0.29379, 0.28974, 0.28533, 0.28132, 0.27914, 0.27408, 0.27100, 0.26704, 0.26349, 0.26036, 0.25699,
    0.25406, 0.25035, 0.24818, 0.24526, 0.24211, 0.23889, 0.23650, 0.23369,
)
# fmt: on
"""The spectral certificate after so many rounds, rounded up; from the 33rd on a thousandth more."""
_MORE = 1.001
TABULATED = _AT[-1]
"""Rounds up to which the certificate is tabulated."""


def unit_total(rounds: int) -> float:
    """Return a bound on Harmonic's total ℓ2 error in the unit ball, in any dimension, up to `TABULATED` rounds.

    Between two entries of the table it is the line through both: the total grows with the rounds, ever more slowly, and
    the thousandth covers how far it bends. That it does so is computed, not proven: for all entries, and by tests for
    some numbers of rounds between them.

    Examples
    --------
    >>> round(unit_total(1000) / 1000, 2), round(unit_total(10**5) / 10**5, 2)
    (0.43, 0.28)
    """
    later = bisect_left(_AT, rounds)
    most = _AT[later] * _BOUNDS[later]
    if _AT[later] == rounds:
        return most
    least = _AT[later - 1] * _BOUNDS[later - 1]
    return least + (rounds - _AT[later - 1]) / (_AT[later] - _AT[later - 1]) * (most - least)


@lru_cache(maxsize=1024)
def blocks_total(rounds: int, block: int) -> float:
    """Return the same for Harmonic that starts anew after every `block` rounds.

    It grows by at least the rate of a whole block in every round.
    """
    rate = unit_total(block) / block
    last = min(rounds, block)
    shorter = (*_AT[: bisect_left(_AT, last)], last)  # the line in between bends nowhere else
    return rate * rounds + max(unit_total(each) - rate * each for each in shorter)


def tabulate(rounds: int) -> float:
    """Return an entry of the table, computed anew: in minutes at a million rounds."""
    bound = spectral_certificate(Replay.harmonic(rounds)).bound * (_MORE if rounds > 32 else 1.0)
    return math.ceil(bound * 1e5 - 1e-6) / 1e5


if __name__ == "__main__":
    for each in _AT:
        sys.stdout.write(f"{tabulate(each):.5f},  # {each:,} rounds\n")
        sys.stdout.flush()
