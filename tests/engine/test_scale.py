"""Millions of rounds, in processes of their own, whose memory can be told."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

CLASSES = 10
WHOLE = """
import json, math, resource, sys
import numpy as np
import treecal as tc

rounds, prefix = int(sys.argv[1]), int(sys.argv[2])
classes = np.random.default_rng(0).integers(10, size=rounds)
run, start = tc.replay(classes, tc.Simplex(10)), tc.replay(classes[:prefix], tc.Simplex(10))
reading = run.exact()
print(json.dumps({
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "rounds": math.fsum(reading.weights),
    "classes": [math.fsum(reading.weights * share) for share in reading.outcomes.T],
    "counted": np.bincount(classes).tolist(),
    "errors": [run.error("l1"), run.error("l1", per_node=True)],
    "prefix": start.error("l1", total=True),
}))
"""
CHUNKED = """
import json, resource, sys
import numpy as np
import treecal as tc

rounds, size, rng = int(sys.argv[1]), 10**6, np.random.default_rng(0)
run = tc.replay((rng.integers(10, size=size) for _ in range(rounds // size)), tc.Simplex(10))
print(json.dumps({
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "rounds": run.rounds,
    "errors": [run.error(distance, per_node=True) for distance in ("l1", "l2", tc.l2.squared)],
}))
"""


def result(script: str, *arguments: int) -> dict[str, Any]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def slow_error(classes: list[int], arity: int = 8) -> float:
    """The total ℓ1 error of TreeCal, unlabelled, from its definition: points are rationals in a dictionary."""
    sums: defaultdict[tuple[int, ...], list[Fraction]] = defaultdict(lambda: [Fraction(0)] * (1 + CLASSES))
    for t, k in enumerate(classes):
        heights = 1
        while t >= arity**heights:
            heights += 1
        for height in range(heights):
            seen = classes[t // arity ** (height + 1) * arity ** (height + 1) : t // arity**height * arity**height]
            counts = [seen.count(j) for j in range(CLASSES)] if seen else [1] * CLASSES
            entry = sums[tuple(count // math.gcd(*counts) for count in counts)]
            entry[0] += Fraction(1, heights)
            entry[1 + k] += Fraction(1, heights)
    return math.fsum(
        float(sum(abs(total - mass * Fraction(count, sum(point))) for total, count in zip(totals, point, strict=True)))
        for point, (mass, *totals) in sums.items()
    )


@pytest.mark.heavy
def test_ten_million_rounds_exactly() -> None:
    rounds, prefix = 10**7, 5000
    found = result(WHOLE, rounds, prefix)
    assert found["megabytes"] < 3000
    assert found["rounds"] == pytest.approx(rounds, rel=1e-14)
    assert found["classes"] == pytest.approx(found["counted"], rel=1e-13)
    unlabelled, labelled = found["errors"]
    assert 0 < unlabelled < labelled
    classes = np.random.default_rng(0).integers(CLASSES, size=rounds)[:prefix].tolist()
    assert found["prefix"] == pytest.approx(slow_error(classes), rel=1e-13)


@pytest.mark.heavy
def test_memory_does_not_grow_with_the_stream() -> None:
    short, long = result(CHUNKED, 10**7), result(CHUNKED, 10**8)
    assert (short["rounds"], long["rounds"]) == (10**7, 10**8)
    assert long["megabytes"] < short["megabytes"] + 100
    assert long["errors"] == pytest.approx(short["errors"], rel=0.2)
