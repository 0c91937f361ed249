"""Rows of any length climb alike, in registers or in memory, block after block; nothing invalid slips through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import treecal as tc
from tests.engine.support import DISTANCES, corners, replay
from tests.some import some
from tests.strategies import play
from treecal._typing import Array
from treecal.exceptions import OutcomeError

ROUNDS = 650
ROWS = np.random.default_rng(0).dirichlet(np.ones(5), size=ROUNDS)


def carried(rows: Array, arity: int) -> Array:
    """The sum of a node from its leaves: children are added one after the other, height by height."""
    while len(rows) > 1:
        children = rows.reshape(-1, arity, rows.shape[1])
        rows = np.zeros((len(children), rows.shape[1]))
        for child in range(arity):
            rows += children[:, child]
    total: Array = rows[0]
    return total


# A kernel is compiled for each number of chunks, each type and with a mix or without, which takes longer than all else.
LENGTHS = [(4, 8), (10, 8), (10, 40), (35, 5)]


@pytest.mark.parametrize(("dim", "arity"), some(LENGTHS, every=3))
def test_rows_of_any_length(dim: int, arity: int) -> None:
    """Of whole chunks, with a rest, more siblings than are summed together, and too long for registers."""
    rng = np.random.default_rng(dim)
    rows = rng.dirichlet(np.ones(dim), size=ROUNDS)
    check_rows([rows, corners(dim, rng.integers(dim, size=ROUNDS))], dim, arity)


@pytest.mark.parametrize(("dim", "arity"), some(LENGTHS, every=4))
def test_classes_of_any_number(dim: int, arity: int) -> None:
    check_rows([np.random.default_rng(dim).integers(dim, size=ROUNDS)], dim, arity)


def check_rows(forms: list[Any], dim: int, arity: int) -> None:
    """A replay is what a forecaster announces, and has its errors."""
    for outcomes in forms:
        run = replay(outcomes, lambda: tc.TreeCal(tc.Simplex(dim), arity=arity), piece=arity**2 * dim)
        alone = tc.TreeCal(tc.Simplex(dim), arity=arity)
        forecasts, ledger = play(alone, outcomes if outcomes.ndim == 2 else corners(dim, outcomes))
        for t in range(0, ROUNDS, 37):
            assert run.forecast(t) == forecasts[t]
        for distance in DISTANCES:
            assert run.error(distance, per_node=True) == pytest.approx(ledger.error(distance, per_node=True), abs=1e-12)


@pytest.mark.parametrize("depth", [None, 7])
def test_blocks_of_a_piece(depth: int | None) -> None:
    """A piece is larger than what stays near the processor, and the stream ends within a block."""
    rows = np.random.default_rng(1).dirichlet(np.ones(3), size=300_011)
    run = tc.replay(rows, tc.TreeCal(tc.Simplex(3), arity=8, depth=depth), threads=2)
    piece = run._plan.piece
    assert len(run._sums) == len(rows) // piece == 1
    assert run._sums[0].tobytes() == carried(rows[:piece], 8).tobytes()
    ledger = run.ledger()
    for distance in (tc.l1, tc.l2, tc.l2.squared):
        assert run.error(distance, per_node=True) == pytest.approx(ledger.error(distance, per_node=True), rel=1e-12)


@given(st.integers(0, ROUNDS - 1), st.integers(0, 4), st.sampled_from([np.nan, np.inf, -np.inf, -1e-6, 1.0, 1e-6]))
@example(0, 4, np.nan)
@example(ROUNDS - 1, 3, -1e-6)
@settings(max_examples=30, deadline=None)
def test_one_invalid_entry_is_found(row: int, entry: int, change: float) -> None:
    rows = ROWS.copy()
    rows[row, entry] += change if np.isfinite(change) and change > 0 else change - rows[row, entry]
    with pytest.raises(OutcomeError, match=rf"\bround {row + 1}\b"):
        tc.replay(rows, tc.Simplex(5))


def test_signs_within_rounding_are_no_error() -> None:
    rows = corners(5, np.arange(ROUNDS) % 5)
    expected = tc.replay(rows, tc.Simplex(5))
    for zero in (-0.0, -1e-12):
        run = tc.replay(np.where(rows == 0, zero, rows), tc.Simplex(5))
        assert run.error("l1", per_node=True) == pytest.approx(expected.error("l1", per_node=True), abs=1e-10)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int64", 3),
        ("int64", -1),
        ("int64", 2**40),
        pytest.param("int32", -1, marks=pytest.mark.heavy),  # compiled by itself
        ("uint8", 200),
        ("int16", -300),
        ("uint64", 2**63),
    ],
)
def test_classes_that_do_not_exist(kind: str, value: int) -> None:
    classes: Any = np.zeros(ROUNDS, kind)
    classes[77] = value
    with pytest.raises(OutcomeError, match=rf"round 78 is the class {value}, expected 0 to 2"):
        tc.replay(classes, tc.Simplex(3))


def test_float32_is_summed_in_float64() -> None:
    rows = np.random.default_rng(2).integers(1, 9, size=(ROUNDS, 3)).astype(np.float32)
    rows[:, 0] = 64 - rows[:, 1:].sum(axis=1)
    rows /= 64
    single, double = tc.replay(rows, tc.Simplex(3)), tc.replay(rows.astype(np.float64), tc.Simplex(3))
    assert single.forecast(ROUNDS) == double.forecast(ROUNDS)
    for distance in DISTANCES:
        assert single.error(distance, per_node=True) == double.error(distance, per_node=True)
