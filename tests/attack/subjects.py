"""Everything that has a state, under one interface: how to make it, give it a round, and read its state bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import treecal as tc
from treecal import swap
from treecal.correctors import Cells, Centroids, Corrector
from treecal.forecasters import REGISTRY
from treecal.testing import sample_outcomes

Round = tuple[Any, Any]
"""What goes into the call that comes first (predict), and into the one that changes the state (update, record)."""


@dataclass(frozen=True)
class Subject:
    """A class with a state: `first` prepares a round and changes no state that lasts, `last` completes it."""

    name: str
    make: Callable[[], Any]
    rounds: Callable[[np.random.Generator, int], list[Round]]
    first: Callable[[Any, Any], Any]
    last: Callable[[Any, Any], Any]
    state: Callable[[Any], Any]


def plain(state: Any) -> Any:
    """Return a state as something that compares bit for bit."""
    if isinstance(state, np.ndarray):
        return state.dtype.str, state.shape, state.tobytes()
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    return copy.deepcopy(state)


def kept(thing: Any) -> Any:
    """Return the state of what has `get_state`."""
    return plain(thing.get_state())


def subjects() -> list[Subject]:
    """Return all of them."""
    return [*_forecasters(), *_correctors(), *_ledgers(), *_banks(), *_learners(), *_wrappers()]


def _outcomes(space: tc.ConvexSet) -> Callable[[np.random.Generator, int], list[Round]]:
    return lambda rng, count: [(None, y) for y in sample_outcomes(space, count, rng)]


def _pairs(space: tc.ConvexSet) -> Callable[[np.random.Generator, int], list[Round]]:
    def rounds(rng: np.random.Generator, count: int) -> list[Round]:
        return list(zip(sample_outcomes(space, count, rng)[::-1], sample_outcomes(space, count, rng), strict=True))

    return rounds


def _forecasters() -> Iterator[Subject]:
    spaces = (tc.Simplex(2), tc.Simplex(3), tc.Box(-1, 1, dim=2))
    made: list[tc.Forecaster] = [f for space in spaces for kind in REGISTRY.values() for f in kind.examples(space)]
    made += [tc.Sampled(tc.Harmonic(tc.Simplex(2)), block=2), swap.L1BallForecaster(tc.TreeCal(tc.Simplex(5), arity=2))]
    for f in made:
        if not type(f).__module__.startswith("treecal."):
            continue  # registered by other tests
        make = lambda f=f: copy.deepcopy(f)  # noqa: E731
        yield Subject(repr(f), make, _outcomes(f.space), _predict, _update, kept)


def _ask(c: Any, b: Any) -> Any:
    """Ask a corrector, in place of what was asked before, if that has no outcome yet."""
    try:
        return c.predict(b)
    except tc.TreeCalError as error:
        if "awaits its outcome" not in str(error):
            raise
        c.cancel()
        return c.predict(b)


def _predict(f: Any, _: Any) -> Any:
    return f.predict()


def _update(thing: Any, given: Any) -> None:
    thing.update(given)


def _correctors() -> Iterator[Subject]:
    kinds = (tc.Recalibrator, tc.PlattScaling, tc.TemperatureScaling, tc.VectorScaling, tc.Chain, tc.Gated)
    spaces = (tc.Simplex(2), tc.Simplex(3), tc.Box(-1, 1, dim=2))
    made: list[Corrector] = [c for space in spaces for kind in kinds for c in kind.examples(space)]
    two = tc.Simplex(2)
    grouped = tc.Recalibrator(two, make=lambda: tc.TreeCal(two, arity=2, depth=5), groups=Cells(width=0.5))
    made += [tc.Chain([tc.PlattScaling(two), tc.Chain([tc.Recalibrator(two, groups=Centroids(count=2)), grouped])])]
    for c in made:
        make = lambda c=c: copy.deepcopy(c)  # noqa: E731
        yield Subject(repr(c), make, _pairs(c.space), _ask, _update, kept)


def _ledgers() -> Iterator[Subject]:
    for space in (tc.Simplex(3), tc.Box(-1, 1, dim=2)):
        forecasters = [tc.TreeCal(space, arity=2), tc.AdaptiveTreeCal(space), tc.Harmonic(space)]

        def rounds(rng: np.random.Generator, count: int, forecasters: Any = forecasters) -> list[Round]:
            players, made = copy.deepcopy(forecasters), []
            for t, y in enumerate(sample_outcomes(players[0].space, count, rng)):
                x = players[t % len(players)].predict() if t % 4 else np.array(y)
                made.append((None, (x, y)))
                for f in players:
                    f.update(y)
            return made

        make = lambda space=space: tc.Ledger(space)  # noqa: E731
        yield Subject(f"Ledger({space!r})", make, rounds, lambda *_: None, lambda ledger, r: ledger.record(*r), kept)


def _banks() -> Iterator[Subject]:
    space = tc.Simplex(3)

    def rounds(rng: np.random.Generator, count: int) -> list[Round]:
        return [(None, (rng.integers(5, size=n), sample_outcomes(space, n, rng))) for n in rng.integers(1, 9, count)]

    for f in (tc.TreeCal(space, arity=2), tc.TreeCal(space, arity=3, depth=6), tc.AdaptiveTreeCal(space, arity=2)):
        make = lambda f=f: tc.Bank(f, streams=5)  # noqa: E731
        yield Subject(
            f"Bank({f!r})", make, rounds, lambda bank, _: bank.predict(), lambda bank, r: bank.update(*r), kept
        )


def _learners() -> Iterator[Subject]:
    box = tc.Box(0, 1, dim=3)
    makers: list[Callable[[], swap.Learner]] = [
        lambda: swap.Hedge(3),
        lambda: swap.Hedge(3, rounds=8),
        lambda: swap.RegretMatching(3),
        lambda: swap.FollowTheLeader(3),
        lambda: swap.LazyGradientDescent(3),
        lambda: swap.InternalRegretMatching(3),
        lambda: swap.BlumMansour(lambda: swap.Hedge(3), actions=3),
        lambda: swap.TreeSwap(lambda: swap.Hedge(3, rounds=2), arity=2),
        lambda: swap.TreeSwap(lambda: swap.BestResponse(tc.TreeCal(box), actions=np.eye(3)), arity=2, depth=5),
        lambda: swap.BestResponse(tc.TreeCal(box, arity=2), actions=np.eye(3)),
    ]
    for make in makers:
        yield Subject(repr(make()), make, _outcomes(box), lambda f, _: f.act(), lambda f, loss: f.observe(loss), _plays)


def _plays(learner: swap.Learner) -> Any:
    """Return what a learner would play, now and after two more losses: it has no other state to show."""
    twin = copy.deepcopy(learner)
    shown: list[Any] = [twin.rounds, twin.act().tobytes()]
    for loss in ([1.0, 0.0, 0.25], [0.0, 0.5, 1.0]):
        twin.observe(loss)
        shown.append(twin.act().tobytes())
    return shown


def _wrappers() -> Iterator[Subject]:
    yield from _sklearn()
    yield from _river()


def _sklearn() -> Iterator[Subject]:
    try:
        from sklearn.naive_bayes import GaussianNB

        from treecal.integrations import sklearn
    except ImportError:
        return
    X, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
    model = sklearn.RecalibratedClassifier(GaussianNB()).partial_fit(X, y, classes=[0, 1, 2])

    def batches(rng: np.random.Generator, count: int) -> list[Round]:
        return [(rng.normal(size=(2, 2)), (rng.normal(size=(3, 2)), rng.integers(3, size=3))) for _ in range(count)]

    def state(model: Any) -> Any:
        kept_state = kept(model.corrector_)
        kept_state.pop("pending", None)
        return kept_state, plain(model.estimator_.theta_), plain(model.classes_)

    yield Subject(
        "sklearn.RecalibratedClassifier",
        lambda: copy.deepcopy(model),
        batches,
        lambda m, X: m.predict_proba(X),
        lambda m, r: m.partial_fit(*r),
        state,
    )


def _river() -> Iterator[Subject]:
    try:
        from river import dummy

        from treecal.integrations import river
    except ImportError:
        return
    model = river.RecalibratedClassifier(dummy.PriorClassifier(), classes=[False, True])

    def examples(rng: np.random.Generator, count: int) -> list[Round]:
        return [({"a": a}, ({"a": a}, bool(rng.random() < 0.5))) for a in rng.normal(size=count).tolist()]

    def corrector(model: Any) -> Any:
        state = kept(model.corrector)
        state.pop("pending", None)  # of a forecast that the classifier made, and then refused to learn
        return state, len(model._known[0]), model.classifier.n

    yield Subject(
        "river.RecalibratedClassifier",
        lambda: copy.deepcopy(model),
        examples,
        lambda m, x: m.predict_proba_one(x),
        lambda m, r: m.learn_one(*r),
        corrector,
    )

    def counted(rng: np.random.Generator, count: int) -> list[Round]:
        return [(None, (bool(p > 0.5), {True: p, False: 1 - p})) for p in (rng.integers(9, size=count) / 8).tolist()]

    yield Subject(
        "river.CalibrationError",
        lambda: river.CalibrationError(),
        counted,
        lambda m, _: m.get(),
        lambda m, r: m.update(*r),
        lambda m: m.get(),
    )
