"""Guarded streams in a bank: the time of a stream's round, beside the class and the replay of one stream, and memory.

    python benchmarks/guarded_bank.py                    # 10^5 streams of 3 classes, and 10^4 of 2 and 10; a minute
    python benchmarks/guarded_bank.py --streams 1000000  # another number of streams of 3 classes

Each stream has a law of its own; it has learned 100 rounds when the clock starts, and 20 more are timed, one of each
stream in a call. In the same run the class plays the same rounds of some of these streams, and a stream of 20,000
rounds is replayed. The target is 40 µs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import treecal as tc

BEFORE, ROUNDS = 100, 20


def outcomes(dim: int, streams: int, rounds: int) -> Iterator[np.ndarray]:
    """Yield a class for each stream, round by round, each stream's from its own law."""
    rng = np.random.default_rng(0)
    edges = rng.dirichlet(np.ones(dim), streams).cumsum(axis=1)[:, :-1]
    for _ in range(rounds):
        yield (rng.random((streams, 1)) > edges).sum(axis=1)


def in_a_bank(dim: int, streams: int, **options: Any) -> tuple[str, int]:
    space = tc.Simplex(dim)
    bank, keys = tc.Bank(tc.Guarded(space), streams=streams, **options), np.arange(streams)
    rows = outcomes(dim, streams, BEFORE + ROUNDS)
    for _ in range(BEFORE):
        bank.update(keys, next(rows))
    spent = []
    for classes in rows:
        start = time.perf_counter()
        bank.update(keys, classes)
        spent.append(1e6 * (time.perf_counter() - start) / streams)
    low, middle, high = np.percentile(spent, [25, 50, 75])
    kept = bank._streams
    size = getattr(kept, "nbytes", 0) // streams
    return f"{middle:.2f} µs ({low:.2f} … {high:.2f})", size


def alone(dim: int, streams: int) -> tuple[str, str]:
    """Time a round of the class, and one that is replayed, of streams like those of the bank."""
    space, some, long = tc.Simplex(dim), min(streams, 20), 20_000
    columns = np.array(list(outcomes(dim, some, BEFORE + ROUNDS))).T
    spent, replayed = [], []
    for classes in columns:
        f, rows = tc.replay(classes[:BEFORE], tc.Guarded(space)).forecaster, np.eye(dim)[classes[BEFORE:]]
        start = time.perf_counter()
        for y in rows:
            f.predict()
            f.update(y)
        spent.append(1e6 * (time.perf_counter() - start) / len(rows))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        classes = rng.choice(dim, size=long, p=rng.dirichlet(np.ones(dim)))
        start = time.perf_counter()
        tc.replay(classes, tc.Guarded(space))
        replayed.append(1e6 * (time.perf_counter() - start) / long)
    return f"{np.median(spent):.0f} µs", f"{np.median(replayed):.2f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100_000)
    chosen = parser.parse_args()
    table = Table(
        "classes", "streams", "a round in the bank", "bytes a stream", "the class", "replayed", title="Guarded"
    )
    for dim, streams in ((3, chosen.streams), (2, 10_000), (10, 10_000)):
        in_a_bank(dim, 10)  # compiles
        spent, size = in_a_bank(dim, streams)
        table.add_row(str(dim), f"{streams:,}", spent, f"{size:,}", *alone(dim, streams))
    Console().print(table)
    kept = Table("3 classes, 10,000 streams", "a round in the bank", title="What is kept of each stream")
    space = tc.Simplex(3)
    options: dict[str, dict[str, Any]] = {
        "nothing": {},
        "scores": {"scores": True},
        "a monitor": {"monitor": tc.Monitor(space)},
        "both": {"scores": True, "monitor": tc.Monitor(space)},
    }
    for name, own in options.items():
        in_a_bank(3, 10, **own)
        kept.add_row(name, in_a_bank(3, 10_000, **own)[0])
    Console().print(kept)


if __name__ == "__main__":
    main()
