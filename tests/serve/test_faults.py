"""The simulated disk itself: what it keeps is what is there, and it finds what is not synced."""

from __future__ import annotations

from pathlib import Path

import apsw
import numpy as np
import pytest

from tests.serve.faults import WAYS, Disk, Moment, Names, Truncate, Write, Writes, _surviving, in_place


def scripted(path: Path, synchronous: str, disk: Disk, journal: str = "wal") -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", journal)
    connection.pragma("synchronous", synchronous)
    connection.execute("CREATE TABLE rows (n integer primary key, text)")
    disk.note(0)
    for n in range(1, 13):
        connection.execute("INSERT INTO rows VALUES (?, ?)", (n, "x" * 3000))
        disk.note(n)
        if n % 5 == 0 and journal == "wal":
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE if n % 10 == 0 else 0)
    connection.close()


def lost_after_a_crash(disk: Disk, folder: Path, every: int = 1) -> int:
    """In how many ways acknowledged rows are lost; the file always opens, and rows are a beginning of those sent."""
    rng = np.random.default_rng(0)
    lost = 0
    for moment in disk.moments():
        if moment.operations % every:
            continue
        for way in WAYS:
            rows = rows_left(folder, moment, way, rng)
            assert rows is None or rows == list(range(1, len(rows) + 1))
            if moment.notes:
                lost += rows is None or len(rows) < moment.notes[-1]
                assert rows is None or len(rows) <= moment.notes[-1] + 1
    return lost


def rows_left(folder: Path, moment: Moment, way: tuple[Writes, Names], rng: np.random.Generator) -> list[int] | None:
    folder.mkdir()
    for name, content in moment.survivors(*way, rng).items():
        (folder / name).write_bytes(content)
    connection = apsw.Connection(str(folder / "books"))
    try:
        if connection.pragma("integrity_check") != "ok":
            return None
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'rows'").get:
            return None
        return [n for (n,) in connection.execute("SELECT n FROM rows ORDER BY n")]
    finally:
        connection.close()
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_all_that_was_written_is_what_is_there(journal: str, tmp_path: Path) -> None:
    with in_place("whole") as disk:
        path = tmp_path / "books"
        scripted(path, "full", disk, journal)
        *_, last = disk.moments()
        files = last.survivors("kept", "kept", np.random.default_rng(0))
        assert files == {"books": path.read_bytes()}
        assert last.notes == list(range(13))
    apsw.Connection(str(path)).close()  # by the plain VFS again


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_what_sqlite_syncs_is_never_lost(journal: str, tmp_path: Path) -> None:
    with in_place("synced") as disk:
        scripted(tmp_path / "books", "extra" if journal == "delete" else "full", disk, journal)
    assert lost_after_a_crash(disk, tmp_path / "after", every=3) == 0


def test_what_is_not_synced_is_seen_to_be_lost(tmp_path: Path) -> None:
    with in_place("unsynced") as disk:
        scripted(tmp_path / "books", "normal", disk)
    assert lost_after_a_crash(disk, tmp_path / "after", every=3) > 0


def test_operations_fail_from_some_moment_on(tmp_path: Path) -> None:
    with in_place("failing") as disk:
        connection = apsw.Connection(str(tmp_path / "books"))
        connection.pragma("journal_mode", "wal")
        connection.execute("CREATE TABLE rows (n)")
        disk.fail(lambda number: apsw.FullError("full") if number >= 3 else None)
        with pytest.raises(apsw.FullError):
            connection.executemany("INSERT INTO rows VALUES (?)", ((n,) for n in range(10)))
        disk.fail(lambda number: None)
        connection.execute("INSERT INTO rows VALUES (99)")
        left = [n for (n,) in connection.execute("SELECT n FROM rows")]
        assert left[-1] == 99
        assert left[:-1] == list(range(len(left) - 1))
        connection.close()


def test_torn_writes_are_torn_where_they_say() -> None:
    since: list[Write | Truncate] = [Write(0, 100, bytes(range(256)) * 5), Truncate(0, 50)]
    rng = np.random.default_rng(1)
    cuts = set()
    for _ in range(200):
        for part in _surviving(since, "sectors", rng):
            if isinstance(part, Write):
                assert part.offset in (100, 512, 1024)
                assert part.data == since[0].data[part.offset - 100 :][: len(part.data)]  # type: ignore[union-attr]
        cuts |= {len(part.data) for part in _surviving(since, "bytes", rng) if isinstance(part, Write)}
    assert len(cuts) > 50
    assert list(_surviving(since, "lost", rng)) == []
    assert list(_surviving(since, "kept", rng)) == since
