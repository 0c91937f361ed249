"""The spool keeps what it took, in order, whatever happens to the process and the file."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecal.client import _spool
from treecal.client._spool import Item, Refused, Spool, SpooledForecast, SpooledOutcome
from treecal.exceptions import FileError, ParameterError
from treecal.serve._wire import NewForecast, NewOutcome, Problem


def forecast(name: str) -> SpooledForecast:
    return SpooledForecast("rain", NewForecast(name, [0.25, 0.75], {"city": "Öland\n"}, 7.5, used=True))


def outcome(name: str) -> SpooledOutcome:
    return SpooledOutcome(NewOutcome("rain", name, 1))


def names(spool: Spool) -> list[str]:
    items = (record.item for record in spool.head(10**6))
    return [item.forecast.id if isinstance(item, SpooledForecast) else item.outcome.id for item in items]


def refused(path: Path) -> list[Refused]:
    return [msgspec.json.decode(line, type=Refused) for line in Path(f"{path}.refused").read_bytes().splitlines()]


def test_items_come_back_as_they_were(tmp_path: Path) -> None:
    items: list[Item] = [forecast("a"), outcome("a"), forecast("b")]
    spool = Spool(tmp_path / "spool")
    for item in items:
        assert spool.append([item])
    assert [record.item for record in spool.head(10)] == items
    assert [record.item for record in spool.head(2)] == items[:2]
    spool.close()
    again = Spool(tmp_path / "spool")
    assert [record.item for record in again.head(10)] == items
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


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_torn_end_is_left_out_and_nothing_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn") / "spool"
    spool = Spool(path)
    sizes, delivered = [path.stat().st_size], 0
    count = data.draw(st.integers(1, 6))
    for k in range(count):
        spool.append([forecast(str(k))])
        sizes.append(path.stat().st_size)
    if count > 1 and data.draw(st.booleans()):
        delivered = data.draw(st.integers(1, count - 1))
        spool.advance(spool.head(delivered))
    spool.close()
    size = path.stat().st_size
    cut = data.draw(st.integers(0, size))
    os.truncate(path, cut)
    again = Spool(path)
    whole = sum(size <= cut for size in sizes[1:])
    marked = delivered if cut == size else 0  # the mark is the last line
    assert names(again) == [str(k) for k in range(marked, whole)]
    assert again.append([outcome("next")])
    again.close()
    last = Spool(path)
    assert names(last) == [*(str(k) for k in range(marked, whole)), "next"]
    last.close()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "append", "advance", "restart", "kill"]), st.integers(1, 5)),
        min_size=6,
        max_size=30,
    )
)
def test_a_queue_by_any_course(tmp_path_factory: pytest.TempPathFactory, course: list[tuple[str, int]]) -> None:
    path, expected, made = tmp_path_factory.mktemp("course") / "spool", list[str](), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_spool, "_LITTLE", 1000)  # so that the file is written anew often
        spool = Spool(path)
        for what, count in course:
            match what:
                case "append":
                    new = [str(made + k) for k in range(count)]
                    assert spool.append([forecast(name) for name in new])
                    made, expected = made + count, expected + new
                case "advance" if records := spool.head(count):
                    spool.advance(records)
                    expected = expected[count:]
                case "restart":
                    spool.close()
                    spool = Spool(path)
                case "kill":  # a copy of the files is what a killed process leaves
                    twin = path.with_name("twin")
                    twin.write_bytes(path.read_bytes())
                    left = Spool(twin)
                    assert names(left) == expected
                    left.close()
            assert names(spool) == expected
            assert spool.counts.waiting == len(expected)
            assert path.stat().st_size <= 2000 + 3 * sum(len(str(n)) + 200 for n in expected)
        spool.close()


def test_the_file_stays_small_though_it_is_never_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spool, "_LITTLE", 2000)
    path, most = tmp_path / "spool", 0
    spool = Spool(path)
    spool.append([forecast("0")])
    for k in range(1, 500):
        spool.append([forecast(str(k))])
        spool.advance(spool.head(1))
        most = max(most, path.stat().st_size)
        assert names(spool) == [str(k)]
    assert 2000 < most < 6000
    spool.close()
    assert os.listdir(tmp_path) == ["spool"]


def test_a_damaged_line_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    for name in "abc":
        spool.append([forecast(name)])
    spool.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"0.25", b"0.35")
    path.write_bytes(b"".join(lines))
    again = Spool(path)
    assert names(again) == ["a", "c"]
    assert again.counts.damaged == 1
    (kept,) = refused(path)
    assert kept.why.code == "damaged"
    assert '"id":"b"' in str(kept.line)
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


@pytest.mark.parametrize("written", [0, 1, 30])
def test_a_full_disk_leaves_no_half_line(written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append([forecast("a")])
    real = os.write

    def full(file: int, data: bytes) -> int:
        if written:
            return real(file, data[:written])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert not spool.append([forecast("b")])
    assert spool.append([forecast("c")])
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


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"treecal spool 2\n"])
def test_other_files_are_left_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(content)
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


def test_a_process_that_was_forked_from_its_owner_does_not_let_others_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "spool", os.getpid()
    spool = Spool(path)
    held = os.dup(spool._file)  # as the owner has it still
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: real + 1)
        spool.close()
    assert Path(f"{path}.lock").exists()
    os.close(held)
