"""Power is lost after any operation on the disk, with what was not synced lost, kept or torn: see `faults`.

What is left opens; it is the log as it was after some request, the last one acknowledged or a later one; a replay of it
gives the state, bit for bit; and when all requests are sent again, it becomes the log to which nothing happened.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import numpy as np
import pytest

from tests.serve.faults import WAYS, Disk, Moment, Names, Writes, in_place
from tests.serve.script import Clock, Log, answer, log_of, send, send_all, sizes, steps
from treecal.serve import _books
from treecal.serve._doctor import check_books
from treecal.serve._sqlite import Sqlite, SqliteReader
from treecal.serve._writer import Writer

SCRIPT = steps()


class Run(NamedTuple):
    """A recorded run: what the disk did, the log at its end, and how far the log had come after each request."""

    disk: Disk
    log: Log
    after: list[tuple[Any, ...]]


@contextmanager
def often() -> Iterator[None]:
    """Snapshots and checkpoints come often, so that a short run has many."""

    def checkpoint_often(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(25)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_books, "SNAPSHOT_EVERY", 12)
        apsw.connection_hooks.append(checkpoint_often)
        yield
        apsw.connection_hooks.remove(checkpoint_often)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, clock = tmp_path_factory.mktemp("run"), Clock()
    after, answers = [], []
    with often():
        with Writer(Sqlite(folder / "plain"), clock=clock) as writer:
            reader = SqliteReader(folder / "plain")
            after.append(sizes(log_of(reader)))
            for number, step in enumerate(SCRIPT):
                answers.append(answer(send(writer, clock, number, step)))
                after.append(sizes(log_of(reader)))
            log = log_of(reader)
            reader.close()
        with in_place("power") as disk, Writer(Sqlite(folder / "books"), clock=clock) as writer:
            assert send_all(writer, clock, SCRIPT, together=3, told=disk.note) == answers
    with Sqlite(folder / "books") as store:
        assert log_of(store) == log
    return Run(disk, log, after)


def check(run: Run, moment: Moment, way: tuple[Writes, Names], rng: np.random.Generator, folder: Path) -> int:
    """Check what is left by a crash; return how many requests are in it."""
    acknowledged = len(moment.notes)
    assert moment.notes == list(range(acknowledged))
    folder.mkdir()
    for name, content in moment.survivors(*way, rng).items():
        (folder / name).write_bytes(content)
    with Sqlite(folder / "books") as store:
        assert store._connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        left = log_of(store)
        assert [each for each in check_books(store) if each.problems] == []
    come = sizes(left)
    assert come in run.after[acknowledged:], (moment.operations, moment.last, way)
    present = max(number for number, each in enumerate(run.after) if each == come)
    for stream in range(1, len(left.streams) + 1):
        for mine, whole in zip(left[1:3], run.log[1:3], strict=True):
            mine, whole = ([row for row in rows if row[0] == stream] for rows in (mine, whole))
            assert mine == whole[: len(mine)]
    assert [row[:4] for row in left.streams] == [row[:4] for row in run.log.streams[: len(left.streams)]]
    return present


def resume(run: Run, present: int, folder: Path) -> None:
    """Send everything again: then it is as if nothing had happened."""
    clock = Clock()
    with Writer(Sqlite(folder / "books"), clock=clock) as writer:
        for number, step in enumerate(SCRIPT):
            if step.repeatable or number >= present:
                answer(send(writer, clock, number, step))
    with Sqlite(folder / "books") as store:
        assert log_of(store) == run.log
        assert [each for each in check_books(store) if each.problems] == []


def test_power_is_lost_at_some_moments(run: Run, tmp_path: Path) -> None:
    crash(run, tmp_path / "left", moments=60, ways=1, resumed=12)


@pytest.mark.heavy
def test_power_is_lost_after_every_operation(run: Run, tmp_path: Path) -> None:
    crash(run, tmp_path / "left", moments=run.disk.operations + 1, ways=len(WAYS), resumed=run.disk.operations)


def crash(run: Run, folder: Path, *, moments: int, ways: int, resumed: int) -> None:
    rng = np.random.default_rng(0)
    chosen = set(rng.choice(run.disk.operations + 1, size=moments, replace=False).tolist())
    points = 0
    for moment in run.disk.moments():
        if moment.operations in chosen:
            for which in rng.permutation(len(WAYS))[:ways]:
                present = check(run, moment, WAYS[which], rng, folder)
                if points % (moments * ways // resumed) == 0:
                    resume(run, present, folder)
                shutil.rmtree(folder)
                points += 1
    assert points == moments * ways
    print(f"{points} points over {run.disk.operations} operations")
