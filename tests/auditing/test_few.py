"""Audits of logs of which few rows are labelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.measures.few import draw
from treecal.exceptions import ParameterError, TreeCalError
from treecal.measures import few_labels

LOG = draw(4000, 300, "good", True, np.random.default_rng(0))
NAMES = np.array(["no", "yes"], object)


def test_it_is_the_weighted_audit_of_the_labelled_rows_and_their_estimates() -> None:
    found = tc.audit(LOG.p, LOG.y, probability=LOG.pi, proxy=LOG.judge)
    known = ~np.isnan(LOG.y)
    alone = tc.audit(LOG.p[known], LOG.y[known].astype(int), weight=1 / LOG.pi[known])
    assert found.whole.brier == alone.whole.brier
    assert found.whole.exact == alone.whole.exact
    assert found.whole.estimates == few_labels(LOG.p, LOG.y, probability=LOG.pi, proxy=LOG.judge)
    assert "rows are labelled" in str(found)
    assert "Estimates for all rows" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["whole"]["estimates"]["accuracy"]["labels"] == known.sum()


@pytest.mark.parametrize("kind", ["arrays", "jsonl", "csv", "parquet"])
def test_from_any_file_with_names_groups_and_soft_proxies(tmp_path: Path, kind: str) -> None:
    soft = np.where(LOG.judge == 1, 0.9, 0.2)
    site = np.where(np.arange(len(LOG.p)) % 3, "north", "south")
    names = [None if np.isnan(y) else str(NAMES[int(y)]) for y in LOG.y]
    table: dict[str, Any] = {"p": LOG.p, "human": np.array(names, object), "judge": soft, "pi": LOG.pi, "site": site}
    source: Any = table
    if kind != "arrays":
        source = tmp_path / f"log.{kind}"
        rows = [{name: plain(column[i]) for name, column in table.items()} for i in range(len(LOG.p))]
        write(source, kind, rows)
    options: dict[str, Any] = {"forecast": "p", "outcome": "human", "by": "site", "classes": ["no", "yes"]}
    found = tc.audit(source, **options, probability="pi", proxy="judge")
    assert found.whole.estimates == few_labels(LOG.p, LOG.y, probability=LOG.pi, proxy=soft)
    south = site == "south"
    own = few_labels(LOG.p[south], LOG.y[south], probability=LOG.pi[south], proxy=soft[south])
    assert found.groups["south",].estimates["brier"].interval.value == pytest.approx(own["brier"].interval.value)


def plain(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell


def write(path: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif kind == "csv":
        lines = [
            ",".join(rows[0]),
            *(",".join("" if cell is None else str(cell) for cell in row.values()) for row in rows),
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)


def test_where_every_row_is_labelled_nothing_changes() -> None:
    y = (np.random.default_rng(1).random(len(LOG.p)) < LOG.p).astype(int)
    plainly = tc.audit(LOG.p, y).to_dict()
    found = tc.audit(LOG.p, y, probability=1.0, proxy=LOG.judge).to_dict()
    estimates = found["whole"].pop("estimates")
    assert found["whole"] == plainly["whole"]
    assert estimates["brier"]["estimate"] == pytest.approx(plainly["whole"]["brier"])


def test_labels_without_known_probabilities_are_no_estimate() -> None:
    with pytest.raises(ParameterError, match="no probability with which rows were drawn") as error:
        tc.audit(LOG.p, LOG.y, proxy=LOG.judge)
    assert "sample_labels" in str(error.value)
    with pytest.raises(TreeCalError, match="takes their probability="):
        tc.audit(np.repeat(0.5, 3), np.array([1.0, np.nan, 0.0]))
    with pytest.raises(ParameterError, match="stand for"):
        tc.audit(LOG.p, LOG.y, probability=0.9)
    with pytest.raises(ParameterError, match="missing in row 1,"):
        tc.audit(LOG.p, LOG.y, probability=LOG.pi, proxy=np.where(np.arange(4000), LOG.judge, np.nan))
    with pytest.raises(ParameterError, match="neither weight nor time"):
        tc.audit(LOG.p, LOG.y, probability=LOG.pi, weight=LOG.pi)


def test_draws_are_neymans() -> None:
    rng = np.random.default_rng(2)
    drawn = tc.sample_labels(LOG.p, 400, rng=rng)
    assert drawn.probability.sum() == pytest.approx(400)
    assert len(drawn.rows) == pytest.approx(400, abs=100)
    sure = np.maximum(LOG.p, 1 - LOG.p)
    assert drawn.probability[sure < 0.6].mean() > 1.5 * drawn.probability[sure > 0.95].mean()
    every = tc.sample_labels(LOG.p, 4000, rng=rng)
    assert (every.probability == 1).all()
    assert len(every.rows) == 4000
    with pytest.raises(ParameterError, match="at most 4,000"):
        tc.sample_labels(LOG.p, 4001, rng=rng)
    with pytest.raises(TreeCalError):
        tc.sample_labels(LOG.p, 0, rng=rng)
    with pytest.raises(ParameterError, match="forecast is missing, expected columns of the log"):
        tc.sample_labels("log.jsonl", 10, rng=rng)
    with pytest.raises(TreeCalError, match="row 0 is 95, expected a probability from 0 to 1"):
        tc.sample_labels({"sure": np.array([95, 60])}, 1, forecast="sure", rng=rng)


def test_labels_there_are_already_steer_the_draw_and_are_kept() -> None:
    """Where forecasts of 0.5 are always right, nothing is left to learn there."""
    p = np.array([0.5, 0.8] * 2000)
    rng = np.random.default_rng(3)
    y = np.where(np.arange(4000) % 2, rng.random(4000) < 0.5, 0.0)
    y = np.where(np.arange(4000) < 200, y, np.nan)
    found = tc.sample_labels({"p": p, "y": y}, 300, forecast="p", outcome="y", rng=rng)
    assert (found.probability[:200] == 1).all()
    assert found.rows.min() >= 200
    assert found.probability[201] > 2 * found.probability[200]


def test_an_estimate_by_a_draw_has_no_bias() -> None:
    rng = np.random.default_rng(4)
    p = rng.random(3000)
    y = (rng.random(3000) < p**2).astype(float)
    found = []
    for _ in range(60):
        drawn = tc.sample_labels(p, 300, rng=rng)
        few = np.full(3000, np.nan)
        few[drawn.rows] = y[drawn.rows]
        found.append(few_labels(p, few, probability=drawn.probability)["too_sure"].interval.value)
    whole = few_labels(p, y, probability=1.0)["too_sure"].interval.value
    assert np.mean(found) == pytest.approx(whole, abs=4 * np.std(found) / np.sqrt(60))
