"""Columns named like the classes are read by name, by everything that reads forecasts or outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import treecal as tc
from treecal.exceptions import ForecastError, OutcomeError, TreeCalError

CLASSES = ["rain", "snow", "sun"]
SKY = tc.Simplex(classes=CLASSES)
P = np.random.default_rng(0).dirichlet(np.ones(3), 12)
CAME = [CLASSES[k] for k in np.random.default_rng(1).integers(3, size=12)]
KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda table: table,
    "polars": pl.from_pandas,
    "arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "batch": lambda table: pa.RecordBatch.from_pandas(table, preserve_index=False),
}


def by_corrector(table: Any) -> Any:
    f = tc.VectorScaling(SKY)
    return [f.fit(table, CAME).theta, f.predict_many(table), f.update_many(table, CAME)]


def by_ledger(table: Any) -> Any:
    ledger = tc.Ledger(SKY)
    ledger.record_many(table, CAME)
    return ledger.error("l1")


def by_monitor(table: Any) -> Any:
    monitor = tc.Monitor(SKY)
    monitor.update_many(table, CAME)
    return monitor.e_value


def by_late(table: Any) -> Any:
    late = tc.Late(tc.VectorScaling(SKY))
    found = late.predict_many(table, ids=range(12))
    late.update_many(range(12), CAME)
    return [found, late.report().after.brier]


def by_audit(table: Any) -> Any:
    return [tc.audit(table, CAME, classes=CLASSES).to_dict()]


def by_bank(table: Any) -> Any:
    bank = tc.Bank(tc.VectorScaling(SKY, forget=False), streams=12)
    bank.update(np.arange(12), CAME, forecasts=table)
    return bank.predict(np.arange(12), forecasts=table)


READERS = [by_corrector, by_ledger, by_monitor, by_late, by_audit, by_bank]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_columns_makes_no_difference(kind: str, read: Callable[[Any], Any]) -> None:
    expected = read(P)
    for order in (["sun", "rain", "snow"], CLASSES, ["snow", "sun", "rain"]):
        table = KINDS[kind](pd.DataFrame(P, columns=CLASSES)[order])
        assert repr(read(table)) == repr(expected)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_other_names_are_refused_and_listed(kind: str, read: Callable[[Any], Any]) -> None:
    for names in (["hail", "snow", "sun"], ["rain", "snow", "p"]):
        with pytest.raises(ForecastError, match=f"columns {', '.join(names)}, expected rain, snow, sun"):
            read(KINDS[kind](pd.DataFrame(P, columns=names)))
    more = pd.DataFrame(P, columns=CLASSES).assign(id=1)
    with pytest.raises(ForecastError, match="columns rain, snow, sun, id, expected"):
        read(KINDS[kind](more))


@pytest.mark.parametrize("read", READERS)
def test_integers_are_read_by_position(read: Callable[[Any], Any]) -> None:
    for names in (range(3), [3, 1, 2]):
        assert repr(read(pd.DataFrame(P, columns=list(names)))) == repr(read(P))


def test_without_names_of_classes_the_position_counts() -> None:
    table, f = pd.DataFrame(P, columns=["c", "a", "b"]), tc.VectorScaling(tc.Simplex(3))
    assert np.array_equal(f.predict_many(table), f.predict_many(P))
    assert np.array_equal(f.predict(table.iloc[0]).mean, f.predict(P[0]).mean)


@given(st.permutations(CLASSES), st.integers(0, 11))
def test_a_series_is_read_by_its_index(order: list[str], row: int) -> None:
    f, ledger = tc.VectorScaling(SKY), tc.Ledger(SKY)
    given, came = pd.Series(P[row], CLASSES)[order], pd.Series(np.eye(3)[row % 3], CLASSES)[order]
    expected = f.predict(P[row])
    assert f.predict(given) == expected
    assert np.array_equal(f.predict_many([given, given]), f.predict_many([P[row], P[row]]))
    ledger.record(given, came)
    other = tc.Ledger(SKY)
    other.record(P[row], row % 3)
    assert ledger.error("l1") == other.error("l1")
    with pytest.raises(ForecastError, match="has entries for a, b, c, expected rain, snow, sun"):
        f.predict(pd.Series(P[row], ["a", "b", "c"]))
    with pytest.raises(OutcomeError, match="has entries for a, b, c"):
        ledger.record(P[row], pd.Series(np.eye(3)[0], ["a", "b", "c"]))


def test_outcomes_in_a_table_are_read_by_name() -> None:
    hot = pd.DataFrame(np.eye(3)[[0, 2, 1]], columns=CLASSES)[["sun", "snow", "rain"]]
    for kind in KINDS.values():
        ledger, other = tc.Ledger(SKY), tc.Ledger(SKY)
        ledger.record_many(P[:3], kind(hot))
        other.record_many(P[:3], ["rain", "sun", "snow"])
        assert ledger.error("l1", total=True) == other.error("l1", total=True)
        run = tc.replay(kind(hot), tc.TreeCal(SKY, arity=2))
        assert run.forecast(3) == tc.replay(["rain", "sun", "snow"], tc.TreeCal(SKY, arity=2)).forecast(3)
        with pytest.raises(TreeCalError, match="expected rain, snow, sun"):
            tc.replay(kind(hot.rename(columns={"sun": "son"})), tc.TreeCal(SKY))
    # Of a series of classes the index is nothing but the number of the row.
    ledger.record_many(P[:2], pd.Series(["sun", "rain"], ["snow", "sun"]))


def test_columns_name_the_classes_of_an_audit() -> None:
    table = pd.DataFrame(P, columns=CLASSES)[["sun", "rain", "snow"]]
    ours, theirs = tc.audit(table, CAME), tc.audit(table.to_numpy(), CAME, classes=list(table.columns))
    assert ours.to_dict() == theirs.to_dict()
    assert tc.audit(table.to_numpy(), np.arange(12) % 3).to_dict() == tc.audit(table, np.arange(12) % 3).to_dict()
