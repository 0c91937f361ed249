"""How fast everything is, as ratios against a limit or a peer measured in the same run.

    python benchmarks/speed.py                   # all, a minute or two on two cores; on an idle machine
    python benchmarks/speed.py --only step bank  # some parts
    python benchmarks/speed.py --markdown        # the table of docs/reference/benchmarks.md

Each figure is the median over repeated runs, measured in turns with what it is compared with; the spread is that of
the middle half. The reading rate is that of NumPy's sum over the same array, one thread.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import treecal as tc
from treecal.streams import regime_switches


class Line(NamedTuple):
    """One figure, usually a ratio of two times measured in turns, and its target."""

    what: str
    target: str
    value: str
    spread: str
    note: str


def times(repeats: int, *works: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> list[np.ndarray]:
    """Time the works in turns, so that other load on the machine affects all of them."""
    for work in works:
        work()
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, row in zip(works, spent, strict=True):
            start = clock()
            work()
            row.append(clock() - start)
    return [np.array(row) for row in spent]


def line(what: str, target: str, ratios: np.ndarray, note: str = "", form: str = "{:.2f}×") -> Line:
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return Line(what, target, form.format(middle), f"{form.format(low)} … {form.format(high)}", note)


def micro(seconds: np.ndarray, rounds: int) -> str:
    return f"{np.median(seconds) / rounds * 1e6:.2f} µs"


class Empty:
    def predict(self) -> None: ...

    def update(self, outcome: object) -> None: ...


def one_hot(rounds: int, dim: int) -> np.ndarray:
    return np.eye(dim)[np.random.default_rng(0).integers(dim, size=rounds)]


def go(forecaster: Any, outcomes: list[np.ndarray]) -> None:
    for y in outcomes:
        forecaster.predict()
        forecaster.update(y)


def go_and_read(forecaster: Any, outcomes: list[np.ndarray]) -> None:
    for y in outcomes:
        forecast = forecaster.predict()
        _ = forecast.points
        forecaster.update(y)


def record(rounds: list[tuple[tc.Forecast, np.ndarray]]) -> None:
    ledger = tc.Ledger(rounds[0][0].space)
    for forecast, outcome in rounds:
        ledger.record(forecast, outcome)
    len(ledger.exact())  # rounds that wait are added up


def go_river(model: Any, features: dict[str, float], classes: list[int]) -> None:
    for k in classes:
        model.predict_proba_one(features)
        model.learn_one(features, k)


def go_mean(mean: Any, numbers: list[int]) -> None:
    for number in numbers:
        mean.get()
        mean.update(number)


def step() -> Iterator[Line]:
    """The streaming step, its forecast held and read, against empty calls and river; and the ledger."""
    from river.dummy import PriorClassifier
    from river.linear_model import SoftmaxRegression
    from river.stats import Mean

    rounds = 2_000
    for dim in (3, 10, 100):
        space, outcomes = tc.Simplex(dim), list(one_hot(rounds, dim))
        tree, mixed = tc.TreeCal(space), list(space.sample(np.random.default_rng(0), rounds))
        plain, empty, read = (partial(f, g, outcomes) for f, g in ((go, tree), (go, Empty()), (go_and_read, tree)))
        base, own, held, other = times(100, empty, plain, read, partial(go_and_read, tree, mixed))
        what = f"predict()+update() / two empty calls, d = {dim}"
        yield line(what, "≤ 51×", held / base, micro(held, rounds), "{:.1f}×")
        yield line("  the same, forecast not looked at", "", own / base, micro(own, rounds), "{:.1f}×")
        yield line("  the same, outcomes in the interior", "", other / base, micro(other, rounds), "{:.1f}×")
        if dim == 10:
            classes = [int(y.argmax()) for y in outcomes]
            own, prior, softmax, mean = times(
                60,
                plain,
                partial(go_river, PriorClassifier(), {}, classes),
                partial(go_river, SoftmaxRegression(), {"bias": 1.0}, classes[:200]),
                partial(go_mean, Mean(), classes),
            )
            yield line("  / river PriorClassifier, 10 classes", "≤ 1.2×", own / prior, micro(prior, rounds))
            yield line("  / river SoftmaxRegression on one feature", "", own / softmax / 10, micro(softmax, 200))
            yield line("  / river Mean, one number", "", own / mean, micro(mean, rounds))
    tree = tc.TreeCal(tc.Simplex(10), arity=4, depth=7)
    played = []
    for y in one_hot(4_000, 10):
        played.append((tree.predict(), y))
        tree.update(y)
    (spent,) = times(9, partial(record, played))
    each = 1e6 * spent / len(played)
    yield line("Ledger.record, d = 10, 7 points, read at the end", "≤ 15 µs", each, "", "{:.1f} µs")
    tree, outcomes, tenths = tc.TreeCal(tc.Simplex(10)), list(one_hot(100_000, 10)), []
    for _ in range(10):
        start = time.perf_counter()
        go(tree, outcomes)
        tenths.append(time.perf_counter() - start)
    yield line("last / first tenth of 10^6 steps", "≤ 1.3×", np.array([tenths[-1] / tenths[0]]))


def guarded() -> Iterator[Line]:
    """The default forecaster on a stream that changes every 50 rounds, its books full, and replayed."""
    space = tc.Simplex(10)
    outcomes = regime_switches(space, 1_002_000, np.random.default_rng(0), every=50)
    classes, spent = outcomes.argmax(axis=1), {}
    for before in (1_000, 1_000_000):
        f, rows = tc.replay(classes[:before], tc.Guarded(space)).forecaster, list(outcomes[before : before + 2_000])
        each = []
        for i in range(0, 2_000, 100):
            start = time.thread_time()
            go_and_read(f, rows[i : i + 100])
            each.append(1e4 * (time.thread_time() - start))
        spent[before] = np.array(each)
        what = f"Guarded, predict()+update() after {before:,} rounds, d = 10"
        yield line(what, "≤ 100 µs", spent[before], "", "{:.0f} µs")
    yield line("  the later / the earlier", "≤ 1.3×", spent[1_000_000] / np.median(spent[1_000]))
    works = partial(tc.replay, classes, tc.Guarded(space)), partial(tc.replay, classes, space)
    whole, trees = times(5, *works, clock=time.process_time)
    each = 1e6 * whole / len(classes)
    yield line("Guarded, a round replayed, d = 10", "≤ 3 µs", each, "", "{:.2f} µs")
    yield line("  / TreeCal replayed", "", whole / trees, "", "{:.0f}×")


def corrected() -> Iterator[Line]:
    """The default corrector, without scores: batches, and single rounds once a thread has compiled what they run."""
    space, rng = tc.Simplex(10), np.random.default_rng(0)
    forecasts = rng.dirichlet(np.ones(10), size=20_000)
    classes = (rng.random((len(forecasts), 1)) > forecasts.cumsum(axis=1)).sum(axis=1).clip(0, 9)
    corrector, outcomes = tc.AutoCorrector(space, scores=None), np.eye(10)[classes]
    corrector.update_many(forecasts[:2_000], classes[:2_000])
    batches, rounds = [], []
    for begin in range(2_000, 14_000, 2_000):
        rows = slice(begin, begin + 2_000)
        start = time.thread_time()
        corrector.update_many(forecasts[rows], classes[rows])
        batches.append(1e6 * (time.thread_time() - start) / 2_000)
    yield line("AutoCorrector, a row of update_many, d = 10", "≤ 20 µs", np.array(batches), "", "{:.1f} µs")
    for begin in range(14_000, 20_000, 300):
        start = time.thread_time()
        for b, y in zip(forecasts[begin : begin + 300], outcomes[begin : begin + 300], strict=True):
            corrector.predict(b)
            corrector.update(y)
        rounds.append(1e6 * (time.thread_time() - start) / 300)
        if begin < 17_000:
            time.sleep(1)  # for the compiler
    yield line("AutoCorrector, predict()+update(), d = 10", "≤ 150 µs", np.array(rounds[10:]), "", "{:.0f} µs")


def replay() -> Iterator[Line]:
    """Whole arrays, every check included, beside reading the same memory."""
    with ThreadPoolExecutor(2) as pool:
        for dim, target, rounds in ((3, "", 8_000_000), (10, "≤ 7 ns", 5_000_000), (100, "", 500_000)):
            space, outcomes = tc.Simplex(dim), one_hot(rounds, dim)
            singles, classes, flat = outcomes.astype(np.float32), outcomes.argmax(axis=1), outcomes.reshape(-1)
            halves = np.array_split(flat, 2)
            read, both, one, two, narrow, label, byte, two_labels = times(
                9,
                flat.sum,
                lambda halves=halves: list(pool.map(np.sum, halves)),  # type: ignore[misc]
                partial(tc.replay, outcomes, space, threads=1),
                partial(tc.replay, outcomes, space, threads=2),
                partial(tc.replay, singles, space, threads=1),
                partial(tc.replay, classes, space, threads=1),
                partial(tc.replay, classes.astype(np.uint8), space, threads=1),
                partial(tc.replay, classes, space, threads=2),
            )
            share = (
                f"{100 * np.median(read / one):.0f} % of reading, {outcomes.nbytes / np.median(read) / 1e9:.1f} GB/s"
            )
            each = 1e9 / rounds
            yield line(f"replay, a row of {dim} float64", target, each * one, share, "{:.1f} ns")
            faster = f"reading: {np.median(read / both):.2f}×"
            yield line("  one thread / two", "≥ 1.6×" if dim > 3 else "", one / two, faster)
            yield line("  float32", "", each * narrow, f"{50 * np.median(read / narrow):.0f} % of reading", "{:.1f} ns")
            yield line("  a class, int64", "≤ 5 ns" if dim < 100 else "", each * label, "", "{:.1f} ns")
            yield line("  a class, uint8", "", each * byte, "", "{:.1f} ns")
            yield line("  classes, one thread / two", "", label / two_labels)
    yield from exact()
    yield from growth()


def exact() -> Iterator[Line]:
    found = np.array([_child("exact") for _ in range(3)])
    note = f"{np.median(found[:, 1] / found[:, 0]):.0f}× the per-node error, peak {found[:, 2].max():.2f} GB"
    yield line("exact error, 10^7 classes of 10, a round", "< 3 GB", 100 * found[:, 1], note, "{:.0f} ns")


def growth() -> Iterator[Line]:
    for power in range(4, 9):
        seconds, peak = _child("growth", str(10**power))
        per = seconds / 10**power * 1e9
        what = f"chunked class indices, 10^{power} rounds"
        yield Line(what, "linear, flat", f"{per:.1f} ns", "", f"peak {peak:.2f} GB")


def bank() -> Iterator[Line]:
    """A step of many streams against adding two arrays."""
    for make, streams, dim, target in (
        (tc.TreeCal, 100_000, 10, "≤ 4×"),
        (tc.AdaptiveTreeCal, 1_000_000, 3, "≤ 6×"),
        (tc.AdaptiveTreeCal, 1_000_000, 10, "≤ 6×"),
    ):
        rng = np.random.default_rng(0)
        keys, outcomes, classes = np.arange(streams), one_hot(streams, dim), rng.integers(dim, size=streams)
        many, total = tc.Bank(make(tc.Simplex(dim)), streams=streams), np.zeros((streams, dim))
        for _ in range(20):  # so that streams differ in their rounds
            many.update(rng.integers(streams, size=streams), outcomes)
        size = sum(array.nbytes for array in many.get_state().values()) // streams  # of what a stream keeps
        all_, more = np.zeros((streams, size // 8)), np.ones((streams, size // 8))
        add, add_all, update, by_class, mixed, predict = times(
            60 if streams <= 100_000 else 9,
            partial(np.add, total, outcomes, out=total),
            partial(np.add, all_, more, out=all_),
            partial(many.update, keys, outcomes),
            partial(many.update, keys, classes),
            partial(many.update, rng.permutation(streams), outcomes),
            partial(many.predict, keys[:10_000]),
        )
        note = f"{np.median(update) / streams * 1e9:.0f} ns a stream"
        yield line(f"bank of {make.__name__}, {streams:,} streams × d = {dim} / a += b", target, update / add, note)
        yield line("  / a += b of arrays of the streams' size", "", update / add_all, f"{size} bytes a stream")
        yield line("  outcomes given as classes / a += b", "", by_class / add)
        yield line("  keys in random order / a += b", "", mixed / add)
        yield line("  forecasts of 10^4 streams / a += b", "", predict / add)
    yield from named()


def named() -> Iterator[Line]:
    """A step of streams that have names, against the same streams with numbers."""
    streams = 1_000_000
    rng = np.random.default_rng(0)
    names = np.array([f"customer-{key:08}" for key in rng.permutation(streams)], np.dtypes.StringDType())
    column, classes = pa.array(names.tolist()), rng.integers(2, size=streams)
    by_name, by_number = tc.Bank(tc.TreeCal(tc.Simplex(2)), names=column), tc.Bank(tc.Simplex(2), streams=streams)
    number, name = times(
        9, partial(by_number.update, rng.permutation(streams), classes), partial(by_name.update, column, classes)
    )
    note = f"{np.median(name) / streams * 1e9:.0f} ns a name"
    yield line("bank with 10^6 names / with numbers in random order", "", name / number, note)


def late() -> Iterator[Line]:
    """Outcomes by id, against the same rounds without ids."""
    space, n, repeats = tc.Simplex(3), 5_000, 5
    rng, ids = np.random.default_rng(0), [f"id {i}" for i in range(n)]
    P, y = rng.dirichlet(np.ones(3), n), rng.integers(3, size=n)
    for make in (tc.VectorScaling, tc.TemperatureScaling):
        new, waiting = [], []
        for _ in range(repeats + 1):
            new.append(tc.Late(make(space)))
            waiting.append(tc.Late(make(space)))
            waiting[-1].predict_many(P, ids=ids)
        open_, learn, plain = times(
            repeats,
            lambda new=new: new.pop().predict_many(P, ids=ids),
            lambda waiting=waiting: waiting.pop().update_many(ids, y),
            lambda make=make: make(space).update_many(P, y, announced=P),
        )
        what = f"{make.__name__}, d = 3"
        yield line(f"Late.predict_many, {what}", "≥ 20,000/s", n / open_, "", "{:,.0f}/s")
        yield line(f"Late.update_many, {what}", "≥ 20,000/s", n / learn, micro(learn, n), "{:,.0f}/s")
        yield line("  / the corrector's own update_many", "≤ 1.2×", learn / plain)


def peers() -> Iterator[Line]:
    """The closest work of other libraries, on the same rows."""
    import torch
    from sklearn.calibration import calibration_curve
    from torchmetrics.functional.classification import multiclass_calibration_error

    rounds, dim = 1_000_000, 10
    rng = np.random.default_rng(0)
    forecasts = rng.dirichlet(np.ones(dim), size=rounds)
    classes = rng.integers(dim, size=rounds)
    dense = np.eye(dim)[classes]
    tensors = torch.from_numpy(forecasts), torch.from_numpy(classes)
    torch.set_num_threads(1)
    space = tc.Simplex(dim)
    own, metric, curve = times(
        9,
        lambda: tc.replay(dense, space, threads=1),
        lambda: multiclass_calibration_error(*tensors, num_classes=dim, n_bins=15),
        lambda: calibration_curve(classes == 0, forecasts[:, 0], n_bins=15),
    )
    per = f"{np.median(own) / rounds * 1e9:.0f} against {np.median(metric) / rounds * 1e9:.0f} ns a row"
    yield line("torchmetrics' calibration error / replay, a row, d = 10", "≥ 4×", metric / own, per)
    yield line("scikit-learn's calibration_curve, one class / replay", "", curve / own)
    yield from netcal(forecasts[:100_000], classes[:100_000], own / 10)
    yield from regret_matching()


def netcal(forecasts: np.ndarray, classes: np.ndarray, own: np.ndarray) -> Iterator[Line]:
    try:
        from netcal.metrics import ECE
    except ImportError:
        yield Line("netcal's ECE / replay", "", "–", "", "netcal is not installed")
        return
    (other,) = times(9, lambda: ECE(15).measure(forecasts, classes))
    yield line("netcal's ECE / replay", "", other / own)


def regret_matching() -> Iterator[Line]:
    """A round of rock, paper, scissors, both players."""
    from open_spiel.python.algorithms import regret_matching as spiel

    from treecal import games, swap

    game = games.rock_paper_scissors()
    payoffs = [np.asarray(p) for p in game.payoffs]
    n = payoffs[0].shape[0]
    rounds = 300

    def theirs() -> None:
        spiel.regret_matching(payoffs, iterations=rounds, gamma=1e-6)

    def ours(make: Callable[[], Any]) -> None:
        a, b = make(), make()
        for _ in range(rounds):
            x, y = a.act(), b.act()
            a.observe(-payoffs[0] @ y)
            b.observe(-x @ payoffs[1])

    them, matching, tree, blum = times(
        9,
        theirs,
        lambda: ours(lambda: swap.RegretMatching(n)),
        lambda: ours(lambda: swap.TreeSwap(lambda: swap.RegretMatching(n), arity=16)),
        lambda: ours(lambda: swap.BlumMansour(lambda: swap.RegretMatching(n), actions=n)),
    )
    yield line("regret matching, a round of a game: ours / OpenSpiel", "", matching / them, micro(matching, rounds))
    yield line("  TreeSwap on regret matching / OpenSpiel's", "", tree / them, micro(tree, rounds))
    yield line("  Blum–Mansour / TreeSwap", "", blum / tree, micro(blum, rounds))


def audit() -> Iterator[Line]:
    """The binned audit of a Parquet file, per class, against DuckDB's sums of the same columns, both on two cores."""
    import duckdb

    rows, names = int(os.environ.get("TREECAL_LOG_ROWS", 10**7)), [f"p{k}" for k in range(10)]
    *first, last = names
    shares = [f"{name} / ({' + '.join(names)}) AS {name}" for name in names]
    cents = [*(f"{name} / 100 AS {name}" for name in first), f"(100 - ({' + '.join(first)})) / 100 AS {last}"]
    logs = {  # target; columns of probabilities; what is drawn; what is made of it
        "× 10, any doubles": ("≤ 3×", names, "-ln(1 - random())", shares),
        "× 10, whole per cent": ("≤ 3×", names, "1 + floor(10 * random())", cents),
        "× 1 of two classes, whole per cent": ("", ["p"], "floor(101 * random())", ["p0 / 100 AS p"]),
    }
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": 2}) as connection:
        log = f"{folder}/log.parquet"
        for what, (target, columns, draw, parts) in logs.items():
            connection.execute(
                f"COPY (SELECT {', '.join(parts)}, floor({max(2, len(columns))} * random())::INTEGER AS label "
                f"FROM (SELECT {', '.join(f'{draw} AS {name}' for name in names)} FROM range({rows}))) "
                f"TO '{log}' (FORMAT parquet)"
            )
            sums = f"SELECT {', '.join(f'sum({name})' for name in columns)} FROM '{log}'"
            total, own = times(
                9,
                lambda sums=sums: connection.execute(sums).fetchall(),  # type: ignore[misc]
                lambda columns=columns: tc.audit(log, forecast=columns, outcome="label", exact=False),  # type: ignore[misc]
            )
            note = f"{np.median(own) / rows * 1e9:.1f} against {np.median(total) / rows * 1e9:.1f} ns a row"
            yield line(f"binned audit of {rows:,} rows {what} / DuckDB's sums", target, own / total, note)


def first_call() -> Iterator[Line]:
    """A new process that imports treecal and replays, when kernels were compiled before."""
    code = (
        "import time, numpy as np, treecal as tc; start = time.perf_counter(); "
        "tc.replay(np.zeros(100, int), tc.Simplex(3)); print(time.perf_counter() - start)"
    )
    _python(code)
    seconds = np.array([float(_python(code)) for _ in range(7)])
    yield line("first replay in a new process, kernels in the cache", "≤ 1 s", seconds, "", "{:.2f} s")


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def _child(*arguments: str) -> list[float]:
    out = subprocess.run([sys.executable, __file__, "--child", *arguments], check=True, capture_output=True, text=True)
    return [float(word) for word in out.stdout.split()]


def peak() -> float:
    """The peak memory of this process, in GB (`resource` would count the parent's as well)."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(row.split()[1]) for row in status if row.startswith("VmHWM")) / 1e6


def child(name: str, *arguments: str) -> None:
    """Run one case in its own process, and print times and peak memory."""
    space = tc.Simplex(10)
    tc.replay(np.arange(10), space).error("l1")
    if name == "exact":
        classes = np.random.default_rng(0).integers(10, size=10**7)
        start = time.perf_counter()
        run = tc.replay(classes, space, threads=1)
        middle = time.perf_counter()
        run.error("l1")
        print(middle - start, time.perf_counter() - middle, peak())
    else:
        left, chunk = int(arguments[0]), np.random.default_rng(0).integers(10, size=10**6)
        chunks = (chunk[: min(len(chunk), left - done)] for done in range(0, left, len(chunk)))
        start = time.perf_counter()
        tc.replay(chunks, space, threads=1).error("l1", per_node=True)
        print(time.perf_counter() - start, peak())


PARTS: dict[str, Callable[[], Iterator[Line]]] = {
    "step": step,
    "replay": replay,
    "bank": bank,
    "audit": audit,
    "guarded": guarded,
    "corrected": corrected,
    "late": late,
    "peers": peers,
    "first": first_call,
}


def machine() -> str:
    packages = ("treecal", "numpy", "numba", "river", "torchmetrics", "torch", "scikit-learn", "open_spiel")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    kind = platform.processor() or platform.machine()
    return f"{kind}, {os.cpu_count()} processors, Python {platform.python_version()}; {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(*chosen.child)
        return
    columns = ("what", "target", "measured", "middle half", "")
    lines = [one for part in chosen.only for one in PARTS[part]()]
    if chosen.markdown:
        print(f"| {' | '.join(columns)} |\n| {' | '.join('---' for _ in columns)} |")
        print("\n".join(f"| {' | '.join(row)} |" for row in lines))
        print(f"\n{machine()}.")
        return
    table = Table(*columns, title="Speed")
    for row in lines:
        table.add_row(*row)
    Console().print(table, machine(), highlight=False)


if __name__ == "__main__":
    main()
