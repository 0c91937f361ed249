"""A program that prints a hash of each answer that is the same on every processor, as JSON.

`test_processors.py` runs it as other processors would, and compares. Arguments: nothing for rounds that are played one
by one, in Python and NumPy; `compiled` for batches, banks, replays and audits too; `few` for some of these alone, which
are compiled in seconds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

import treecal as tc
from treecal import _elementary as elementary
from treecal.correctors import all_correctors
from treecal.forecasters import REGISTRY
from treecal.geometry import read_distributions

ROUNDS = 150
SHORTEST = 64  # rounds of a tree among the examples
SPACES = {"two": tc.Simplex(2), "five": tc.Simplex(5), "box": tc.Box(0, 1, dim=2)}
UNSURE = {"SimplexGrid"}
"""Answers that come from a solver of linear programs, or another library of linear algebra."""
THROUGH_SCIPY = {"verdict", "chance", "intervals", "interval", "debiased_ece", "classwise"}


def drawn(count: int, seed: int) -> Any:
    """Numbers from 0 to 1 from a generator that no library can change."""
    state, found = seed + 1, np.empty(count)
    for i in range(count):
        state = state * 6364136223846793005 % 2**64
        found[i] = (state >> 11) / 2**53
    return found


def rounds(space: tc.ConvexSet, seed: int = 0) -> tuple[Any, Any]:
    """Forecasts of a model that drifts, and outcomes."""
    dim = space.dim
    b, u = drawn(ROUNDS * dim, seed).reshape(ROUNDS, dim), drawn(ROUNDS, seed + 1)
    if not isinstance(space, tc.Simplex):
        return b, np.clip(0.7 * b + 0.3 * drawn(ROUNDS * dim, seed + 2).reshape(ROUNDS, dim), 0, 1)
    b = b * b * b + 1e-4
    b /= np.add.accumulate(b, axis=1)[:, -1:]
    law = np.sqrt(b)
    law = np.add.accumulate(law / np.add.accumulate(law, axis=1)[:, -1:], axis=1)
    return b, np.eye(dim)[np.minimum((u[:, None] > law).sum(axis=1), dim - 1)]


def bits(value: Any) -> bytes:
    """Everything that a state or an answer holds."""
    if isinstance(value, dict):
        return b"".join(str(name).encode() + bits(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return b"".join(map(bits, value))
    if isinstance(value, np.ndarray):
        return str(value.dtype).encode() + value.tobytes()
    return float(value).hex().encode() if isinstance(value, float) else repr(value).encode()


def one_by_one() -> Iterator[tuple[str, bytes]]:
    """Yield answers of forecasters, correctors and monitors that are asked round by round."""
    announced: list[Any]
    numbers = drawn(2000, 7)
    yield "exp", bits([elementary.exp(700 * (2 * x - 1)) for x in numbers.tolist()])
    yield "log", bits([elementary.log(x) for x in numbers.tolist()])
    load, q = tc.Cdf(0, 1, points=30), np.sort(drawn(90, 8).reshape(30, 3), axis=1)
    yield "quantiles", bits(read_distributions(load, {0.1: q[:, 0], 0.5: q[:, 1], 0.9: q[:, 2]}))
    for family in ("normal", "lognormal"):
        yield family, bits(read_distributions(load, {"mean": q[:, 1], "sd": q[:, 0], "family": family}))
    for name, space in SPACES.items():
        b, y = rounds(space)
        for kind in REGISTRY.values():
            if kind.__name__ in UNSURE:
                continue
            for number, f in enumerate(islice(kind.examples(space), 2)):
                announced = []
                for outcome in y[:SHORTEST]:
                    x = f.predict()
                    announced.append([x.points, x.weights, x.mean])
                    f.update(outcome)
                yield f"{kind.__name__} {number}, {name}", bits([announced, f.get_state()])
        for corrector in all_correctors():
            for number, c in enumerate(islice(corrector.examples(space), 2)):
                announced = []
                for forecast, outcome in zip(b, y, strict=True):
                    if not isinstance(c, tc.Mixture):
                        announced.append(c.predict(forecast).mean)
                    else:
                        announced.append(c.predict([forecast] * len(c.models)).mean)
                    c.update(outcome)
                yield f"{corrector.__name__} {number}, {name}", bits([announced, c.get_state()])
        m = tc.Monitor(space)
        for forecast, outcome in zip(b, y, strict=True):
            m.update(forecast, outcome)
        yield f"Monitor, {name}", bits(m.get_state())


def counted(found: Any) -> Any:
    """Return what of an audit is sums and counts: chance levels, intervals and verdicts pass through SciPy."""
    if isinstance(found, dict):
        return {name: counted(each) for name, each in found.items() if name not in THROUGH_SCIPY}
    return [counted(each) for each in found] if isinstance(found, list) else found


def compiled() -> Iterator[tuple[str, bytes]]:
    """Yield answers of compiled code: batches, banks, replays, and the counts of an audit."""
    for name, space in SPACES.items():
        b, y = rounds(space)
        for c in (
            (tc.VectorScaling(space), tc.Recalibrator(space))
            if name != "box"
            else (tc.Recalibrator(space, groups=tc.correctors.Cells(width=0.2)),)
        ):
            yield f"{type(c).__name__} in a batch, {name}", bits([c.update_many(b, y), c.get_state()])
        if name != "box":
            for in_order in (False, True):
                for fitted in (tc.TemperatureScaling(space), tc.VectorScaling(space, curvature="by class")):
                    fitted.fit(b, y, in_order=in_order)
                    yield f"fit of {type(fitted).__name__}, in order: {in_order}, {name}", bits(fitted.get_state())
        m = tc.Monitor(space)
        m.update_many(b, y)
        yield f"Monitor in a batch, {name}", bits(m.get_state())
        for f in (tc.TreeCal(space), tc.AdaptiveTreeCal(space), tc.Guarded(space)):
            run = tc.replay(y, f)
            yield f"replay of {type(f).__name__}, {name}", bits([run.forecast(t).points for t in (1, 20, 149)])
            bank = tc.Bank(f, streams=7)
            bank.update(np.arange(ROUNDS) % 7, y)
            yield f"bank of {type(f).__name__}, {name}", bits([bank.predict([3])[0].points, bank.predict([3]).mean])
        if name != "box":
            found = tc.audit(b, y).whole
            yield f"audit, {name}", repr(counted(found.to_dict())).encode()


def few() -> Iterator[tuple[str, bytes]]:
    """Yield answers of compiled code that is soon compiled: sums, divisions, and exponential weights."""
    space = SPACES["five"]
    b, y = rounds(space)
    c = tc.Recalibrator(space)
    yield "a batch", bits([c.update_many(b, y), c.get_state()])
    bank = tc.Bank(tc.TreeCal(space), streams=7)
    bank.update(np.arange(ROUNDS) % 7, y)
    yield "a bank", bits([bank.predict([3])[0].points, bank.predict([3]).mean])


if __name__ == "__main__":
    answers = dict(few() if "few" in sys.argv else one_by_one())
    if "compiled" in sys.argv:
        answers |= dict(compiled())
    json.dump({name: hashlib.sha256(found).hexdigest() for name, found in answers.items()}, sys.stdout)
