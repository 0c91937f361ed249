"""`exp`, `log` and their relatives: against decimal arithmetic, and the same in Python and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest

from treecal import _elementary as elementary
from treecal._compile import strict
from treecal._typing import Array


def off(function: Callable[[float], float], true: Callable[[Decimal], Decimal], numbers: Array) -> float:
    """The largest error, in units in the last place."""
    with localcontext() as context:
        context.prec = 40
        found = [(function(x), true(Decimal(x))) for x in numbers.tolist()]
        return max(float(abs(Decimal(ours) - exact) / Decimal(math.ulp(float(exact)))) for ours, exact in found)


def test_errors_are_below_a_unit_in_the_last_place() -> None:
    rng = np.random.default_rng(0)
    near, wide = rng.uniform(-1, 1, 2000), rng.uniform(-700, 700, 2000)
    assert off(elementary.exp, Decimal.exp, np.append(near, wide)) < 0.7
    small = np.append(1 + 0.01 * near, 10 ** (wide * 0.43))
    assert off(elementary.log, Decimal.ln, np.append(small, rng.random(2000))) < 0.9
    assert off(elementary.expm1, lambda x: x.exp() - 1, np.append(near, rng.uniform(-40, 0, 2000))) < 3


@pytest.mark.parametrize("x", [-745.2, -744.0, -1e-300, 0.0, 5e-324, 709.3, 709.5, 1e300])
def test_the_ends(x: float) -> None:
    expected = math.inf if x >= 709.4 else np.exp(x)
    assert elementary.exp(x) == pytest.approx(expected, rel=1e-15, abs=1e-320)
    if x > 0:
        assert elementary.log(x) == pytest.approx(math.log(x), rel=1e-15)


def test_powers() -> None:
    for base in (0.0, 1e-300, 0.3, 1 - 2**-50, 1.0):
        for exponent in (1e-9, 0.5, 1.0, 7.3):
            assert elementary.power(base, exponent) == pytest.approx(base**exponent, rel=1e-13)


exp, log, expm1 = elementary.exp, elementary.log, elementary.expm1


@strict
def of_each(x: Array, found: Array) -> None:
    for i in range(len(x)):
        found[i, 0] = exp(x[i])
        found[i, 1] = log(abs(x[i]))
        found[i, 2] = expm1(x[i])


def test_compiled_code_has_the_same_bits() -> None:
    x = np.random.default_rng(1).normal(size=5000) * 10 ** np.linspace(-6, 2, 5000)
    plain, compiled = np.empty((5000, 3)), np.empty((5000, 3))
    of_each.plain(x, plain)
    of_each(x, compiled)
    assert plain.tobytes() == compiled.tobytes()


def test_log_losses() -> None:
    rng = np.random.default_rng(2)
    p = rng.dirichlet([0.2, 1, 1], 50)
    y = np.concatenate([np.eye(3)[rng.integers(3, size=25)], rng.dirichlet([1, 1, 1], 25)])
    found = np.empty(50)
    elementary.log_losses(p, y, 1e-9, found)
    np.testing.assert_allclose(found, -(np.log(np.maximum(p, 1e-9)) * y).sum(axis=1), rtol=1e-13)
