"""`treecal doctor --data`: it tells sound books from others, also while they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from tests.test_processors import OLD
from treecal.cli._app import run
from treecal.exceptions import FileError
from treecal.serve import _wire as wire
from treecal.serve._sqlite import Sqlite
from treecal.serve._writer import Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "books.sqlite"
    with Writer(Sqlite(file)) as writer:
        new = wire.NewStream("rain", classes=["dry", "wet"], corrector=wire.Part("platt"))
        writer.submit(lambda books: books.create(new)).result()
        for i in range(20):
            ask = wire.NewForecast(str(i), [0.25, 0.75])
            writer.submit(lambda books: books.forecast("rain", [ask])).result()  # noqa: B023
            writer.submit(lambda books: books.settle([wire.NewOutcome("rain", str(i), i % 2)])).result()  # noqa: B023
    return file


def test_sound_books(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Sqlite(path):  # a server holds them
        assert run(["doctor", "--data", str(path)]) == 0
    assert "The books are sound: 20 forecasts" in capsys.readouterr().out
    assert run(["doctor", "--data", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sound"]
    assert [(each["name"], each["rounds"], each["arrivals"]) for each in found["streams"]] == [("rain", 20, 20)]


def test_books_that_are_moved_to_another_processor(tmp_path: Path) -> None:
    """What was announced passed through `exp` and `log`, which must not be those of NumPy or of the C library."""
    file, rng = tmp_path / "books.sqlite", np.random.default_rng(0)
    parts: tuple[dict[str, Any], ...] = (
        {"corrector": wire.Part("vector"), "gate": True},
        {"forecaster": wire.Part("guarded")},
    )
    with Writer(Sqlite(file)) as writer:
        for number, part in enumerate(parts):
            new = wire.NewStream(f"stream-{number}", classes=["no", "perhaps", "yes"], **part)
            writer.submit(lambda books: books.create(new)).result()  # noqa: B023
            for i, p in enumerate(rng.dirichlet([1, 1, 1], 70).tolist()):
                ask = wire.NewForecast(str(i), p if number == 0 else None)
                writer.submit(lambda books: books.forecast(new.name, [ask])).result()  # noqa: B023
                outcome = wire.NewOutcome(new.name, str(i), int(np.argmax(p)))
                writer.submit(lambda books: books.settle([outcome])).result()  # noqa: B023
    command = [sys.executable, "-m", "treecal", "doctor", "--data", str(file)]
    moved = subprocess.run(command, env={**os.environ, **OLD}, capture_output=True, text=True)
    assert "The books are sound: 140 forecasts" in moved.stdout, moved.stderr


def test_books_that_are_not(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apsw.Connection(str(path)).execute("UPDATE arrivals SET class = 1 WHERE arrival = 3")
    assert run(["doctor", "--data", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "rain: round 4: the log before it is not the one it was announced after." in shown
    assert "not sound" in shown


def test_an_index_that_has_lost_a_forecast(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is sent again would not be found, and recorded a second time; the log itself is as it was."""
    ask = wire.NewForecast("acknowledged", [0.25, 0.75])
    with Writer(Sqlite(path)) as writer:
        (before,) = writer.submit(lambda books: books.forecast("rain", [ask])).result()
    connection = apsw.Connection(str(path))
    page = connection.pragma("page_size")
    number = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_rounds_2'").get
    assert isinstance(page, int)
    assert isinstance(number, int)
    connection.close()
    content, whole = bytearray(path.read_bytes()), slice((number - 1) * page, number * page)
    content[whole] = content[whole].replace(b"acknowledged", b"Acknowledged")
    path.write_bytes(content)

    assert run(["doctor", "--data", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "the file is damaged: row 21 missing from index sqlite_autoindex_rounds_2." in shown
    assert "not sound" in shown
    assert run(["doctor", "--data", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], len(found["damage"])) == (False, 1)
    with pytest.raises(FileError, match=r"is damaged: row 21 missing from index(.|\n)*restore a backup(.|\n)*REINDEX"):
        Sqlite(path).__enter__()

    connection = apsw.Connection(str(path))
    connection.execute("REINDEX")
    connection.close()
    assert run(["doctor", "--data", str(path)]) == 0
    with Writer(Sqlite(path)) as writer:
        assert writer.submit(lambda books: books.forecast("rain", [ask])).result() == [before]


def test_large_books_are_checked_by_the_doctor_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("treecal.serve._sqlite._CHECKED_BYTES", 0)
    with caplog.at_level("INFO", "treecal.serve"), Sqlite(path):
        assert "treecal doctor --data checks it" in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "there is no file"), (b"words, and nothing else", "no file of SQLite"), (b"", "not one of treecal")],
)
def test_no_books(tmp_path: Path, content: bytes | None, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sqlite"
    if content is not None:
        path.write_bytes(content)
    assert run(["doctor", "--data", str(path)]) == 2
    assert problem in capsys.readouterr().err
