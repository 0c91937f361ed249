"""The table beside other monitors: its cells, and that it does without peers that are not installed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    return import_module("monitor_peers")


def test_cells(peers: Any) -> None:
    alarms = np.array([3, 70, 130, np.inf])
    assert peers.cell(alarms, np.inf) == "75%, –, –"
    assert peers.cell(alarms, 0) == "–, 75%, 130"
    assert peers.cell(alarms, 50) == "25%, 50%, 80"
    assert peers.cell(np.array([np.inf]), 50) == "0%, 0%, –"


def test_peers_that_are_not_installed_are_named(
    peers: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    found = peers.peers()
    assert list(found) == ["Monitor"]
    said = capsys.readouterr().out
    assert "probcal is not installed" in said
    assert "river is not installed" in said
    lines = list(peers.table(2, found))
    assert len(lines) == 2 + len(peers.STREAMS)
    assert "temperature 2 |" in lines[5]
    assert "100%" in lines[5]


def test_river_on_a_change_of_the_error_rate(peers: Any) -> None:
    drift = pytest.importorskip("river.drift")
    model = np.tile([0.9, 0.1], (4000, 1))
    outcomes = (np.random.default_rng(0).random(4000) < np.repeat([0.1, 0.6], 2000)).astype(np.int64)
    assert 2000 < peers.of_river(drift.ADWIN)(model, outcomes) < 2300


def test_probcal_on_a_shift_of_two_logits(peers: Any) -> None:
    pytest.importorskip("probcal")
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.3, 1000)
    y = (rng.random(1000) < p / (p + (1 - p) * np.exp(-2))).astype(np.int64)
    assert peers.of_probcal(10)(np.column_stack([1 - p, p]), y) <= 100
