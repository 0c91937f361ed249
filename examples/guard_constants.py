"""How little the constants of `Tracker` and `Codebook` matter: the table of docs/explanation/guard.md.

Each is halved and doubled, and `Codebook(Tracker(space))` plays the streams of `treecal.arena.CHOSEN`, by which choices
may be made. Printed is the geometric mean of the ℓ1 errors beside that of the default, and what the mean Brier score
differs by. It takes some minutes: python examples/guard_constants.py
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

import treecal as tc
from treecal.arena import CHOSEN
from treecal.forecasters import _codebook, _tracker


def play(rounds: int, capacity: int = 320) -> tuple[np.ndarray, float]:
    """Return the logarithm of the error of each stream, and the mean Brier score."""
    errors, scores = [], []
    for stream in CHOSEN.values():
        book, ledger = tc.Codebook(tc.Tracker(stream.space), capacity=capacity), tc.Ledger(stream.space)
        outcomes = stream.outcomes[:rounds]
        for y in outcomes:
            ledger.record(book.predict(), y)
            book.update(y)
        reading = ledger.exact()
        errors.append(math.log(reading.error("l1")))
        scores.append(reading.brier(float(len(outcomes))).score)
    return np.array(errors), float(np.mean(scores))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    again = partial(play, parser.parse_args().rounds)
    usual, score = again()
    print(f"default: error {math.exp(usual.mean()):.4f}, Brier score {score:.4f}", flush=True)

    def show(name: str, errors: np.ndarray, brier: float) -> None:
        print(f"{name}: {math.exp((errors - usual).mean()):.2f}, {brier - score:+.4f}", flush=True)

    constants: list[tuple[Any, str]] = [
        (_codebook, "SHARE_AHEAD"),
        (_codebook, "URGENT"),
        (_tracker, "ENTRIES"),
        (_tracker, "BACKING"),
        (_tracker, "SHARE"),
        (_tracker, "FOG"),
    ]
    for factor in (0.5, 2.0):
        _codebook.math = SimpleNamespace(sqrt=lambda x, by=factor: by * math.sqrt(x))  # type: ignore[assignment]
        show(f"look-ahead, times {factor:g}", *again())
        _codebook.math = math
        show(f"capacity, times {factor:g}", *again(capacity=int(320 * factor)))
        for module, name in constants:
            value = getattr(module, name)
            setattr(module, name, type(value)(value * factor))
            show(f"{name}, times {factor:g}", *again())
            setattr(module, name, value)


if __name__ == "__main__":
    main()
