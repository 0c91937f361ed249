"""What streams need is compiled before anybody asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treecal.serve._config import CORRECTORS, FORECASTERS
from treecal.serve._warm import warm_up
from treecal.serve._wire import NewStream, Part, Shape


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_every_kind_is_played_once_and_nothing_is_left(tmp_path: Path) -> None:
    two = ["no", "yes"]
    streams = [NewStream(f"c-{name}", classes=two, corrector=Part(name)) for name in CORRECTORS]
    streams += [NewStream(f"f-{name}", classes=two, forecaster=Part(name)) for name in FORECASTERS]
    streams += [NewStream("again", classes=two, corrector=Part(name)) for name in CORRECTORS]
    streams += [NewStream("box", set=Shape("Box", {"low": 0.0, "high": 1.0, "dim": 2}))]
    assert warm_up(streams) == ["vector", *(name for name in CORRECTORS if name != "vector"), *FORECASTERS, "as it is"]
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
    assert warm_up([NewStream("x", classes=["a", "b"], corrector=Part("gone"))]) == ["vector", "gone"]
