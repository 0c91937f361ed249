"""The bounds of advice, whatever the outcomes: `Decisions` alone, and any model's advice under guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import treecal as tc
from treecal._typing import Array
from treecal.forecast import DecisionForecast
from treecal.streams import play

Adversary = Callable[[list[Array]], int]


class Count:
    """Swap regrets counted here, by the costs themselves; and adversaries who look at them."""

    def __init__(self, *tables: Array) -> None:
        self.moves = [costs[:, None] - costs for costs in tables]
        self.regrets = [np.zeros(moves.shape[:2]) for moves in self.moves]
        self.rounds = 0

    def after(self, shares: list[Array]) -> list[Array]:
        """For each decision the regrets after each class, `(a, a, d)`."""
        every = zip(self.regrets, self.moves, shares, strict=True)
        return [regrets[:, :, None] + x[:, None, None] * moves for regrets, moves, x in every]

    def learn(self, shares: list[Array], k: int) -> None:
        self.regrets = [after[:, :, k] for after in self.after(shares)]
        self.rounds += 1

    @property
    def swap(self) -> list[float]:
        return [float(np.maximum(regrets.max(axis=1), 0).sum()) for regrets in self.regrets]

    def greedy(self, shares: list[Array]) -> int:
        """The class that raises the swap regret most."""
        return int(sum(after.max(axis=1).sum(axis=0) for after in self.after(shares)).argmax())

    def gradient(self, shares: list[Array]) -> int:
        """The class that raises the squares of the positive regrets most."""
        return int(sum((np.maximum(after, 0) ** 2).sum(axis=(0, 1)) for after in self.after(shares)).argmax())

    def ahead(self, shares: list[Array]) -> int:
        """The class after which, and another one, under the same advice, the swap regret is greatest."""
        afters = self.after(shares)
        second = [x[:, None, None] * moves for x, moves in zip(shares, self.moves, strict=True)]
        both = sum(
            (after[..., None] + more[:, :, None, :]).max(axis=1).sum(axis=0)
            for after, more in zip(afters, second, strict=True)
        )
        return int(np.asarray(both).max(axis=1).argmax())


def costs_of(kind: str, actions: int, dim: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if kind == "random":
        return rng.random((actions, dim))
    if kind == "whole":  # with ties, and actions that are never better than others
        return rng.integers(0, 3, (actions, dim)).astype(float) + np.eye(actions, dim) * 3 - 5
    costs = np.ones((actions, dim))  # guess: each class has an action
    costs[np.arange(dim) % actions, np.arange(dim)] = 0.0
    return costs


def assert_bounded(f: tc.Decisions, count: Count, adversary: str, rounds: int, seed: int = 0) -> float:
    """Play, and return the largest share of its bound that the swap regret ever takes."""
    rng = np.random.default_rng(seed)
    replayed = rng.integers(0, f.space.dim, rounds)
    most = 0.0
    for t in range(rounds):
        x = f.predict()
        assert isinstance(x, DecisionForecast)
        shares = x.shares
        k = int(replayed[t]) if adversary == "replayed" else getattr(count, adversary)(shares)
        f.update(k)
        count.learn(shares, k)
        spans = [table.span for table in f.losses.tables]
        found = f.certificate(rounds=t + 1)
        assert found is not None
        swap = max(s / (1.0 if f.losses.names is None else span) for s, span in zip(count.swap, spans, strict=True))
        assert swap <= found.bound * (t + 1) * (1 + 1e-9) + 1e-9, (t, swap, found)
        most = max(most, swap / (found.bound * (t + 1)) if found.bound else 0.0)
    assert f.regret * rounds == pytest.approx(swap, abs=1e-6)
    return most


ADVERSARIES = ("greedy", "gradient", "ahead", "replayed")
SIZES = [(2, 2), (3, 10), (8, 20)]
MORE = [(2, 7), (3, 3), (5, 4), (2, 200), (3, 200), (8, 200)]


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("kind", ["random", "whole", "guess"])
@pytest.mark.parametrize(("actions", "dim"), SIZES)
def test_the_bound_is_never_passed(kind: str, actions: int, dim: int, adversary: str) -> None:
    costs = costs_of(kind, actions, dim, seed=dim)
    assert_bounded(tc.Decisions(tc.Simplex(dim), costs), Count(costs), adversary, 100)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("kind", ["random", "whole", "guess"])
@pytest.mark.parametrize(("actions", "dim"), [*SIZES, *MORE])
def test_the_bound_is_never_passed_for_long(kind: str, actions: int, dim: int, adversary: str, seed: int) -> None:
    costs = costs_of(kind, actions, dim, seed)
    assert_bounded(tc.Decisions(tc.Simplex(dim), costs), Count(costs), adversary, 2000, seed)


def test_an_adversary_attains_more_than_half_of_the_bound_of_two_actions() -> None:
    costs = costs_of("guess", 2, 2, 0)
    assert assert_bounded(tc.Decisions(tc.Simplex(2), costs), Count(costs), "gradient", 1000) > 0.5


def test_following_the_best_action_so_far_is_no_substitute() -> None:
    count = Count(costs := 1 - np.eye(3))
    seen = np.zeros(3)
    for _ in range(300):
        shares = [np.eye(3)[int((costs @ seen).argmin())]]
        k = count.greedy(shares)
        count.learn(shares, k)
        seen[k] += 1
    assert count.swap[0] / 300 > 0.3
    found = tc.Decisions(tc.Simplex(3), costs).certificate(rounds=300)
    assert found is not None
    assert found.bound < 0.3


@pytest.mark.parametrize("adversary", ["greedy", "gradient"])
@pytest.mark.parametrize(("decisions", "actions", "dim"), [(2, 3, 5), (3, 2, 4), (2, 4, 12)])
def test_several_decisions_at_once(decisions: int, actions: int, dim: int, adversary: str) -> None:
    tables = {f"d{i}": costs_of("random", actions, dim, seed=i) * (i + 1) for i in range(decisions)}
    assert_bounded(tc.Decisions(tc.Simplex(dim), tables), Count(*tables.values()), adversary, 60)


class Spec:
    """The rule of the field review, literally: points of each cell by one linear program, weights by another."""

    def __init__(self, costs: Array) -> None:
        self.costs = costs
        self.G = np.zeros((len(costs),) * 2)

    def announce(self) -> tuple[dict[int, Array], Array]:
        L, d = self.costs, self.costs.shape[1]
        W = np.maximum(self.G, 0)
        H = W.sum(axis=1)[:, None] * L - W @ L
        points: dict[int, Array] = {}
        for a in range(len(L)):
            others = np.delete(L, a, 0)
            found = linprog(-H[a], A_ub=L[a] - others, b_ub=np.zeros(len(others)), A_eq=np.ones((1, d)), b_eq=[1])
            if found.x is not None:
                points[a] = found.x
        M = np.array([H[a] - H[a] @ p for a, p in points.items()])
        x = np.ones(len(M)) / len(M)
        if np.abs(M).max() > 1e-12:
            n = len(M)
            rows = np.c_[M.T, -np.ones(d)]
            bounds = [(0, 1)] * n + [(None, None)]
            found = linprog(np.r_[np.zeros(n), 1], rows, np.zeros(d), np.r_[np.ones(n), 0][None], [1], bounds)
            assert found.x is not None
            assert found.x[-1] < 1e-6
            x = np.maximum(found.x[:-1], 0)
        return points, x / x.sum()

    def learn(self, points: dict[int, Array], x: Array, y: Array) -> None:
        for (a, p), weight in zip(points.items(), x, strict=True):
            self.G[a] += weight * ((self.costs[a] - self.costs) @ (y - p))


def test_the_rule_with_linear_programs_keeps_its_own_bound_which_is_at_least_twice_ours() -> None:
    rounds, dim = 60, 4
    costs = costs_of("random", 3, dim, 0)
    spec, count = Spec(costs), Count(costs)
    for t in range(rounds):
        points, x = spec.announce()
        shares = np.zeros(3)
        shares[list(points)] = x
        k = count.greedy([shares])
        spec.learn(points, x, np.eye(dim)[k])
        count.learn([shares], k)
        assert count.swap[0] <= 2 * np.sqrt(3 * 2 * (t + 1))
    found = tc.Decisions(tc.Simplex(dim), costs).certificate(rounds=rounds)
    assert found is not None
    assert 2 * found.bound <= 2 * np.sqrt(3 * 2 / rounds)


def hostile(kind: str, losses: tc.Losses, count: Count, t: int) -> Array:
    """A model's forecast: it may know all that was counted so far."""
    dim = losses.space.dim
    if kind == "sure":
        return np.asarray(np.eye(dim)[t % dim])
    if kind == "wins first":
        return np.asarray(np.eye(dim)[0] if t < 150 else np.eye(dim)[-1])
    if kind == "random":
        return np.asarray(np.random.default_rng(t).dirichlet(np.ones(dim)))
    table = losses.tables[0]  # "spends": calls for the action that is regretted most, if a corner does
    worst = int(count.regrets[0].max(axis=1).argmax())
    corners = [k for k in range(dim) if table.best(np.eye(dim)[k]) == worst]
    return np.asarray(np.eye(dim)[corners[0] if corners else 0])


def guarded(costs: Any, dim: int, **options: Any) -> tc.GuardedCorrector:
    return tc.GuardedCorrector(tc.Simplex(dim), losses=costs, **options)


def rounds_of(f: tc.GuardedCorrector, count: Count, model: str, adversary: str, rounds: int) -> Iterator[Any]:
    assert f.losses is not None
    rng = np.random.default_rng(0)
    for t in range(rounds):
        b = hostile(model, f.losses, count, t)
        x = f.predict(b)
        assert isinstance(x, DecisionForecast)
        shares = x.shares
        k = getattr(count, adversary)(shares) if adversary != "random" else int(rng.integers(f.space.dim))
        if model == "wins first" and t < 150:
            k = 0
        f.update(k)
        count.learn(shares, k)
        yield b, x, k


@pytest.mark.parametrize("options", [{}, {"budget": 1.0}, {"budget": 0}, {"error": 0.05}], ids=str)
@pytest.mark.parametrize("model", ["sure", "wins first", "random", "spends"])
@pytest.mark.parametrize(("actions", "dim"), [(2, 2), (3, 5)])
def test_advice_under_guard_is_within_budget_and_bound(
    actions: int, dim: int, model: str, options: dict[str, Any]
) -> None:
    costs = costs_of("random", actions, dim, 1)
    f, count = guarded(costs, dim, **options), Count(costs)
    followed, exchanged = 0.0, np.zeros((actions, actions))
    ledger = tc.Ledger(f.space)
    ahead: dict[int, float] = {}
    for t, (b, x, k) in enumerate(rounds_of(f, count, model, "greedy", 400), 1):
        found = f.certificate(rounds=t)
        assert found is not None
        assert count.swap[0] <= found.bound * t + 1e-9
        assert ahead.get(t, np.inf) >= count.swap[0] / t - 1e-9
        advice = f.losses.tables[0].best(b)  # type: ignore[union-attr]
        followed += costs[advice, k]
        exchanged[advice] += x.shares[0] @ costs[:, k] - costs[:, k]
        # What is paid beyond the best exchange of the model's advice is within the bound, too.
        assert np.maximum(exchanged.max(axis=1), 0).sum() <= found.bound * t + 1e-9
        ledger.record(x, k)
        if t % 100 == 0:
            more = f.certificate(rounds=50, after=ledger)
            assert more is not None
            ahead[t + 50] = more.bound
    reports = f.guards()
    assert sum(report.rounds for report in reports.values()) == f.guard().rounds == 400
    for report in reports.values():
        assert report.eager_error <= report.budget + 1e-9
    assert ledger.regret(costs) == pytest.approx(count.swap[0] / 400, abs=1e-9)


@pytest.mark.parametrize("adversary", ["greedy", "gradient"])
def test_several_decisions_under_guard(adversary: str) -> None:
    tables = {"a": costs_of("random", 3, 4, 0), "b": 7 * costs_of("guess", 2, 4, 0)}
    f, count = guarded(tables, 4), Count(*tables.values())
    spans = [table.span for table in f.losses.tables]  # type: ignore[union-attr]
    for t, _ in enumerate(rounds_of(f, count, "sure", adversary, 150), 1):
        found = f.certificate(rounds=t)
        assert found is not None
        assert max(s / span for s, span in zip(count.swap, spans, strict=True)) <= found.bound * t + 1e-9
    assert f.guard().safe_rounds > 50


def test_a_forecaster_without_a_model_under_guard() -> None:
    costs = costs_of("random", 3, 6, 2)
    f, count = tc.Guarded(tc.Simplex(6), losses=costs), Count(costs)
    for t in range(1, 401):
        x = f.predict()
        assert isinstance(x, DecisionForecast)
        shares = x.shares
        k = count.greedy(shares)
        f.update(k)
        count.learn(shares, k)
        found = f.certificate(rounds=t)
        assert found is not None
        assert count.swap[0] <= found.bound * t + 1e-9
    assert f.report().safe_rounds > 0
    assert f.report().eager_rounds > 0


def test_advice_that_is_wrong_is_replaced_and_the_rest_is_followed() -> None:
    """A model that misses half of the fraud it lets pass, and is right when it blocks."""
    rng = np.random.default_rng(0)
    space = tc.Simplex(classes=["fine", "fraud"])
    f = tc.GuardedCorrector(space, losses={"pass": [0, 10], "block": [1, 0]})
    paid = followed = 0.0
    for _ in range(3000):
        risky = rng.random() < 0.3
        fraud = rng.random() < (0.9 if risky else 0.25)
        p = 0.9 if risky else 0.05
        x = f.predict([1 - p, p])
        costs = f.losses.tables[0].costs[:, int(fraud)]  # type: ignore[union-attr]
        paid += float(x.shares[0] @ costs)  # type: ignore[attr-defined] # it is a DecisionForecast
        followed += float(costs[1] if risky else costs[0])
        f.update(int(fraud))
    assert paid < 0.5 * followed
    reports = f.guards()
    assert reports["block"].safe_rounds == 0
    assert reports["pass"].safe_rounds > 1500


def test_decisions_are_a_learner_whose_play_is_a_correlated_equilibrium() -> None:
    """Chicken, in which both players act on forecasts of what the other does."""
    from treecal.games import chicken

    game = chicken()
    players = []
    for one in (0, 1):
        gains = game.payoffs[one] if one == 0 else game.payoffs[one].T  # by own action, then the other's
        players.append(tc.Decisions(tc.Simplex(gains.shape[1]), -gains))
    joint = np.zeros(game.payoffs[0].shape)
    rounds = 2000
    for _ in range(rounds):
        mine, theirs = (f.predict().shares[0] for f in players)  # type: ignore[attr-defined]
        joint += np.outer(mine, theirs) / rounds
        players[0].update(theirs)
        players[1].update(mine)
    bounds = [f.certificate(rounds=rounds) for f in players]
    assert all(found is not None for found in bounds)
    assert game.correlated_gap(joint) <= max(found.bound for found in bounds if found is not None) + 1e-9
    assert game.correlated_gap(joint) < 0.1


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_decisions_about_a_number_are_those_of_its_cells(adversary: str) -> None:
    """The same advice, bit for bit, as with the cells between the thresholds as classes; so the same bound."""
    shelf = tc.Cdf(0, 100, points=12)
    losses = tc.Losses(shelf, lambda order, sold: max(order - sold, 4 * (sold - order)), actions=[20, 40, 60, 80])
    table = losses.tables[0]
    cells = tc.Decisions(tc.Simplex(13), table.costs)
    f = tc.Decisions(shelf, losses)
    count = Count(table.costs)
    middles = (shelf.knots[1:] + shelf.knots[:-1]) / 2
    replayed = np.random.default_rng(0).integers(0, 13, 150)
    ledger = tc.Ledger(shelf)
    for t in range(150):
        x, y = f.predict(), cells.predict()
        assert isinstance(x, DecisionForecast)
        assert isinstance(y, DecisionForecast)
        np.testing.assert_array_equal(x.shares, y.shares)
        k = int(replayed[t]) if adversary == "replayed" else getattr(count, adversary)(x.shares)
        ledger.record(x, middles[k])
        f.update(middles[k])
        cells.update(k)
        count.learn(x.shares, k)
        assert count.swap[0] <= f.certificate(rounds=t + 1).bound * (t + 1) * (1 + 1e-9)  # type: ignore[union-attr]
    assert f.regret == pytest.approx(count.swap[0] / 150)
    assert ledger.regret(losses) == pytest.approx(f.regret)


@pytest.mark.parametrize("kind", ["model", "no model"])
def test_advice_about_a_number_under_guard(kind: str) -> None:
    shelf = tc.Cdf(0, 100, points=20)
    losses = tc.Losses(shelf, {"few": lambda sold: 4 * sold, "many": lambda sold: 150 - sold})
    f: Any = tc.GuardedCorrector(shelf, losses=losses) if kind == "model" else tc.Guarded(shelf, losses=losses)
    count = Count(losses.tables[0].costs)
    middles = (shelf.knots[1:] + shelf.knots[:-1]) / 2
    for _ in range(400):
        x = f.predict({"mean": 20, "sd": 5}) if kind == "model" else f.predict()
        k = count.greedy(x.shares)
        f.update(middles[k])
        count.learn(x.shares, k)
    assert count.swap[0] / 400 <= f.certificate(rounds=400).bound


def test_play_of_the_streams_works_with_advice() -> None:
    f = tc.Decisions(tc.Simplex(3), 1 - np.eye(3))
    ledger = play(f, np.eye(3)[np.arange(300) % 3])
    assert ledger.regret(f.losses) == pytest.approx(f.regret, abs=1e-12)
