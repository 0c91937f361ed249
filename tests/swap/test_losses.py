from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.exceptions import LossError, TreeCalError, UnsupportedError
from treecal.geometry import CustomRegularizer, PNorm, QuadraticForm, Regularizer
from treecal.swap import (
    BregmanLoss,
    CallableLoss,
    LinearLoss,
    Loss,
    QuadraticLoss,
)

Maker = Callable[[np.random.Generator], Loss]
DIM = 3


def average(losses: Sequence[Loss]) -> Loss:
    return reduce(operator.add, losses) / len(losses)


def _psd(rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    root = rng.normal(size=(DIM, DIM))
    return root @ root.T


def _callable(rng: np.random.Generator) -> Loss:
    goal = rng.normal(size=DIM)
    return CallableLoss(
        lambda p: np.logaddexp(0, p @ goal) + ((p - goal) ** 2).sum(-1),
        dim=DIM,
        gradient=lambda p: goal / (1 + np.exp(-(p @ goal)))[..., None] + 2 * (p - goal),
    )


MAKERS: dict[str, Maker] = {
    "linear": lambda rng: LinearLoss(rng.normal(size=DIM)),
    "entropy": lambda rng: BregmanLoss(tc.NegativeEntropy(), rng.dirichlet(np.ones(DIM))),
    "euclidean": lambda rng: BregmanLoss(tc.SquaredEuclidean(), rng.dirichlet(np.ones(DIM))),
    "pnorm": lambda rng: BregmanLoss(PNorm(1.5), rng.dirichlet(np.ones(DIM))),
    "quadratic": lambda rng: QuadraticLoss(_psd(rng), vector=rng.normal(size=DIM), constant=1.0),
    "round": lambda rng: QuadraticLoss(2 * np.eye(DIM), vector=rng.normal(size=DIM)),
    "callable": _callable,
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_sums_and_averages_are_those_of_the_values(maker: Maker, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    losses = [maker(rng) for _ in range(count)]
    points = rng.dirichlet(np.ones(DIM), size=(2, 4))
    values = np.array([loss.value(points) for loss in losses])
    assert values.shape == (count, 2, 4)
    np.testing.assert_allclose(average(losses).value(points), values.mean(axis=0), rtol=1e-12, atol=1e-12)
    weighted = losses[0] * 0.5
    for i, loss in enumerate(losses[1:], start=2):
        weighted = weighted + i * loss
    expected = np.average(values, axis=0, weights=[0.5, *range(2, count + 1)]) * (0.5 + sum(range(2, count + 1)))
    np.testing.assert_allclose(weighted.value(points), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("space", [tc.Simplex(DIM), tc.Box(0, 1, dim=DIM), tc.Ball(DIM)], ids=repr)
def test_no_point_does_better_than_the_minimiser(maker: Maker, space: tc.ConvexSet) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        total = average([maker(rng) for _ in range(3)])
        best = total.minimise(space)
        assert space.contains(best, tol=1e-9)
        others = np.abs(space.sample(rng, 500))
        near = space.project(best + 1e-3 * rng.normal(size=(200, DIM)))
        for points in (others[space.contains(others)], near):
            if isinstance(total, BregmanLoss):
                points = points[(points >= 0).all(axis=-1)]
            assert (total.value(points) >= total.value(best) - 1e-9 * (1 + np.abs(total.value(best)))).all()


def test_callables_without_gradient_are_minimised_by_scipy() -> None:
    goal = np.array([0.7, -0.2])
    loss = CallableLoss(lambda p: ((p - goal) ** 2).sum(-1), dim=2)
    np.testing.assert_allclose(loss.minimise(tc.Ball(2)), goal, atol=1e-5)
    np.testing.assert_allclose(loss.minimise(tc.Simplex(2)), [0.95, 0.05], atol=1e-5)
    assert len(loss + loss) == 2


REGULARIZERS: list[Regularizer] = [
    tc.SquaredEuclidean(),
    tc.NegativeEntropy(),
    tc.SmoothedEntropy(DIM),
    PNorm(1.5),
    PNorm(3.0),
    QuadraticForm(np.diag([1.0, 2.0, 3.0])),
    CustomRegularizer(lambda p: (p**4).sum(-1), lambda p: 4 * p**3),
]


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=lambda r: type(r).__name__)
def test_bregman_minimisers_are_sum_over_count_to_the_last_bit(regularizer: Regularizer) -> None:
    rng = np.random.default_rng(0)
    outcomes = rng.dirichlet(np.ones(DIM), size=12)
    total: Loss | None = None
    running = np.zeros(DIM)
    for child in range(3):
        block = outcomes[4 * child : 4 * child + 4]
        carried = np.zeros(DIM)
        for y in block:
            carried += y
        running += carried
        mean = average([BregmanLoss(regularizer, y) for y in block])
        total = mean if total is None else total + mean
        assert np.array_equal(total.minimise(tc.Simplex(DIM)), running / (4 * (child + 1)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearLoss([0.0, np.nan]),
        lambda: LinearLoss([0.0, np.inf]),
        lambda: LinearLoss([[0.0, 1.0]]),
        lambda: LinearLoss([]),
        lambda: LinearLoss(["a", "b"]),
        lambda: LinearLoss([1e300, 0.0]),
        lambda: LinearLoss(3.0),
        lambda: LinearLoss([0.0, -np.inf]),
        lambda: BregmanLoss(tc.SquaredEuclidean(), [np.nan, 1.0]),
        lambda: BregmanLoss(tc.NegativeEntropy(), [-0.5, 1.5]),
        lambda: BregmanLoss("l2", [0.5, 0.5]),  # type: ignore[arg-type]
        lambda: QuadraticLoss([[1.0, 2.0], [0.0, 1.0]]),
        lambda: QuadraticLoss([[-1.0, 0.0], [0.0, 1.0]]),
        lambda: QuadraticLoss(np.eye(2), vector=[1.0]),
        lambda: QuadraticLoss(np.eye(2), constant=np.nan),
        lambda: LinearLoss([0.0, 1.0]) + LinearLoss([0.0, 1.0, 2.0]),
        lambda: BregmanLoss(PNorm(2), [0.0, 1.0]) + BregmanLoss(PNorm(3), [0.0, 1.0]),
        lambda: LinearLoss([0.0, 1.0]) + BregmanLoss(PNorm(3), [0.0, 1.0]),  # type: ignore[operator]
        lambda: LinearLoss([0.0, 1.0]) * -1.0,
        lambda: LinearLoss([0.0, 1.0]) * np.nan,
        lambda: LinearLoss([0.0, 1.0]).value([1.0]),
        lambda: CallableLoss(lambda p: p, dim=2).value([0.5, 0.5]),
        lambda: CallableLoss(lambda p: p[..., 0] * np.nan, dim=2).value([0.5, 0.5]),
    ],
)
def test_bad_losses_are_named(make: Callable[[], object]) -> None:
    with pytest.raises(LossError):
        make()


def test_division_takes_a_count() -> None:
    with pytest.raises(TreeCalError, match="count is 0"):
        LinearLoss([0.0, 1.0]) / 0


def test_sets_without_a_projection_say_so() -> None:
    class Disc(tc.ConvexSet):
        dim, centre = 2, np.zeros(2)

        def contains(self, points: object, *, tol: float = 1e-9) -> object:  # type: ignore[override]
            return tc.l2(points) <= 1 + tol  # type: ignore[arg-type]

    with pytest.raises(UnsupportedError, match="projection"):
        QuadraticLoss(np.diag([1.0, 2.0])).minimise(Disc())
    with pytest.raises(UnsupportedError, match="minimiser"):
        LinearLoss([1.0, 0.0]).minimise(Disc())


def test_losses_do_not_change_with_their_arrays() -> None:
    values = np.array([0.0, 1.0])
    loss = LinearLoss(values)
    values[0] = 7.0
    assert loss == LinearLoss([0.0, 1.0])
    assert loss != LinearLoss([0.0, 2.0])
