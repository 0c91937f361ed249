"""One rule for a valid forecast: every entrance accepts and refuses the same rows, and reads negative ones as 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from treecal import measures
from treecal.exceptions import TreeCalError
from treecal.geometry import ROUNDING, read_forecast, valid_forecasts, without_negatives
from treecal.io import Decoder

SPACE = tc.Simplex(2)
Y = np.array([1, 0, 1, 1])
VALID = [
    (-1e-12, 1.000000000001),
    (1 + 4e-7, -4e-7),
    (-0.0, 1.0),
    (0.3, 0.7),
    (0.333333, 0.666666),
    (0.5 + 4e-7, 0.5 + 4e-7),
]
INVALID = [(-6e-7, 1 + 6e-7), (0.3, 0.6), (-0.25, 1.25), (0.5, 0.500002), (np.nan, 1.0), (np.inf, 0.0)]


def brier(p: Any) -> float:
    """The Brier score of a row of these probabilities, beside rows that are like any other."""
    y = np.eye(2)[Y]
    return float(((rows_of(p) - y) ** 2).sum(axis=1).mean())


def rows_of(p: Any) -> Any:
    return np.array([p, (0.5, 0.5), (0.25, 0.75), (0.5, 0.5)])


def log_of(p: Any) -> dict[str, Any]:
    a, b = rows_of(p).T
    return {"a": a, "b": b, "y": Y}


def by_file(p: Any, path: Path, **options: Any) -> float:
    columns: dict[str, Any] = {"forecast": ["a", "b"], "outcome": "y"}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(log_of(p)), path, row_group_size=2)
    else:
        rows = "".join(f"{a!r},{b!r},{y}\n" for (a, b), y in zip(rows_of(p).tolist(), Y.tolist(), strict=True))
        path.write_text(f"a,b,y\n{rows}", encoding="utf-8")
    found: tc.auditing.Audit = tc.audit(path, **columns, **options)
    assert found.whole.exact is not None
    points = {tuple(row) for row in (np.maximum(rows_of(p), 0.0) + 0.0).tolist()}
    assert found.whole.exact.forecasts == len(points)
    return found.whole.brier


def by_corrector(p: Any, path: Path) -> None:
    corrector = tc.VectorScaling(SPACE)
    assert (corrector.predict(p).mean >= 0).all()
    corrector.update(1)


def by_monitor(p: Any, path: Path) -> None:
    tc.Monitor(SPACE).update(p, 1)


def by_ledger(p: Any, path: Path) -> None:
    ledger = tc.Ledger(SPACE)
    ledger.record(p, 1)
    assert ledger.error("linf") <= 1


def by_many(p: Any, path: Path) -> None:
    tc.Monitor(SPACE).update_many(rows_of(p), Y)


def by_decoder(p: Any, path: Path) -> float:
    found = Decoder(SPACE, forecast=["a", "b"], tolerance=ROUNDING).forecast({"a": p[0], "b": p[1]})
    return brier(found)


def by_measures(p: Any, path: Path) -> float:
    return measures.brier(rows_of(p), Y)


ENTRANCES: dict[str, Callable[[Any, Path], float | None]] = {
    "arrays": lambda p, path: tc.audit(rows_of(p), Y).whole.brier,
    "table": lambda p, path: tc.audit(pa.table(log_of(p)), forecast=["a", "b"], outcome="y").whole.brier,
    "parquet": lambda p, path: by_file(p, path / "log.parquet"),
    "weighted parquet": lambda p, path: by_file(p, path / "log.parquet", by="y"),
    "csv": lambda p, path: by_file(p, path / "log.csv"),
    "measures": by_measures,
    "corrector": by_corrector,
    "monitor": by_monitor,
    "many of a monitor": by_many,
    "ledger": by_ledger,
    "row of a stream": by_decoder,
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_every_entrance_accepts_and_refuses_the_same(name: str, tmp_path: Path) -> None:
    for p in VALID:
        found = ENTRANCES[name](np.array(p), tmp_path)
        assert found is None or found == pytest.approx(brier(np.maximum(p, 0.0)), abs=1e-11)
    for p in INVALID:
        with pytest.raises(TreeCalError):
            ENTRANCES[name](np.array(p), tmp_path)


def test_the_rule() -> None:
    assert valid_forecasts(np.array(VALID).T).all()
    assert not valid_forecasts(np.array(INVALID).T).any()
    for p in VALID:
        assert (read_forecast(SPACE, np.array(p), 1) >= 0).all()
        assert read_forecast(SPACE, np.array(p), 1).sum() == pytest.approx(1, abs=1e-9)


def test_negative_probabilities_are_0_and_nothing_else_changes() -> None:
    p = np.array([[0.25, 0.75], [-0.0, 1.0]])
    assert without_negatives(SPACE, p) is p
    box = tc.Box(-1, 1, dim=2)
    assert without_negatives(box, p - 0.5).min() == -0.5
    both = tc.Product(box, SPACE)
    assert read_forecast(both, np.array([-0.5, 0.5, -1e-12, 1.0]), 1).tolist() == [-0.5, 0.5, 0.0, 1.0]


@pytest.mark.parametrize(("digits", "tolerance"), [(6, 1e-6), (4, 1e-4), (2, 0.01)])
@pytest.mark.parametrize("classes", [2, 3, 5, 10, 100])
def test_probabilities_that_were_rounded_are_accepted(digits: int, tolerance: float, classes: int) -> None:
    rng = np.random.default_rng(classes)
    P = rng.dirichlet(np.ones(classes), 2000).round(digits)
    y = rng.integers(classes, size=2000)
    assert tc.audit(P, y, tolerance=tolerance, exact=False).whole.rounds == 2000
    assert tc.audit(P, y, exact=False).whole.rounds == 2000
    tc.Recalibrator(tc.Simplex(classes), tolerance=tolerance).predict_many(P)
    if digits < 6 and 2 < classes < 100:
        with pytest.raises(tc.TreeCalError, match=f"a tolerance of 1e-{digits - 1}|a tolerance of 1e-{digits}"):
            tc.audit({"p": P, "y": y}, forecast="p", outcome="y", tolerance=1e-6, exact=False)


@pytest.mark.parametrize("digits", [2, 3, 4, 5, 6])
def test_an_audit_finds_the_decimals_of_a_log(digits: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(5), 300).round(digits)
    y = rng.integers(5, size=300)
    path = tmp_path / "log.csv"
    rows = "".join(f"{','.join(f'{p:.{digits}f}' for p in row)},{k}\n" for row, k in zip(P, y, strict=True))
    path.write_text(f"p_0,p_1,p_2,p_3,p_4,y\n{rows}", encoding="utf-8")
    found = tc.audit(path, outcome="y", exact=False).whole
    assert found.brier == tc.audit(P, y, exact=False).whole.brier
    P[7, 2] += 4 * 10.0**-digits * 5 / 2  # no rounding is as far off
    with pytest.raises(TreeCalError, match="row 8"):
        tc.audit(P, y)
