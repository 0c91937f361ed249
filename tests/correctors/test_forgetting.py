"""Forgetting: the copies as they are defined, their bound, what drift and no drift cost, and weights."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.correctors.models import features, laws, model, run, some_rounds
from tests.correctors.test_scaling import project
from treecal._typing import Array
from treecal.correctors import Cells, forgetting, tracking_bound
from treecal.correctors._forgetting import trusted
from treecal.correctors._newton_kernels import _factor, _solve
from treecal.correctors._scaling import Scaling
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError

TWO, THREE = tc.Simplex(2), tc.Simplex(3)


def one_group(space: tc.ConvexSet, **given: Any) -> tc.Recalibrator:
    return tc.Recalibrator(space, groups=lambda b: 0, **given)


# What it is


def shares_of(count: int) -> Array:
    return np.array([1.0] if count == 1 else [1 / 3] + [2 / 3 / (count - 1)] * (count - 1))


def next_trust(trust: Array, losses: Array, number: int) -> Array:
    """Fixed share, literally."""
    trust = trust * np.exp(-losses)
    share = min(0.002, 1 / number)
    return np.asarray((1 - share) * trust / trust.sum() + share * shares_of(len(trust)))


def with_newborn(trust: Array) -> Array:
    """Number `j` takes 2/3/(j(j+1)) of all that the first had; before it, it had kept 1 − 2/3·(1 − 1/j) of that."""
    j = len(trust)
    part = (2 / 3 / (j * (j + 1))) / (1 - 2 / 3 * (1 - 1 / j))
    return np.concatenate([[trust[0] * (1 - part)], trust[1:], [trust[0] * part]])


def literal_groups(forecasts: Array, outcomes: Array, prior: float, scale: float, *, shift: bool) -> Array:
    """Each round over all the past, with a weight for each round of it and each copy."""
    space, said, trust = tc.Simplex(forecasts.shape[1]), [], np.ones(1)
    first = forecasts[0]
    for t, b in enumerate(forecasts):
        points = []
        for k in range(len(trust)):
            life = math.inf if k == 0 else 2 ** (k + 3)
            ages = np.minimum(t - np.arange(-1, t) - 1, max(0.0, t - life))  # up to its birth nothing was forgotten
            w = 0.5 ** (ages / life)
            w[0] *= prior
            values = np.vstack([np.zeros_like(b) if shift else first, (outcomes - forecasts * shift)[:t]])
            mean = w @ values / w.sum() if t else 0 * b
            points.append(space.project(b + mean) if shift else mean if t else b)
        said.append(trust @ np.array(points))
        if len(trust) > 1:
            trust = next_trust(trust, ((outcomes[t] - np.array(points)) ** 2).sum(axis=1) / scale, t + 1)
        while t + 1 >= 2 ** (len(trust) + 3):
            trust = with_newborn(trust)
    return np.array(said)


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize(("dim", "prior"), [(2, 1.0), (3, 0.0), (3, 2.5)])
def test_groups_forget_to_the_letter(dim: int, prior: float, shift: bool) -> None:
    forecasts, outcomes = some_rounds(dim, 140, dim)
    f = one_group(tc.Simplex(dim), prior=prior, make="shift" if shift else "mean")
    found = [x.mean for x in run(f, forecasts, outcomes)]
    np.testing.assert_allclose(found, literal_groups(forecasts, outcomes, prior, 4.0, shift=shift), atol=1e-12)
    assert len(f.get_state()["own"]["trust"]) == 5  # for ever, 16, 32, 64, 128


@pytest.mark.parametrize(
    ("kind", "dim", "given"),
    [
        (tc.PlattScaling, 2, {}),
        (tc.BetaCalibration, 2, {}),
        (tc.TemperatureScaling, 3, {}),
        (tc.VectorScaling, 3, {}),
        (tc.VectorScaling, 3, {"curvature": "by class"}),
    ],
)
def test_scalings_forget_to_the_letter(kind: type[Scaling], dim: int, given: dict[str, Any]) -> None:
    f = kind(tc.Simplex(dim), ridge=20.0, **given)
    thetas, trust = [f.theta], np.ones(1)
    matrices = [20.0 * np.eye(len(f.theta))]
    blocks = np.ones((1, 1)) if not given else np.tile(np.eye(dim), (2, 2))
    for t, (b, y) in enumerate(zip(*some_rounds(dim, 270, 1), strict=True)):
        F, found = features(f, b), laws(f, np.array(thetas), b)
        np.testing.assert_allclose(f.predict(b).mean, trust @ found, atol=1e-9)
        f.update(y)
        for k, (theta, p) in enumerate(zip(thetas, found, strict=True)):
            keeps, g = 1.0 if k == 0 else 0.5 ** (1 / 2 ** (k + 5)), (p - y) @ F
            matrices[k] = keeps * matrices[k] + (1 - keeps) * 20 * np.eye(len(g)) + np.outer(g, g) * blocks
            thetas[k] = theta - np.linalg.inv(matrices[k]) @ g / 0.1
        if len(trust) > 1:
            trust = next_trust(trust, -np.log(found @ y), t + 1)
        while t + 1 >= 2 ** (len(trust) + 5):
            trust, thetas, matrices = with_newborn(trust), [*thetas, thetas[0]], [*matrices, matrices[0]]
    np.testing.assert_allclose(f.theta, trust @ np.array(thetas), atol=1e-9)
    assert len(trust) == 4


# Its bound


def best_sequence(losses: list[Array], changes: int) -> float:
    """The least loss of a sequence of copies that begins with the first and changes so often."""
    least = np.full((changes + 1, len(losses[-1])), math.inf)
    least[0, 0] = 0.0
    for loss in losses:
        for k in range(changes, 0, -1):
            least[k] = np.minimum(least[k], least[k - 1, : len(loss)].min() if len(loss) else math.inf)
        least[:, : len(loss)] += loss
        least[:, len(loss) :] = math.inf
    return float(least.min())


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["mean", "shift", "platt"]),
    st.sampled_from(["drawn", "against", "turns", "runs"]),
    st.integers(0, 10**6),
)
def test_it_is_nearly_as_good_as_any_sequence_of_copies(kind: str, stream: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    f: Any = tc.PlattScaling(TWO, scores=None) if kind == "platt" else one_group(TWO, make=kind, scores=None)
    losses: list[Array] = []
    total, rounds, y = 0.0, int(rng.integers(20, 400)), np.eye(2)[0]
    for t in range(rounds):
        p = rng.random()
        b = np.array([1 - p, p])
        x = f.predict(b).mean
        if stream == "turns":
            y = np.eye(2)[t // 40 % 2]
        elif stream != "runs" or rng.random() < 0.05:
            y = np.eye(2)[x.argmin() if stream == "against" else int(rng.random() < p)]
        if kind == "platt":
            losses.append(-np.log(laws(f, f._state.theta, b) @ y))
            total -= math.log(x @ y)
        else:
            groups = list(f._groups().values())
            points = f._points(groups[0], b) if groups else b[None]
            losses.append(((y - points) ** 2).sum(axis=1) / 4)
            total += float(((y - x) ** 2).sum()) / 4
        f.update(y)
    for changes in range(4):
        bound = tracking_bound(rounds, first=6 if kind == "platt" else 4, changes=changes)
        assert total <= best_sequence(losses, changes) + bound + 1e-9


def test_the_bound_is_what_the_shares_leave() -> None:
    """Of the first copy's trust, when all lose alike: the bound with no changes, with joins."""
    trust = np.ones(1)
    for t in range(1, 3001):
        if len(trust) > 1:
            trusted.now(trust, np.zeros(len(trust)), t, 1.0, forgetting.SHARE, forgetting.LASTING)
        trust = forgetting.joined(trust, forgetting.copies(t, 4))
        assert -math.log(trust[0]) <= tracking_bound(t) + 1e-12
        assert trust.sum() == pytest.approx(1)
    assert tracking_bound(3000) < tracking_bound(30_000) < tracking_bound(3000) + 2
    assert tracking_bound(2 * 10**6) - tracking_bound(10**6) == pytest.approx(math.log(2), rel=0.01)


# What it costs, and what it gives


def drifting(days: int, drift: float) -> tuple[Array, Array]:
    """The model of the tutorial; with no drift it is right."""
    rng = np.random.default_rng(0)
    feature = rng.standard_normal(days)
    said = 1 / (1 + np.exp(-2 * feature))
    truth = 1 / (1 + np.exp(-(2 * feature + np.linspace(0, drift, days))))
    return np.column_stack([1 - said, said]), np.eye(2)[(rng.random(days) < truth).astype(int)]


def test_the_drifting_model_is_followed() -> None:
    forecasts, outcomes = drifting(4000, 3.0)
    last = slice(3000, None)

    def brier(f: tc.Corrector) -> float:
        return float(np.square(f.update_many(forecasts, outcomes) - outcomes)[last, 1].mean())

    assert brier(tc.Recalibrator(TWO, forget=False, scores=None)) > 0.12
    assert brier(tc.Recalibrator(TWO, scores=None)) <= 0.104
    assert brier(tc.PlattScaling(TWO, scores=None)) <= 0.096


@pytest.mark.parametrize("kind", ["mean", "platt"])
def test_without_drift_it_costs_nothing(kind: str) -> None:
    forecasts, outcomes = drifting(4000, 0.0)
    scores = []
    for forget in (True, False):
        f: Any = tc.PlattScaling if kind == "platt" else tc.Recalibrator
        announced = f(TWO, forget=forget, scores=None).update_many(forecasts, outcomes)
        costs = np.square(announced - outcomes).sum(axis=1)
        scores.append([costs.mean(), costs[3000:].mean()])
    assert (np.array(scores[0]) <= 1.005 * np.array(scores[1])).all()


def test_an_abrupt_change_is_followed() -> None:
    rng = np.random.default_rng(0)
    scores = np.append(rng.random(1500) < 0.9, rng.random(300) < 0.1)
    found = {}
    for forget in (True, False):
        f = one_group(TWO, forget=forget, scores=None)
        announced = f.update_many(np.full((1800, 2), 0.5), np.eye(2)[scores.astype(int)])
        found[forget] = announced[-1, 1]
    assert found[True] < 0.2
    assert found[False] > 0.7


# Weights


def rows(dim: int, count: int) -> tuple[Array, Array, list[int]]:
    forecasts, outcomes = some_rounds(dim, count, 4)
    return forecasts, outcomes, np.random.default_rng(5).integers(1, 5, count).tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: tc.Recalibrator(THREE, groups=Cells(width=0.5)),
        lambda: tc.Recalibrator(THREE, groups=Cells(width=0.5), make="shift", forget=False),
        lambda: tc.Recalibrator(THREE, groups=Cells(width=0.5), make="shift"),
        lambda: tc.TemperatureScaling(THREE),
        lambda: tc.VectorScaling(THREE, curvature="by class"),
        lambda: tc.IsotonicCalibration(THREE),
    ],
)
def test_a_whole_weight_is_so_many_rounds(make: Any) -> None:
    forecasts, outcomes = some_rounds(3, 100, 4)
    weights = np.random.default_rng(5).integers(1, 17, 100).tolist()
    once, often = make(), make()
    once.update_many(forecasts, outcomes, weights=weights)
    often.update_many(np.repeat(forecasts, weights, axis=0), np.repeat(outcomes, weights, axis=0))
    np.testing.assert_allclose(once.predict_many(forecasts), often.predict_many(forecasts), rtol=1e-9)
    one, other = once.get_state()["own"], often.get_state()["own"]
    for name, part in one.items():
        if isinstance(part, np.ndarray):
            whole = part.sum(axis=1) if name == "sums" else part  # with what rounding lost
            np.testing.assert_allclose(whole, other[name].sum(axis=1) if name == "sums" else other[name], rtol=1e-9)
    left, right = once.report(), often.report()
    for name in ("group_refinement", "shift_refinement"):
        assert getattr(left, name) == pytest.approx(getattr(right, name))
    assert left.before.brier == pytest.approx(right.before.brier)


def test_a_large_weight_is_nearly_so_many_rounds() -> None:
    forecasts, outcomes = model("overconfident", 3, 200, 0)
    once, often = tc.Recalibrator(THREE), tc.Recalibrator(THREE)
    once.update_many(forecasts, outcomes, weights=[40.0] * 200)
    often.update_many(np.repeat(forecasts, 40, axis=0), np.repeat(outcomes, 40, axis=0))
    assert np.abs(once.predict_many(forecasts) - often.predict_many(forecasts)).mean() < 0.02


@pytest.mark.parametrize("weight", [1e-12, 1e12])
@pytest.mark.parametrize("make", [tc.Recalibrator, tc.VectorScaling, tc.IsotonicCalibration])
def test_extreme_weights_do_no_harm(make: Any, weight: float) -> None:
    f = make(tc.Simplex(3))
    for t, (b, y) in enumerate(zip(*some_rounds(3, 60, 0), strict=True)):
        x = f.predict(b)
        assert tc.Simplex(3).contains(x.points).all()
        f.update(y, weight=weight if t % 7 == 3 else 1.0)
    again = tc.state.loads(tc.state.dumps(f))
    assert again.predict([0.2, 0.3, 0.5]) == f.predict([0.2, 0.3, 0.5])


def test_forecasters_in_groups_know_no_weights() -> None:
    f = tc.Recalibrator(TWO, make=lambda: tc.TreeCal(TWO, arity=2))
    f.predict([0.5, 0.5])
    with pytest.raises(UnsupportedError, match="knows no weights"):
        f.update([1, 0], weight=2.0)
    assert f.rounds == 0


# Vector scaling by class


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6))
def test_blocks_are_solved_and_projected_as_one_matrix(blocks: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(blocks, size, size))
    A = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(size)
    whole = np.zeros((blocks, size, blocks, size))
    for i in range(blocks):
        whole[i, :, i] = A[i]
    matrix, v = whole.reshape(blocks * size, -1), rng.normal(size=(blocks, size))
    found, factor = np.empty(blocks * size), np.empty(A.shape)
    _factor.now(A, 0.0, 0.1, factor)
    _solve.now(factor, v.T.ravel(), found)
    np.testing.assert_allclose(found.reshape(size, blocks).T.ravel(), np.linalg.solve(matrix, v.ravel()), rtol=1e-6)
    theta = project(v.T.ravel(), A, radius=0.5).reshape(size, blocks).T.ravel()
    np.testing.assert_allclose(theta, project(v.ravel(), matrix[None], radius=0.5), rtol=1e-6, atol=1e-9)


def test_by_class_is_nearly_as_good_as_the_full_curvature() -> None:
    losses = {}
    for curvature in ("full", "by class"):
        f = tc.VectorScaling(tc.Simplex(5), curvature=curvature, scores=None)
        forecasts, outcomes = model("overconfident", 5, 1500, 0)
        losses[curvature] = -np.log((f.update_many(forecasts, outcomes) * outcomes).sum(axis=1)).mean()
    assert losses["by class"] < 1.005 * losses["full"]


def test_a_thousand_classes() -> None:
    f = tc.VectorScaling(tc.Simplex(1000), scores=None)
    assert f.curvature == "by class"
    forecasts, outcomes = some_rounds(1000, 5, 0)
    f.update_many(forecasts, outcomes, weights=[1e4] * 5)
    assert sum(part.size for part in vars(f._state).values() if isinstance(part, np.ndarray)) < 100_000


# Arguments and snapshots


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ParameterError, match="forget is 3, expected True or False"):
        tc.PlattScaling(TWO, forget=3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="forget is True, expected nothing, because make decides"):
        tc.Recalibrator(TWO, make=tc.TreeCal(TWO, arity=2), forget=True)
    with pytest.raises(ParameterError, match="curvature is 'diagonal', expected 'full', 'by class' or None"):
        tc.VectorScaling(TWO, curvature="diagonal")  # type: ignore[arg-type]
    assert not tc.Recalibrator(TWO, make=tc.TreeCal(TWO, arity=2)).forget


@pytest.mark.parametrize("make", ["mean", "shift"])
@pytest.mark.parametrize(
    ("part", "place", "value"),
    [
        ("copies", (0, 0), -1.0),
        ("copies", (0, 1), np.nan),
        ("trust", (0,), np.inf),
        ("sums", (0, 0, 0), -3.0),
        ("sums", (0, 0, 0), 1e300),
    ],
)
def test_groups_that_cannot_be_are_refused(make: Any, part: str, place: tuple[int, ...], value: float) -> None:
    f = one_group(TWO, make=make)
    run(f, *some_rounds(2, 50, 0))
    state = f.get_state()
    one_group(TWO, make=make).set_state(state)
    state["own"][part][place] = value
    other = one_group(TWO, make=make)
    with pytest.raises(SnapshotError):
        other.set_state(state)
    assert other.rounds == 0


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("seen", lambda old: -1.0),
        ("seen", lambda old: 1e3),
        ("seen", lambda old: math.nan),
        ("trust", lambda old: old[:-1]),
        ("theta", lambda old: old[:1]),
        ("curvature", lambda old: old * np.inf),
    ],
)
def test_scalings_that_cannot_be_are_refused(part: str, change: Any) -> None:
    f = tc.PlattScaling(TWO)
    run(f, *some_rounds(2, 70, 0))
    state = f.get_state()
    tc.PlattScaling(TWO).set_state(state)
    state["own"][part] = change(state["own"][part])
    with pytest.raises(SnapshotError):
        tc.PlattScaling(TWO).set_state(state)


@pytest.mark.parametrize(
    "f",
    [
        one_group(TWO),
        tc.Recalibrator(TWO, make="shift"),
        tc.PlattScaling(TWO),
        tc.VectorScaling(tc.Simplex(3), curvature="by class"),
        tc.IsotonicCalibration(TWO),
        tc.Chain([tc.BetaCalibration(TWO), tc.Recalibrator(TWO)]),
    ],
    ids=lambda f: type(f).__name__,
)
def test_batches_are_the_loop_and_states_resume_with_copies(f: tc.Corrector) -> None:
    """As conformance checks it, after enough rounds for copies to join."""
    forecasts, outcomes = some_rounds(f.space.dim, 150, 3)
    f.update_many(forecasts[:140], outcomes[:140])
    loop = [f.predict_many(b[None])[0] for b in forecasts]
    assert np.array_equal(f.predict_many(forecasts), loop)
    assert np.array_equal(f.predict(forecasts[0]).mean, loop[0])
    f.cancel()
    again = type(f)(**f.arguments())
    again.set_state(f.get_state())
    for b, y in itertools.islice(zip(forecasts, outcomes, strict=True), 140, None):
        assert again.predict(b) == f.predict(b)
        f.update(y)
        again.update(y)
