"""The kernels against the CPU: on a GPU, if there is one, and in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="pip install torch")

from tests.torch.kernels import CHECKS  # noqa: E402


def _is_new() -> bool:
    return find_spec("triton") is not None and tuple(map(int, version("triton").split(".")[:2])) >= (3, 9)


without_triton = pytest.mark.skipif(find_spec("triton") is None, reason="there are no kernels: pip install triton")


@without_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("check", CHECKS)
def test_on_a_gpu(check: Callable[[str], None]) -> None:
    check("cuda")


@without_triton
@pytest.mark.skipif(not _is_new(), reason="interpreters of Triton before 3.9 do not know NumPy 2.4")
@pytest.mark.heavy  # some twenty seconds
def test_in_the_interpreter() -> None:
    """In a process of its own, since Triton looks for the setting when it is imported."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.torch.kernels"],
        cwd=root,
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
