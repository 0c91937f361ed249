"""Simulate monitors on streams that are right and streams that are not, and print the tables of the documentation.

python examples/monitor_table.py                       # all of it: 2,000 streams of 5,000 rounds a row
python examples/monitor_table.py --streams 50          # a quick look
python examples/monitor_table.py --numbers             # forecasts of a number only
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import treecal as tc
from treecal.monitor import Watched, discoveries

Array = NDArray[np.float64]
Make = Callable[[np.random.Generator, int], tuple[Array, Array]]
"""Makes a stream of so many rounds: the truth, and what the model says."""


def softmax(logits: Array) -> Array:
    """Return probabilities."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def draw(truth: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a class of each row."""
    found = (rng.random((len(truth), 1)) > truth.cumsum(axis=1)).sum(axis=1)
    last = truth.shape[1] - 1 - np.argmax(truth[:, ::-1] > 0, axis=1)  # rounding draws no class that has 0
    return np.asarray(np.minimum(found, last))


def right(classes: int) -> Make:
    """Forecasts that are right, from logits of standard deviation 1."""

    def make(rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
        truth = softmax(rng.normal(size=(rounds, classes)))
        return truth, truth

    return make


def right_and_moving(classes: int) -> Make:
    """Forecasts that are right and change: a random walk of the base rates, and sharper and sharper."""

    def make(rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
        walk = np.cumsum(rng.normal(scale=0.02, size=(rounds, classes)), axis=0)
        truth = softmax((walk + rng.normal(size=(rounds, classes))) * np.linspace(0.5, 4, rounds)[:, None])
        return truth, truth

    return make


def right_on_the_boundary(classes: int) -> Make:
    """Forecasts that are right, most of whose probabilities are 0 or tiny, and some of which are certain."""

    def make(rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
        powers = rng.random((rounds, classes)) ** rng.choice([1, 30, 300], size=(rounds, 1))
        powers *= rng.random((rounds, classes)) < 0.5
        powers[np.arange(rounds), rng.integers(classes, size=rounds)] += rng.random(rounds)
        truth = powers / powers.sum(axis=1, keepdims=True)
        return truth, truth

    return make


def sure(classes: int, temperature: float, *, after: int = 0) -> Make:
    """Logits too large by a factor, after so many rounds in which they are right."""

    def make(rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
        logits = rng.normal(size=(rounds, classes))
        return softmax(logits), softmax(np.where(np.arange(rounds)[:, None] < after, 1.0, temperature) * logits)

    return make


def shifted(classes: int, logits: float, mass: float) -> Make:
    """One class, of so much mass, whose logit is too low."""

    def make(rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
        truth = rng.normal(size=(rounds, classes))
        truth[:, 0] += np.log(mass * (classes - 1) / (1 - mass))
        return softmax(truth), softmax(truth - logits * np.eye(classes)[0])

    return make


def alarms(make: Make, *, rounds: int, streams: int, seed: int = 0, **options: float) -> Array:
    """Return the round of the alarm in each stream, infinity for none.

    An alarm is what one finds who looks after every round and stops when the e-value is large enough: there is no way
    of stopping that finds more.
    """
    found = np.full(streams, np.inf)
    for i in range(streams):
        rng = np.random.default_rng([seed, i])
        truth, model = make(rng, rounds)
        monitor = tc.Monitor(tc.Simplex(truth.shape[1]), **options)  # type: ignore[arg-type]
        monitor.update_many(model, draw(truth, rng))
        if monitor.alarm is not None:
            found[i] = monitor.alarm.round
    return found


def chosen_by_the_evidence(streams: int, rounds: int, alpha: float = 0.05) -> float:
    """Return the share of false alarms where forecasts are right and answer to the e-value: bold if it is large."""
    found = 0
    for i in range(streams):
        rng = np.random.default_rng([1, i])
        monitor = tc.Monitor(tc.Simplex(3), alpha=alpha)
        logits, chance = rng.normal(size=(rounds, 3)), rng.random(rounds)
        for z, u in zip(logits, chance, strict=True):
            p = softmax((0.3 if monitor.e_value < 1 else 4.0) * z)
            monitor.update(p, min(int((u > p.cumsum()).sum()), 2))
            if monitor.alarm is not None:
                found += 1
                break
    return found / streams


def late_by_ids(streams: int, rounds: int, alpha: float = 0.05) -> float:
    """Return the share of false alarms where outcomes come late and out of order: the delays do not depend on them."""
    found = 0
    for i in range(streams):
        rng = np.random.default_rng([3, i])
        truth, model = right(3)(rng, rounds)
        y, monitor = draw(truth, rng), tc.Monitor(tc.Simplex(3), alpha=alpha)
        late = tc.Late(Watched(monitor, scores=None))
        due = np.arange(rounds) + rng.geometric(0.05, size=rounds)  # 20 rounds late, on average
        for t in range(due.max() + 1):
            if t < rounds:
                late.predict(model[t], id=t)
            for k in np.flatnonzero(due == t):
                late.update(int(k), int(y[k]))
        found += late.thing.monitor.alarm is not None  # type: ignore[attr-defined]
    return found / streams


def in_groups(streams: int, rounds: int, alpha: float = 0.05, *, off: int = 0) -> tuple[float, float]:
    """Return the share of streams with an alarm, ten groups each, and of right groups among the discoveries of e-BH.

    So many of the groups are too sure, at a temperature of 2.5.
    """
    alarmed, false = 0, 0.0
    for i in range(streams):
        rng = np.random.default_rng([2, i])
        truth, model = right(3)(rng, rounds)
        groups = rng.integers(10, size=rounds)
        model = np.where((groups < off)[:, None], softmax(2.5 * np.log(truth)), model)
        monitor = tc.Monitor(tc.Simplex(3), alpha=alpha, by_group=True)
        monitor.update_many(model, draw(truth, rng), groups=groups.tolist())
        alarmed += monitor.alarm is not None
        named = discoveries(monitor.e_values, alpha=alpha)
        false += sum(int(str(group)) >= off for group in named) / max(len(named), 1)
    return alarmed / streams, false / streams


def other_false_alarms(streams: int) -> Iterator[str]:
    """Yield the lines of the table of false alarms where streams are not simply watched, three classes each."""
    yield "| 3 classes | streams | rounds | share |"
    yield "| --- | --- | --- | --- |"
    few = max(streams // 4, 10)
    chosen, late = chosen_by_the_evidence(few, 2000), late_by_ids(few, 2000)
    yield f"| false alarms, forecasts chosen by the evidence so far | {few:,} | 2,000 | {chosen:.3f} |"
    yield f"| false alarms, outcomes late and out of order, by ids | {few:,} | 2,000 | {late:.3f} |"
    yield f"| false alarms, ten groups (`by_group`) | {streams:,} | 5,000 | {in_groups(streams, 5000)[0]:.3f} |"
    for off in (0, 2):
        false = in_groups(streams, 5000, off=off)[1]
        yield f"| false discoveries of e-BH, {off} of ten groups off | {streams:,} | 5,000 | {false:.3f} |"


class Row(NamedTuple):
    """A line of the second table: what is off, and from which round on."""

    what: str
    make: Make
    rounds: int
    after: int = 0


def false_alarms(streams: int, rounds: int = 5000, alpha: float = 0.05) -> Iterator[str]:
    """Yield the lines of the table of false alarms: the share of streams that are right and had one."""
    kinds = {"steady": right, "moving": right_and_moving, "on the boundary": right_on_the_boundary}
    yield f"| classes | {' | '.join(kinds)} |"
    yield "| --- |" + " --- |" * len(kinds)
    for classes in (2, 3, 10, 50):
        shares = [
            np.isfinite(alarms(kind(classes), rounds=rounds, streams=streams, alpha=alpha)).mean()
            for kind in kinds.values()
        ]
        yield f"| {classes} | {' | '.join(f'{share:.3f}' for share in shares)} |"


ROWS = [
    *(Row(f"temperature 2, {k} classes", sure(k, 2.0), 1000) for k in (2, 3, 10, 50)),
    *(Row(f"temperature 1.25, {k} classes", sure(k, 1.25), 5000) for k in (2, 3, 10, 50)),
    *(Row(f"temperature 1/2, {k} classes", sure(k, 0.5), 2000) for k in (3, 10)),
    Row("temperature 2 after 5,000 good rounds, 5 classes", sure(5, 2.0, after=5000), 7000, 5000),
    *(Row(f"one class of 50, mass {m:.0%}, half a logit too low", shifted(50, 0.5, m), 5000) for m in (0.05, 0.02)),
]


def delays(streams: int) -> Iterator[str]:
    """Yield the lines of the table of delays: how soon forecasts that are off are convicted."""
    yield "| what is off | found | median delay | 90 % within |"
    yield "| --- | --- | --- | --- |"
    for row in ROWS:
        delay = alarms(row.make, rounds=row.rounds, streams=streams) - row.after
        delay = delay[delay > 0]  # others are false alarms
        found = np.isfinite(delay).mean()
        half, most = (shown(np.quantile(delay, q, method="higher")) for q in (0.5, 0.9))
        yield f"| {row.what} | {found:.0%} in {row.rounds - row.after:,} | {half} | {most} |"


NUMBERS = tc.Cdf(-12, 12, points=60)
WHOLE = tc.Cdf(0, 20, thresholds=np.arange(20.0))
QUANTILES = {0.05: -1.6449, 0.1: -1.2816, 0.25: -0.6745, 0.5: 0.0, 0.75: 0.6745, 0.9: 1.2816, 0.95: 1.6449}
FEW = (0.1, 0.5, 0.9)


def walk(rng: np.random.Generator, rounds: int) -> Array:
    """Return means that move."""
    return np.asarray(np.cumsum(0.05 * rng.normal(size=rounds)) % 4 - 2)


def normal_quantiles(mean: Array, levels: Iterable[float]) -> dict[float, Array]:
    """Return quantiles of normal laws of standard deviation 1."""
    return {level: mean + QUANTILES[level] for level in levels}


def numbers(kind: str, rng: np.random.Generator, rounds: int) -> tuple[tc.Cdf, Any, Array]:
    """Return a set, forecasts that are right, and outcomes."""
    mean = walk(rng, rounds)
    y = rng.normal(mean, 1.0)
    if kind in ("normal", "mixture"):
        at = NUMBERS.thresholds - mean[:, None]
        if kind == "normal":
            return NUMBERS, stats.norm.cdf(at), y
        far = rng.random(rounds) < 0.4
        both = 0.4 * stats.norm.cdf(at - 3) + 0.6 * stats.norm.cdf(at)
        return NUMBERS, both, np.where(far, y + 3, y)
    if kind == "ten members":
        return NUMBERS, {"members": rng.normal(mean[:, None], 1.0, (rounds, 10))}, y
    if kind == "seven quantiles":
        return NUMBERS, normal_quantiles(mean, QUANTILES), y
    rate = mean + 5
    count = np.minimum(rng.poisson(rate), 20).astype(np.float64)
    if kind == "Poisson":
        return WHOLE, stats.poisson.cdf(np.arange(20.0), rate[:, None]), count
    if kind == "eight whole members, with ties":
        return WHOLE, {"members": np.minimum(rng.poisson(rate[:, None], (rounds, 8)), 20).astype(np.float64)}, count
    return WHOLE, {level: np.minimum(stats.poisson.ppf(level, rate), 20) for level in FEW}, count


KINDS = ("normal", "mixture", "Poisson", "ten members", "eight whole members, with ties", "seven quantiles")
OFF = {
    "spread too small by a third": (0.0, 1.5),
    "spread too small by a fifth": (0.0, 1.25),
    "spread too large by a half": (0.0, 2 / 3),
    "off by 0.3 standard deviations": (0.3, 1.0),
}


def right_numbers(streams: int, rounds: int = 2000, alpha: float = 0.05) -> Iterator[str]:
    """Yield the lines of the table of false alarms where forecasts are of a number."""
    yield "| forecasts of a number that are right | streams with an alarm |"
    yield "| --- | --- |"
    for kind in (*KINDS, "three quantiles of whole numbers, with ties"):
        found = 0
        for i in range(streams):
            space, forecasts, y = numbers(kind, np.random.default_rng([4, i]), rounds)
            monitor = tc.Monitor(space, alpha=alpha)
            monitor.update_many(forecasts, y)
            found += monitor.alarm is not None
        yield f"| {kind} | {found / streams:.1%} |"


def wrong_numbers(streams: int, rounds: int = 2000) -> Iterator[str]:
    """Yield the lines of the table of numbers that are off: median rounds to the alarm."""
    yield "| forecasts of a number that are off | mean and sd | three quantiles |"
    yield "| --- | --- | --- |"
    for what, (bias, spread) in OFF.items():
        cells = []
        for form in ("moments", "quantiles"):
            found = np.full(streams, np.inf)
            for i in range(streams):
                rng = np.random.default_rng([5, i])
                mean = walk(rng, rounds)
                forecasts: Any = {"mean": mean, "sd": np.ones(rounds)}
                monitor = tc.Monitor(NUMBERS)
                y = rng.normal(mean + bias, spread)
                monitor.update_many(forecasts if form == "moments" else normal_quantiles(mean, FEW), y)
                if monitor.alarm is not None:
                    found[i] = monitor.alarm.round
            cells.append(shown(np.quantile(found, 0.5, method="higher")))
        yield f"| {what} | {' | '.join(cells)} |"


def shown(rounds: float) -> str:
    """Return a number of rounds, or a dash for infinity."""
    return f"{rounds:,.0f}" if np.isfinite(rounds) else "–"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--numbers", action="store_true", help="forecasts of a number only")
    given = parser.parse_args()
    streams = given.streams
    few = max(streams // 10, 20)
    tables = [] if given.numbers else [false_alarms(streams), other_false_alarms(streams), delays(few)]
    for lines in (*tables, right_numbers(streams), wrong_numbers(few)):
        for line in lines:
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
