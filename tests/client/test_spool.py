"""The spool keeps what it took, in order, whatever happens to the process and the file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from treecal.client import _spool
from treecal.client._spool import Item, Refused, Spool, SpooledForecast, SpooledOutcome
from treecal.exceptions import FileError, ParameterError
from treecal.serve import NewForecast, NewOutcome, Problem


def forecast(name: str) -> SpooledForecast:
    return SpooledForecast("rain", NewForecast(name, [0.25, 0.75], {"city": "Öland\n"}, 7.5, used=True))


def outcome(name: str) -> SpooledOutcome:
    return SpooledOutcome(NewOutcome("rain", name, 1))


def names(spool: Spool) -> list[str]:
    items = (row.item for row in spool.head(10**6))
    return [item.forecast.id if isinstance(item, SpooledForecast) else item.outcome.id for item in items]


def refused(path: Path) -> list[Refused]:
    return [msgspec.json.decode(line, type=Refused) for line in Path(f"{path}.refused").read_bytes().splitlines()]


def test_items_come_back_as_they_were(tmp_path: Path) -> None:
    items: list[Item] = [forecast("a"), outcome("a"), forecast("b")]
    spool = Spool(tmp_path / "spool")
    for item in items:
        assert spool.append([item])
    assert [row.item for row in spool.head(10)] == items
    assert [row.item for row in spool.head(2)] == items[:2]
    spool.close()
    again = Spool(tmp_path / "spool")
    assert [row.item for row in again.head(10)] == items
    assert again.counts.waiting == len(again) == 3
    again.close()


def test_what_was_delivered_is_not_there_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append([forecast(name) for name in "abc"])
    spool.advance(spool.head(1))
    spool.close()
    again = Spool(tmp_path / "spool")
    assert names(again) == ["b", "c"]
    assert again.counts == _spool.SpoolCounts(waiting=2)
    again.close()


def copied(path: Path, name: str) -> Path:
    """Return a copy of a spool as it is, which is what a killed process leaves."""
    twin = path.with_name(name)
    for ending in ("", "-wal"):
        Path(f"{twin}{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
    return twin


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_torn_end_is_left_out_and_nothing_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn") / "spool"
    spool = Spool(path)
    log = Path(f"{path}-wal")
    spool.sync()
    sizes = [0]
    for k in range(data.draw(st.integers(1, 6))):
        spool.append([forecast(str(k))])
        sizes.append(log.stat().st_size)
    twin = copied(path, "twin")
    spool.close()
    cut = data.draw(st.integers(0, sizes[-1]))
    os.truncate(f"{twin}-wal", cut)
    again = Spool(twin)
    whole = sum(size <= cut for size in sizes[1:])
    assert names(again) == [str(k) for k in range(whole)]
    assert again.append([outcome("next")])
    again.close()
    last = Spool(twin)
    assert names(last) == [*(str(k) for k in range(whole)), "next"]
    last.close()


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "append", "advance", "restart", "kill"]), st.integers(1, 5)),
        min_size=6,
        max_size=30,
    )
)
def test_a_queue_by_any_course(tmp_path_factory: pytest.TempPathFactory, course: list[tuple[str, int]]) -> None:
    path, expected, made = tmp_path_factory.mktemp("course") / "spool", list[str](), 0
    spool = Spool(path)
    for what, count in course:
        match what:
            case "append":
                new = [str(made + k) for k in range(count)]
                assert spool.append([forecast(name) for name in new])
                made, expected = made + count, expected + new
            case "advance" if rows := spool.head(count):
                spool.advance(rows)
                expected = expected[count:]
            case "restart":
                spool.close()
                spool = Spool(path)
            case "kill":
                left = Spool(copied(path, "twin"))
                assert names(left) == expected
                left.close()
        assert names(spool) == expected
        assert spool.counts.waiting == len(expected)
    spool.close()


def test_the_files_stay_small_though_the_spool_is_never_empty(tmp_path: Path) -> None:
    path, most = tmp_path / "spool", 0
    spool = Spool(path)
    spool.append([forecast("0")])
    for k in range(1, 500):
        spool.append([forecast(str(k))])
        spool.advance(spool.head(1))
        most = max(most, sum(file.stat().st_size for file in (path, Path(f"{path}-wal"))))
        assert names(spool) == [str(k)]
    assert most < 50_000
    spool.close()
    assert os.listdir(tmp_path) == ["spool"]


def test_the_file_shrinks_when_the_spool_is_empty(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for k in range(100):
        spool.append([forecast(f"{k}-{i}") for i in range(100)])
    spool.sync()
    large = (tmp_path / "spool").stat().st_size
    spool.advance(spool.head(10_000))
    spool.sync()
    assert (tmp_path / "spool").stat().st_size < 20_000 < large
    spool.append([forecast("next")])
    assert names(spool) == ["next"]
    spool.close()


def test_a_damaged_row_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    for name in "abc":
        spool.append([forecast(name)])
    spool.close()
    content = path.read_bytes()
    place = content.index(b'"p"', content.index(b'"id":"b"'))
    path.write_bytes(content[:place] + b"~" + content[place + 1 :])
    again = Spool(path)
    assert names(again) == ["a", "c"]
    assert again.counts.damaged == 1
    (kept,) = refused(path)
    assert kept.why.code == "damaged"
    assert '"id":"b"' in str(kept.row)
    again.advance(again.head(9))
    assert again.counts.waiting == 0
    again.close()
    last = Spool(path)
    assert last.counts == _spool.SpoolCounts()
    last.close()


def test_what_was_refused_is_kept_apart(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append([forecast("a"), forecast("b")])
    why = Problem("invalid", "p has 2 entries, expected 3", "give all classes.", "p")
    spool.advance(spool.head(2), refused=[(forecast("a"), why)])
    assert spool.counts == _spool.SpoolCounts(waiting=0, delivered=1, refused=1)
    (kept,) = refused(tmp_path / "spool")
    assert (kept.item, kept.why) == (forecast("a"), why)
    spool.close()


def test_a_full_spool_keeps_the_oldest_and_has_room_for_outcomes(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", limit=4000)
    kept = [name for name in map(str, range(100)) if spool.append([forecast(name)])]
    assert kept == [str(k) for k in range(len(kept))]
    assert 10 < len(kept) < 100
    settled = [name for name in kept if spool.append([outcome(name)])]
    assert settled == kept[: len(settled)]
    assert len(settled) >= 5
    assert spool.counts.dropped == 100 - len(kept) + len(kept) - len(settled)
    assert names(spool) == kept + settled
    spool.advance(spool.head(len(kept)))
    assert spool.append([forecast("later")])
    assert names(spool) == [*settled, "later"]
    spool.close()


def test_a_spool_that_cannot_be_read_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.append([forecast("a")])
    spool.close()
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes(len(content) - 100))
    again = Spool(path)
    assert "is set aside as" in caplog.text
    assert again.counts == _spool.SpoolCounts(damaged=1)
    assert again.append([forecast("b")])
    again.close()
    assert Path(f"{path}.damaged").read_bytes()[:100] == content[:100]


def test_a_full_disk_leaves_nothing_of_what_was_not_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append([forecast("a")])
    pages = spool._table.execute("PRAGMA page_count").fetchone()[0]
    spool._table.execute(f"PRAGMA max_page_count = {pages + 1}")  # SQLite says then that the disk is full
    assert not spool.append([forecast(f"b{k}") for k in range(1000)])
    spool._table.execute("PRAGMA max_page_count = 1000000")
    assert spool.append([forecast("c")])
    assert names(spool) == ["a", "c"]
    spool.close()
    again = Spool(tmp_path / "spool")
    assert names(again) == ["a", "c"]
    assert again.counts.damaged == 0
    again.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    with pytest.raises(FileError, match=f"is in use by another treecal, process {os.getpid()}"):
        Spool(tmp_path / "spool")
    spool.close()
    Spool(tmp_path / "spool").close()


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from tests.client.test_spool import *; s = Spool(sys.argv[1]);"
        "s.append([forecast('a')]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "spool"], check=False)
    assert done.returncode == -9
    spool = Spool(tmp_path / "spool")
    assert names(spool) == ["a"]
    spool.close()


def test_a_closed_spool_takes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.close()
    assert not spool.append([forecast("a")])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a,b\n1,2\n", "is not a spool of treecal"),
        (b"treecal spool 1\n", "is a spool of an earlier format"),
    ],
)
def test_other_files_are_left_alone(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(content)
    with pytest.raises(FileError, match=problem):
        Spool(tmp_path / "spool")
    assert (tmp_path / "spool").read_bytes() == content
    assert os.listdir(tmp_path) == ["spool"]


def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "spool")) as other, other:
        other.execute("CREATE TABLE items (name TEXT)")
    content = (tmp_path / "spool").read_bytes()
    with pytest.raises(FileError, match="is not a spool of treecal"):
        Spool(tmp_path / "spool")
    assert (tmp_path / "spool").read_bytes() == content
    assert os.listdir(tmp_path) == ["spool"]


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_limits_that_are_none(limit: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="limit is"):
        Spool(tmp_path / "spool", limit=limit)


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append([forecast("a")])
    spool.advance(spool.head(1), refused=[(forecast("a"), Problem("invalid", "no"))])
    for name in ("spool", "spool.refused"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    spool.close()


FORK = """
import os, sys
from tests.client.test_spool import Spool, forecast, names
spool = Spool(sys.argv[1])
spool.append([forecast("a")])
child = os.fork()
if not child:
    spool.close()
    del spool
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert os.path.exists(sys.argv[1] + "-wal")
assert spool.append([forecast("b")])
print(*names(spool), flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_forked_process_does_not_let_others_have_its_owners_spool(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, tmp_path / "spool"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-9, "a b\n"), done.stderr
    spool = Spool(tmp_path / "spool")
    assert names(spool) == ["a", "b"]
    spool.close()
