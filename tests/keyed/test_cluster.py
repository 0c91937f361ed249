"""A real cluster, of processes that share nothing but files: what it needs, and what a loss costs.

A master, two workers and every driver are processes of their own. Workers are killed with all their executors, drivers
with their JVM, and everything that is left must be what one process makes of the same days, bit for bit.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.keyed import cluster as clusters
from tests.keyed.cluster import Cluster
from tests.keyed.night import KINDS, LOG
from tests.keyed.streams import epochs, write_day
from treecal.keyed import Step, local, no_state
from treecal.keyed._packing import loads
from treecal.keyed._tables import RESULTS

pytestmark = pytest.mark.heavy

NIGHT = str(Path(__file__).parent / "night.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    with clusters.cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clusters.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has all that treecal needs, and not treecal."""
    found = clusters.environment(tmp_path_factory.mktemp("needs") / "env") / "bin" / "python"
    said = subprocess.run(
        [found, "-I", "-c", "import numba, pyarrow, pyspark, treecal"], capture_output=True, text=True
    )
    assert "No module named 'treecal'" in said.stderr
    return str(found)


@pytest.fixture(scope="module")
def days() -> list[pa.Table]:
    return epochs(3000, 3, seed=4, longest=6)


def in_the_pool(days: list[pa.Table], kind: str) -> list[Step]:
    state, found = no_state(), list[Step]()
    with ThreadPoolExecutor(1) as pool:
        for day in days:
            found.append(local.epoch(state, day, KINDS[kind], pool=pool, announced=True))
            state = found[-1].state
    return found


@pytest.fixture(scope="module")
def steps(days: list[pa.Table]) -> list[Step]:
    return in_the_pool(days, "adaptive")


def until(what: Callable[[], Any], driver: Any) -> Any:
    """Wait for something that a driver does."""
    end = time.monotonic() + 300
    while not (found := what()):
        assert driver.poll() is None, "the driver has ended"
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.01)
    return found


def kill(driver: Any) -> None:
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def rows(table: pa.Table) -> pa.Table:
    """Return a table in an order that does not depend on shards."""
    return table.sort_by(
        [(name, "ascending") for name in table.column_names if name in ("key", "seq", "round", "kind")]
    )


def epoch(folder: Path, number: int) -> dict[str, pa.Table]:
    """Return the tables of an epoch, read without Spark."""
    manifest = json.loads((folder / f"state/manifests/{number:020d}.json").read_text())
    whole = pq.read_table(folder / "state" / manifest["data"])
    parts = {name: whole.filter(pa.compute.equal(whole["table"], name)) for name in ("shards", *RESULTS)}
    return parts | {"state": loads(parts["shards"]["blob"].to_pylist())}


def streamed(folder: Path) -> pa.Table:
    """Return the rows of a stream that count, read without Spark."""
    notes = (folder / "out/_spark_metadata").glob("[0-9]*")
    written = [line for name in notes for line in name.read_text().splitlines()]
    files = [json.loads(line)["path"].removeprefix("file://") for line in written if line.startswith("{")]
    return pa.concat_tables(pq.read_table(file) for file in sorted(set(files)))


def check_epochs(folder: Path, steps: list[Step]) -> None:
    for number, step in enumerate(steps):
        found = epoch(folder, number)
        for name, table in step._asdict().items():
            assert same(found[name], table), (folder.name, number, name)


def check_stream(folder: Path, steps: list[Step]) -> None:
    found = streamed(folder)
    for name in RESULTS:
        expected = pa.concat_tables(getattr(step, name) for step in steps)
        assert same(found.filter(pa.compute.equal(found["table"], name)), expected), (folder.name, name)


def same(found: pa.Table, expected: pa.Table) -> bool:
    expected = rows(expected.replace_schema_metadata(None)).combine_chunks()
    found = rows(found.select(expected.column_names)).replace_schema_metadata(None).cast(expected.schema)
    return bool(found.combine_chunks().equals(expected))


def lost(folder: Path) -> list[str]:
    """Return why executors were removed and tasks failed, as Spark noted it down."""
    events = [json.loads(line) for log in (folder / "events").iterdir() for line in log.read_text().splitlines()]
    removed = [event["Removed Reason"] for event in events if event["Event"] == "SparkListenerExecutorRemoved"]
    ended = [event["Task End Reason"]["Reason"] for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return [*removed, *(reason for reason in ended if reason != "Success")]


def noted(folder: Path) -> dict[str, str]:
    """Return settings with which Spark notes down what happens, in files to be read here."""
    (folder / "events").mkdir(exist_ok=True)
    named = {"enabled": "true", "dir": f"file://{folder}/events", "rolling.enabled": "false", "compress": "false"}
    return {f"spark.eventLog.{key}": value for key, value in named.items()}


def test_epochs_outlive_a_driver_and_a_worker(
    cluster: Cluster, package: Path, python: str, days: list[pa.Table], steps: list[Step], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()

    def start() -> Any:
        words = ("--py-files", str(package), NIGHT, str(tmp_path), "adaptive", "where", "epochs")
        return cluster.submit(*words, python=python, settings=noted(tmp_path))

    def finished(number: int) -> bool:
        return (tmp_path / f"adaptive/state/manifests/{number:020d}.json").exists()

    write_day(days[0], tmp_path / "in", 0)
    first = start()
    until(lambda: finished(0), first)
    kill(first)  # between epochs: it waits for the next day
    homes = json.loads((tmp_path / "where.json").read_text())
    assert len(homes) == 2, "both workers have worked"
    for module, home, executable in homes:
        assert Path(home).is_relative_to(cluster.folder)  # the executor's own folder
        assert module == f"{home}/treecal.zip/treecal/__init__.py"  # and what was shipped to it
        assert executable == python

    second = start()
    write_day(days[1], tmp_path / "in", 1)
    begun = until(lambda: list(tmp_path.glob(f"adaptive/state/data/{1:020d}/*/_temporary/**/*.parquet")), second)
    cluster.kill_worker(0)
    assert not finished(1), f"the epoch was not in its middle: {begun}"
    until(lambda: finished(1), second)
    cluster.add_worker()
    write_day(days[2], tmp_path / "in", 2)
    (tmp_path / "in" / "end").touch()
    assert second.wait() == 0
    assert "FetchFailed" in lost(tmp_path), "rows that the worker had shuffled were not made again"
    check_epochs(tmp_path / "adaptive", steps)


def test_a_stream_outlives_a_driver_and_a_worker_and_an_audit_has_its_digits(
    cluster: Cluster, package: Path, python: str, days: list[pa.Table], steps: list[Step], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()

    def start(*works: str) -> Any:
        words = ("--py-files", str(package), NIGHT, str(tmp_path), "adaptive", *works)
        return cluster.submit(*words, python=python, settings=noted(tmp_path))

    def committed(number: int) -> bool:
        return (tmp_path / f"adaptive/checkpoint/commits/{number}").exists()

    def kept() -> set[Path]:
        return set(tmp_path.glob("adaptive/checkpoint/state/0/[0-9]*/*"))

    write_day(days[0], tmp_path / "in", 0)
    first = start("stream")
    until(lambda: committed(0), first)
    kill(first)  # between micro-batches
    second = start("stream", "log")
    rng = np.random.default_rng(0)
    p, model = rng.random(20_000), np.where(rng.random(20_000) < 0.4, "old", "new")
    log = pa.table({"p": p, "q": 1 - p, "y": np.where(rng.random(20_000) < 0.8 * p, "yes", "no"), "model": model})
    pq.write_table(log, tmp_path / "log.parquet")
    before = kept()
    write_day(days[1], tmp_path / "in", 1)
    until(lambda: kept() > before, second)  # a task has written its state; there are four
    cluster.kill_worker(len(cluster.workers) - 1)
    assert not committed(1), "the micro-batch was not in its middle"
    until(lambda: committed(1), second)
    cluster.add_worker()
    write_day(days[2], tmp_path / "in", 2)
    until(lambda: committed(2), second)
    (tmp_path / "in" / "end").touch()
    assert second.wait() == 0
    assert lost(tmp_path)
    check_stream(tmp_path / "adaptive", steps)
    here, there = tc.audit(log, **LOG).to_dict(), json.loads((tmp_path / "log.json").read_text())
    assert json.loads(json.dumps(here)) | {"source": None} == there | {"source": None}


def test_every_kind_is_what_it_is_in_the_pool(cluster: Cluster, package: Path, python: str, tmp_path: Path) -> None:
    """In epochs and as a stream, of rows some of which are invalid; one driver plays all."""
    (tmp_path / "in").mkdir()
    rng, days = np.random.default_rng(1), epochs(60, 3, seed=5, longest=6)
    for number, day in enumerate(days):
        day = pa.concat_tables([day, day.slice(0, 2)])  # two rows are there twice
        y = day["outcome"].to_pylist()
        y[5] = None
        said = list(rng.dirichlet(np.ones(3), len(day)))
        said[-2:] = said[:2]
        said[9] = [0.5, 0.5, 0.5]
        days[number] = day.set_column(2, "outcome", pa.array(y)).append_column("forecast", pa.array(said))
        write_day(days[number], tmp_path / "in", number)
    (tmp_path / "in" / "end").touch()
    kinds = ("guarded", "mean", "corrector", "chain")
    words = ("--py-files", str(package), NIGHT, str(tmp_path), ",".join(kinds), "epochs", "stream")
    assert cluster.submit(*words, python=python).wait() == 0
    for kind in kinds:
        steps = in_the_pool(days, kind)
        assert all(step.state.num_rows and step.announced.num_rows and step.problems.num_rows > 2 for step in steps)
        check_epochs(tmp_path / kind, steps)
        check_stream(tmp_path / kind, steps)


def test_an_environment_is_shipped_whole(
    cluster: Cluster, package: Path, days: list[pa.Table], steps: list[Step], tmp_path: Path
) -> None:
    """As `venv-pack` makes one, but for what treecal needs, which stays where it is on this machine."""
    (tmp_path / "in").mkdir()
    write_day(days[0], tmp_path / "in", 0)
    (tmp_path / "in" / "end").touch()
    home = clusters.environment(tmp_path / "env", package)
    words = ("--archives", f"{clusters.archive(home)}#environment", NIGHT, str(tmp_path), "adaptive", "where", "epochs")
    driver = cluster.submit(*words, python="./environment/bin/python", driver=str(home / "bin" / "python"))
    assert driver.wait() == 0
    for module, place, executable in json.loads((tmp_path / "where.json").read_text()):
        assert Path(place).is_relative_to(cluster.folder)
        assert Path(module).is_relative_to(Path(place) / "environment/lib")
        assert executable == f"{place}/environment/bin/python"
    check_epochs(tmp_path / "adaptive", steps[:1])

    sky = np.random.default_rng(0).integers(3, size=days[0].num_rows)
    pq.write_table(days[0].set_column(2, "outcome", pa.array(sky)), tmp_path / "days.parquet")
    replay = (
        f"-m treecal replay {tmp_path}/days.parquet --dim 3 --key key --seq seq --forecaster treecal --json".split()
    )
    here, there = (
        json.loads(cluster.run(str(home / "bin" / "python"), *replay, *more))
        for more in ((), ("--engine", "spark", "--master", cluster.address))
    )
    assert here == there
    assert here["keys"] == len(steps[0].forecasts)
