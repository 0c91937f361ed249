"""The arena: race forecasters × streams × sets × seeds, and collect the errors in one table.

All forecasters meet the same streams, except that an adversary answers each one separately. An interrupted race can be
resumed, since each finished run is kept in its own file. Tables need pyarrow: `pip install "treecal[arena]"`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal._checkpoints import checkpoints
from treecal._optional import require
from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, TreeCalError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster
from treecal.geometry import ConvexSet, Norm, as_norm
from treecal.ledger import Ledger
from treecal.streams import (
    Adversary,
    LedgerAdversary,
    MeanAdversary,
    alternation,
    drift,
    iid,
    play,
    random_walk,
    regime_switches,
)

if TYPE_CHECKING:
    import pyarrow as pa

Maker = Callable[[ConvexSet], Forecaster]
Source = Callable[[ConvexSet, int, np.random.Generator], "Array | Adversary"]
_Rows = list[dict[str, Any]]


def _against_mean(space: ConvexSet, rounds: int, rng: np.random.Generator) -> Adversary:
    return MeanAdversary(space)


def _against_ledger(space: ConvexSet, rounds: int, rng: np.random.Generator) -> Adversary:
    return LedgerAdversary(space, rng=rng)


def _alternation(space: ConvexSet, rounds: int, rng: np.random.Generator) -> Array:
    return alternation(space, rounds, arity=8)


STREAMS: dict[str, Source] = {
    "i.i.d.": iid,
    "regimes of 50": partial(regime_switches, every=50),
    "regimes of 997": regime_switches,
    "drift": drift,
    "random walk": random_walk,
    "alternation": _alternation,
    "against the mean": _against_mean,
    "against the ledger": _against_ledger,
}
"""Streams of the headline race, by name."""


@dataclass(frozen=True)
class _Run:
    """One forecaster on one stream: the job of a worker."""

    forecaster: str
    stream: str
    space: ConvexSet
    seed: int
    rounds: int
    norms: tuple[Norm, ...]

    @property
    def name(self) -> str:
        """A file name that no other run has."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:24] + ".parquet"


class _Timed:
    """A forecaster, and the time spent in its predict and update."""

    def __init__(self, forecaster: Forecaster) -> None:
        self._forecaster, self.space, self.seconds = forecaster, forecaster.space, 0.0

    def predict(self) -> Any:
        return self._timed(self._forecaster.predict)

    def update(self, outcome: Array) -> None:
        self._timed(self._forecaster.update, outcome)

    @property
    def mixture(self) -> Forecast:
        return self._forecaster.mixture

    def _timed(self, act: Callable[..., Any], *given: Array) -> Any:
        begin = time.perf_counter()
        result = act(*given)
        self.seconds += time.perf_counter() - begin
        return result


def race(
    forecasters: Mapping[str, Maker],
    streams: Mapping[str, Source],
    spaces: Sequence[ConvexSet],
    *,
    rounds: int,
    norms: Sequence[Norm | str] = ("l1",),
    seeds: Sequence[int] = (0,),
    workers: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> pa.Table:
    """Race every forecaster on every stream over every set and seed, and return one tidy table.

    Parameters
    ----------
    forecasters
        By name, functions from a set to a forecaster, such as `treecal.forecasters.REGISTRY`: classes and
        `functools.partial`, not lambdas, since they are sent to other processes. If one refuses a set, its row has a
        note that says why, and no error.
    streams
        By name, functions `(space, rounds, rng)` that return outcomes or an adversary.
    spaces
        The sets.
    rounds
        Rounds of each run. Errors are read at `treecal.streams.checkpoints(rounds)`.
    norms
        Norms of the errors.
    seeds
        Random seeds of the streams.
    workers
        Number of processes; by default one per core. 1 uses only the current one.
    folder
        Where finished runs are kept; a race with the same arguments in the same folder resumes.
    progress
        Called with the number of finished runs and of all runs.

    Returns
    -------
    A `pyarrow.Table` with the columns forecaster, stream, space, dim, seed, rounds, norm, error, per_node, seconds
    (spent in predict and update so far) and note.

    Examples
    --------
    >>> import treecal as tc
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> table.num_rows, table.column("rounds").to_pylist()
    (11, [1, 2, 3, 4, 6, 7, 8, 11, 13, 16, 20])
    """
    pa, pq = (require(name, extra="arena", what="a table of the arena") for name in ("pyarrow", "pyarrow.parquet"))
    rounds = whole_number("rounds", rounds, least=1)
    for name, table in (("forecasters", forecasters), ("streams", streams), ("spaces", spaces), ("norms", norms)):
        if not table:
            raise ParameterError(f"{name} is empty, expected one or more.")
    measures = tuple(as_norm(norm) for norm in norms)
    runs = [
        _Run(forecaster, stream, space, int(seed), rounds, measures)
        for space in spaces
        for stream in streams
        for seed in seeds
        for forecaster in forecasters
    ]
    kept = None if folder is None else Path(folder)
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    results: dict[_Run, _Rows] = {}
    for run in runs:
        if kept is not None and (kept / run.name).exists():
            results[run] = pq.read_table(kept / run.name).to_pylist()
    jobs = [(run, forecasters[run.forecaster], streams[run.stream]) for run in runs if run not in results]
    for run, rows in _work(jobs, workers):
        results[run] = rows
        if kept is not None:
            unfinished = kept / f".{run.name}"
            pq.write_table(pa.Table.from_pylist(rows, schema=_schema(pa)), unfinished)
            os.replace(unfinished, kept / run.name)
        if progress is not None:
            progress(len(results), len(runs))
    return pa.Table.from_pylist([row for run in runs for row in results[run]], schema=_schema(pa))


def _play(run: _Run, make: Maker, source: Source) -> tuple[_Run, _Rows]:
    """Play a run, and return one row for each checkpoint and norm; a refusal is a row without an error."""
    head: dict[str, Any] = {"forecaster": run.forecaster, "stream": run.stream, "space": repr(run.space)}
    head |= {"dim": run.space.dim, "seed": run.seed}
    try:
        forecaster = _Timed(make(run.space))
    except TreeCalError as refusal:
        return run, [{**head, "rounds": run.rounds, "norm": repr(n), "note": str(refusal)} for n in run.norms]
    # The stream depends on the seed and its name, not on the forecaster.
    digest = hashlib.sha256(f"{run.stream}/{run.space!r}/{run.seed}".encode()).digest()
    stream = source(run.space, run.rounds, np.random.default_rng(list(digest)))
    ledger, rows = Ledger(run.space), _Rows()

    def note(played: int, _: int) -> None:
        plain, by_node = ledger.exact(), ledger.exact(per_node=True)
        for norm in run.norms:
            errors = {"error": plain.error(norm), "per_node": by_node.error(norm)}
            rows.append({**head, "rounds": played, "norm": repr(norm), **errors, "seconds": forecaster.seconds})

    marks = checkpoints(run.rounds)
    play(forecaster, stream, rounds=run.rounds, ledger=ledger, at=marks, progress=note)  # type: ignore[arg-type]
    return run, rows


def _work(jobs: Iterable[tuple[_Run, Maker, Source]], workers: int | None) -> Iterator[tuple[_Run, _Rows]]:
    if workers == 1:
        yield from (_play(*job) for job in jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        try:
            for future in as_completed([pool.submit(_play, *job) for job in jobs]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def final(table: pa.Table, *, norm: Norm | str = "l1") -> dict[tuple[int, str, str], float]:
    """Return the mean error over seeds at the last checkpoint, by (dim, stream, forecaster), in one norm.

    Examples
    --------
    >>> import treecal as tc
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> [key for key in final(table)]
    [(2, 'iid', 'mean')]
    """
    last = {}  # the rows of a run are in the order of rounds
    for row in table.to_pylist():
        if row["norm"] == repr(as_norm(norm)) and row["error"] is not None:
            last[row["dim"], row["stream"], row["forecaster"], row["seed"]] = row["error"]
    errors: dict[tuple[int, str, str], list[float]] = {}
    for (*key, _), error in last.items():
        errors.setdefault(tuple(key), []).append(error)
    return {key: float(np.mean(of_seeds)) for key, of_seeds in errors.items()}


def show(table: pa.Table, *, norm: Norm | str = "l1") -> str:
    """Return the final errors as Markdown, one table per dimension, with the least error of each stream in bold.

    Examples
    --------
    >>> import treecal as tc
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> print(show(table).splitlines()[2])
    | forecaster | iid |
    """
    errors, lines = final(table, norm=norm), []
    for dim in sorted({key[0] for key in errors}):
        own = {key[1:]: error for key, error in errors.items() if key[0] == dim}
        streams, names = (list(dict.fromkeys(key[i] for key in own)) for i in (0, 1))
        least = {stream: min(error for (s, _), error in own.items() if s == stream) for stream in streams}
        lines += [f"### {dim} dimensions", "", f"| forecaster | {' | '.join(streams)} |"]
        lines.append("| --- " * (1 + len(streams)) + "|")
        cells = {(s, n): f"**{error:.3f}**" if error == least[s] else f"{error:.3f}" for (s, n), error in own.items()}
        lines += [f"| {name} | {' | '.join(cells.get((s, name), '') for s in streams)} |" for name in names]
        lines.append("")
    return "\n".join(lines)


def _schema(pa: Any) -> Any:
    text, whole, real = pa.string(), pa.int64(), pa.float64()
    fields = {"forecaster": text, "stream": text, "space": text, "dim": whole, "seed": whole, "rounds": whole}
    return pa.schema({**fields, "norm": text, "error": real, "per_node": real, "seconds": real, "note": text})
