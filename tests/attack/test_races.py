"""What was checked is what is used: another writer changes an answer at most, never where a kernel reads or writes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.attack.races import holds_nan
from treecal import correctors, forecasters
from treecal.columns import ROUNDS, ColumnStreams, Forecasts, Schema
from treecal.engine import read_outcomes
from treecal.exceptions import FileError
from treecal.geometry import _distributions

TWO, THREE = tc.Simplex(2), tc.Simplex(3)


class Counting(ColumnStreams):
    """Counts rounds; between check and use somebody writes to the caller's keys."""

    keys: Any = None

    def __init__(self, thing: Any) -> None:
        super().__init__(thing, Schema((ROUNDS,)))

    def check(self, rows: Any, *, predict: bool = False) -> None:
        if Counting.keys is not None:
            Counting.keys[:] = 2**40

    def announce(self, rows: Any, forecasts: Any) -> Forecasts:
        n = len(rows)
        return Forecasts(np.full((n, 1, 2), 0.5), np.ones((n, 1)), self.rounds[rows], TWO)

    def learn(self, rows: Any, outcomes: Any, forecasts: Any) -> None:
        np.add.at(self.rounds, rows, 1)


class Counted(tc.RunningMean):
    def _streams(self) -> Any:
        return Counting(self)


def test_keys_are_those_that_were_checked() -> None:
    bank = tc.Bank(Counted(TWO), streams=3)
    Counting.keys = keys = np.array([0, 2, 2])
    try:
        bank.update(keys, [0, 1, 0])
        assert bank.rounds.tolist() == [1, 0, 2]
        Counting.keys = keys = np.array([2, 1])
        assert bank.predict(keys).sizes.tolist() == [2, 0]
        assert (keys == 2**40).all()
    finally:
        Counting.keys = None


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_classes_are_those_that_were_checked(kind: Any) -> None:
    classes = np.array([0, 2, 1], kind)
    assert not np.shares_memory(read_outcomes(THREE, classes), classes)


def test_probabilities_that_change_after_the_check_find_no_cell_outside() -> None:
    torn = np.array([[np.nan, 0.5, 0.5]] * 3)
    outcomes = np.eye(3)
    tc.Monitor(THREE).learn_valid(torn, outcomes, None)  # as if it had been valid when it was checked
    tc.Monitor(THREE).learn_valid(np.repeat(torn, 5, axis=0), np.repeat(outcomes, 5, axis=0), None)  # compiled


def test_an_audit_says_that_its_arrays_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from treecal.auditing import _memory

    P, check = np.full((4, 2), 0.5), _memory.ArrayLog._check

    def changed(self: Any, *given: Any) -> Any:
        found = check(self, *given)
        P[1] = np.nan
        return found

    monkeypatch.setattr(_memory.ArrayLog, "_check", changed)
    with pytest.raises(FileError, match="changed while it was read"):
        tc.audit(P, [0, 1, 0, 1])


def test_laws_of_numbers_are_those_that_were_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check, given = _distributions._inside, {"mean": np.full(3, 5.0), "sd": np.ones(3)}
    expected = _distributions.read_distributions(tc.Cdf(0, 10), given)

    def changed(*arguments: Any) -> Any:
        found = check(*arguments)
        given["mean"][:] = given["sd"][:] = np.nan
        return found

    monkeypatch.setattr(_distributions, "_inside", changed)
    assert np.array_equal(_distributions.read_distributions(tc.Cdf(0, 10), given), expected)


KINDS: list[Any] = [*forecasters.REGISTRY.values(), *correctors.REGISTRY.values()]
THINGS = [example for kind in KINDS for example in kind.examples(TWO)]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: type(thing).__name__)
def test_vectors_are_those_that_were_checked(thing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check, given = tc.Simplex.admits, np.zeros(2)

    def changed(self: Any, point: Any) -> bool:
        found = check(self, point)
        given[:] = np.nan
        return found

    monkeypatch.setattr(tc.Simplex, "admits", changed)
    for y in ([0.0, 1.0], [0.25, 0.75], [1.0, 0.0]):
        given[:] = [0.25, 0.75]
        thing.predict(given) if isinstance(thing, tc.Corrector) else thing.predict()
        given[:] = y
        thing.update(given)
    assert not holds_nan(thing.get_state())


@pytest.mark.parametrize("module", ["_tally", "_recalibrate", "_monitor"])
def test_tensors_are_those_that_were_checked(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="pip install torch")
    from treecal.torch import CalibrationError, Monitor, Recalibrate

    check = importlib.import_module(f"treecal.torch.{module}").valid_rows
    x, y = torch.zeros(4, 3), torch.tensor([0, 1, 2, 1])

    def changed(*given: Any) -> Any:
        found = check(*given)
        y[:] = -(2**40)
        return found

    monkeypatch.setattr(f"treecal.torch.{module}.valid_rows", changed)
    metric, monitor, corrector = CalibrationError(3), Monitor(3), Recalibrate(3)
    learns = {"_tally": metric.update, "_recalibrate": corrector.observe, "_monitor": monitor.update}
    learns[module](x, y)
    rounds = {
        "_tally": lambda: metric.compute().rounds,
        "_recalibrate": lambda: int(corrector.rounds),
        "_monitor": lambda: monitor.monitor.rounds,
    }
    assert rounds[module]() == 4


@pytest.mark.attack
def test_many_races(attack_seed: int, attack_seconds: float) -> None:
    command = [sys.executable, "-m", "tests.attack.races", "240", str(attack_seed), str(attack_seconds)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-3000:])  # negative: the signal that ended it
    found = json.loads(ended.stdout.splitlines()[-1])
    print(f"races, seed {attack_seed}: {found}")
    assert found["races"] >= 200 or attack_seconds < 600
