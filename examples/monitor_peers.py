"""Monitors of two classes side by side on the same streams: false alarms and delays, as the documentation has them.

python examples/monitor_peers.py                       # all of it: 100 streams a row, most of an hour
python examples/monitor_peers.py --streams 4           # a quick look

`Monitor` and probcal's `CalibrationMonitor` (`pip install probcal`) see forecasts and outcomes; ADWIN and KSWIN of
river (`pip install river`) see the classifier's errors. A peer that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from monitor_table import Array, Make, draw, right, right_and_moving, shown, softmax, sure
from numpy.typing import NDArray

import treecal as tc

Outcomes = NDArray[np.int64]


class Peer(NamedTuple):
    """A detector: the round of its first alarm, infinity for none; and the share of the streams it has the time for."""

    alarm: Callable[[Array, Outcomes], float]
    share: float = 1.0


class Stream(NamedTuple):
    """A line of the table: from which round on forecasts are off, if ever."""

    make: Make
    rounds: int
    off: float = np.inf


def of_monitor(model: Array, outcomes: Outcomes) -> float:
    """Watch all rounds."""
    monitor = tc.Monitor(tc.Simplex(2))
    monitor.update_many(model, outcomes)
    return np.inf if monitor.alarm is None else monitor.alarm.round


def of_probcal(batch: int, window: int | None = None) -> Callable[[Array, Outcomes], float]:
    """Watch by batches, for each of which the bets are fitted anew; an alarm is counted at the end of its batch."""
    from probcal.monitor import CalibrationMonitor

    few = (-3.0, 3.0, 2)  # shifts for its confidence sequence, which does not bear upon the alarm

    warnings.filterwarnings("ignore", "irls_logistic: separation", UserWarning)  # it goes on with a ridge

    def alarm(model: Array, outcomes: Outcomes) -> float:
        monitor = CalibrationMonitor(alpha=0.05, plug_in_window=window, delta_ci_grid=few)
        for end in range(batch, len(outcomes) + 1, batch):
            rows = slice(end - batch, end)
            if monitor.update(outcomes[rows], model[rows, 1]).alarm:
                return end
        return np.inf

    return alarm


def of_river(make: Callable[[], Any]) -> Callable[[Array, Outcomes], float]:
    """Watch whether the likelier class is wrong."""

    def alarm(model: Array, outcomes: Outcomes) -> float:
        detector = make()
        for t, wrong in enumerate((model.argmax(axis=1) != outcomes).astype(float), 1):
            detector.update(wrong)
            if detector.drift_detected:
                return t
        return np.inf

    return alarm


def peers() -> dict[str, Peer]:
    """Return those that are installed, and name those that are not."""
    found = {"Monitor": Peer(of_monitor)}
    if find_spec("probcal"):
        found["probcal, batches of 50"] = Peer(of_probcal(50), share=0.4)
        found["probcal, batches of 10, window of 100"] = Peer(of_probcal(10, 100), share=0.2)  # two seconds a stream
    else:
        print("probcal is not installed (pip install probcal): left out.\n")
    if find_spec("river"):
        from river import drift

        found["ADWIN"] = Peer(of_river(drift.ADWIN))
        found["KSWIN"] = Peer(of_river(lambda: drift.KSWIN(seed=0)), share=0.2)  # a millisecond a round
    else:
        print("river is not installed (pip install river): left out.\n")
    return found


def based(logits: float, *, after: int = 0) -> Make:
    """Class 1 more frequent than forecast by so many logits, after so many rounds in which forecasts are right."""

    def make(rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
        model = rng.normal(size=(rounds, 2))
        shift = np.where(np.arange(rounds)[:, None] < after, 0.0, logits) * np.array([0.0, 1.0])
        return softmax(model + shift), softmax(model)

    return make


def harder(*, after: int) -> Make:
    """Forecasts that are right, of cases that become harder after so many rounds."""

    def make(rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
        logits = rng.normal(size=(rounds, 2))
        logits[after:] *= 0.2
        return softmax(logits), softmax(logits)

    return make


STREAMS = {
    "right": Stream(right(2), 5000),
    "right, and moving": Stream(right_and_moving(2), 5000),
    "right, cases harder after 5,000": Stream(harder(after=5000), 7000),
    "temperature 2": Stream(sure(2, 2.0), 1000, 0),
    "temperature 1.25": Stream(sure(2, 1.25), 5000, 0),
    "base rate, half a logit": Stream(based(0.5), 2000, 0),
    "temperature 2 after 5,000 good rounds": Stream(sure(2, 2.0, after=5000), 7000, 5000),
    "base rate, one logit after 5,000 good rounds": Stream(based(1.0, after=5000), 7000, 5000),
}


def cell(alarms: Array, off: float) -> str:
    """Return the share of false alarms, the share of streams found out later, and the median delay among the others."""
    false = f"{(np.isfinite(alarms) & (alarms <= off)).mean():.0%}" if off else "–"
    if not np.isfinite(off):
        return f"{false}, –, –"
    late = alarms[alarms > off] - off
    median = float(np.quantile(late, 0.5, method="higher")) if len(late) else np.inf
    return f"{false}, {np.isfinite(late).sum() / len(alarms):.0%}, {shown(median)}"


def table(streams: int, found: dict[str, Peer]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| stream: false alarms, found, median delay | {' | '.join(found)} |"
    yield "| --- |" + " --- |" * len(found)
    for what, stream in STREAMS.items():
        cells = []
        for peer in found.values():
            alarms = []
            for i in range(max(round(peer.share * streams), 1)):
                rng = np.random.default_rng([1, i])
                truth, model = stream.make(rng, stream.rounds)
                alarms.append(peer.alarm(model, draw(truth, rng)))
            cells.append(cell(np.array(alarms), stream.off))
        yield f"| {what} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    for line in table(parser.parse_args().streams, peers()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
