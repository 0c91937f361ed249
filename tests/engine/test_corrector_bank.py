"""A bank of correctors: as many separate ones, bit for bit, whatever the batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

import treecal as tc
from treecal._typing import Array
from treecal.columns import Columns
from treecal.correctors import Cells, TopClass
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, SnapshotError, TreeCalError
from treecal.state import dumps, loads

MAKERS: dict[str, Callable[[], tc.Corrector]] = {
    "Platt": lambda: tc.PlattScaling(tc.Simplex(2), forget=False),
    "Platt at its edge": lambda: tc.PlattScaling(tc.Simplex(2), rate=0.2, ridge=0.5, radius=1.1, forget=False),
    "temperature": lambda: tc.TemperatureScaling(tc.Simplex(3), forget=False),
    "temperature of many": lambda: tc.TemperatureScaling(tc.Simplex(20), forget=False),
    "vector": lambda: tc.VectorScaling(tc.Simplex(3), forget=False),
    "vector by class": lambda: tc.VectorScaling(tc.Simplex(12), curvature="by class", forget=False),
    "means": lambda: tc.Recalibrator(tc.Simplex(3), forget=False),
    "means without a prior": lambda: tc.Recalibrator(tc.Simplex(2), prior=0.0, forget=False),
    "Platt that forgets": lambda: tc.PlattScaling(tc.Simplex(2)),
    "Platt that forgets at its edge": lambda: tc.PlattScaling(tc.Simplex(2), rate=0.2, ridge=0.5, radius=1.1),
    "beta that forgets": lambda: tc.BetaCalibration(tc.Simplex(2)),
    "vector that forgets": lambda: tc.VectorScaling(tc.Simplex(3)),
    "means that forget": lambda: tc.Recalibrator(tc.Simplex(3)),
    "shifts in cells": lambda: tc.Recalibrator(tc.Simplex(2), make="shift", groups=Cells(width=0.3), forget=False),
    "calibrated groups": lambda: tc.Recalibrator(tc.Simplex(2), make=tc.TreeCal(tc.Simplex(2), arity=2)),
    "a chain": lambda: tc.Chain([tc.VectorScaling(tc.Simplex(3)), tc.Recalibrator(tc.Simplex(3))]),
    "gated": lambda: tc.Gated(tc.PlattScaling(tc.Simplex(2))),
    "by group": lambda: tc.ByGroup(tc.TemperatureScaling(tc.Simplex(3))),
    "guarded": lambda: tc.GuardedCorrector(tc.Simplex(2)),
    "shifts": lambda: tc.Recalibrator(tc.Simplex(3), make="shift", groups=TopClass(bins=3), forget=False),
}
STREAMS = 4
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def drawn(dim: int, rounds: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(dim, 0.5), rounds)
    P[::7] = np.eye(dim)[rng.integers(dim, size=len(P[::7]))]  # with zeros
    Y = np.eye(dim)[rng.integers(dim, size=rounds)]
    Y[::5] = rng.dirichlet(np.ones(dim), len(Y[::5]))
    return P, Y


@each
@settings(max_examples=8, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, STREAMS - 1), max_size=12), min_size=1, max_size=4),
    fitted=st.sampled_from([0, 1, 5, 62]),
    seed=st.integers(0, 99),
)
def test_it_is_a_corrector_for_each_stream(make: Any, batches: list[list[int]], fitted: int, seed: int) -> None:
    """Also after a fit, and after a snapshot."""
    pattern = make()
    P, Y = drawn(pattern.space.dim, fitted + sum(map(len, batches)) + 1, seed)
    if fitted:
        pattern.fit(P[:fitted], Y[:fitted])
    bank, alone, at = tc.Bank(pattern, streams=STREAMS - 1), [], fitted
    bank.add()
    for _ in range(STREAMS):
        one = make()
        one.set_state(pattern.get_state())
        alone.append(one)
    for keys in batches:
        rows = slice(at, at + len(keys))
        expected = []
        for key, b, y in zip(keys, P[rows], Y[rows], strict=True):
            expected.append(alone[key].predict(b).mean)
            alone[key].update(y)
        assert_array_equal(bank.update(keys, Y[rows], forecasts=P[rows]), np.reshape(expected, (-1, P.shape[1])))
        at += len(keys)
    bank = loads(dumps(bank))
    now = [f.predict_many(P[:1])[0] for f in alone]
    assert_array_equal(bank.predict(range(STREAMS), forecasts=np.tile(P[0], (STREAMS, 1))), now)
    assert_array_equal(bank.rounds, [f.rounds - fitted for f in alone])


@each
def test_classes_are_corners(make: Any) -> None:
    one, two = tc.Bank(make(), streams=2), tc.Bank(make(), streams=2)
    P, _ = drawn(one.space.dim, 6, 0)
    keys, classes = [0, 1, 1, 0, 0, 1], [0, 1, 1, 0, 1, 1]
    x = one.update(keys, classes, forecasts=P)
    assert_array_equal(x, two.update(keys, np.eye(one.space.dim)[classes], forecasts=P))
    assert dumps(one) == dumps(two)


def test_invalid_rows_change_nothing() -> None:
    bank = tc.Bank(tc.PlattScaling(tc.Simplex(2), forget=False), streams=2)
    good = [[0.5, 0.5], [0.5, 0.5]]
    bank.update([0, 1], [0, 1], forecasts=good)
    before = dumps(bank)
    with pytest.raises(ForecastError, match="row 1"):
        bank.update([0, 1], [0, 1], forecasts=[[0.5, 0.5], [0.5, 0.6]])
    with pytest.raises(OutcomeError, match="row 1"):
        bank.update([0, 1], np.array([[0, 1], [0, np.nan]]), forecasts=good)
    with pytest.raises(OutcomeError, match="row 0"):
        bank.update([0, 1], [2, 1], forecasts=good)
    for keys in ([0, 2], [0.5, 1.0]):
        with pytest.raises(ParameterError, match="key"):
            bank.update(keys, [0, 1], forecasts=good)
    for keys in ([0], [0, 1]):
        with pytest.raises(ParameterError, match="one each"):
            bank.update(keys, [0], forecasts=good)
    assert dumps(bank) == before


@each
def test_states_that_cannot_be(make: Any) -> None:
    bank = tc.Bank(make(), streams=2)
    P, Y = drawn(bank.space.dim, 8, 1)
    bank.update([0, 1] * 4, Y, forecasts=P)
    good = bank.get_state()
    for name, array in good.items():
        if isinstance(array, np.ndarray) and name not in ("rounds", "seen"):
            for bad in (array[:-1], array * np.nan, array.tolist()):
                with pytest.raises(SnapshotError):
                    bank.set_state(good | {name: bad})
    for rounds in (-good["rounds"], good["rounds"][:1], 3.0):
        with pytest.raises(SnapshotError):
            bank.set_state(good | {"rounds": rounds})
    bank.set_state(good)


def test_a_bank_that_was_cut_in_half_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = tc.Bank(tc.PlattScaling(tc.Simplex(2), forget=False), streams=2)

    def cut(columns: Columns, rows: Any, other: Columns) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Columns, "put", cut)
    with pytest.raises(KeyboardInterrupt):
        bank.update([0], [0], forecasts=[[0.5, 0.5]])
    with pytest.raises(TreeCalError, match="halfway"):
        bank.predict([0], forecasts=[[0.5, 0.5]])
