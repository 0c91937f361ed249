"""What runs on Spark gives what one machine gives: epochs, audits and replays.

By default Spark starts once, for an epoch; all else that uses it is in `make heavy`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.auditing.hard_rows import ADDED_FROM_THE_LEFT, CLASSES, ROWS, VALID, is_valid
from tests.auditing.test_bins import edges_and_below
from tests.keyed.streams import rows_of
from treecal.auditing import audit
from treecal.auditing.spark import audit as spark_audit
from treecal.cli._app import app
from treecal.keyed import local, no_state, spark
from treecal.keyed._replay import replay
from treecal.keyed.session import session


def test_bad_rows_fail_their_keys_and_the_epoch_goes_on(cluster: Any, tmp_path: Path) -> None:
    tree, path = tc.TreeCal(tc.Simplex(2)), str(tmp_path / "state")
    rows = [("a", 1, [1.0, 0.0]), ("b", 1, [0.5, 0.6]), ("a", 1, [1.0, 0.0]), (None, 1, [1.0, 0.0])]
    outcomes = cluster.createDataFrame(rows, "key string, seq int, outcome array<double>")
    done = spark.epoch(cluster, path, 7, outcomes, tree, shards=2)
    told = done.problems.toArrow().to_pylist()
    assert sorted((row["kind"], row["key"], row["seq"]) for row in told if row["key"]) == [
        ("duplicate", "a", 1),
        ("outcome", "b", 1),
    ]
    assert [row["kind"] for row in told if row["key"] is None] == ["key"]
    assert done.state.select("key", "rounds").toArrow().to_pylist() == [{"key": "a", "rounds": 1}]
    here = local.epoch(no_state(), outcomes.toArrow(), tree, shards=3)
    assert rows_of(done.forecasts.toArrow()) == rows_of(here.forecasts) != []
    for error, arguments in (
        ("number is 6, expected more than 7", (6, outcomes, tree)),
        (
            r"is of TreeCal\(Simplex\(2\)\), not of TreeCal\(Simplex\(2\), arity=2\)",
            (8, outcomes, tc.TreeCal(tree.space, arity=2)),
        ),
        ("have no column 'outcome'", (8, outcomes.drop("outcome"), tree)),
        ("'seq' is double", (8, outcomes.selectExpr("key", "seq + 0.5D AS seq", "outcome"), tree)),
    ):
        with pytest.raises(tc.TreeCalError, match=error):
            spark.epoch(cluster, path, *arguments)
    with pytest.raises(tc.TreeCalError, match="has no epoch 8: its epochs are 7"):
        spark.read(cluster, path, 8)


@pytest.mark.heavy
def test_spark_says_what_the_others_say(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = {"a": [0.5, 0.5, 0.25, 1.0] * 50, "b": [0.5, 0.5, 0.75, 0.0] * 50, "label": ["a", "b", "b", "a"] * 50}
    path = str(tmp_path / "log.parquet")
    pq.write_table(pa.table(log), path)
    audit = ("audit", path, "--forecast", "a,b", "--outcome", "label", "--classes", "a,b")
    found = []
    for engine in ("duckdb", "spark"):
        app([*audit, "--engine", engine, "--json"], result_action="return_value")
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["whole"] == found[1]["whole"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        patch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(tc.TreeCalError, match=r"(?s)no `java` was found.*Hint: install Java 17"):
            session("local[2]")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(tc.TreeCalError, match=r"needs pyspark, which is not installed.\n\nHint: pip install .pandas"):
        session("local[2]")


def a_log(rows: int, *, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    said = rng.dirichlet(np.ones(3), size=rows)
    said[: rows // 2] = said[rng.integers(50, size=rows // 2)]  # many forecasts come again
    said[::7] = np.eye(3)[rng.integers(3, size=len(said[::7]))] * np.array([1.0, 1.0, 1.0]) - 0.0
    said[1::7] = [0.3, 0.3, 0.4]
    label = np.array(["rain", "it's \\ sun", "snow"])[rng.integers(3, size=rows)]
    group = np.where(rng.random(rows) < 0.4, "old", "new")
    return pa.table({"a": said[:, 0], "b": said[:, 1], "c": said[:, 2], "label": label, "model": group})


ARGUMENTS: dict[str, Any] = {
    "forecast": ["a", "b", "c"],
    "outcome": "label",
    "classes": ["rain", "it's \\ sun", "snow"],
    "by": ["model"],
    "bins": 15,
    "norms": ["l1", "l2", "linf", tc.l2.squared],
}


@pytest.mark.heavy
def test_an_audit_has_the_digits_of_duckdb(cluster: Any) -> None:
    log = a_log(100_000)
    here, there = audit(log, **ARGUMENTS).to_dict(), spark_audit(cluster.createDataFrame(log), **ARGUMENTS).to_dict()
    assert here | {"source": None} == there | {"source": None}
    assert here["whole"]["rounds"] == 100_000


@pytest.mark.heavy
def test_an_audit_of_more_classes_than_spark_takes_columns_to_group_by(cluster: Any) -> None:
    rng, names = np.random.default_rng(0), [f"p{k}" for k in range(70)]
    columns = dict(zip(names, rng.dirichlet(np.ones(70), size=200).T, strict=True))
    log = pa.table(columns | {"y": rng.integers(70, size=200), "model": np.where(rng.random(200) < 0.4, "old", "new")})
    arguments: dict[str, Any] = {"forecast": names, "outcome": "y", "classes": range(70), "by": ["model"]}
    here, there = audit(log, **arguments).to_dict(), spark_audit(cluster.createDataFrame(log), **arguments).to_dict()
    assert here | {"source": None} == there | {"source": None}


@pytest.mark.heavy
def test_probabilities_on_edges_lie_in_the_bins_of_one_machine(cluster: Any) -> None:
    p, expected = edges_and_below(100)
    log = cluster.createDataFrame(pa.table({"p": p, "q": 1 - p, "y": ["a"] * len(p)}))
    found = spark_audit(log, forecast=["p", "q"], outcome="y", classes=["a", "b"], bins=100)
    assert found.whole.classes["a"].weight.tolist() == np.bincount(expected).tolist()


@pytest.mark.heavy
def test_hard_rows_of_a_log_are_valid_where_the_table_says_so(cluster: Any) -> None:
    arguments: dict[str, Any] = {"forecast": ["a", "b", "c"], "outcome": "y", "classes": CLASSES}
    kind = "a double, b double, c double, y string"
    with pytest.raises(tc.TreeCalError, match=r"(?s)the log has 20 invalid rows, such as .*on_error='skip'"):
        spark_audit(cluster.createDataFrame(ROWS, kind), **arguments)
    found = spark_audit(cluster.createDataFrame(ROWS, kind), **arguments, on_error="skip")
    expected = [row for row in ROWS if is_valid(row)]
    assert (found.whole.rounds, found.problems.count) == (len(expected), 20)
    assert str(found.problems).startswith("20 ")
    assert found.whole.to_dict() == spark_audit(cluster.createDataFrame(expected, kind), **arguments).whole.to_dict()
    with pytest.raises(tc.TreeCalError, match="no column 'z'; its columns are a, b, c, y"):
        spark_audit(cluster.createDataFrame(ROWS, kind), **{**arguments, "outcome": "z"})
    for row, valid in ADDED_FROM_THE_LEFT:
        log = cluster.createDataFrame([*VALID[1:2], row], kind)
        assert spark_audit(log, **arguments, on_error="skip", tolerance=0).whole.rounds == 1 + valid


@pytest.mark.heavy
def test_a_hundred_million_rows_have_the_digits_of_duckdb(cluster: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "log.parquet")
    with pq.ParquetWriter(path, pa.schema({"p": pa.float64(), "q": pa.float64(), "y": pa.string()})) as writer:
        for seed in range(100):
            rng = np.random.default_rng(seed)
            p = rng.integers(1001, size=1_000_000) / 1000
            label = np.where(rng.random(len(p)) < 0.8 * p, "yes", "no")
            writer.write_table(pa.table({"p": p, "q": 1 - p, "y": label}))
    arguments: dict[str, Any] = {"forecast": ["p", "q"], "outcome": "y", "classes": ["yes", "no"]}
    here, there = audit(path, **arguments).to_dict(), spark_audit(cluster.read.parquet(path), **arguments).to_dict()
    assert here["whole"]["rounds"] == 100_000_000
    assert here | {"source": None} == there | {"source": None}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("seq", "outcome", "message"),
    [
        ("id + IF(id > 9, 1, 0)", "CAST(0 AS INT)", "round 10 is missing"),
        ("id - IF(id > 9, 1, 0)", "CAST(0 AS INT)", "round 9 appears twice"),
        ("id - 1", "CAST(0 AS INT)", "seq is -1, expected the number of a round, from 0"),
        ("id", "array(0.5D, IF(id = 11, 0.6D, 0.5D))", "outcome at round 12 lies outside"),
    ],
)
def test_a_stream_with_a_bad_round_is_refused(seq: str, outcome: str, message: str, cluster: Any) -> None:
    with pytest.raises(tc.TreeCalError, match=message):
        replay(cluster.range(20).selectExpr(f"{seq} AS seq", f"{outcome} AS outcome"), tc.Simplex(2))


@pytest.mark.heavy
@pytest.mark.parametrize("classes", [False, True])
def test_a_replay_has_the_points_of_one_machine(classes: bool, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.engine._climb._PIECE", 100)  # so that a short stream has many pieces
    rng, space = np.random.default_rng(2), tc.Simplex(3)
    outcomes = rng.integers(3, size=1234) if classes else rng.dirichlet(np.ones(3), size=1234)
    order = rng.permutation(len(outcomes))
    frame = cluster.createDataFrame(pa.table({"seq": order, "outcome": list(outcomes[order])})).repartition(3)
    run, there = tc.replay(outcomes, space, arity=3), replay(frame, space, arity=3)
    assert there.rounds == 1234
    for distance in ("l1", "l2", tc.l2.squared):
        assert there.per_node_error(distance) == run.error(distance, per_node=True)
    forecasts = {row["seq"]: row for row in there.forecasts().toArrow().to_pylist()}
    assert sorted(forecasts) == list(range(1234))
    f = tc.TreeCal(space, arity=3)
    for t, outcome in enumerate(np.eye(3)[outcomes] if classes else outcomes):
        assert forecasts[t]["points"] == f.predict().points.ravel().tolist()
        np.testing.assert_allclose(forecasts[t]["mean"], f.predict().mean, rtol=1e-14)
        f.update(outcome)


@pytest.mark.heavy
def test_a_weighted_audit_has_the_digits_of_duckdb(cluster: Any) -> None:
    weights = np.random.default_rng(2).lognormal(sigma=9, size=3000).clip(1e-11, 1e11).tolist()
    weights[:8] = [1.0, -1.0, None, float("nan"), float("inf"), 0.0, 1e13, 3]
    log = a_log(3000).append_column("w", pa.array(weights))
    arguments = {**ARGUMENTS, "weight": "w", "on_error": "skip"}
    here, there = audit(log, **arguments), spark_audit(cluster.createDataFrame(log), **arguments)
    assert (here.problems.count, there.problems.count) == (5, 5)
    assert here.whole.to_dict() == there.whole.to_dict()
    assert {key: part.to_dict() for key, part in here.groups.items()} == {
        key: part.to_dict() for key, part in there.groups.items()
    }
