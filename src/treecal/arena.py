"""The arena: forecasters × streams × sets × seeds, one race, one table.

Every forecaster meets the same streams; an adversary, who answers what it sees, plays each one separately. A race can
be stopped and taken up again: each run is kept in a file of its own as it ends. Tables need pyarrow:
`pip install "treecal[arena]"`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal._optional import require
from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, TreeCalError
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
    random_walk,
    regime_switches,
)

if TYPE_CHECKING:
    import pyarrow as pa

Maker = Callable[[ConvexSet], Forecaster]
Source = Callable[[ConvexSet, int, np.random.Generator], "Array | Adversary"]


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
class Run:
    """One forecaster on one stream: what a worker is given."""

    forecaster: str
    stream: str
    space: ConvexSet
    seed: int
    rounds: int
    checkpoints: tuple[int, ...]
    norms: tuple[Norm, ...]

    @property
    def name(self) -> str:
        """A file name that tells this run from every other."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:24] + ".parquet"

    def play(self, make: Maker, source: Source) -> list[dict[str, Any]]:
        """Play it, and return one row for each checkpoint and norm; a refusal is a row without an error."""
        head: dict[str, Any] = {"forecaster": self.forecaster, "stream": self.stream, "space": repr(self.space)}
        head |= {"dim": self.space.dim, "seed": self.seed}
        try:
            forecaster = make(self.space)
        except TreeCalError as refusal:
            return [{**head, "rounds": self.rounds, "norm": repr(n), "note": str(refusal)} for n in self.norms]
        # The stream depends on the seed and its name, not on who plays it.
        digest = hashlib.sha256(f"{self.stream}/{self.space!r}/{self.seed}".encode()).digest()
        stream = source(self.space, self.rounds, np.random.default_rng(list(digest)))
        ledger, rows, seconds = Ledger(self.space), [], 0.0
        for t in range(1, self.rounds + 1):
            begin = time.perf_counter()
            x = forecaster.predict()
            seconds += time.perf_counter() - begin
            y = stream.outcome(forecaster.mixture) if isinstance(stream, Adversary) else stream[t - 1]
            ledger.record(x, y)
            begin = time.perf_counter()
            forecaster.update(y)
            seconds += time.perf_counter() - begin
            if t in self.checkpoints:
                plain, by_node = ledger.exact(), ledger.exact(per_node=True)
                for norm in self.norms:
                    errors = {"error": plain.error(norm), "per_node": by_node.error(norm)}
                    rows.append({**head, "rounds": t, "norm": repr(norm), **errors, "seconds": seconds})
        return rows


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
    progress: bool = False,
) -> pa.Table:
    """Race every forecaster on every stream over every set and seed, and return one tidy table.

    Parameters
    ----------
    forecasters
        By name, functions from a set to a forecaster: classes and `functools.partial`, not lambdas, as they travel to
        other processes; `treecal.forecasters.REGISTRY` has all of ours. One that refuses a set gets a row that says
        why, and no error.
    streams
        By name, functions `(space, rounds, rng)` that return outcomes or an adversary.
    spaces
        The sets.
    rounds
        Rounds of each run. Errors are noted at about four checkpoints a decade.
    norms
        What errors are counted in.
    seeds
        Seeds of the streams.
    workers
        Processes; by default one for each core. 1 stays in this one.
    folder
        Where finished runs are kept; a race with the same arguments in the same folder goes on where it was stopped.
    progress
        Show a progress bar.

    Returns
    -------
    A `pyarrow.Table` with the columns forecaster, stream, space, dim, seed, rounds, norm, error, per_node, seconds
    (spent in predict and update so far) and note.

    Examples
    --------
    >>> import treecal as tc
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> table.num_rows, table.column("rounds").to_pylist()
    (7, [1, 2, 3, 4, 7, 12, 20])
    """
    pa, pq = (require(name, extra="arena", what="a table of the arena") for name in ("pyarrow", "pyarrow.parquet"))
    rounds = whole_number("rounds", rounds, least=1)
    for name, table in (("forecasters", forecasters), ("streams", streams), ("spaces", spaces), ("norms", norms)):
        if not table:
            raise ParameterError(f"{name} is empty, expected one or more.")
    marks = np.geomspace(1, rounds, int(4 * np.log10(rounds)) + 2) if rounds > 1 else [1]
    checkpoints = tuple(sorted({round(mark) for mark in marks}))
    measures = tuple(as_norm(norm) for norm in norms)
    runs = [
        Run(forecaster, stream, space, int(seed), rounds, checkpoints, measures)
        for space in spaces
        for stream in streams
        for seed in seeds
        for forecaster in forecasters
    ]
    kept = None if folder is None else Path(folder)
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    results: dict[Run, list[dict[str, Any]]] = {}
    for run in runs:
        if kept is not None and (kept / run.name).exists():
            results[run] = pq.read_table(kept / run.name).to_pylist()
    waiting = [run for run in runs if run not in results]
    jobs = ((run, forecasters[run.forecaster], streams[run.stream]) for run in waiting)
    for run, rows in _track(_work(jobs, workers), total=len(runs), done=len(results), show=progress):
        results[run] = rows
        if kept is not None:
            unfinished = kept / f".{run.name}"
            pq.write_table(pa.Table.from_pylist(rows, schema=_schema(pa)), unfinished)
            os.replace(unfinished, kept / run.name)
    return pa.Table.from_pylist([row for run in runs for row in results[run]], schema=_schema(pa))


def _play(run: Run, make: Maker, source: Source) -> tuple[Run, list[dict[str, Any]]]:
    return run, run.play(make, source)


def _work(jobs: Iterator[tuple[Run, Maker, Source]], workers: int | None) -> Iterator[tuple[Run, list[dict[str, Any]]]]:
    if workers == 1:
        yield from (_play(*job) for job in jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        futures = [pool.submit(_play, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _track(results: Iterator[Any], *, total: int, done: int, show: bool) -> Iterator[Any]:
    if not show:
        yield from results
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, words = Console(stderr=True), (TextColumn("{task.description}"), TextColumn("{task.fields[rate]}"))
    columns = (words[0], BarColumn(), MofNCompleteColumn(), words[1], TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task, start = bar.add_task("runs", total=total, completed=done, rate=""), time.monotonic()
        for count, result in enumerate(results, 1):
            yield result
            bar.update(task, advance=1, rate=f"{count / (time.monotonic() - start):.1f}/s")


def final(table: pa.Table, *, norm: Norm | str = "l1") -> dict[tuple[int, str, str], float]:
    """Return the mean error over seeds at the last checkpoint, by (dim, stream, forecaster), in one norm.

    Examples
    --------
    >>> import treecal as tc
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> [key for key in final(table)]
    [(2, 'iid', 'mean')]
    """
    last: dict[tuple[int, str, str], dict[int, tuple[int, float]]] = {}
    for row in table.to_pylist():
        if row["norm"] == repr(as_norm(norm)) and row["error"] is not None:
            seeds = last.setdefault((row["dim"], row["stream"], row["forecaster"]), {})
            if row["seed"] not in seeds or seeds[row["seed"]][0] < row["rounds"]:
                seeds[row["seed"]] = (row["rounds"], row["error"])
    return {key: float(np.mean([error for _, error in seeds.values()])) for key, seeds in last.items()}


def show(table: pa.Table, *, norm: Norm | str = "l1") -> str:
    """Return the final errors as Markdown: one table a dimension, forecasters down, streams across, the least in bold.

    Examples
    --------
    >>> import treecal as tc
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> print(show(table).splitlines()[2])
    | forecaster | iid |
    """
    errors = final(table, norm=norm)
    lines = []
    for dim in sorted({key[0] for key in errors}):
        streams = list(dict.fromkeys(key[1] for key in errors if key[0] == dim))
        names = list(dict.fromkeys(key[2] for key in errors if key[0] == dim))
        lines += [
            f"### {dim} dimensions",
            "",
            f"| forecaster | {' | '.join(streams)} |",
            "| --- " * (1 + len(streams)) + "|",
        ]
        least = {s: min(errors[dim, s, n] for n in names if (dim, s, n) in errors) for s in streams}
        for name in names:
            cells = []
            for stream in streams:
                error = errors.get((dim, stream, name))
                text = "" if error is None else f"{error:.3f}"
                cells.append(f"**{text}**" if error == least[stream] else text)
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _schema(pa: Any) -> Any:
    text, whole, real = pa.string(), pa.int64(), pa.float64()
    fields = {"forecaster": text, "stream": text, "space": text, "dim": whole, "seed": whole, "rounds": whole}
    return pa.schema({**fields, "norm": text, "error": real, "per_node": real, "seconds": real, "note": text})
