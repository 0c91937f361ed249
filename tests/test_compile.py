"""Kernels run before they are compiled, are compiled aside, and neither a round nor an end nor a fork waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import treecal as tc
from treecal import _compile
from treecal._compile import Kernel, strict
from treecal._typing import Array


@strict
def twice(x: float) -> float:
    return 2.0 * x


@strict
def add_twice(x: Array, found: Array) -> None:
    for i in range(len(x)):
        found[i] += twice(x[i])


def test_what_few_rows_run_is_what_many_rows_run() -> None:
    x, plain, compiled = np.arange(5.0), np.ones(5), np.ones(5)
    add_twice.for_rows(5)(x, plain)
    add_twice.for_rows(5000)(x, compiled)
    assert plain.tolist() == compiled.tolist() == [1, 3, 5, 7, 9]


def test_a_kernel_that_has_run_a_while_is_compiled_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compile, "_PATIENCE", 0.0)

    def half(x: float) -> float:
        return x / 2

    kernel = Kernel(half, nogil=True)
    assert kernel.now(3.0) == 1.5
    thread = _compile._compiler._thread
    assert thread is not None
    thread.join()
    assert kernel.dispatcher.signatures
    assert kernel.now(5.0) == 2.5
    assert kernel.plain is not kernel.dispatcher
    with monkeypatch.context() as patch:
        patch.setitem(vars(kernel), "plain", None)  # compiled code is run now
        assert kernel.now(7.0) == 3.5


def test_an_array_that_becomes_read_only_meanwhile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_compile, "_PATIENCE", 0.0)

    def fill(found: Array) -> None:
        found[0] = 1.0

    kernel, found = Kernel(fill, nogil=True), np.zeros(1)
    prepare = kernel.prepare

    def late(args: tuple[Array]) -> None:
        found.setflags(write=False)
        prepare(args)

    monkeypatch.setattr(kernel, "prepare", late)
    kernel.now(found)
    if (thread := _compile._compiler._thread) is not None:
        thread.join()
    assert kernel.dispatcher.signatures
    assert not caplog.records


def test_the_cache_knows_the_files_of_all_kernels_that_are_named() -> None:
    assert __file__ in add_twice.files
    from treecal.correctors._newton_kernels import play

    assert {Path(file).name for file in play.files} == {"_newton_kernels.py", "_forgetting.py", "_elementary.py"}
    from treecal.forecasters._tree.wide import learn

    assert {"_lanes.py", "steps.py", "wide.py"} <= {Path(file).name for file in learn.files}  # what is no kernel, too


HURRIED = """
import os, sys
import numpy as np
import treecal as tc
from treecal import _compile
_compile._PATIENCE = 0.0
c = tc.VectorScaling(tc.Simplex(3))
for _ in range(3):
    c.predict([0.2, 0.3, 0.5])
    c.update(1)
assert _compile._compiler._thread is not None
"""


def run(script: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
    )


def test_a_process_ends_without_waiting_for_what_is_compiled(tmp_path: Path) -> None:
    done = run(HURRIED, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.rglob("_newton_kernels.play*.nbc"))  # it was left


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_leaves_no_lock_behind(tmp_path: Path) -> None:
    script = f"""{HURRIED}
if os.fork() == 0:
    c.predict([0.2, 0.3, 0.5])
    c.update(2)
    c.update_many(np.full((20, 3), 1 / 3), np.eye(3)[[0] * 20])  # compiles
    os._exit(c.rounds - 24 + 7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
"""
    done = run(script, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_rounds_one_by_one_and_batches_agree_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    P, Y = rng.dirichlet([1, 1, 1], 300), np.eye(3)[rng.integers(3, size=300)]
    for make in (tc.VectorScaling, tc.TemperatureScaling, tc.Recalibrator):
        one, many = make(tc.Simplex(3)), make(tc.Simplex(3))
        announced = []
        for b, y in zip(P, Y, strict=True):
            announced.append(one.predict(b).mean)
            one.update(y)
        np.testing.assert_array_equal(announced, many.update_many(P, Y))


@pytest.mark.parametrize(("patience", "words"), [(1e-3, ["waiting"]), (1e6, [])])
def test_who_waits_for_the_compiler_is_told_once(patience: float, words: list[str], tmp_path: Path) -> None:
    """What an earlier process compiled is loaded, and nobody is told."""
    script = f"""
import time
from treecal import _compile
_compile.tell, _compile._TOLD_AFTER = lambda: print("waiting"), {patience}
@_compile.strict
def one(x): return x + 1
@_compile.strict
def other(x): return x + 2
one(1.0), other(1.0), one(1)
time.sleep(0.2)
"""
    path = tmp_path / "script.py"
    path.write_text(script)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for expected in (words, []):
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == expected
