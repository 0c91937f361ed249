"""Logs of arrays are read by NumPy alone: to the digit what DuckDB and Arrow make of the same table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import treecal as tc
from tests.some import some
from treecal.auditing import _log

N = 400
RNG = np.random.default_rng(1)
P = RNG.dirichlet(np.ones(3), N).round(1)
P /= P.sum(axis=1, keepdims=True)
DAMAGED = P.copy()
DAMAGED[[5, 9]] = [[0.5, 0.6, 0.1], [np.nan, 0.5, 0.5]]
Y = RNG.integers(3, size=N)
NAMES = np.array(["rain", "snow", "sun"])[Y]
AT = np.arange(N)


def table(log: dict[str, Any]) -> pa.Table:
    flat = {name: np.ascontiguousarray(column) for name, column in log.items()}
    return pa.table(
        {
            name: pa.array(column) if column.ndim == 1 else pa.FixedSizeListArray.from_arrays(column.ravel(), 3)
            for name, column in flat.items()
        }
    )


def answer(source: Any, options: dict[str, Any]) -> Any:
    try:
        return tc.audit(source, **options).to_dict() | {"source": "log"}
    except tc.TreeCalError as error:
        return str(error).replace("the mapping", "log").replace("the table", "log")


def check(log: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Assert that arrays and the table with them have the same answer, and that only the table is read by DuckDB."""
    options = {"forecast": "p", "outcome": "y", "norms": ["l1", "l2"]} | options
    expected = answer(table(log), options)
    with monkeypatch.context() as patch:
        patch.delattr(_log, "open_source")
        assert answer(log, options) == expected


def without(label: Any) -> Any:
    """Return labels as objects, one of them missing."""
    found = label.astype(object)
    found[3] = None
    return found


@pytest.mark.parametrize(
    ("on_error", "classes"),
    some([("stop", None), ("collect", ["rain", "snow", "sun"]), ("collect", None), ("stop", [2, 0, 1])], every=2),
)
@pytest.mark.parametrize(
    "label",
    [
        Y,
        Y.astype(np.uint8),
        Y.astype(float),
        np.where(AT == 7, np.nan, Y),
        np.where(AT == 7, np.inf, Y),
        Y + 0.5,
        Y - 1,
        np.where(AT == 3, 9, Y),
        Y == 0,
        without(Y),
        without(Y == 0),
        NAMES,
        without(NAMES),
        np.where(AT == 3, "", NAMES),
    ],
    ids=lambda label: f"{label.dtype}",
)
def test_labels(label: Any, classes: Any, on_error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check({"p": P, "y": label}, monkeypatch, classes=classes, on_error=on_error)


@pytest.mark.parametrize(
    "by",
    some(
        [
            Y == 0,
            Y,
            np.where(Y == 1, np.nan, np.where(AT % 2 == 0, 0.0, -0.0)),
            P[:, 0].astype(np.float32),
            np.where(Y == 0, "", "x"),
            without(NAMES),
            np.array(["2020-01-01", "2021-01-02", "NaT"], "M8[D]")[Y],
            np.array(["2020-01-01", "2021-01-02T01:02:03.000004", "NaT"], "M8[us]")[Y],
            np.array(["1960-01-01", "2021-01-02T01:02:03.000004", "NaT"], "M8[ns]")[Y],
        ],
        every=2,
    ),
    ids=lambda by: f"{by.dtype}",
)
def test_groups_with_weights(by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = {"p": DAMAGED, "y": Y, "g": by, "h": NAMES, "w": RNG.random(N).round(1)}
    check(log, monkeypatch, by="g", weight="w", on_error="collect")
    check(log, monkeypatch, by=["h", "g"], on_error="skip", loss=1 - np.eye(3))


@pytest.mark.parametrize(
    "time",
    some(
        [
            AT,
            RNG.permutation(N),
            np.where(AT == 3, np.nan, AT / 3),
            np.datetime64("2020-01-01") + AT,
            np.where(AT == 3, np.datetime64("NaT"), np.datetime64("2020-01-01") + AT),
            np.datetime64("2020-01-01T00", "ns") + AT * 10**12,
            (np.datetime64("2020-01-01") + AT).astype(str),
            np.char.add((np.datetime64("2020-01-01T10:00") + AT).astype(str), ":00.25"),
        ],
        every=2,
    ),
    ids=lambda time: f"{time.dtype}",
)
def test_windows_of_time(time: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = {"p": DAMAGED, "y": Y, "t": time, "w": RNG.integers(4, size=N)}
    check(log, monkeypatch, time="t", by="y", weight="w", on_error="skip")
    check(log, monkeypatch, time="t", on_error="skip", exact=False)


@pytest.mark.parametrize("kind", ["f2", "f4", "i4", "?"])
def test_numbers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = {f"y{k}": column for k, column in enumerate(np.eye(3)[Y].astype(kind).T)}
    p = P[:, 0].astype(kind)
    check({"p": P.astype(kind), "y": Y}, monkeypatch, tolerance=0.01, on_error="skip")
    check({"p": P} | hot, monkeypatch, outcome=list(hot))
    check({"p": P} | hot, monkeypatch, outcome=list(hot), classes=["c", "a", "b"])
    check({"p": p, "y": Y == 0}, monkeypatch, on_error="skip")
    check({"p": P, "y": Y, "w": (1 + Y).astype(kind)}, monkeypatch, weight="w")


@pytest.mark.parametrize(
    "options",
    [
        {"forecast": "q"},
        {"outcome": "z"},
        {"by": "x"},
        {"weight": "v"},
        {"weight": "w"},
        {"tolerance": 2.0},
        {"forecast": ["p", "p"]},
        {"forecast": "y"},
        {"classes": ["a", "b"]},
        {"classes": ["a", "b", "c"]},
        {"classes": ["a", "b", "b"]},
    ],
)
def test_refusals(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check({"p": P, "y": Y, "w": -P[:, 0]}, monkeypatch, **options)


def test_named_columns_and_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"p_snow": P[:, 1], "p_rain": P[:, 0], "p_sun": P[:, 2], "y": NAMES}
    check(named, monkeypatch, forecast=["p_snow", "p_rain", "p_sun"])
    check({"p_rain": P[:, 0], "y": np.where(Y == 0, "rain", "sun")}, monkeypatch, forecast="p_rain", on_error="skip")
    check({"p": P[:0], "y": Y[:0]}, monkeypatch)


def test_many_classes_and_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    p, y = RNG.dirichlet(np.ones(40), 2000), RNG.integers(40, size=2000)  # more combinations than an integer holds
    fine = {f"p{k}": np.concatenate([column, column]) for k, column in enumerate(p.T)}
    check(fine | {"y": np.concatenate([y, y[::-1]])}, monkeypatch, forecast=list(fine))


def test_other_columns_are_left_to_other_libraries() -> None:
    """Lists as text, dates with zones and the like are read as they are in a table."""
    text = {"p": np.array(["0.5", "0.25"]), "y": np.array([0, 1])}
    assert tc.audit(text, forecast="p", outcome="y").whole.rounds == 2
    zones = {
        "p": np.array([0.5, 0.25]),
        "y": np.array([0, 1]),
        "t": np.array(["2026-01-01T00:00Z", "2026-01-01T00:01Z"]),
    }
    assert len(tc.audit(zones, forecast="p", outcome="y", time="t").windows.groups) == 2  # type: ignore[union-attr]
    odd = {"p": np.array([0.5, 0.25]), "y": np.array([0, 1]), "g": np.array(["a", 1], object)}
    with pytest.raises(tc.TreeCalError, match="column 'g' has mixed types"):
        tc.audit(odd, forecast="p", outcome="y", by="g")
