"""What is wrong is said in words that help: what there is, what would be right, and where."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cli.support import refused, run
from tests.serve.http import House, fill, served
from tests.serve.postgres import Cluster
from treecal.serve import _sqlite
from treecal.serve._connections import open_store
from treecal.serve._store import NotNowError

KIND = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with served(tmp_path_factory.mktemp("books")) as made:
        fill(made)
        yield made


STREAMS, FORECASTS, BATCH, OUTCOMES = (
    "/v1/streams",
    "/v1/streams/a/forecasts",
    "/v1/streams/a/forecasts/batch",
    "/v1/outcomes",
)
ROW: dict[str, Any] = {"id": "x", "p": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("path", "body", "words", "hint", "at"),
    [
        (STREAMS, {"name": "b", "class": ["x", "y"]}, "no field 'class'", "classes, set, corrector", None),
        (STREAMS, {"name": "b", "corrector": {"nam": "v"}}, "no field 'nam'", "name, options", "corrector"),
        (STREAMS, {"name": "b c", "classes": ["x", "y"]}, "characters", "Letters, digits, dots", "name"),
        (STREAMS, {"name": "b", "classes": "x"}, "a list or null, got text", None, "classes"),
        (STREAMS, {"name": "b", "classes": ["x"]}, "a list of length >= 2", None, "classes"),
        (STREAMS, {"classes": ["x", "y"]}, "the field 'name' is missing", None, None),
        (FORECASTS, ROW | {"tags": {"city": 1}}, "expected text, got a whole number", None, "tags"),
        (FORECASTS, ROW | {"id": "a\nb"}, "characters", "in one line", "id"),
        (FORECASTS, ROW | {"due": 1_800_000_000_000}, "expected a time", "milliseconds", "due"),
        (BATCH, {"forecasts": [ROW, ROW | {"used_": True}]}, "no field 'used_'", "used", "forecasts[1]"),
        (BATCH, [ROW], "an object, got a list", '{"forecasts": [{"id": ...}]}', None),
        (BATCH, ROW, "no field 'id'", '{"forecasts": [', None),
        (OUTCOMES, {"stream": "a", "id": "r0", "outcome": 1}, "no field 'stream'", '{"outcomes": [{"stream": ', None),
        (OUTCOMES, {"outcome": []}, "no field 'outcome'", '{"outcomes": [{"stream": ', None),
        (OUTCOMES, {"rows": []}, "no field 'rows'", "outcomes", None),
    ],
)
def test_a_body(house: House, path: str, body: Any, words: str, hint: str | None, at: str | None) -> None:
    found = house.ask("POST", path, body).refused(422, "invalid").error
    assert words in found.message
    assert (hint is None) is (found.hint is None)
    assert (hint or "") in (found.hint or "")
    assert found.at == at
    assert "`" not in found.message


@pytest.mark.parametrize(
    ("query", "words", "hint"),
    [
        ("window=fortnight", "another value than 'fortnight'", "one of day, hour, minute, month, week"),
        ("windows=day", "no field 'windows'", "by, window, since"),
        ("last=many", "a whole number", ""),
    ],
)
def test_a_query(house: House, query: str, words: str, hint: str) -> None:
    found = house.ask("GET", f"/v1/streams/a/scores?{query}").refused(422, "invalid").error
    assert words in found.message
    assert hint in (found.hint or "")


@pytest.mark.parametrize(
    ("raw", "words", "hint"),
    [
        (b'{"id": "x", "p": [NaN, 1]}', "NaN at byte 18", "finite"),
        (b'{"id": "x", "p": [-Infinity, 1]}', "Infinity at byte 19", "finite"),
        (b'{"id": "NaN", "p": [0.5, 0.5]', "truncated", "one object"),
        (b" \n", "the body is empty", "one object"),
    ],
)
def test_what_is_no_json(house: House, raw: bytes, words: str, hint: str) -> None:
    found = house.ask("POST", FORECASTS, parts=[raw], headers=KIND).refused(400, "bad_json").error
    assert words in found.message
    assert hint in str(found.hint)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/streams/", "slash"),
        ("/v1/streams/a/outcomes", "POST /v1/outcomes"),
        ("/v1/forecasts", "/v1/streams/{s}/forecasts"),
        ("/v2", "openapi.json"),
    ],
)
def test_a_path_that_is_not(house: House, path: str, hint: str) -> None:
    assert hint in str(house.ask("POST", path, {}).refused(404, "not_found").error.hint)


def test_two_tokens_of_a_name(tmp_path: Path) -> None:
    data = tmp_path / "books.sqlite"
    for _ in range(2):
        assert run("token", "create", "shop", "--data", data).code == 0
    refused(run("token", "revoke", "shop", "--data", data), "there are 2 tokens 'shop'", "token list")


class Full(apsw.VFS):
    """A disk with room for some pages of the books."""

    def __init__(self) -> None:
        self.writes = 0
        super().__init__("full", "")

    def xOpen(self, name: Any, flags: list[int]) -> FullFile:  # noqa: N802
        return FullFile(self, name, flags)


class FullFile(apsw.VFSFile):
    def __init__(self, disk: Full, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.writes += 1
        if self._disk.writes > 4:
            raise apsw.FullError("full")
        super().xWrite(data, offset)


def test_a_disk_that_is_full_at_the_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, connect = Full(), apsw.Connection
    monkeypatch.setattr(_sqlite.apsw, "Connection", lambda name: connect(name, vfs="full"))
    with pytest.raises(NotNowError, match="the disk is full") as caught, open_store(str(tmp_path / "b.sqlite")):
        pass
    assert caught.value.hint == "make room."
    assert disk.writes > 4


def test_no_room_for_the_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(NotNowError, match="the disk is full"), open_store(str(tmp_path / "b.sqlite")):
        pass


def test_a_database_that_does_not_answer_may_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("TREECAL_SERVE_DATA", f"postgresql://u:secret@127.0.0.1:{port}/books")
    done = run("serve", "--port", 0)
    refused(done, "PostgreSQL does not answer", "check that it runs", code=75)
    assert "secret" not in done.err
    assert "other one" not in done.err


@pytest.mark.heavy
def test_each_trouble_with_a_database_has_its_own_hint(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from treecal.serve import _postgres

    monkeypatch.setattr(_postgres, "_PATIENCE", "50ms")
    data = postgres.database()
    with open_store(data):
        for address, words, hint in (
            (data, "another treecal serve holds", "let it end first"),
            (data.replace("?", "-none?"), "refuses the connection", "createdb"),
            (data.replace("host=", "host=/none"), "does not answer", "check that it runs"),
        ):
            with pytest.raises(NotNowError, match=words) as caught, open_store(address):
                pass
            assert hint in str(caught.value.hint)
