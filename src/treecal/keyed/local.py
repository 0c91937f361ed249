"""Many shards on one machine, in a pool of processes: for what fits in memory, and the reference for other engines."""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from treecal.keyed._packing import split
from treecal.keyed._shard import Step, advance, no_state
from treecal.keyed._tables import Keyed, arrow, check_columns, check_new, check_state, columns, owned, schemas

if TYPE_CHECKING:
    import pyarrow as pa


def epoch(
    state: pa.Table,
    outcomes: pa.Table,
    forecaster: Keyed,
    *,
    shards: int = 32,
    announced: bool = False,
    pool: Executor | None = None,
) -> Step:
    """Take all keys through an epoch, shard by shard, in several processes.

    Parameters
    ----------
    state, outcomes, forecaster, announced
        As for `treecal.keyed.advance`.
    shards
        Number of parts the keys are split into. It affects only the order of the returned rows.
    pool
        What runs the shards; by default a new `ProcessPoolExecutor` with a process for each core.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import pyarrow as pa, treecal as tc
    >>> from treecal.keyed import local, no_state
    >>> day = pa.table({"key": ["Paris", "London"], "seq": [1, 1], "outcome": [[1.0, 0.0], [0.0, 1.0]]})
    >>> with ThreadPoolExecutor(1) as pool:
    ...     step = local.epoch(no_state(), day, tc.TreeCal(tc.Simplex(2)), pool=pool)
    >>> sorted(zip(step.forecasts["key"].to_pylist(), step.forecasts["mean"].to_pylist()))
    [('London', [0.0, 1.0]), ('Paris', [1.0, 0.0])]
    """
    pa = arrow()
    check_new(forecaster)
    check_columns(outcomes.schema, forecaster)
    check_state(state, forecaster)
    rows = split(outcomes.select(columns(forecaster)), shards)
    before = split(state, shards)
    with ExitStack() as stack:
        pool = pool or stack.enter_context(ProcessPoolExecutor())
        none = no_state()
        step_ = partial(advance, forecaster=forecaster, announced=announced)
        futures = [pool.submit(step_, before.pop(shard, none), part) for shard, part in rows.items()]
        steps = [future.result() for future in futures]
    parts = {name: [getattr(step, name) for step in steps] for name in Step._fields}
    parts["state"] += before.values()  # shards without new outcomes
    step = Step(**{name: pa.concat_tables([schemas()[name].empty_table(), *part]) for name, part in parts.items()})
    return step._replace(state=owned(step.state, forecaster))
