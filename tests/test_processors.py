"""Answers do not depend on the processor: other kinds are emulated, and every bit is compared.

NumPy, the C library and OpenBLAS choose among several bodies of a function by what the processor can do, and Numba
compiles for the one that it runs on; all of them can be told to do without.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found]

WITHOUT_AVX512 = {"NPY_DISABLE_CPU_FEATURES": "X86_V4", "OPENBLAS_CORETYPE": "Haswell"}
OLD = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3",
    "OPENBLAS_CORETYPE": "Prescott",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4",
}
GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the features that are switched off are x86's")


@cache
def answers(environment: tuple[tuple[str, str], ...], which: str) -> dict[str, str]:
    asked = [sys.executable, "-W", "ignore", "-m", "tests.processors", which]
    run = subprocess.run(
        asked, env={**os.environ, **dict(environment)}, capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, str] = json.loads(run.stdout)
    return found


def differing(environment: dict[str, str], which: str, *, at_least: int = 71) -> list[str]:
    here, there = answers((), which), answers(tuple(environment.items()), which)
    assert len(here) >= at_least
    assert here.keys() == there.keys()
    return [name for name in here if here[name] != there[name]]


@pytest.mark.parametrize("environment", [WITHOUT_AVX512, OLD], ids=["without AVX-512", "without AVX2 and FMA"])
def test_rounds_one_by_one_are_the_same(environment: dict[str, str]) -> None:
    assert differing(environment, "one by one") == []


def test_some_compiled_code_is_the_same() -> None:
    assert differing(OLD | GENERIC, "few", at_least=2) == []


@pytest.mark.heavy
@pytest.mark.parametrize("environment", [OLD | GENERIC, GENERIC], ids=["old", "compiled for any processor"])
def test_compiled_code_is_the_same(environment: dict[str, str]) -> None:
    assert differing(environment, "compiled") == []


def test_the_emulation_changes_what_it_should() -> None:
    """Otherwise the tests above could not fail: NumPy's exponential has other bits without AVX-512, if it is there."""
    if not __cpu_features__["X86_V4"]:
        pytest.skip("this processor has no AVX-512")
    program = "import numpy as np; print(np.exp(np.linspace(-5, 5, 20_001)).tobytes().hex())"
    there = subprocess.run([sys.executable, "-c", program], env={**os.environ, **OLD}, capture_output=True, text=True)
    assert there.stdout.strip() != np.exp(np.linspace(-5, 5, 20_001)).tobytes().hex()
