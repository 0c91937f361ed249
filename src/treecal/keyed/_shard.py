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
from treecal.correctors import Corrector
from treecal.engine import Bank
from treecal.engine._outcomes import Outcomes
from treecal.engine._state import TreeForecaster, new_tree_forecaster
from treecal.engine._streams import waves
from treecal.exceptions import ParameterError
from treecal.keyed._rows import Rows, arrange
from treecal.keyed._tables import (
    FORMAT,
    Keyed,
    arrow,
    check_outcomes,
    check_state,
    forecast_columns,
    numbers,
    owned,
    pack,
    pack_corrected,
    schemas,
    unpack,
    unpack_corrected,
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
        where all weights are equal, divided once. Null for a tree of fixed depth that is full. None for correctors,
        which await the model's forecast: see `correct`.
    announced
        One row for each row learned, in the same columns: what its key announced in that `round`, before the outcome
        number `seq`. Of correctors always, in place of the model's forecast; of forecasters if it was asked for.
    problems
        One row for each problem: `key`, `seq`, the number of `rows` it concerns (of numbers, for missing ones), its
        `kind` and a `detail` in words.
    """

    state: pa.Table
    forecasts: pa.Table
    announced: pa.Table
    problems: pa.Table


def advance(state: pa.Table, outcomes: pa.Table, forecaster: Keyed, *, announced: bool = False) -> Step:
    """Take a shard through an epoch: every key learns its new outcomes in the order of their sequence numbers.

    Nothing is guessed, and no key affects another:

    - A row that repeats another (same key, number and outcome) is dropped and reported: *duplicate*.
    - A number up to the last one learned is not learned again. It is a *duplicate* if it was certainly learned before,
      *late* if it may not have been.
    - Numbers skipped between those that are learned are reported: *missing*. A new key may start at any number.
    - A key with an invalid row learns nothing in this epoch; its state stays as it was, and all its rows may be sent
      again in another one. Invalid are: *outcome* (null, or outside the set), *conflict* (two outcomes for one number),
      *seq* (no number), *horizon* (more rounds than a tree of fixed depth has), *forecast* (as *outcome*, for a
      corrector).
    - A row without a key is reported: *key*.

    Parameters
    ----------
    state
        The state after the last epoch; `no_state()` before the first one.
    outcomes
        Columns `key` (text), `seq` (whole numbers) and `outcome` (lists of numbers; or classes, on a simplex), in any
        order of rows; for a corrector also `forecast`, the model's (lists of numbers). Anything else raises before any
        work; other columns are ignored.
    forecaster
        The forecaster of each stream: a new `TreeCal` or `AdaptiveTreeCal`, which is not changed. Or a new corrector
        whose state is always as many numbers (`forget=False`).
    announced
        Return also what a forecaster announced in every round that is learned. Rounds are then played one after
        another, those of all keys together, so that the key with the most rows sets the number of steps.

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
    >>> step = advance(no_state(), day, forecaster, announced=True)
    >>> step.announced.select(["key", "round", "seq", "mean"]).to_pylist()
    [{'key': 'a', 'round': 1, 'seq': 1, 'mean': [0.5, 0.5]}, {'key': 'a', 'round': 2, 'seq': 3, 'mean': [0.0, 1.0]}]
    """
    pa = arrow()
    if isinstance(forecaster, Corrector):
        return _correct(state, outcomes, forecaster)
    forecaster = new_tree_forecaster(forecaster)
    check_outcomes(outcomes.schema, forecaster.space)
    check_state(state, forecaster)
    rows = arrange(state, outcomes, forecaster.space, horizon=forecaster.tree.horizon)
    touched, starts, home, counts = np.unique(rows.streams, return_index=True, return_inverse=True, return_counts=True)
    known = touched[touched < len(state)]
    before = state.take(pa.array(known))
    own = _bank(before, forecaster)
    own.add(len(touched) - len(known))
    rounds, said = own.rounds[home] + np.arange(1, len(home) + 1) - starts[home], None
    if announced:
        said = _play(own, home, rows.outcomes)
    else:
        own.update(home, rows.outcomes)

    first = rows.seq[starts]
    first[: len(known)] = before.column("first").to_numpy()
    now, keys, last = own.get_state(), rows.keys.take(pa.array(touched)), rows.seq[starts + counts - 1]
    packed = pack(now, forecaster.tree.heights(now["rounds"]))
    columns = [keys, now["rounds"], first, last, *packed, np.full(len(touched), FORMAT, np.int32)]
    after = _replaced(state, known, pa.table(columns, schema=schemas()["state"]))
    said_before = _announced(rows, rounds, said)
    return Step(owned(after, forecaster), _forecasts(keys, last, own, forecaster), said_before, rows.problems)


def _replaced(state: pa.Table, known: Integers, learned: pa.Table) -> pa.Table:
    """Return a state with some of its rows replaced by those that have learned, and new ones."""
    pa, rest = arrow(), np.ones(len(state), bool)
    rest[known] = False
    return pa.concat_tables([state.filter(pa.array(rest)), learned]).combine_chunks()


def _correct(state: pa.Table, table: pa.Table, corrector: Corrector) -> Step:
    """Take a shard of correctors through an epoch."""
    pa, own = arrow(), Bank(corrector)
    if corrector.rounds:
        raise ParameterError.expected("corrector", corrector, "a new one", hint="this one has learned.")
    check_outcomes(table.schema, corrector.space, forecasts=True)
    check_state(state, corrector)
    rows = arrange(state, table, corrector.space, tolerance=corrector.tolerance)
    touched, starts, home, counts = np.unique(rows.streams, return_index=True, return_inverse=True, return_counts=True)
    known = touched[touched < len(state)]
    before = state.take(pa.array(known))
    own.set_state(unpack_corrected(before, own))
    own.add(len(touched) - len(known))
    rounds = own.rounds[home] + np.arange(1, len(home) + 1) - starts[home]
    assert rows.forecasts is not None
    announced = own.update(home, rows.outcomes, forecasts=rows.forecasts)
    said = forecast_columns(announced[:, None], None, np.ones(len(home), np.int64))

    first = rows.seq[starts]
    first[: len(known)] = before.column("first").to_numpy()
    keys, last = rows.keys.take(pa.array(touched)), rows.seq[starts + counts - 1]
    packed, stamp = pack_corrected(own.get_state()), np.full(len(touched), FORMAT, np.int32)
    learned = pa.table([keys, own.rounds, first, last, *packed, stamp], schema=schemas()["state"])
    after, none = owned(_replaced(state, known, learned), corrector), schemas()["forecasts"].empty_table()
    return Step(after, none, _announced(rows, rounds, said), rows.problems)


def _announced(rows: Rows, rounds: Integers, said: list[pa.Array] | None) -> pa.Table:
    """Return what was announced in each of these rounds, given the columns of the forecasts, if there are any."""
    schema = schemas()["announced"]
    if said is None:
        return schema.empty_table()
    pa = arrow()
    return pa.table([rows.keys.take(pa.array(rows.streams)), rounds, rows.seq, *said], schema=schema)


def correct(state: pa.Table, table: pa.Table, corrector: Corrector) -> pa.Table:
    """Return the model's forecasts as their keys' correctors would announce them now; nothing is learned.

    Parameters
    ----------
    state
        The state after the last epoch of `advance` with this corrector.
    table
        Columns `key` and `forecast`. A key that is not in the state has a new corrector; other columns are kept.
    corrector
        As for `advance`.

    Returns
    -------
    The table with a column `corrected`, lists of numbers.

    Examples
    --------
    >>> import pyarrow as pa, treecal as tc
    >>> corrector = tc.Recalibrator(tc.Simplex(2), forget=False)
    >>> day = pa.table({"key": ["a"] * 3, "seq": [1, 2, 3], "forecast": [[0.5, 0.5]] * 3, "outcome": [0, 0, 0]})
    >>> step = advance(no_state(), day, corrector)
    >>> new = pa.table({"key": ["a", "b"], "forecast": [[0.5, 0.5]] * 2})
    >>> correct(step.state, new, corrector)["corrected"].to_pylist()
    [[0.875, 0.125], [0.5, 0.5]]
    """
    import pyarrow.compute as pc

    pa, own = arrow(), Bank(corrector)
    check_state(state, corrector)
    own.set_state(unpack_corrected(state, own))
    (new,) = own.add()
    found = pc.index_in(table.column("key"), value_set=state.column("key").combine_chunks())
    forecasts = numbers(table.column("forecast").combine_chunks(), corrector.space.dim)
    announced = own.predict(found.fill_null(int(new)).to_numpy().astype(np.int64), forecasts=forecasts)
    mean = forecast_columns(announced[:, None], None, np.ones(len(announced), np.int64))[2]
    return table.append_column("corrected", pa.chunked_array([mean]))


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
    return _forecasts(keys, seq, _bank(state, forecaster), forecaster)


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


def _play(own: Bank, home: Integers, outcomes: Outcomes) -> list[pa.Array]:
    """Learn outcomes, round by round; return the columns of what was announced before each."""
    pa, parts, order = arrow(), [forecast_columns(np.empty((0, 1, 1)), None, home[:0])], [home[:0]]
    for rows in waves(home):
        found = own.predict(home[rows])
        parts.append(forecast_columns(found.points, None if found.uniform else found.weights, found.sizes))
        order.append(rows)
        own.update(home[rows], outcomes[rows])
    back = pa.array(np.argsort(np.concatenate(order)))
    return [pa.concat_arrays(column).take(back) for column in zip(*parts, strict=True)]


def _forecasts(keys: pa.Array, seq: Integers, own: Bank, forecaster: TreeForecaster) -> pa.Table:
    pa, rounds, horizon = arrow(), own.rounds, forecaster.tree.horizon
    open_ = np.arange(len(own)) if horizon is None else np.flatnonzero(rounds < horizon)
    found = own.predict(open_)
    columns = forecast_columns(found.points, None if found.uniform else found.weights, found.sizes)
    if len(open_) < len(own):
        at = np.full(len(own), -1)
        at[open_] = np.arange(len(open_))
        columns = [column.take(pa.array(at, mask=at < 0)) for column in columns]
    return pa.table([keys, rounds + 1, seq, *columns], schema=schemas()["forecasts"])
