"""The pure step by itself: what is learned, what is refused, and that nothing depends on the order of rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.engine import streams_of
from treecal.exceptions import SnapshotError
from treecal.keyed import advance, forecasts, local, no_state, shard_of
from treecal.keyed._packing import dumps, loads, packed, repack
from treecal.keyed._records import pack, unpack

SPACE = tc.Simplex(2)
FORECASTER = tc.TreeCal(SPACE, arity=2)
SCHEMA = pa.schema({"key": pa.string(), "seq": pa.int64(), "outcome": pa.list_(pa.float64())})


def table(*rows: tuple[Any, Any, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def told(step: Any) -> list[tuple[Any, ...]]:
    return sorted(((p["kind"], p["key"], p["seq"], p["rows"]) for p in step.problems.to_pylist()), key=str)


A, B = [1.0, 0.0], [0.0, 1.0]
BAD: list[Any] = [None, [], [1.0], [1.0, None], [1.0, 1.0], [float("nan"), 1.0], [float("inf"), 0.0], [0.5, 0.5, 0.0]]


def test_what_is_wrong_is_reported_and_nothing_else_happens() -> None:
    first = advance(no_state(), table(("a", 1, A), ("a", 2, B), ("b", 7, A), ("b", 9, A)), FORECASTER)
    assert told(first) == [("missing", "b", 8, 1)]
    step = advance(
        first.state,
        table(
            ("a", 2, B), ("a", 0, A), ("a", 3, A), ("a", 3, A), ("a", 6, B),  # learned before, late, twice, a gap
            ("b", 8, A), ("b", 10, A),  # late: b has a gap, so 8 may or may not have been learned
            ("c", 1, A), ("c", 2, [0.5, 0.6]), ("c", 3, A),  # outside the set
            ("d", 1, A), ("d", 1, B), ("e", None, A), (None, 1, A),
        ),
        FORECASTER,
    )  # fmt: skip
    assert told(step) == [
        ("conflict", "d", 1, 2),
        ("duplicate", "a", 2, 1),
        ("duplicate", "a", 3, 1),
        ("key", None, None, 1),
        ("late", "a", 0, 1),
        ("late", "b", 8, 1),
        ("missing", "a", 4, 2),
        ("outcome", "c", 2, 3),
        ("seq", "e", None, 1),
    ]
    assert {row["key"]: (row["rounds"], row["first"], row["seq"]) for row in step.state.to_pylist()} == {
        "a": (4, 1, 6),
        "b": (3, 7, 10),
    }
    (detail,) = [p["detail"] for p in step.problems.to_pylist() if p["kind"] == "outcome"]
    assert detail == "lies outside Simplex(2): entries sum to 1.1, expected 1 within 1e-09."


@pytest.mark.parametrize("outcome", BAD)
def test_a_bad_outcome_fails_its_key_alone(outcome: Any) -> None:
    before = advance(no_state(), table(("a", 0, A), ("b", 0, B)), FORECASTER)
    step = advance(before.state, table(("a", 1, A), ("a", 2, outcome), ("b", 1, B)), FORECASTER)
    assert told(step) == [("outcome", "a", 2, 2)]
    rows = {row["key"]: row for row in step.state.to_pylist()}
    assert rows["a"] == {row["key"]: row for row in before.state.to_pylist()}["a"]
    assert rows["b"]["rounds"] == 2
    assert step.forecasts["key"].to_pylist() == ["b"]


def test_classes_are_corners() -> None:
    vectors = table(("a", 0, A), ("a", 1, B), ("b", 0, B))
    classes = pa.table({"key": ["a", "a", "b", "c", "d"], "seq": [0, 1, 0, 0, 0], "outcome": [0, 1, 1, 2, None]})
    step = advance(no_state(), classes, FORECASTER)
    assert step.state == advance(no_state(), vectors, FORECASTER).state
    assert told(step) == [("outcome", "c", 0, 1), ("outcome", "d", 0, 1)]


def test_a_tree_of_fixed_depth_is_not_overfilled() -> None:
    tree = tc.TreeCal(SPACE, arity=2, depth=2)
    step = advance(no_state(), table(*[("a", t, A) for t in range(4)], *[("b", t, A) for t in range(5)]), tree)
    assert told(step) == [("horizon", "b", 0, 5)]
    none = {"points": None, "weights": None, "mean": None}
    assert step.forecasts.to_pylist() == [{"key": "a", "round": 5, "seq": 3, **none}]
    assert told(advance(step.state, table(("a", 4, A)), tree)) == [("horizon", "a", 4, 1)]


outcome = st.sampled_from([A, B, [0.5, 0.5], [0.1, 0.9], [0.7, 0.4], None])
rows = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 9) | st.none(), outcome), max_size=25)


@settings(deadline=None, max_examples=60)
@given(rows, rows, st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_order_of_rows_and_the_shards_do_not_matter(one: Any, two: Any, random: Any, shards: int) -> None:
    here, there = no_state(), no_state()
    for epoch in (one, two):
        step = advance(here, table(*epoch), FORECASTER)
        random.shuffle(epoch)
        parts = [advance(part, table(*mine), FORECASTER) for part, mine in split_by_hand(there, epoch, shards)]
        here, there = step.state, pa.concat_tables([part.state for part in parts])
        for name in step._fields:
            together = pa.concat_tables([getattr(part, name) for part in parts])
            assert sorted(map(str, getattr(step, name).to_pylist())) == sorted(map(str, together.to_pylist()))


def split_by_hand(state: pa.Table, epoch: Any, shards: int) -> Any:
    home = {key: int(shard_of(pa.array([key], pa.string()), shards)[0]) for key in ["a", "b", "c", None]}
    for shard in range(shards):
        mine = pa.array([home[key] == shard for key in state["key"].to_pylist()], pa.bool_())
        yield state.filter(mine), [row for row in epoch if home[row[0]] == shard]


@settings(deadline=None)
@given(rows, st.integers(2, 4), st.sampled_from([tc.TreeCal, tc.AdaptiveTreeCal]))
def test_what_is_learned_is_what_a_forecaster_alone_learns(epoch: Any, arity: int, kind: Any) -> None:
    """Key by key, with the rules of `advance` written out."""
    step = advance(no_state(), table(*epoch), kind(SPACE, arity=arity), announced=True)
    got = {row["key"]: row for row in step.forecasts.to_pylist()}
    said = {(row["key"], row["seq"]): row for row in step.announced.to_pylist()}
    for key in ("a", "b", "c"):
        mine = [(seq, y) for k, seq, y in epoch if k == key]
        learned = dict(mine)
        fails = any(seq is None or y is None or abs(sum(y) - 1) > 1e-9 or learned[seq] != y for seq, y in mine)
        if fails or not mine:
            assert key not in got
            continue
        f = kind(SPACE, arity=arity)
        for seq in sorted(learned):
            row, x = said.pop((key, seq)), f.predict()
            assert (row["round"], row["points"]) == (f.rounds + 1, x.points.ravel().tolist())
            assert row["weights"] == x.weights.tolist()
            f.update(learned[seq])
        assert got[key]["points"] == f.predict().points.ravel().tolist()
        assert got[key]["weights"] == f.predict().weights.tolist()
        assert got[key]["seq"] == max(learned)
        np.testing.assert_allclose(got[key]["mean"], f.predict().mean, rtol=1e-14)
    assert not said


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 200), max_size=20),
    st.integers(1, 3),
    st.integers(0),
    st.sampled_from([tc.TreeCal, tc.AdaptiveTreeCal]),
)
def test_states_are_packed_and_unpacked_bit_for_bit(rounds: list[int], dim: int, seed: int, kind: Any) -> None:
    forecaster, rng = kind(tc.Box(-1, 1, dim=dim), arity=3), np.random.default_rng(seed)
    streams, rows = streams_of(forecaster), np.arange(len(rounds))
    streams.reserve(len(rounds))
    streams.learn(np.repeat(rows, rounds), rng.uniform(-1, 1, size=(sum(rounds), dim)), None)
    records, state = pack(streams), streams.state(rows)
    again = unpack(forecaster, state["rounds"], pa.concat_arrays([records[:0], records])).state(rows)
    assert again.keys() == state.keys()
    for name, array in state.items():
        assert np.ascontiguousarray(again[name]).tobytes() == array.tobytes(), name
    for row in rows[:3]:  # alone it has the same record
        assert pack(streams.resumed(streams.state(rows[row : row + 1])))[0] == records[row]


def test_keys_are_in_the_same_shard_everywhere() -> None:
    code = "import pyarrow as pa; from treecal.keyed import shard_of; print(shard_of(pa.array(['é', '', 'b']), 97))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.strip() == str(shard_of(pa.array(["x", "é", None, "b"]).slice(1), 97))

    def fnv1a(text: str) -> int:
        value = 0xCBF29CE484222325
        for byte in text.encode():
            value = (value ^ byte) * 0x100000001B3 % 2**64
        return value

    keys = [f"key {i}" for i in range(1000)]
    assert shard_of(pa.array(keys), 7).tolist() == [fnv1a(key) % 7 for key in keys]


def test_packed_rows_come_back_in_any_number_of_shards() -> None:
    state = advance(no_state(), table(*[(f"k{i}", 0, A) for i in range(100)]), FORECASTER).state
    again = loads(blob for part in repack(iter([packed(state, 3)]), 5) for blob in part.column("blob").to_pylist())
    assert sorted(again.to_pylist(), key=str) == sorted(state.to_pylist(), key=str)
    assert loads([dumps(no_state())]) == no_state()


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("outcome", None, "the rows have no column 'outcome'; their columns are key, seq."),
        ("key", pa.int64(), "'key' is int64, expected text."),
        ("seq", pa.float64(), "'seq' is double, expected a whole number."),
        ("outcome", pa.string(), "'outcome' is string, expected a list of 2 numbers or a class."),
    ],
)
def test_a_wrong_schema_is_refused_before_any_work(name: str, kind: Any, message: str) -> None:
    at = SCHEMA.get_field_index(name)
    schema = SCHEMA.remove(at) if kind is None else SCHEMA.set(at, pa.field(name, kind))
    for step in (advance, local.epoch):
        with pytest.raises(tc.TreeCalError, match=message):
            step(no_state(), schema.empty_table(), FORECASTER)


def test_the_state_of_other_streams_is_refused() -> None:
    state = advance(no_state(), table(("a", 0, A)), FORECASTER).state
    anonymous = state.replace_schema_metadata(None)  # as a table comes back from an engine that knows no metadata
    for other in (tc.TreeCal(tc.Simplex(3)), tc.AdaptiveTreeCal(SPACE, arity=2)):
        with pytest.raises(tc.TreeCalError, match=r"the state is of TreeCal\(Simplex\(2\), arity=2\), not of"):
            forecasts(state, other)
        with pytest.raises(tc.TreeCalError, match="its records are of another kind or size"):
            forecasts(anonymous, other)
    assert forecasts(anonymous, FORECASTER).equals(forecasts(state, FORECASTER))
    for same_size in (
        tc.TreeCal(SPACE, arity=3),
        tc.TreeCal(SPACE, arity=2, mix=0.1),
        tc.TreeCal(SPACE, arity=2, depth=1),
    ):
        with pytest.raises(tc.TreeCalError, match=r"the state is of TreeCal\(Simplex\(2\), arity=2\), not of"):
            advance(state, table(("a", 1, A)), same_size)
    for version in (3, 5):
        newer = state.set_column(5, "format", pa.array([version], pa.int32()))
        with pytest.raises(tc.TreeCalError, match=f"format {version}, and this treecal reads 4"):
            advance(newer, table(), FORECASTER)
    old = state.rename_columns([*state.column_names[:4], "path", "format"]).set_column(5, "format", pa.array([2]))
    with pytest.raises(tc.TreeCalError, match="format 2, and this treecal reads 4"):
        advance(old, table(), FORECASTER)
    with pytest.raises(tc.TreeCalError, match="not the state of a shard"):
        advance(table(), table(), FORECASTER)


def test_the_state_of_another_kind_is_refused_though_it_has_the_size() -> None:
    """Cost and weight of a height take as much room as two classes more."""
    for kind, other in (
        (tc.AdaptiveTreeCal(SPACE, arity=8), tc.TreeCal(tc.Simplex(4))),
        (tc.TreeCal(tc.Simplex(4)), tc.AdaptiveTreeCal(SPACE, arity=8)),
    ):
        outcomes = pa.table({"key": ["a"], "seq": [0], "outcome": [1]})
        state = advance(no_state(), outcomes, kind).state
        with pytest.raises(tc.TreeCalError, match="of another kind or size"):
            forecasts(state.replace_schema_metadata(None), other)


@pytest.mark.parametrize(
    ("column", "values", "match"),
    [
        ("rounds", pa.array([-1], pa.int64()), "rounds are -1 to -1"),
        ("rounds", pa.array([2**63 - 1], pa.int64()), "expected 0 to"),
        ("rounds", pa.array([2], pa.int64()), "of another kind or size"),
        ("rounds", pa.array([None], pa.int64()), "a row without 'rounds'"),
        ("record", pa.array([np.array([np.nan, 1.0]).tobytes()], pa.binary()), "not finite"),
        ("record", pa.array([b""], pa.binary()), "of another kind or size"),
        ("first", pa.array([9], pa.int64()), "after its last"),
    ],
)
def test_a_state_that_no_stream_has_is_refused(column: str, values: Any, match: str) -> None:
    """Before a kernel sees it: none checks bounds."""
    state = advance(no_state(), table(("a", 0, A)), FORECASTER).state
    other = state.set_column(state.column_names.index(column), column, values)
    for act in (lambda: forecasts(other, FORECASTER), lambda: advance(other, table(("a", 1, A)), FORECASTER)):
        with pytest.raises(SnapshotError, match=match):
            act()


@pytest.mark.parametrize("kind", [tc.Guarded, tc.Harmonic])
def test_a_damaged_record_is_refused(kind: Any) -> None:
    forecaster = kind(SPACE)
    state = advance(no_state(), table(("a", 0, A), ("b", 0, A), ("b", 1, B)), forecaster).state
    good = state["record"].to_pylist()
    length = int.from_bytes(good[0][:4], "little")
    bads = [b"", good[0][:-1], good[0] + b"x", b"\xff" * 4 + good[0][4:], good[0][: 4 + length]]
    if kind is not tc.Guarded:  # whose records are numbers, without names and rounds
        bads += [good[0].replace(b'"rounds"', b'"Rounds"'), good[1]]
    for bad in bads:
        other = state.set_column(4, "record", pa.array([bad, good[1]], pa.binary()))
        with pytest.raises(SnapshotError):
            forecasts(other, forecaster)
        with pytest.raises(SnapshotError):
            advance(other, table(("a", 1, A)), forecaster)


def test_only_forecasters_and_correctors_are_advanced() -> None:
    others: list[Any] = [SPACE, "treecal", None]
    for other in others:
        for act in (advance, local.epoch):
            with pytest.raises(tc.TreeCalError, match="expected a forecaster or a corrector"):
                act(no_state(), table(("a", 0, A)), other)


def test_a_key_is_in_the_state_once() -> None:
    state = advance(no_state(), table(("a", 0, A)), FORECASTER).state
    with pytest.raises(SnapshotError, match="a key appears twice"):
        advance(pa.concat_tables([state, state]), table(), FORECASTER)
