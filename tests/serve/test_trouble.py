"""A disk that is full or fails, files that vanish, clocks that jump: what is refused, and what is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.serve.faults import in_place
from tests.serve.script import Clock, Log, answer, log_of, send, steps
from tests.serve.test_power import often
from treecal.exceptions import FileError
from treecal.serve._doctor import check_books
from treecal.serve._refusals import Refusal
from treecal.serve._sqlite import Sqlite
from treecal.serve._wire import NewForecast, NewOutcome, NewStream, Part
from treecal.serve._writer import Writer

SCRIPT = [step for step in steps(rounds=20) if step.repeatable]
NEW = NewStream("a", classes=["no", "yes"], corrector=Part("vector"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The log of the scripted run when nothing goes wrong."""
    path, clock = tmp_path_factory.mktemp("reference") / "books", Clock()
    with Writer(Sqlite(path), clock=clock) as writer:
        for number, step in enumerate(SCRIPT):
            answer(send(writer, clock, number, step))
    return kept(path)


def kept(path: Path) -> Log:
    """The log in a file, which is sound."""
    with Sqlite(path) as store:
        assert [each for each in check_books(store) if each.problems] == []
        return log_of(store)


def forecast(writer: Writer, name: str) -> Future[Any]:
    return writer.submit(lambda books: books.forecast("a", [NewForecast(name, p=[0.5, 0.5])]))


def refused(future: Future[Any]) -> str:
    """What an unavailable server says."""
    error = future.exception()
    assert isinstance(error, Refusal)
    assert error.code == "unavailable"
    return error.message


def insist(writer: Writer, clock: Clock, number: int) -> Any:
    """Send a request until it is answered."""
    for _ in range(100):
        future = send(writer, clock, number, SCRIPT[number])
        error = future.exception()
        if not isinstance(error, Refusal) or error.code != "unavailable":
            return answer(future)
        if writer.failure is not None:
            raise FailedError(writer.failure)
    raise AssertionError("the books are unavailable for good")


class FailedError(Exception):
    """The server must be started again."""


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many operations on the disk the scripted run takes."""
    with in_place("healthy") as disk:
        serve(tmp_path_factory.mktemp("healthy") / "books")
    return disk.operations


def serve(path: Path) -> None:
    """Send all requests to one server."""
    clock = Clock()
    with often(), Writer(Sqlite(path), clock=clock) as writer:
        for number in range(len(SCRIPT)):
            insist(writer, clock, number)


def points(operations: int, part: str) -> list[int]:
    """Operations at which something fails: a sample, or one of four parts of all of them."""
    if part == "some":
        chosen: list[int] = np.random.default_rng(1).choice(operations, size=6, replace=False).tolist()
        return chosen
    return [*range(PARTS.index(part), operations, len(PARTS))]


PARTS = ["first", "second", "third", "fourth"]


@pytest.mark.parametrize("part", ["some", *(pytest.param(part, marks=pytest.mark.heavy) for part in PARTS)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # where SQLite ignores that it failed
@pytest.mark.parametrize("kind", [apsw.FullError, apsw.ReadOnlyError, apsw.IOError])
def test_the_disk_fails_for_a_while(
    kind: type[apsw.Error], part: str, reference: Log, operations: int, tmp_path: Path
) -> None:
    starts = 0
    for point in points(operations, part):
        path = tmp_path / f"books{point}"
        with in_place("failing") as disk:
            disk.fail(lambda done, point=point: kind("so it is") if point <= done < point + 3 else None)  # type: ignore[misc]
            for _ in range(10):
                starts += 1
                try:
                    serve(path)
                    break
                except (FileError, FailedError, apsw.Error):
                    pass  # and start the server again
        assert kept(path) == reference, point
        for each in tmp_path.glob(f"{path.name}*"):
            each.unlink()
    print(f"{len(points(operations, part))} points, {starts} starts")


def test_a_failed_sync_is_not_asked_again(tmp_path: Path) -> None:
    """What was not synced may be gone although the next sync succeeds: nothing more is taken, and nothing is shown."""
    path = tmp_path / "books"
    with in_place("unsynced") as disk, Writer(Sqlite(path)) as writer:
        writer.submit(lambda books: books.create(NEW)).result()
        forecast(writer, "x").result()
        disk.fail(lambda done: apsw.IOError("the sync failed") if done < 1000 else None)
        assert "failed" in refused(forecast(writer, "y"))
        disk.fail(lambda done: None)
        assert "failed" in refused(forecast(writer, "z"))
        assert "failed" in refused(writer.read(lambda books: books.picture("a")))
        assert writer.failure is not None
    with Writer(Sqlite(path)) as writer:
        assert forecast(writer, "x").result()[0].round == 1
    assert [row[2] for row in kept(path).rounds] in (["x"], ["x", "y"])


def test_a_request_too_large_for_the_disk_is_refused_and_smaller_ones_are_taken(tmp_path: Path) -> None:
    def small(connection: apsw.Connection) -> None:
        connection.pragma("max_page_count", 60)

    apsw.connection_hooks.append(small)
    try:
        with Writer(Sqlite(tmp_path / "books")) as writer:
            writer.submit(lambda books: books.create(NEW)).result()
            many = [NewForecast(f"m{i}", p=[0.5, 0.5]) for i in range(5000)]
            for _ in range(2):
                assert "disk is full" in refused(writer.submit(lambda books: books.forecast("a", many)))
                assert forecast(writer, "x").result()[0].round == 1
            assert writer.read(lambda books: books.picture("a").counts.forecasts).result() == 1
    finally:
        apsw.connection_hooks.remove(small)
    assert len(kept(tmp_path / "books").rounds) == 1


@contextmanager
def tiny_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of so many KiB."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("a small disk cannot be mounted here: it takes root on Linux")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="mounting a small disk takes root")
def test_a_real_disk_is_full_until_room_is_made(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", 1000) as disk:
        with Writer(Sqlite(disk / "books")) as writer:
            writer.submit(lambda books: books.create(NEW)).result()
            (disk / "ballast").write_bytes(bytes(500_000))
            taken, k = [], 0
            while (error := (future := forecast(writer, f"x{k}" * 40)).exception()) is None:
                taken.append(future.result()[0])
                k += 1
            assert isinstance(error, Refusal)
            assert error.code == "unavailable"
            assert "full" in error.message
            assert writer.read(lambda books: books.picture("a").counts.forecasts).result() == len(taken)
            (disk / "ballast").unlink()
            assert forecast(writer, f"x{k}" * 40).result()[0].round == len(taken) + 1
            assert forecast(writer, "x0" * 40).result() == [taken[0]]
        assert len(kept(disk / "books").rounds) == len(taken) + 1


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "books"
    with Writer(Sqlite(path)) as writer:
        writer.submit(lambda books: books.create(NEW)).result()
    with read_only(path), pytest.raises(FileError, match=r"cannot be written"), Sqlite(path):
        pass
    with pytest.raises(FileError, match=r"there is no folder"), Sqlite(tmp_path / "nowhere" / "books"):
        pass
    with pytest.raises(FileError, match=r"is a folder"), Sqlite(tmp_path):
        pass
    path.write_bytes(b"no file of SQLite" * 1000)
    with pytest.raises(FileError, match=r"no file of SQLite"), Sqlite(path):
        pass


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Nobody may write a file: root is only kept from it where it is made immutable."""
    if os.geteuid() == 0:
        if subprocess.run(["chattr", "+i", path], capture_output=True).returncode:
            pytest.skip("a file cannot be kept from root here")
        try:
            yield
        finally:
            subprocess.run(["chattr", "-i", path], check=True)
    else:
        path.chmod(0o400)
        yield
        path.chmod(0o600)


@pytest.mark.parametrize("which", ["books", "books-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_vanishes_beneath_the_server(which: str, replaced: bool, tmp_path: Path) -> None:
    with Writer(Sqlite(tmp_path / "books")) as writer:
        writer.submit(lambda books: books.create(NEW)).result()
        forecast(writer, "x").result()
        shutil.copy(tmp_path / which, tmp_path / "copy")
        (tmp_path / which).unlink()
        if replaced:
            (tmp_path / "copy").rename(tmp_path / which)
        for _ in range(2):
            assert "was deleted or replaced" in refused(forecast(writer, "y"))
        assert "was deleted or replaced" in refused(writer.read(lambda books: books.picture("a")))


@settings(max_examples=15, deadline=None)
@given(
    times=st.lists(st.floats(-1e12, 1e12), min_size=8, max_size=8),
    dues=st.lists(st.none() | st.floats(-1e11, 1e11), min_size=4, max_size=4),
)
def test_a_clock_that_jumps(
    times: list[float], dues: list[float | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, clock = tmp_path_factory.mktemp("clock") / "books", iter([0.0, *times, *times, *times])
    with Writer(Sqlite(path), clock=lambda: next(clock, 0.0)) as writer:
        writer.submit(lambda books: books.create(NEW)).result()
        for k, due in enumerate(dues):
            writer.submit(_due(k, due)).result()
        found = [writer.submit(_outcome(k)).result()[0].status for k in range(4)]
        assert [writer.submit(_outcome(k)).result()[0].status for k in range(4)] == [
            "late" if each == "late" else "replayed" for each in found
        ]
    log = kept(path)
    for row, came, status in zip(log.rounds, log.arrivals, found, strict=True):
        assert (came[2], status) == (
            ("late", "late") if row[12] is not None and came[3] > row[12] else ("outcome", "learned")
        )
    shutil.rmtree(path.parent)


def _due(k: int, due: float | None) -> Callable[[Any], Any]:
    return lambda books: books.forecast("a", [NewForecast(str(k), p=[0.5, 0.5], due=due)])


def _outcome(k: int) -> Callable[[Any], Any]:
    return lambda books: books.settle([NewOutcome("a", str(k), k % 2)])
