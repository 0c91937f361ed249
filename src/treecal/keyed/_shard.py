"""The pure functions of a shard: a step of its streams, a correction by them, and their errors.

A shard is many keyed streams, kept as a `Bank` keeps them. Every engine runs these functions on tables, so all give the
same forecasts, bit for bit, for any order and partition of the rows.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treecal._typing import Integers, Outcomes
from treecal.columns import Streams
from treecal.correctors import Corrector
from treecal.engine import GuardedRun, Run, can_replay, replay
from treecal.exceptions import FileError
from treecal.forecasters import Forecaster
from treecal.geometry import Distance, as_distance, read_forecast_rows
from treecal.keyed._records import check_sizes, pack, unpack
from treecal.keyed._rows import Rows, arrange
from treecal.keyed._tables import (
    FORMAT,
    Keyed,
    arrow,
    check_columns,
    check_new,
    check_state,
    forecast_columns,
    horizon,
    numbers,
    owned,
    schemas,
)
from treecal.ledger import Ledger
from treecal.streams import play

if TYPE_CHECKING:
    import pyarrow as pa


class Step(NamedTuple):
    """The result of an epoch, for one shard or many.

    Attributes
    ----------
    state
        One row for each key: `key`, `rounds` learned, the `first` and the last sequence number learned (`seq`), the
        state of its forecaster or corrector, packed (`record`), and the row's `format`.
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
        The forecaster of each stream, or a corrector: a new one of any class, as `Bank` takes it, which is not changed.
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
    corrects = isinstance(forecaster, Corrector)
    check_new(forecaster)
    check_columns(outcomes.schema, forecaster)
    _check_state(state, forecaster)
    tolerance = forecaster.tolerance if isinstance(forecaster, Corrector) else None
    rows = arrange(state, outcomes, forecaster.space, horizon=horizon(forecaster), tolerance=tolerance)
    touched, starts, home, counts = np.unique(rows.streams, return_index=True, return_inverse=True, return_counts=True)
    known = touched[touched < len(state)]
    before = state.take(pa.array(known))
    own = _streams(before, forecaster)
    if len(touched) > len(known):
        own.reserve(len(touched))
    rounds = own.rounds[home] + np.arange(1, len(home) + 1) - starts[home]
    before_each = schemas()["announced"].empty_table()
    if announced or corrects:
        columns = [rows.keys.take(pa.array(rows.streams)), rounds, rows.seq, *_play(own, home, rows)]
        before_each = pa.table(columns, schema=before_each.schema)
    else:
        own.learn(home, rows.outcomes, None)

    first = rows.seq[starts]
    first[: len(known)] = before.column("first").to_numpy()
    keys = rows.keys.take(pa.array(touched))
    last = rows.seq[starts + counts - 1]
    columns = [keys, own.rounds.copy(), first, last, pack(own), np.full(len(touched), FORMAT, np.int32)]
    rest = np.ones(len(state), bool)
    rest[known] = False
    parts = [state.filter(pa.array(rest)), pa.table(columns, schema=schemas()["state"])]
    after = owned(pa.concat_tables(parts).combine_chunks(), forecaster)
    coming = schemas()["forecasts"].empty_table() if corrects else _forecasts(keys, last, own)
    return Step(after, coming, before_each, rows.problems)


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

    pa = arrow()
    check_new(corrector, Corrector)
    check_columns(table.schema, corrector, ("key", "forecast"))
    _check_state(state, corrector)
    space = corrector.space
    own = _streams(state, corrector)
    new = len(state)
    own.reserve(new + 1)
    keys = table.column("key").combine_chunks()
    if keys.null_count:
        raise FileError(f"row {pc.index(keys.is_null(), True).as_py() + 1:,} of the table has no key.")
    found = pc.index_in(keys.cast(pa.string()), value_set=state.column("key").combine_chunks())
    given = numbers(table.column("forecast").combine_chunks(), space.dim)
    given = read_forecast_rows(space, given, tolerance=corrector.tolerance)
    announced = own.announce(found.fill_null(new).to_numpy().astype(np.int64), given)
    assert isinstance(announced, np.ndarray)
    mean = forecast_columns(announced[:, None], None, np.ones(len(announced), np.int64))[2]
    return table.append_column("corrected", pa.chunked_array([mean]))


def forecasts(state: pa.Table, forecaster: Forecaster) -> pa.Table:
    """Return the forecasts of every key of a state for its coming round, as `Step.forecasts` has them.

    Examples
    --------
    >>> import pyarrow as pa, treecal as tc
    >>> forecaster = tc.AdaptiveTreeCal(tc.Simplex(2))
    >>> step = advance(no_state(), pa.table({"key": ["a"], "seq": [1], "outcome": [0]}), forecaster)
    >>> forecasts(step.state, forecaster) == step.forecasts
    True
    """
    check_new(forecaster, Forecaster)
    _check_state(state, forecaster)
    keys = state.column("key").combine_chunks()
    seq = state.column("seq").to_numpy()
    return _forecasts(keys, seq, _streams(state, forecaster))


def no_state() -> pa.Table:
    """Return the state before the first epoch: a table without rows.

    Examples
    --------
    >>> no_state().column_names
    ['key', 'rounds', 'first', 'seq', 'record', 'format']
    """
    return schemas()["state"].empty_table()


def _check_state(state: pa.Table, thing: Keyed) -> None:
    check_state(state, thing)
    check_sizes(thing, state.column("rounds").to_numpy(), state.column("record").combine_chunks())


def _streams(state: pa.Table, thing: Keyed) -> Streams:
    """Return the streams of a state, in its order."""
    streams = unpack(thing, state.column("rounds").to_numpy(), state.column("record").combine_chunks())
    streams.threads = 1  # other shards run beside this one
    return streams


def _play(own: Streams, home: Integers, rows: Rows) -> list[pa.Array]:
    """Learn rows; return the columns of what was announced before each."""
    found = own.play(home, rows.outcomes, rows.forecasts)
    if isinstance(found, np.ndarray):
        return forecast_columns(found[:, None], None, np.ones(len(home), np.int64))
    return _columns(found)


def _columns(found: Any) -> list[pa.Array]:
    return forecast_columns(found.points, None if found.uniform else found.weights, found.sizes)


def _forecasts(keys: pa.Array, seq: Integers, own: Streams) -> pa.Table:
    pa = arrow()
    rounds = own.rounds.copy()
    last = horizon(own.thing)
    open_ = np.arange(len(rounds)) if last is None else np.flatnonzero(rounds < last)
    columns = _columns(own.announce(open_, None))
    if len(open_) < len(rounds):
        at = np.full(len(rounds), -1)
        at[open_] = np.arange(len(open_))
        columns = [column.take(pa.array(at, mask=at < 0)) for column in columns]
    return pa.table([keys, rounds + 1, seq, *columns], schema=schemas()["forecasts"])


class Errors(NamedTuple):
    """The errors of many streams.

    Attributes
    ----------
    errors
        One row for each key, in order: its `rounds`, the number of distinct `forecasts`, and the calibration error per
        round, `exact` and `per_node`.
    problems
        As of `Step`: keys with an invalid row have no errors.
    """

    errors: pa.Table
    problems: pa.Table


def errors(outcomes: pa.Table, forecaster: Forecaster, distance: Distance | str = "l1") -> Errors:
    """Replay each key alone, in the order of its sequence numbers, and return how calibrated its forecasts were.

    Parameters
    ----------
    outcomes
        As for `advance`, whose rules say which rows are learned.
    forecaster
        A new one, of any class; each stream has a copy.
    distance
        In what errors are measured: a norm (or its name), or another distance, as `Ledger.error` takes it.

    Examples
    --------
    >>> import pyarrow as pa, treecal as tc
    >>> day = pa.table({"key": ["b", "a", "a", "a"], "seq": [1, 2, 1, 3], "outcome": [0, 1, 1, 1]})
    >>> errors(day, tc.TreeCal(tc.Simplex(2), arity=2)).errors.to_pylist()[0]
    {'key': 'a', 'rounds': 3, 'forecasts': 2, 'exact': 0.5, 'per_node': 0.5}
    """
    pa = arrow()
    measure = as_distance(distance, forecaster.space)
    check_new(forecaster, Forecaster)
    check_columns(outcomes.schema, forecaster)
    rows = arrange(no_state(), outcomes, forecaster.space, horizon=horizon(forecaster))
    ends = [*np.unique(rows.streams, return_index=True)[1].tolist(), len(rows.streams)]
    found = []
    for start, end in pairwise(ends):
        run = _replayed(forecaster, rows.outcomes[start:end])
        counted = len(run.table(measure).weight)
        found.append((counted, run.error(measure), run.error(measure, per_node=True)))
    keys = rows.keys.take(pa.array(rows.streams[ends[:-1]]))
    columns = zip(*found, strict=True) if found else ([], [], [])
    table = pa.table([keys, np.diff(ends), *map(list, columns)], schema=schemas()["errors"])
    return Errors(table.sort_by("key"), rows.problems)


def _replayed(forecaster: Forecaster, outcomes: Outcomes) -> Run | GuardedRun | Ledger:
    """Return all rounds of a copy of a forecaster: compiled where it can be, or else played one by one."""
    if can_replay(forecaster):
        return replay(outcomes, forecaster, threads=1)
    return play(deepcopy(forecaster), outcomes)
