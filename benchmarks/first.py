"""How long the first results take, each in a new process: `python benchmarks/first.py`, with --markdown for the docs.

Cold: Numba has compiled nothing yet. Warm: the same again, with what the cold run has left in Numba's cache.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGAIN = 5
SETUP = """
import time
import numpy as np
before = time.perf_counter()
import treecal as tc
imported = time.perf_counter() - before
rng = np.random.default_rng(0)
P, y = rng.dirichlet(np.ones(3), 1000), rng.integers(3, size=1000)
space = tc.Simplex(3)
before = time.perf_counter()
"""
PYTHON = {
    "`import treecal`, beyond NumPy": ("before = time.perf_counter() - imported", 0.3),
    "first round of `tc.Guarded`": ("f = tc.Guarded(space); f.predict().mean; f.update(1)", 1.0),
    "first round of `tc.VectorScaling`": ("c = tc.VectorScaling(space); c.predict(P[0]).mean; c.update(1)", 1.0),
    "first `tc.Monitor.update`": ("tc.Monitor(space).update(P[0], 1)", 1.0),
    "first `tc.audit` of arrays, 1,000 × 3": ("str(tc.audit(P, y))", 1.0),
    "a batch: `tc.VectorScaling.update_many`, 1,000 rows": (
        "tc.VectorScaling(space).update_many(P, np.eye(3)[y])",
        None,
    ),
    "a batch: `tc.replay` of `tc.Guarded`, 1,000 rounds": ("tc.replay(y, tc.Guarded(space)).error('l1')", None),
}


def in_python(code: str, cache: Path) -> float:
    script = f"{SETUP}{code}\nprint(time.perf_counter() - before)"
    run = subprocess.run(
        [sys.executable, "-c", script], env=_environment(cache), check=True, capture_output=True, text=True
    )
    return float(run.stdout)


def command(arguments: list[str], cache: Path) -> float:
    start = time.perf_counter()
    subprocess.run([*_treecal(), *arguments], env=_environment(cache), check=True, capture_output=True)
    return time.perf_counter() - start


def server(folder: Path, cache: Path) -> float:
    """Seconds until it says that it is ready."""
    start = time.perf_counter()
    asked = [*_treecal(), "serve", "--data", str(folder / f"{time.monotonic_ns()}.sqlite"), "--port", "0"]
    with subprocess.Popen(asked, env=_environment(cache), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if "http://" in line:
                break
        took = time.perf_counter() - start
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    return took


def _treecal() -> list[str]:
    return [str(Path(sys.executable).with_name("treecal"))]


def _environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "NUMBA_CACHE_DIR": str(cache)}


def main() -> None:
    markdown = "--markdown" in sys.argv
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log.csv"
        rows = [
            "p_no,p_yes,outcome",
            *(f"{1 - k / 100:.2f},{k / 100:.2f},{'yes' if k % 3 else 'no'}" for k in [*range(1, 100)] * 10),
        ]
        log.write_text("\n".join(rows) + "\n", encoding="utf-8")
        jobs = {
            what: (lambda cache, code=code: in_python(code, cache), limit) for what, (code, limit) in PYTHON.items()
        }
        jobs["`treecal --help`"] = (lambda cache: command(["--help"], cache), None)
        jobs["`treecal audit` of 990 rows"] = (lambda cache: command(["audit", str(log)], cache), None)
        jobs["`treecal serve` to ready"] = (lambda cache: server(folder, cache), None)
        print(
            "| what | cold, s | warm, s | limit, cold |\n| --- | --- | --- | --- |"
            if markdown
            else "cold, warm (seconds)"
        )
        for number, (what, (job, limit)) in enumerate(jobs.items()):
            cold = job(folder / f"cache{number}")
            warm = statistics.median(job(folder / f"cache{number}") for _ in range(AGAIN))
            wanted = "" if limit is None else f"≤ {limit:g}"
            print(
                f"| {what} | {cold:.2f} | {warm:.2f} | {wanted} |"
                if markdown
                else f"{cold:6.2f} {warm:6.2f}  {what}  {wanted}"
            )


if __name__ == "__main__":
    main()
