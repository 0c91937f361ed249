"""Online scaling: the online Newton step as it is written, its bound, and models put right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy.optimize import minimize

import treecal as tc
from tests.correctors.models import model, run, some_rounds
from tests.some import some
from treecal import state
from treecal._typing import Array
from treecal.correctors._newton_kernels import _room, project as compiled_project
from treecal.correctors._scaling import Scaling
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, SnapshotError
from treecal.testing import bad_outcomes

KINDS: list[tuple[type[Scaling], int]] = [
    (tc.PlattScaling, 2),
    (tc.TemperatureScaling, 2),
    (tc.TemperatureScaling, 4),
    (tc.VectorScaling, 2),
    (tc.VectorScaling, 3),
    (tc.BetaCalibration, 2),
]


def said(kind: type[Scaling], theta: Array, b: Array) -> Array:
    """Platt's, and Guo et al.'s: one formula for each kind."""
    b = np.clip(b, kind._least, None)
    if kind is tc.PlattScaling:
        a, c = theta
        q = 1 / (1 + math.exp(-(a * math.log(b[1] / b[0]) + c)))
        return np.array([1 - q, q])
    if kind is tc.BetaCalibration:
        q = theta[0] * math.log(b[1]) - theta[1] * math.log(b[0]) + theta[2]
        return np.array([1 / (1 + math.exp(q)), 1 / (1 + math.exp(-q))])
    if kind is tc.TemperatureScaling:
        powers = b ** theta[0]
        return np.asarray(powers / powers.sum())
    powers = b ** theta[: len(b)] * np.exp(theta[len(b) :])
    return np.asarray(powers / powers.sum())


def slope(kind: type[Scaling], theta: Array, b: Array, y: Array) -> Array:
    """The log loss's gradient by central differences of its formula."""
    steps = 1e-6 * np.eye(len(theta))
    losses = [[-y @ np.log(said(kind, theta + sign * step, b)) for sign in (1, -1)] for step in steps]
    return np.array([(up - down) / 2e-6 for up, down in losses])


def project(u: Array, A: Array, *, radius: float) -> Array:
    """In the norm of a matrix of blocks, of which `u` has the first parameters first."""
    blocks, size = A.shape[0], A.shape[1]
    found = np.array(u)
    compiled_project.now(found, A, 1e-3, radius, _room.now(blocks * size, blocks))
    return found


def start(kind: type[Scaling], dim: int) -> list[float]:
    known = {tc.PlattScaling: [1.0, 0.0], tc.TemperatureScaling: [1.0], tc.BetaCalibration: [1.0, 1.0, 0.0]}
    return known.get(kind, [1.0] * dim + [0.0] * dim)


def nearest(goal: Array, matrix: Array, reach: float) -> Array:
    """The generalised projection, left to a general solver."""

    def cost(q: Array) -> float:
        return float((q - goal) @ matrix @ (q - goal))

    def room(q: Array) -> float:
        return float(reach**2 - q @ q)

    found = minimize(
        cost,
        goal * (reach / np.linalg.norm(goal)),
        constraints={"type": "ineq", "fun": room},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("radius", [100.0, None])
@pytest.mark.parametrize(("kind", "dim"), KINDS)
def test_it_is_the_online_newton_step(kind: type[Scaling], dim: int, radius: float | None) -> None:
    """Gradients from differences, a dense inverse, and, where the ball is small, a projection by a general solver."""
    theta = np.array(start(kind, dim))
    reach = radius or 1.01 * math.sqrt(theta @ theta)
    f = kind(tc.Simplex(dim), radius=reach, ridge=100.0 if radius else 1.0, forget=False)
    A = np.eye(len(theta))
    A *= 100.0 if radius else 1.0
    rounds, projected = 150 if radius else 25, 0
    for b, y in zip(*some_rounds(dim, rounds, 3), strict=True):
        np.testing.assert_allclose(f.predict(b).mean, said(kind, theta, b), atol=1e-7)
        f.update(y)
        g = slope(kind, theta, b, y)
        A = A + np.outer(g, g)
        theta = theta - np.linalg.inv(A) @ g / 0.1
        if theta @ theta > reach**2:
            projected += 1
            np.testing.assert_allclose(f.theta, nearest(theta, A, reach), atol=2e-4)
            theta = f.theta  # so that the solver's error does not add up
        np.testing.assert_allclose(f.theta, theta, atol=1e-6)
        theta = f.theta
    assert (projected > 0) == (radius is None)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10**6), st.floats(-3, 8), st.floats(-2, 4))
@example(5, 164, 8.0, 0.0)  # λ = 0.0035 beside ‖A‖ = 3e15: rounding θ alone moves A(u − θ) by more
def test_projection_meets_its_optimality_conditions(dim: int, seed: int, spread: float, far: float) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dim, dim)) * 10 ** (spread * rng.random(dim))
    A = root.T @ root + 1e-3 * np.eye(dim)
    u, radius = rng.normal(size=dim) * 10**far, 1.5
    theta = project(u, A[None], radius=radius)
    if np.linalg.norm(u) <= radius:
        assert np.array_equal(theta, u)
        return
    assert np.linalg.norm(theta) == pytest.approx(radius, rel=1e-12)
    # A(u − θ) = λθ with λ >= 0; and no point of the sphere is nearer.
    pull = A @ (u - theta)
    multiplier = pull @ theta / radius**2
    scale = float(np.linalg.norm(A, 2) * np.linalg.norm(u))
    assert multiplier >= -np.finfo(float).eps * scale
    np.testing.assert_allclose(pull, multiplier * theta, atol=1e-9 * scale)
    others = rng.normal(size=(200, dim))
    others *= radius / np.linalg.norm(others, axis=1, keepdims=True)
    costs = np.einsum("ij,jk,ik->i", others - u, A, others - u)
    assert (theta - u) @ A @ (theta - u) <= costs.min() * (1 + 1e-9)


@pytest.mark.parametrize("radius", [100.0, 2.2])
@pytest.mark.parametrize(("kind", "dim"), KINDS)
def test_the_bound_of_its_docstring_holds(kind: type[Scaling], dim: int, radius: float) -> None:
    """For outcomes that follow no model, and every fixed φ in the ball; the projection must be in the norm of A."""
    rng, rate, ridge = np.random.default_rng(dim), 0.1, 100.0 if radius == 100 else 0.5
    f = kind(tc.Simplex(dim), radius=radius, rate=rate, ridge=ridge, forget=False)
    first = f.theta
    fixed = np.vstack([first, rng.normal(size=(50, len(first)))])
    fixed *= np.minimum(1, radius / np.linalg.norm(fixed, axis=1, keepdims=True))
    A = ridge * np.eye(len(first))
    left, right, squares = np.zeros(len(fixed)), 0.0, 0.0
    for t in range(400):
        b = rng.dirichlet(np.full(dim, 0.3))
        y = np.eye(dim)[(b.argmin() if t % 3 else b.argmax()) if t < 200 else b.argmax()]
        theta = f.theta
        x = f.predict(b).mean
        f.update(y)
        logs = np.log(np.clip(b, kind._least, 1))
        features = {
            tc.PlattScaling: np.array([[0, 0], [logs[-1] - logs[0], 1]]),
            tc.TemperatureScaling: logs[:, None],
            tc.BetaCalibration: np.array([[0, 0, 0], [logs[-1], -logs[0], 1]]),
        }
        g = (x - y) @ features.get(kind, np.hstack([np.diag(logs), np.eye(dim)]))
        A += np.outer(g, g)
        c = (theta - fixed) @ g
        left += c - rate * c**2 / 2
        right += g @ np.linalg.solve(A, g) / (2 * rate)
        squares += g @ g
        assert np.linalg.norm(f.theta) <= radius * (1 + 1e-12)
    assert (left <= rate * ridge * ((fixed - first) ** 2).sum(axis=1) / 2 + right + 1e-9).all()
    k = len(first)
    assert 2 * rate * right <= k * math.log1p(squares / (k * ridge)) + 1e-9


@pytest.mark.parametrize("kind", some(["right", "overconfident", "drifting"], every=3))
@pytest.mark.parametrize(("scaling", "dim"), [(tc.PlattScaling, 2), (tc.TemperatureScaling, 4), (tc.VectorScaling, 3)])
def test_regret_is_logarithmic(scaling: type[Scaling], dim: int, kind: str) -> None:
    """Against the best fixed parameters in hindsight: at most what the docstring says, and it grows like log T."""
    forecasts, outcomes = model(kind, dim, 4000, dim)
    f, losses, curvatures = scaling(tc.Simplex(dim), forget=False, scores=None), [], []
    first = f.theta
    for b, y in zip(forecasts, outcomes, strict=True):
        losses.append(-y @ np.log(f.predict(b).mean))
        f.update(y)
        curvatures.append(np.trace(f.get_state()["own"]["curvature"][0, 0]))
    k = len(first)

    def regret(rounds: int) -> float:
        logs = np.log(np.clip(forecasts[:rounds], scaling._least, 1))

        def loss(theta: Array) -> float:
            if scaling is tc.PlattScaling:
                scores = np.column_stack([np.zeros(rounds), theta[0] * (logs[:, 1] - logs[:, 0]) + theta[1]])
            elif scaling is tc.TemperatureScaling:
                scores = theta[0] * logs
            else:
                scores = theta[:dim] * logs + theta[dim:]
            top = scores.max(axis=1, keepdims=True)
            total = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]
            return float((total - (outcomes[:rounds] * scores).sum(axis=1)).sum())

        best = minimize(loss, f.theta, method="BFGS")
        lost = math.fsum(losses[:rounds]) - float(best.fun)
        # rate = 0.1 and ridge = 100; the trace of A is k·ridge + Σ‖∇‖².
        assert lost <= 5 * ((first - best.x) ** 2).sum() + 5 * k * math.log(curvatures[rounds - 1] / (100 * k))
        if kind == "overconfident":  # there is something to learn
            assert loss(first) - float(best.fun) > 5 * lost
        return lost

    assert regret(4000) - regret(1000) < 5 * k * math.log(4)


@pytest.mark.parametrize("kind", ["overconfident", "drifting"])
@pytest.mark.parametrize(("scaling", "dim"), [(tc.PlattScaling, 2), (tc.TemperatureScaling, 3), (tc.VectorScaling, 3)])
def test_a_bad_model_is_put_right(scaling: type[Scaling], dim: int, kind: str) -> None:
    f = scaling(tc.Simplex(dim))
    run(f, *model(kind, dim, 2500, 3))
    report = f.report()
    assert report.after.calibration < (0.25 if scaling is tc.PlattScaling else 0.5) * report.before.calibration
    assert report.after.brier < report.before.brier
    assert report.after.log is not None
    assert report.before.log is not None
    assert report.after.log < report.before.log


@pytest.mark.parametrize(("kind", "dim"), KINDS)
def test_a_good_model_stays_nearly_as_good(kind: type[Scaling], dim: int) -> None:
    f = kind(tc.Simplex(dim))
    run(f, *model("right", dim, 2000, 1))
    report = f.report()
    assert report.after.brier < report.before.brier + 0.003 * len(f.theta)


@pytest.mark.parametrize(("kind", "dim"), KINDS)
def test_it_starts_as_the_identity(kind: type[Scaling], dim: int) -> None:
    f = kind(tc.Simplex(dim))
    assert f.theta.tolist() == start(kind, dim)
    for b in np.random.default_rng(0).dirichlet(np.ones(dim), 20):
        np.testing.assert_allclose(f.predict_many([b])[0], b, atol=2e-6)
    f.theta[:] = np.nan  # a copy
    assert np.isfinite(f.theta).all()


@pytest.mark.parametrize(("kind", "dim"), KINDS)
def test_certainties_do_no_harm(kind: type[Scaling], dim: int) -> None:
    """Forecasts of 0 and 1, a rounding outside, right and wrong, thousands in a row: nothing overflows or is NaN."""
    f, rng = kind(tc.Simplex(dim)), np.random.default_rng(0)
    for t in range(1500):
        b, y = np.eye(dim)[rng.integers(dim, size=2)]
        if t % 3 == 0:
            b = b + 4e-10 * np.sign(0.5 - b)  # a rounding outside the set
        if t < 500:
            y = np.roll(np.rint(b), 1)  # always wrong
        x = f.predict(b)
        assert tc.Simplex(dim).contains(x.points).all()
        assert x.points.min() >= 0
        f.update(y)
        assert np.isfinite(f.theta).all()
    report = f.report()
    assert report.after.log is not None
    assert report.before.log is not None
    assert report.after.log < report.before.log


def test_scaling_then_recalibrating() -> None:
    """A model wrong in a way no scaling can mend: the chain mends it, and starts from what scaling has done."""
    rng, space = np.random.default_rng(0), tc.Simplex(2)
    grid = tc.Recalibrator(space, groups=tc.correctors.Cells(width=0.1))
    chain = tc.Chain([tc.PlattScaling(space), grid], scores="exact")
    scaling, recalibrator = tc.PlattScaling(space), tc.Recalibrator(space, groups=grid.groups)
    for _ in range(2000):
        b = rng.random()
        truth = abs(2 * b - 1)  # likely at both ends
        y = [0, 1] if rng.random() < truth else [1, 0]
        first = scaling.predict([1 - b, b])
        assert chain.predict([1 - b, b]) == recalibrator.predict(first.mean)
        for f in (chain, scaling, recalibrator):
            f.update(y)
    reports = [f.report() for f in (chain, scaling, recalibrator)]
    assert reports[0].before == reports[1].before
    assert reports[1].after == reports[2].before
    assert reports[0].after == reports[2].after
    error = {role: ledger.binned(resolution=0.02).error("l1") for role, ledger in chain.ledgers.items()}
    assert error["after"] < 0.5 * error["before"]
    assert reports[0].after.brier < reports[0].before.brier


@pytest.mark.parametrize(("kind", "dim"), KINDS)
def test_bad_input_names_the_round_and_changes_nothing(kind: type[Scaling], dim: int) -> None:
    space = tc.Simplex(dim)
    f: Any
    for f in (kind(space), tc.Chain([kind(space)])):
        for t, (b, y) in enumerate(zip(*some_rounds(dim, 4, 1), strict=True)):
            before = state.dumps(f)
            for bad in bad_outcomes(space).values():
                with pytest.raises(ForecastError, match=f"forecast at round {t + 1} "):
                    f.predict(bad)
            with pytest.raises(OutcomeError, match=f"round {t + 1} arrived before its forecast"):
                f.update(y)
            assert state.dumps(f) == before
            x = f.predict(b)
            before = state.dumps(f)
            for bad in bad_outcomes(space).values():
                with pytest.raises(OutcomeError, match=f"outcome at round {t + 1} "):
                    f.update(bad)
            assert state.dumps(f) == before
            assert f.predict(b) is x
            f.update(y)


@pytest.mark.parametrize("peek", [False, True])
@pytest.mark.parametrize(("kind", "dim"), KINDS)
def test_snapshots_resume(kind: type[Scaling], dim: int, peek: bool) -> None:
    f, (forecasts, outcomes) = kind(tc.Simplex(dim), rate=0.2, ridge=3, radius=5), some_rounds(dim, 60, 6)
    run(f, forecasts[:20], outcomes[:20])
    if peek:
        f.predict(forecasts[20])
    again = state.loads(state.dumps(f))
    assert (again.rate, again.ridge, again.radius, again.rounds) == (0.2, 3.0, 5.0, 20)
    if peek:
        again.update(outcomes[20])
        f.update(outcomes[20])
    assert run(f, forecasts[21:], outcomes[21:]) == run(again, forecasts[21:], outcomes[21:])
    assert state.dumps(f) == state.dumps(again)
    assert f.report() == again.report()


@pytest.mark.parametrize("name", ["theta", "trust"])
def test_a_snapshot_of_forecasts_that_are_no_numbers_is_refused(name: str) -> None:
    f, (forecasts, outcomes) = tc.TemperatureScaling(tc.Simplex(3)), some_rounds(3, 5, 6)
    run(f, forecasts, outcomes)
    given = f.get_state()
    given["own"][name] = np.full_like(given["own"][name], 1e308)
    with pytest.raises(SnapshotError, match="expected at most"):
        f.set_state(given)
    bank = tc.Bank(tc.TemperatureScaling(tc.Simplex(3)), streams=2)
    given = bank.get_state()
    given[name] = np.full_like(given[name], 1e308)
    with pytest.raises(SnapshotError, match=f"{name} are 1e\\+308"):
        bank.set_state(given)


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ParameterError, match=r"space is Simplex\(3\), expected Simplex\(2\)(.|\n)*VectorScaling"):
        tc.PlattScaling(tc.Simplex(3))
    with pytest.raises(ParameterError, match="expected a Simplex"):
        tc.TemperatureScaling(tc.Box(0, 1, dim=2))
    with pytest.raises(ParameterError, match="rate is 0, expected a positive number"):
        tc.PlattScaling(tc.Simplex(2), rate=0)
    with pytest.raises(ParameterError, match=r"radius is 0\.5, expected at least 1"):
        tc.PlattScaling(tc.Simplex(2), radius=0.5)
