"""The driver is killed in the middle of epochs and micro-batches; started again, nothing is lost or comes twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.keyed.driver import FORECASTER, main
from tests.keyed.streams import Row, epochs, one_by_one, rows_of, write_day
from treecal.keyed import spark

ROOT = Path(__file__).parents[2]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_killed_driver_goes_on(kind: str, cluster: Any, tmp_path: Path) -> None:
    check(kind, cluster, tmp_path, kills=1, days=3)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_driver_killed_again_and_again_goes_on(kind: str, cluster: Any, tmp_path: Path) -> None:
    check(kind, cluster, tmp_path, kills=26, days=120)


def check(kind: str, cluster: Any, folder: Path, *, kills: int, days: int) -> None:
    (folder / "in").mkdir()
    outcomes = epochs(50, days, seed=3)
    for number, day in enumerate(outcomes):
        write_day(day, folder / "in", number)
    expected = one_by_one(outcomes, FORECASTER)
    rng = np.random.default_rng(0)
    for _ in range(kills):
        # Spark itself refuses to go on if it is killed in the first batch of a query, between making the folder of the
        # state and noting down what the batch is.
        first = 1 if kind == "stream" else 0
        run_and_kill(kind, folder, after=int(rng.integers(3)) if kills > 1 else first, delay=rng.uniform(0, 2))
    main(kind, folder)  # in the session of the tests
    # An epoch returns the forecast of each key once.
    last = [{row[0]: row for day in epoch for row in expected[day]} for epoch in days_played(kind, folder, days)]
    assert played(kind, cluster, folder, days) == sorted(row for rows in last for row in rows.values())


def run_and_kill(kind: str, folder: Path, *, after: int, delay: float) -> None:
    """Start the driver, wait until it has done some epochs and begun another, and then a moment, and kill it."""
    command = [sys.executable, "-m", "tests.keyed.driver", kind, str(folder)]
    before = done(kind, folder)
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as driver:
        while done(kind, folder) < before + after and driver.poll() is None:
            time.sleep(0.01)
        begun = traces(kind, folder)
        while traces(kind, folder) <= begun and driver.poll() is None:
            time.sleep(0.01)
        time.sleep(delay)
        assert driver.poll() is None, "the driver was done before it was killed"
        os.killpg(driver.pid, signal.SIGKILL)  # with its JVM


def done(kind: str, folder: Path) -> int:
    """Return the number of epochs or micro-batches that are done."""
    return len(list(folder.glob("state/manifests/*.json" if kind == "batch" else "checkpoint/commits/[0-9]*")))


def traces(kind: str, folder: Path) -> set[str]:
    """Return the files that work leaves, whether it gets done or not."""
    places = ("state/data/*/*",) if kind == "batch" else ("checkpoint/offsets/*", "checkpoint/state/**/*", "out/*")
    return {str(path) for place in places for path in folder.glob(place)}


def days_played(kind: str, folder: Path, days: int) -> list[range]:
    """Return the days of each epoch. A query killed after it has found a file, and before it has noted down what the
    micro-batch is to hold, finds another when it goes on: Spark then plays two days in one micro-batch."""
    if kind == "batch":
        return [range(day, day + 1) for day in range(days)]
    noted = sorted(folder.glob("checkpoint/offsets/[0-9]*"), key=lambda path: int(path.name))
    ends = [json.loads(path.read_text().splitlines()[-1])["logOffset"] for path in noted]
    assert (len(noted), ends[-1]) == (int(noted[-1].name) + 1, days - 1)  # all of them are there still
    return [range(before + 1, end + 1) for before, end in pairwise([-1, *ends])]


def played(kind: str, cluster: Any, folder: Path, days: int) -> list[Row]:
    """Return all forecasts that count."""
    if kind == "stream":
        rows = cluster.read.parquet(str(folder / "out"))
        assert rows.where("table = 'problems'").count() == 0
        return rows_of(rows.where("table = 'forecasts'").toArrow())
    finished = [spark.read(cluster, str(folder / "state"), number) for number in range(days)]
    assert all(epoch.problems.count() == 0 for epoch in finished)
    assert all(len(list((folder / "state/data" / f"{number:020d}").iterdir())) == 1 for number in range(days))
    return sorted(row for epoch in finished for row in rows_of(epoch.forecasts.toArrow()))
