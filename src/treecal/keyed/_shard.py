"""The pure step: a shard's state and new outcomes in; its new state, its forecasts, and problems out.

A shard is many keyed streams in one `Bank`. Every engine runs this one function on tables, so all give the same
forecasts, bit for bit, whatever the order and partitions of the rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from treecal._typing import Integers
from treecal._validate import whole_number
from treecal.engine import Bank
from treecal.engine._state import TreeForecaster, new_tree_forecaster
from treecal.keyed._rows import arrange
from treecal.keyed._tables import (
    FORMAT,
    arrow,
    check_outcomes,
    check_state,
    forecast_columns,
    owned,
    pack,
    schemas,
    unpack,
)

if TYPE_CHECKING:
    import pyarrow as pa


class Step(NamedTuple):
    """The result of an epoch, for one shard or many.

    Attributes
    ----------
    state
        One row for each key: `key`, `rounds` learned, the `first` and the last sequence number learned (`seq`), the
        forecaster's sums, costs and weights on the `path` (packed float64, lowest height first), its `scale`, and the
        row's `format`.
    forecasts
        One row for each key that learned something: its coming `round`, the `seq` it has learned up to, the `points` of
        the forecast in sequence, lowest height first, their `weights`, and their `mean`: added up in that order and,
        where all weights are equal, divided once. Null for a tree of fixed depth that is full.
    problems
        One row for each problem: `key`, `seq`, the number of `rows` it concerns (of numbers, for missing ones), its
        `kind` and a `detail` in words.
    """

    state: pa.Table
    forecasts: pa.Table
    problems: pa.Table


def advance(state: pa.Table, outcomes: pa.Table, forecaster: TreeForecaster) -> Step:
    """Take a shard through an epoch: every key learns its new outcomes in the order of their sequence numbers.

    Nothing is guessed, and no key affects another:

    - A row that repeats another (same key, number and outcome) is dropped and reported: *duplicate*.
    - A number up to the last one learned is not learned again. It is a *duplicate* if it was certainly learned before,
      *late* if it may not have been.
    - Numbers skipped between those that are learned are reported: *missing*. A new key may start at any number.
    - A key with an invalid row learns nothing in this epoch; its state stays as it was, and all its rows may be sent
      again in another one. Invalid are: *outcome* (null, or outside the set), *conflict* (two outcomes for one number),
      *seq* (no number), *horizon* (more rounds than a tree of fixed depth has).
    - A row without a key is reported: *key*.

    Parameters
    ----------
    state
        The state after the last epoch; `no_state()` before the first one.
    outcomes
        Columns `key` (text), `seq` (whole numbers) and `outcome` (lists of numbers; or classes, on a simplex), in any
        order of rows. Anything else raises before any work; other columns are ignored.
    forecaster
        The forecaster of each stream: a new `TreeCal` or `AdaptiveTreeCal`, which is not changed.

    Examples
    --------
    >>> import pyarrow as pa, treecal as tc
    >>> from treecal.keyed import advance, no_state
    >>> forecaster = tc.TreeCal(tc.Simplex(2), arity=2)
    >>> day = pa.table({"key": ["b", "a", "a", "a"], "seq": [1, 3, 1, 1], "outcome": [2, 0, 1, 1]})
    >>> step = advance(no_state(), day, forecaster)
    >>> step.forecasts.select(["key", "round", "mean"]).to_pylist()
    [{'key': 'a', 'round': 3, 'mean': [0.5, 0.5]}]
    >>> for problem in step.problems.to_pylist():
    ...     print(problem["key"], problem["seq"], problem["kind"], "|", problem["detail"])
    b 1 outcome | is the class 2, expected 0 to 1 for Simplex(2).
    a 1 duplicate | appears twice; learned once.
    a 2 missing | number 2 is missing.
    """
    pa = arrow()
    forecaster = new_tree_forecaster(forecaster)
    check_outcomes(outcomes.schema, forecaster.space)
    check_state(state, forecaster)
    rows = arrange(state, outcomes, forecaster.space, forecaster.tree)
    touched, starts, home, counts = np.unique(rows.streams, return_index=True, return_inverse=True, return_counts=True)
    known = touched[touched < len(state)]
    before = state.take(pa.array(known))
    own = _bank(before, forecaster)
    own.add(len(touched) - len(known))
    own.update(home, rows.outcomes)

    first = rows.seq[starts]
    first[: len(known)] = before.column("first").to_numpy()
    now, keys, last = own.get_state(), rows.keys.take(pa.array(touched)), rows.seq[starts + counts - 1]
    packed = pack(now, own.tree.heights(now["rounds"]))
    columns = [keys, now["rounds"], first, last, *packed, np.full(len(touched), FORMAT, np.int32)]
    learned = pa.table(columns, schema=schemas()["state"])
    rest = np.ones(len(state), bool)
    rest[known] = False
    after = pa.concat_tables([state.filter(pa.array(rest)), learned]).combine_chunks()
    return Step(owned(after, forecaster), _forecasts(keys, last, own), rows.problems)


def forecasts(state: pa.Table, forecaster: TreeForecaster) -> pa.Table:
    """Return the forecasts of every key of a state for its coming round, as `Step.forecasts` has them.

    Examples
    --------
    >>> import pyarrow as pa, treecal as tc
    >>> forecaster = tc.AdaptiveTreeCal(tc.Simplex(2))
    >>> step = advance(no_state(), pa.table({"key": ["a"], "seq": [1], "outcome": [0]}), forecaster)
    >>> forecasts(step.state, forecaster) == step.forecasts
    True
    """
    forecaster = new_tree_forecaster(forecaster)
    check_state(state, forecaster)
    keys, seq = state.column("key").combine_chunks(), state.column("seq").to_numpy()
    return _forecasts(keys, seq, _bank(state, forecaster))


def no_state() -> pa.Table:
    """Return the state before the first epoch: a table without rows.

    Examples
    --------
    >>> no_state().column_names
    ['key', 'rounds', 'first', 'seq', 'path', 'scale', 'format']
    """
    return schemas()["state"].empty_table()


def shard_of(keys: pa.Array, shards: int) -> Integers:
    """Return the shard of each key: the 64-bit FNV-1a hash of its UTF-8 bytes, modulo `shards`.

    A key has the same shard in every process, on every machine. A null one counts as empty.

    Examples
    --------
    >>> import pyarrow as pa
    >>> shard_of(pa.array(["London", "Paris", "London"]), 16)
    array([...])
    """
    from treecal.keyed._kernels import fnv1a

    pa, shards = arrow(), whole_number("shards", shards, least=1)
    names = pa.concat_arrays([keys.cast(pa.large_binary()).fill_null(b"")])  # whole buffers, also of a slice
    hashes = np.zeros(len(names), np.uint64)
    if len(names):
        _, offsets, data = names.buffers()
        fnv1a(
            np.frombuffer(offsets, np.int64, len(names) + 1, names.offset * 8),
            np.frombuffer(data or b"", np.uint8),
            hashes,
        )
    return np.asarray(hashes % np.uint64(shards)).astype(np.int64)


def split(table: pa.Table, shards: int) -> dict[int, pa.Table]:
    """Return the rows of each shard that has any."""
    pa = arrow()
    home = shard_of(table.column("key").combine_chunks(), shards)
    order = np.argsort(home, kind="stable")
    ends = np.searchsorted(home[order], np.arange(shards + 1)).tolist()
    # Copies: a slice would take the whole table along to another process.
    return {shard: table.take(pa.array(order[a:b])) for shard, (a, b) in enumerate(pairwise(ends)) if a < b}


def _bank(state: pa.Table, forecaster: TreeForecaster) -> Bank:
    """Return the streams of a state, in its order."""
    own = Bank(forecaster)
    own.set_state(unpack(state, forecaster))
    return own


def _forecasts(keys: pa.Array, seq: Integers, own: Bank) -> pa.Table:
    pa, rounds, horizon = arrow(), own.rounds, own.tree.horizon
    open_ = np.arange(len(own)) if horizon is None else np.flatnonzero(rounds < horizon)
    found = own.predict(open_)
    columns = forecast_columns(found.points, None if found.uniform else found.weights, found.heights)
    if len(open_) < len(own):
        at = np.full(len(own), -1)
        at[open_] = np.arange(len(open_))
        columns = [column.take(pa.array(at, mask=at < 0)) for column in columns]
    return pa.table([keys, rounds + 1, seq, *columns], schema=schemas()["forecasts"])
