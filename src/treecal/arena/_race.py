"""The race: all runs, in several processes, each kept when it is finished."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from treecal._optional import require
from treecal._validate import whole_number
from treecal.arena._run import Entry, Maker, Rows, Shared, chance, made, play_entry
from treecal.arena._streams import Source
from treecal.exceptions import ParameterError, TreeCalError
from treecal.geometry import ConvexSet, Norm, as_norm
from treecal.streams import checkpoints

if TYPE_CHECKING:
    import pyarrow as pa


def race(
    forecasters: Mapping[str, Maker],
    streams: Mapping[str, Source],
    spaces: Sequence[ConvexSet],
    *,
    rounds: int,
    norms: Sequence[Norm | str] = ("l1",),
    seeds: Sequence[int] = (0,),
    at: Sequence[int] | None = None,
    limit: float | None = None,
    workers: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> pa.Table:
    """Race every forecaster on every stream over every set and seed, and return one tidy table.

    Beyond 1,000 rounds, trees and harmonic averaging on outcomes that no adversary chooses are replayed at once.

    Parameters
    ----------
    forecasters
        By name, functions from a set to a forecaster, such as `treecal.forecasters.REGISTRY`: classes and
        `functools.partial`, not lambdas, since they are sent to other processes. One that has an argument `rng` is
        given a generator of the run's seed. If one refuses a set, its row has a note that says why, and no error.
    streams
        By name, functions `(space, rounds, rng)` that return outcomes or an adversary. A `Fixed` or `Recorded` one is
        played with the first seed only, unless the forecaster draws.
    spaces
        The sets.
    rounds
        Rounds of each run.
    norms
        Norms of the errors.
    seeds
        Random seeds of the streams, and of forecasters that draw.
    at
        After how many rounds errors and scores are read; by default at `treecal.streams.checkpoints(rounds)`. The last
        round is always among them.
    limit
        Seconds of processor time that one forecaster may take on one stream, for all seeds together. Seeds for which
        there is no time left are not played, and a run that at its present speed would take longer is stopped; a note
        says so. Seeds are played in their order, so that the first ones are there for all.
    workers
        Number of processes; by default one per core. 1 uses only the current one.
    folder
        Where finished runs are kept, each in a file that begins with the forecaster's name; a race with the same
        arguments in the same folder resumes. A changed forecaster is raced again when its files are removed.
    progress
        Called with the number of finished runs and of all runs.

    Returns
    -------
    A `pyarrow.Table` with the columns forecaster, stream, space, dim, seed, length (of the run), rounds (so far), norm,
    error, per_node, brier, resolution and uncertainty (see `treecal.ledger.Brier`), forecasts (distinct ones),
    seconds (spent in predict and update so far; none where the run was replayed at once) and note.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import iid
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> table.num_rows, table.column("rounds").to_pylist()
    (11, [1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20])
    """
    pa, pq = (require(name, extra="arena", what="a table of the arena") for name in ("pyarrow", "pyarrow.parquet"))
    rounds = whole_number("rounds", rounds, least=1)
    for name, table in (("forecasters", forecasters), ("streams", streams), ("spaces", spaces), ("norms", norms)):
        if not table:
            raise ParameterError(f"{name} is empty, expected one or more.")
    if limit is not None and not limit > 0:
        raise ParameterError.expected("limit", limit, "a positive number of seconds")
    marks = checkpoints(rounds).tolist() if at is None else [whole_number("at", mark, least=1) for mark in at]
    marks = tuple(sorted({mark for mark in marks if mark < rounds} | {rounds}))
    measures = tuple(as_norm(norm) for norm in norms)
    kept = None if folder is None else Path(folder)
    results: dict[_File, Rows] = {}
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    runs = list[_File]()
    jobs = list[_Job]()
    token = uuid4().hex
    for space, stream, name in product(spaces, streams, forecasters):
        make = forecasters[name]
        source = streams[stream]
        some = list(seeds) if chance(make, source) else list(seeds)[:1]
        own = [Entry(name, stream, space, int(seed), rounds, measures, marks) for seed in some]
        files = [_File(entry, _configuration(entry, make)) for entry in own]
        runs += files
        if kept is not None:
            found = [(file, path) for file in files for path in file.paths(kept, limit) if path.exists()]
            results |= {file: pq.read_table(path).to_pylist() for file, path in found}
        if left := [file for file in files if file not in results]:
            jobs.append(_Job(left, make, Shared(token, source), limit))
    for file, rows, finished in _work(jobs, workers):
        results[file] = rows
        if kept is not None:
            target = file.paths(kept, limit)[not finished]
            unfinished = kept / f".{target.name}"
            pq.write_table(pa.Table.from_pylist(rows, schema=_schema(pa)), unfinished)
            os.replace(unfinished, target)
        if progress is not None:
            progress(len(results), len(runs))
    runs.sort(key=_order(spaces, streams, seeds, forecasters))
    return pa.Table.from_pylist([row for file in runs for row in results[file]], schema=_schema(pa))


@dataclass(frozen=True)
class _File:
    """A run, and the configuration of its forecaster: what names its file."""

    entry: Entry
    configuration: str

    def paths(self, folder: Path, limit: float | None) -> tuple[Path, Path]:
        """Return where the run is kept: when it was played to the end, and when the limit stopped it."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:24]
        name = f"{re.sub(r'[^a-z0-9]+', '-', self.entry.forecaster.lower()).strip('-')}-{digest}"
        return folder / f"{name}.parquet", folder / f"{name}-{limit}.parquet"


def _configuration(entry: Entry, make: Maker) -> str:
    try:
        return repr(made(entry, make))
    except TreeCalError as refusal:
        return str(refusal)


@dataclass(frozen=True)
class _Job:
    """The seeds of one forecaster on one stream: what a worker does in one go."""

    files: list[_File]
    make: Maker
    stream: Shared
    limit: float | None

    def play(self) -> Iterator[tuple[_File, Rows, bool]]:
        """Play the runs in the order of seeds, as long as there is time."""
        spent = 0.0
        longest = 0.0
        for file in self.files:
            left = None if self.limit is None else self.limit - spent
            if left is not None and left < longest:
                yield file, file.entry.refusal(f"too slow for more seeds: those before took {spent:.0f} s."), False
                continue
            begin = time.process_time()
            rows, finished = play_entry(file.entry, self.make, self.stream, left)
            took = time.process_time() - begin
            spent += took
            longest = max(longest, took)
            yield file, rows, finished


def _in_one_go(job: _Job) -> list[tuple[_File, Rows, bool]]:
    return list(job.play())


def _work(jobs: Sequence[_Job], workers: int | None) -> Iterator[tuple[_File, Rows, bool]]:
    if workers == 1:
        for job in jobs:
            yield from job.play()
        return
    with ProcessPoolExecutor(workers) as pool:
        try:
            for future in as_completed([pool.submit(_in_one_go, job) for job in jobs]):
                yield from future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _order(*sequences: Any) -> Callable[[_File], tuple[int, ...]]:
    """Return the place of a run in the table: by set, stream, seed and forecaster."""
    places = [list(sequence) for sequence in sequences]

    def place(file: _File) -> tuple[int, ...]:
        entry = file.entry
        keys = (entry.space, entry.stream, entry.seed, entry.forecaster)
        return tuple(own.index(key) for own, key in zip(places, keys, strict=True))

    return place


def _schema(pa: Any) -> Any:
    text = pa.string()
    whole = pa.int64()
    real = pa.float64()
    fields = {"forecaster": text, "stream": text, "space": text, "dim": whole, "seed": whole, "length": whole}
    fields |= {"rounds": whole, "norm": text}
    fields |= dict.fromkeys(["error", "per_node", "brier", "resolution", "uncertainty"], real)
    return pa.schema(fields | {"forecasts": whole, "seconds": real, "note": text})
