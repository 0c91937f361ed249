"""How calibrated a forecaster is on each of many keyed streams."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from treecal._typing import Outcomes
from treecal.engine import GuardedRun, Run, is_compiled, replay
from treecal.forecasters import AdaptiveTreeCal, Forecaster, Guarded, TreeCal
from treecal.geometry import Distance, as_distance
from treecal.keyed._forecaster import check_new, horizon
from treecal.keyed._rows import arrange
from treecal.keyed._shard import no_state
from treecal.keyed._tables import arrow, check_columns, schemas
from treecal.ledger import Ledger
from treecal.streams import play

if TYPE_CHECKING:
    import pyarrow as pa


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
    measure = as_distance(distance)
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
    if isinstance(forecaster, TreeCal | AdaptiveTreeCal) or (
        isinstance(forecaster, Guarded) and is_compiled(forecaster)
    ):
        return replay(outcomes, forecaster, threads=1)
    return play(deepcopy(forecaster), outcomes)
