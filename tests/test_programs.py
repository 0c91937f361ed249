"""The programs in examples/ and benchmarks/ run, with little to do: what they print here is no figure for the docs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = [
    "examples/adaptive.py --rounds 200 --seeds 1",
    "examples/arity.py --rounds 64 --dims 2",
    "examples/flights.py --rounds 1000",
    "examples/groups.py --days 8",
    "examples/guard_constants.py --rounds 20",
    "examples/held_out.py --short --streams 2",
    "examples/monitor_peers.py --streams 1",
    "examples/monitor_table.py --numbers --streams 3",
    "examples/race_on_spark.py",
    "benchmarks/beside.py",
    "benchmarks/certificates.py --rounds 1000",
    "benchmarks/corrector_bank.py --keys 100 --rows 1000 --batch 1000",
    "benchmarks/decisions.py --rows 50",
    "benchmarks/distributions.py --brief",
    "benchmarks/guarded_bank.py --streams 100",
    "benchmarks/number_costs.py --rows 10000",
    "benchmarks/swap.py --actions 10 --rounds 64",
    "tests/measures/few.py --logs 3 --labels 50",
]


@pytest.mark.heavy
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.split()[0])
def test_a_program_runs(program: str, tmp_path: Path) -> None:
    name, *options = program.split()
    done = subprocess.run(
        [sys.executable, ROOT / name, *options], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
