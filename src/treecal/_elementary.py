"""`exp`, `log` and what follows from them, with the same bits on every processor.

NumPy's and the C library's differ in the last bit from one kind of processor to another, and a forecast that was made
on one could not be compared, bit for bit, with what another makes of the same outcomes. These are sums, products and
one division, in an order that Python, NumPy and Numba (without fast-math) all keep, and powers of two, which are exact.
They are plain functions of a float: kernels compile them as they stand.

The reduction to a small argument is Cody and Waite's (*Software Manual for the Elementary Functions*, 1980). Errors are
below 0.7 units in the last place for `exp` and 0.9 for `log` (`tests/test_elementary.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from treecal._compile import also_compiled, strict
from treecal._typing import Array

LN2 = 0.6931471805599453
"""`ln 2`."""
_LN2_HIGH = 0.6931471803691238  # 32 bits of ln 2: its multiples by up to 2^21 are exact
_LN2_LOW = 1.9082149292705877e-10
_PER_LN2 = 1.4426950408889634
_SQRT_HALF = 0.7071067811865476
_LEAST = -744.0
_MOST = 709.4
_POWERS = np.ldexp(1.0, np.arange(-1074, 1024))  # of 2; looking one up lets compilers take eight numbers at once


@also_compiled
def exp(x: float) -> float:
    """Return `e^x`, 0 below −744 and infinity above 709.4.

    Examples
    --------
    >>> exp(0.0), exp(1.0), exp(-1000.0), exp(1000.0)
    (1.0, 2.718281828459045, 0.0, inf)
    """
    if not _LEAST < x < _MOST:
        return math.inf if x > 0.0 else 0.0
    k = int(x * _PER_LN2 + 1100.5) - 1100  # the nearest whole number: `int` rounds towards 0
    high = x - k * _LN2_HIGH
    low = k * _LN2_LOW
    r = high - low
    whole = 1.0 + r
    lost = (r - (whole - 1.0)) + ((high - r) - low)  # by the roundings of the last sum and of r
    return float(whole + (lost + _beyond(r))) * float(_POWERS[k + 1074])


@also_compiled
def expm1(x: float) -> float:
    """Return `e^x − 1`, precise near 0.

    Examples
    --------
    >>> expm1(1e-20), expm1(1.0) == exp(1.0) - 1
    (1e-20, True)
    """
    return x + _beyond(x) if abs(x) < 0.34 else exp(x) - 1.0


@also_compiled
def _beyond(r: float) -> float:
    """Return `e^r − 1 − r` for `|r| < 0.35`, by its series up to `r^14/14!`, in independent parts."""
    z = r * r
    first = (1 / 2 + r * (1 / 6)) + z * (1 / 24 + r * (1 / 120))
    second = (1 / 720 + r * (1 / 5040)) + z * (1 / 40320 + r * (1 / 362880))
    third = (1 / 3628800 + r * (1 / 39916800)) + z * ((1 / 479001600 + r * (1 / 6227020800)) + z * (1 / 87178291200))
    return z * (first + (z * z) * (second + (z * z) * third))


@also_compiled
def log(x: float) -> float:
    """Return the natural logarithm of a number above 0.

    With `x = 2^k·(1 + f)` and `s = f/(2 + f)`, `ln(1 + f) = 2·artanh(s) = f − s·f + 2s·(s²/3 + s⁴/5 + …)`.

    Examples
    --------
    >>> log(1.0), log(math.e), log(5e-324) > -745
    (0.0, 1.0, True)
    """
    m, k = math.frexp(x)
    if m < _SQRT_HALF:
        m = 2.0 * m
        k = k - 1
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    first = (2 / 3 + z * (2 / 5)) + w * (2 / 7 + z * (2 / 9))
    second = (2 / 11 + z * (2 / 13)) + w * (2 / 15 + z * (2 / 17))
    third = (2 / 19 + z * (2 / 21)) + w * (2 / 23)
    series = z * (first + (w * w) * (second + (w * w) * third))
    half = 0.5 * f * f  # s·f is f²/2 − s·f²/2, of which only the small part is rounded
    return k * _LN2_HIGH - ((half - (s * (half + series) + k * _LN2_LOW)) - f)


@also_compiled
def power(base: float, exponent: float) -> float:
    """Return `base^exponent` for a base from 0 to 1 and an exponent above 0.

    Examples
    --------
    >>> power(1.0, 3.5), power(0.0, 2.0), power(0.25, 0.5)
    (1.0, 0.0, 0.5)
    """
    return exp(exponent * log(base)) if base > 0.0 else 0.0


@strict
def exponentials(exponents: Array, found: Array) -> None:
    """Write `e^x` of each number."""
    for i in range(len(found)):
        found[i] = exp(exponents[i])


@strict
def log_losses(points: Array, outcomes: Array, least: float, found: Array) -> None:
    """Write `−Σ_k y_k·ln p_k` of each row; a probability below the least is read as that."""
    for row in range(len(found)):
        total = 0.0
        for k in range(points.shape[1]):
            if outcomes[row, k] != 0.0:
                total -= log(max(points[row, k], least)) * outcomes[row, k]
        found[row] = total


def applied(function: Callable[[float], float], numbers: Iterable[float]) -> Array:
    """Return a function of each of a few numbers."""
    return np.array([function(float(number)) for number in numbers])


@also_compiled
def normal_cdf(x: float) -> float:
    """Return the standard normal distribution function, right to 1e-15 (Hart 1968, by West 2005).

    Examples
    --------
    >>> normal_cdf(0.0), round(normal_cdf(1.96), 4), normal_cdf(-40.0)
    (0.5, 0.975, 0.0)
    """
    size = abs(x)
    if size > 38.0:
        tail = 0.0
    elif size < 7.07106781186547:
        above = 0.0352624965998911 * size + 0.700383064443688
        above = ((above * size + 6.37396220353165) * size + 33.912866078383) * size + 112.079291497871
        above = (above * size + 221.213596169931) * size + 220.206867912376
        below = (0.0883883476483184 * size + 1.75566716318264) * size + 16.064177579207
        below = ((below * size + 86.7807322029461) * size + 296.564248779674) * size + 637.333633378831
        below = (below * size + 793.826512519948) * size + 440.413735824752
        tail = exp(-size * size / 2) * above / below
    else:
        fraction = size + 1.0 / (size + 2.0 / (size + 3.0 / (size + 4.0 / (size + 0.65))))
        tail = exp(-size * size / 2) / (fraction * 2.506628274631)
    return tail if x <= 0.0 else 1.0 - tail


@strict
def normal_cdfs(numbers: Array, found: Array) -> None:
    """Write the standard normal distribution function of each number."""
    for i in range(len(found)):
        found[i] = normal_cdf(numbers[i])
