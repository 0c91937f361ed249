"""What streams need is compiled before anybody asks for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.serve.http import served
from treecal.serve._config import CORRECTORS, FORECASTERS
from treecal.serve._warm import warm_up
from treecal.serve._wire import NewStream, Part, Shape


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("treecal.serve._warm._compiled", set())


def test_every_kind_is_played_once_and_nothing_is_left(tmp_path: Path) -> None:
    two = ["no", "yes"]
    streams = [NewStream(f"c-{name}", classes=two, corrector=Part(name)) for name in CORRECTORS]
    streams += [NewStream(f"f-{name}", classes=two, forecaster=Part(name)) for name in FORECASTERS]
    streams += [NewStream("again", classes=two, corrector=Part(name)) for name in CORRECTORS]
    streams += [NewStream("box", set=Shape("Box", {"low": 0.0, "high": 1.0, "dim": 2}))]
    assert warm_up(streams) == ["vector", *(name for name in CORRECTORS if name != "vector"), *FORECASTERS, "as it is"]
    assert warm_up(streams) == []
    assert not os.listdir(tmp_path)


def test_the_rounds_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is not reached is not compiled: outcomes are learned, one alone and then several together."""
    from treecal.serve._player import Player

    learned, learn = list[int](), Player.learn

    def counted(self: Player, rounds, arrivals, outcomes):  # type: ignore[no-untyped-def]
        learned.append(len(rounds))
        return learn(self, rounds, arrivals, outcomes)

    monkeypatch.setattr(Player, "learn", counted)
    tagged = NewStream("groups", classes=["a", "b"], corrector=Part("temperature"), tags=["x"], group=["x"], gate=True)
    assert warm_up([tagged]) == ["vector", "temperature"]
    assert (learned.count(3), 1 in learned) == (2, True)


def test_a_stream_that_cannot_be_played_is_left_out() -> None:
    assert warm_up([NewStream("x", classes=["a", "b", "c"], corrector=Part("platt"))]) == ["vector", "platt"]
    assert warm_up([NewStream("x", classes=["a", "b"], corrector=Part("gone"))]) == ["gone"]


def test_a_new_kind_is_compiled_beside_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = dict[str, str]()

    def noted(streams: list[NewStream]) -> list[str]:
        threads[streams[0].name] = threading.current_thread().name
        return []

    monkeypatch.setattr("treecal.serve._operations.warm_up", noted)
    with served(tmp_path) as house:
        assert house.ask("POST", "/v1/streams", {"name": "rain", "classes": ["no", "yes"]}).status == 201
    assert "rain" in threads
    assert threads["rain"] != "treecal-writer"


def test_what_is_compiled_for_a_new_kind_is_set_aside_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = list[None]()
    monkeypatch.setattr("treecal.serve._operations.set_aside", lambda: aside.append(None))
    with served(tmp_path) as house:
        for name in ("rain", "snow"):
            assert house.ask("POST", "/v1/streams", {"name": name, "classes": ["no", "yes"]}).status == 201
    assert len(aside) == 1


def test_where_nothing_can_be_written_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert warm_up([]) == ["vector"]
