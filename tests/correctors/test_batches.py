"""Many rounds at once are the loop, bit for bit: copies that join, weights of all kinds, steps that need care."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import treecal as tc
from tests.correctors.models import features
from treecal._typing import Array
from treecal.correctors import Cells, Centroids, Scaling
from treecal.correctors._scores import Tallies
from treecal.state import dumps, loads

TWO, THREE = tc.Simplex(2), tc.Simplex(3)


class BiasCorrected(Scaling):
    """A temperature for all classes, and an offset for each, by `_features` alone."""

    def _identity(self) -> Array:
        return np.append(1.0, np.zeros(self.space.dim))

    def _features(self, logs: Array) -> Array:
        return np.column_stack([logs, np.eye(len(logs))])


MAKERS: dict[str, Callable[[], tc.Corrector]] = {
    "temperature": lambda: tc.TemperatureScaling(THREE),
    "Platt": lambda: tc.PlattScaling(TWO),
    "Platt at its edge": lambda: tc.PlattScaling(TWO, rate=0.2, ridge=0.5, radius=1.1),
    "Platt, nearly singular": lambda: tc.PlattScaling(TWO, ridge=1e-9, radius=1e9),
    "beta": lambda: tc.BetaCalibration(TWO, ridge=1.0),
    "vector": lambda: tc.VectorScaling(THREE),
    "vector at its edge": lambda: tc.VectorScaling(THREE, rate=0.2, ridge=1e-6, radius=1.8),
    "vector by class": lambda: tc.VectorScaling(THREE, curvature="by class", forget=False),
    "one's own": lambda: BiasCorrected(THREE),
    "means": lambda: tc.Recalibrator(THREE),
    "means in cells": lambda: tc.Recalibrator(THREE, groups=Cells(width=0.5), prior=0.0, forget=False),
    "centroids": lambda: tc.Recalibrator(THREE, groups=Centroids(count=2)),
    "shifts": lambda: tc.Recalibrator(THREE, make="shift"),
    "exact": lambda: tc.Recalibrator(THREE, scores="exact"),
    "no scores": lambda: tc.VectorScaling(THREE, scores=None),
    "gated": lambda: tc.Gated(tc.VectorScaling(THREE, ridge=1.0), alpha=0.9),
    "gated by log": lambda: tc.Gated(tc.Recalibrator(THREE), alpha=0.5, by="log"),
    "a gate in a chain": lambda: tc.Chain([tc.Gated(tc.VectorScaling(THREE, ridge=1.0), alpha=0.9)]),
    "gates by group": lambda: tc.ByGroup(tc.Gated(tc.Gated(tc.Recalibrator(THREE), alpha=0.9), alpha=0.9)),
    "chain": lambda: tc.Chain([tc.VectorScaling(THREE), tc.Recalibrator(THREE), tc.TemperatureScaling(THREE)]),
    "by group": lambda: tc.ByGroup(tc.Chain([tc.TemperatureScaling(THREE), tc.Recalibrator(THREE)])),
}


def rows(f: tc.Corrector, n: int, seed: int) -> tuple[Array, Array, Array | None, list[Any] | None]:
    rng, dim = np.random.default_rng(seed), f.space.dim
    P = rng.dirichlet(np.full(dim, 0.7), n)
    P[::11] = np.eye(dim)[rng.integers(dim, size=len(P[::11]))]
    Y = np.eye(dim)[[rng.choice(dim, p=p) for p in P[:, ::-1] / P.sum(axis=1, keepdims=True)]]
    Y[::6] = rng.dirichlet(np.ones(dim), len(Y[::6]))
    weights = None
    if seed % 2:
        weights = rng.choice([0.0, 0.3, 1.0, 1.0, 2.0, 7.5, 100.0], n)
        weights[-5] = 1e12  # late, because from then on there are 35 copies
    groups = rng.choice(["a", "b", "c"], n).tolist() if isinstance(f, tc.ByGroup) else None
    return P, Y, weights, groups


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 80), max_size=3))
@example(seed=1, cuts=[30])  # with weights
def test_a_batch_is_the_loop(make: Any, seed: int, cuts: list[int]) -> None:
    loop, batch = make(), make()
    P, Y, weights, groups = rows(loop, 80, seed)
    announced = []
    for i, (b, y) in enumerate(zip(P, Y, strict=True)):
        announced.append(loop.predict(b, group=None if groups is None else groups[i]).mean)
        loop.update(y, weight=1.0 if weights is None else weights[i])
    edges = sorted({0, 80, *cuts})
    for low, high in pairwise(edges):
        part = slice(low, high)
        found = batch.update_many(
            P[part],
            Y[part],
            weights=None if weights is None else weights[part],
            groups=None if groups is None else groups[part],
        )
        assert np.array_equal(found, announced[part])
        batch = loads(dumps(batch)) if not isinstance(batch, BiasCorrected) else batch
    assert batch.rounds == loop.rounds
    if isinstance(loop, BiasCorrected):
        assert np.array_equal(batch.theta, loop.theta)
    else:
        assert dumps(batch) == dumps(loop)


def test_batches_larger_than_are_learned_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    f, parts = tc.VectorScaling(THREE), tc.VectorScaling(THREE)
    P, Y, *_ = rows(f, 150, 0)
    x = f.update_many(P, Y)
    monkeypatch.setattr("treecal.correctors._base._AT_ONCE", 50)
    assert np.array_equal(parts.update_many(P, Y), x)
    assert dumps(parts) == dumps(f)


@pytest.mark.parametrize("name", ["vector", "means", "gated", "chain", "by group"])
def test_an_interrupt_leaves_a_batch_unlearned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = MAKERS[name]()
    P, Y, *_ = rows(f, 60, 0)
    f.update_many(P, Y)
    before = dumps(f)

    def cut(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("treecal.correctors._scores.Tallies.after_rows", cut)
    with pytest.raises(KeyboardInterrupt):
        f.update_many(P, Y)
    monkeypatch.undo()
    assert dumps(f) == before


@pytest.mark.parametrize("act", [tc.Corrector.report, tc.Corrector.get_state, None], ids=["report", "state", "batch"])
def test_an_interrupt_after_scores_were_written_does_not_count_them_twice(
    act: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = MAKERS["vector"]()
    P, Y, *_ = rows(f, 60, 0)
    for b, y in zip(P[:40], Y[:40], strict=True):  # fewer than are added at once
        f.predict(b)
        f.update(y)
    before, added = dumps(copy(f)), Tallies.added

    def cut(*given: Any) -> Any:
        added(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(Tallies, "added", cut)
    with pytest.raises(KeyboardInterrupt):
        f.update_many(P, Y) if act is None else act(f)
    monkeypatch.undo()
    assert dumps(f) == before


class Careful(tc.TemperatureScaling):
    def _announce(self, forecast: Array) -> tc.Forecast:
        return self._point(0.9 * super()._announce(forecast).mean + 0.1 / self.space.dim)


class CarefulMap(tc.IsotonicCalibration):
    def _announce(self, forecast: Array) -> tc.Forecast:
        return self._point(0.9 * super()._announce(forecast).mean + 0.1 / self.space.dim)


class Doubting(tc.Recalibrator):
    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> dict[str, Any]:
        return super()._after(forecast, 0.9 * outcome + 0.1 / self.space.dim, weight=weight)


class Doubtful:
    """Hooks that do not come from a corrector."""

    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> dict[str, Any]:
        own: Any = super()
        found: dict[str, Any] = own._after(forecast, 0.9 * outcome + 0.1 / len(outcome), weight=weight)
        return found


class DoubtfulScaling(tc.TemperatureScaling):
    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> dict[str, Any]:
        return super()._after(forecast, 0.9 * outcome + 0.1 / self.space.dim, weight=weight)


class Mixed(Doubtful, tc.VectorScaling):
    pass


class MixedMore(Mixed):
    pass


@pytest.mark.parametrize(
    "make",
    [Careful, CarefulMap, Doubting, DoubtfulScaling, Mixed, MixedMore, lambda space: tc.Chain([Doubting(space)])],
)
def test_hooks_of_ones_own_are_called_in_a_batch(make: Any) -> None:
    loop, batch = make(THREE), make(THREE)
    P, Y, *_ = rows(loop, 60, 0)
    for b, y in zip(P, Y, strict=True):
        loop.predict(b)
        loop.update(y)
    batch.update_many(P, Y)
    assert batch.report() == loop.report()
    assert np.array_equal(batch.predict_many(P[:5])[0], loop.predict(P[0]).mean)
    late = tc.Late(loop)
    assert np.array_equal(late.predict_many(P[:1], ids=[0])[0], batch.predict(P[0]).mean)


def test_a_round_learned_by_a_signal_handler_amid_a_batch_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    f = MAKERS["vector"]()
    P, Y, *_ = rows(f, 20, 0)
    played = tc.VectorScaling._played

    def interrupted(self: tc.VectorScaling, batch: Any) -> Any:
        found = played(self, batch)
        f.learn(P[0], Y[0])
        return found

    monkeypatch.setattr(tc.VectorScaling, "_played", interrupted)
    with pytest.raises(tc.TreeCalError, match="another round"):
        f.update_many(P, Y)
    assert f.rounds == 1


def test_a_scaling_of_ones_own_is_the_one_with_the_same_features() -> None:
    class Own(tc.VectorScaling):
        def _features(self, logs: Array) -> Array:
            return features(self, np.exp(logs))

        _entries, _values = Scaling._entries, Scaling._values  # the zeros, too

    own, built_in = Own(THREE), tc.VectorScaling(THREE)
    P, Y, *_ = rows(own, 150, 0)
    np.testing.assert_allclose(own.update_many(P, Y), built_in.update_many(P, Y), rtol=1e-9)


def test_scores_of_many_rows_are_those_of_a_few_at_a_time() -> None:
    """By a kernel where there are many, and bit for bit the sums of those that are added some at once."""
    rng = np.random.default_rng(0)
    forecasts = rng.dirichlet(np.ones(3), 1500).round(2)
    forecasts[:, 2] = 1 - forecasts[:, 0] - forecasts[:, 1]
    outcomes = rng.dirichlet(np.ones(3), 1500)
    one = tc.TemperatureScaling(tc.Simplex(3))
    other = tc.TemperatureScaling(tc.Simplex(3))
    one.update_many(forecasts, outcomes)
    for at in range(0, 1500, 100):
        other.update_many(forecasts[at : at + 100], outcomes[at : at + 100])
    assert dumps(one) == dumps(other)
