"""The guard's theorem, round by round: what it decides, what eager may add, and the bound of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import treecal as tc
from tests.forecasters.oracle_guarded import LiteralGuard, sup_norm
from tests.guarantees.hostile import HOSTILE, Hostile, Past, World, opponent
from tests.oracle import one_norm
from treecal._typing import Array
from treecal.forecasters import GuardReport
from treecal.geometry import Lp, Mahalanobis, Norm

SLACK = 1e-9
NORMS: dict[str, Norm] = {"l1": tc.l1, "l2": tc.l2, "linf": tc.linf, "l3": Lp(3)}
BUDGETS: dict[str, dict[str, Any]] = {
    "nothing": {"budget": 0},
    "half": {"budget": 0.5},
    "double": {"budget": 2},
    "half of the bound": {"budget": 0.5, "measured": False},
    "twice the bound": {"budget": 2, "measured": False},
    "nothing of the bound": {"budget": 0, "measured": False},
    "no error": {"error": 0.0},
    "a little error": {"error": 0.2},
    "much error": {"error": 0.6},
}
OPPONENTS = ("mean", "ledger", "accomplice", "random")
SAFE: dict[str, Callable[[], tc.Forecaster]] = {
    "grid": lambda: tc.BinaryGrid(tc.Simplex(2)),
    "tree": lambda: tc.TreeCal(tc.Simplex(3), arity=3),
    "tree of four": lambda: tc.TreeCal(tc.Simplex(4)),
    "fixed tree": lambda: tc.TreeCal(tc.Simplex(3), arity=2, depth=8),
    "tree in a box": lambda: tc.TreeCal(tc.Box([-1.0, 0.0], [1.0, 5.0]), arity=3),
    "tree in a ball": lambda: tc.TreeCal(tc.Ball(2), arity=4),
    "block": lambda: tc.AdaptiveTreeCal(tc.Simplex(3), rule="block"),
}


class Total:
    """The calibration error of a sequence of rounds, kept apart from all that is tested."""

    def __init__(self, space: tc.ConvexSet, norm: Norm) -> None:
        self.norm, self.dim = norm, space.dim
        self.biases: dict[object, Array] = {}

    def record(self, x: tc.Forecast, outcome: Array, *, per_node: bool = False) -> None:
        nodes = [None] * len(x) if not per_node or x.nodes is None else [tuple(node) for node in x.nodes.tolist()]
        for point, weight, node in zip(x.points + 0.0, x.weights, nodes, strict=True):
            name = point.tobytes(), node
            self.biases[name] = self.biases.get(name, np.zeros(self.dim)) + weight * (outcome - point)

    @property
    def error(self) -> float:
        return float(np.sum(self.norm(np.array([*self.biases.values()])))) if self.biases else 0.0


CERTIFIED: dict[tuple[str, Norm, int], float | None] = {}  # many cases ask for the same


def bound(safe: tc.Forecaster, norm: Norm, rounds: int) -> float | None:
    """What safe's total error cannot exceed in so many rounds."""
    name = repr(safe), norm, rounds
    if name not in CERTIFIED:
        found = safe.certificate(norm, rounds=rounds)
        CERTIFIED[name] = None if found is None else found.bound * rounds
    return CERTIFIED[name]


class Round(NamedTuple):
    spoke: bool
    before: GuardReport
    eager: float
    safe: float
    total: float
    most: float
    bound: float | None


def defend(
    predict: Callable[[], tc.Forecast],
    update: Callable[[Array], None],
    report: Callable[[], GuardReport],
    safe: tc.Forecaster,
    answer: Callable[[tc.Forecast, bool], Array],
    norm: Norm,
    rounds: int,
    *,
    budget: float = 0.5,
    error: float | None = None,
    measured: bool = True,
) -> Iterator[Round]:
    """Play, and yield after each round what the guard said before it and what everyone's error is, counted here."""
    space, shadow, peak = safe.space, safe, 0.0
    eager, own, both, alone = (Total(space, norm) for _ in range(4))

    diameter = float(space.diameter(norm))
    suspended = False
    for t in range(1, rounds + 1):
        x, before = predict(), report()
        spoke = before.eager_error + diameter <= (0.8 if suspended else 1.0) * before.budget
        suspended = not spoke
        y = answer(x, spoke)
        update(y)
        after = report()
        assert (after.eager_rounds, after.safe_rounds) == (
            before.eager_rounds + spoke,
            before.safe_rounds + (not spoke),
        )
        (eager if spoke else own).record(x, y)
        both.record(x, y)
        alone.record(shadow.predict(), y, per_node=True)
        shadow.update(y)
        peak = max(peak, alone.error)
        found = bound(safe, norm, t)
        if error is not None:
            most = error * t
        elif measured:
            most = budget * peak
        else:
            assert found is not None
            most = budget * found
        yield Round(spoke, before, eager.error, own.error, both.error, most, found)


def guarded(kind: type[Hostile], safe: tc.Forecaster, norm: Norm, **options: Any) -> tc.Guarded:
    world = World()
    f = world.guard = tc.Guarded(safe.space, eager=kind(safe.space, world), safe=safe, norm=norm, **options)
    return f


def assert_theorem(
    kind: type[Hostile], safe: tc.Forecaster, norm: Norm, against: str, options: dict[str, Any], rounds: int
) -> GuardReport:
    f = guarded(kind, safe, norm, **options)
    answer = opponent(against, safe.space, norm, rounds, seed=rounds)
    spoke = []
    for now in defend(f.predict, f.update, f.report, safe, answer, norm, rounds, **options):
        report = f.report()
        assert report.eager_error == pytest.approx(now.eager, abs=SLACK)  # its points are on no tree
        assert report.safe_error >= now.safe - SLACK
        assert now.eager <= now.most + SLACK
        assert now.total <= now.eager + now.safe + SLACK
        if now.bound is not None:
            assert now.safe <= now.bound + SLACK
            assert now.total <= now.most + now.bound + SLACK
        spoke.append(now.spoke)
    found = f.certificate(norm, rounds=rounds)
    assert (found is None) == (safe.certificate(norm, rounds=rounds) is None)
    if found is not None:
        assert now.total <= rounds * found.bound + SLACK
    return f.report()


def cases(*, all_of_them: bool) -> list[tuple[type[Hostile], str, str, str, str]]:
    """Every hostile part under every budget, and with every opponent; norms and safe parts in turn, or all."""
    if all_of_them:
        return list(product(HOSTILE, SAFE, NORMS, OPPONENTS, BUDGETS))
    norms, safes = [*NORMS], [name for name in SAFE if name != "block"]
    pairs = product(HOSTILE, OPPONENTS, BUDGETS)
    return [
        (kind, safes[(i + i // 6) % 6], norms[(i + i // 36) % 4], against, budget)
        for i, (kind, against, budget) in enumerate(pairs)
    ]


@pytest.mark.parametrize(("kind", "against"), list(product(HOSTILE, OPPONENTS)))
def test_the_theorem_holds_in_every_round(kind: type[Hostile], against: str) -> None:
    for hostile, safe, norm, other, budget in cases(all_of_them=False):
        if (hostile, other) == (kind, against):
            report = assert_theorem(kind, SAFE[safe](), NORMS[norm], against, BUDGETS[budget], rounds=50)
            assert (report.eager_rounds == 0) == (budget in ("nothing", "nothing of the bound", "no error"))


@pytest.mark.heavy
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("against", OPPONENTS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_the_theorem_holds_everywhere(kind: type[Hostile], against: str, budget: str) -> None:
    for hostile, safe, norm, other, options in cases(all_of_them=True):
        if (hostile, other, options) == (kind, against, budget) and (safe != "block" or norm == "l1"):
            assert_theorem(kind, SAFE[safe](), NORMS[norm], against, BUDGETS[budget], rounds=120)


def test_a_norm_of_ones_own_and_a_safe_part_without_a_certificate() -> None:
    norm = Mahalanobis([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]])
    for kind in HOSTILE:
        assert assert_theorem(kind, tc.TreeCal(tc.Simplex(3)), norm, "accomplice", {"budget": 1.5}, 60).eager_rounds
        assert assert_theorem(kind, tc.AdaptiveTreeCal(tc.Simplex(3)), tc.l1, "ledger", {"budget": 1}, 60).eager_rounds


@pytest.mark.parametrize("safe", ["grid", "tree", "fixed tree"])
def test_eager_parts_on_trees_and_distributions(safe: str) -> None:
    """Their error by node is at least the exact one, which is what the theorem is about."""
    space = SAFE[safe]().space
    eager = [tc.TreeCal(space, arity=2), tc.AdaptiveTreeCal(space), tc.SampleTreeCal(space, arity=2, block=2)]
    for part, against in product([*eager, tc.Harmonic(space), tc.Codebook(tc.TreeCal(space))], ("ledger", "random")):
        f = tc.Guarded(space, eager=part, safe=SAFE[safe](), budget=1.0)
        answer = opponent(against, space, tc.l1, 70, seed=1)
        for now in defend(f.predict, f.update, f.report, SAFE[safe](), answer, tc.l1, 70, budget=1.0):
            assert f.report().eager_error >= now.eager - SLACK
            assert now.eager <= now.most + SLACK
            assert now.bound is not None
            assert now.total <= now.most + now.bound + SLACK


def two_trees(space: tc.ConvexSet, arity: int, depth: int | None) -> tc.Guarded:
    """A guard whose parts are two trees, which are forecast by turns."""
    eager, safe = tc.TreeCal(space, arity=arity, depth=depth), tc.TreeCal(space, arity=2, depth=depth, start=[1, 0, 0])
    return tc.Guarded(space, eager=eager, safe=safe, error=0.3)


@pytest.mark.parametrize(("arity", "depth"), [(2, 9), (3, None)])
def test_a_guard_within_a_guard(arity: int, depth: int | None) -> None:
    """Forecasts of two trees by turns: nodes with the same number are not the same node."""
    space = tc.Simplex(3)
    f = tc.Guarded(space, eager=two_trees(space, arity, depth), safe=tc.TreeCal(space, arity=2), budget=1.0)
    answer = opponent("random", space, tc.l1, 300, seed=0)
    for now in defend(f.predict, f.update, f.report, tc.TreeCal(space, arity=2), answer, tc.l1, 300, budget=1.0):
        assert f.report().eager_error >= now.eager - SLACK
        assert now.eager <= now.most + SLACK


@pytest.mark.parametrize("safe", SAFE)
@pytest.mark.parametrize("norm", NORMS)
def test_safe_bounds_never_fall(safe: str, norm: str) -> None:
    """The theorem needs U(n) <= U(T) for n <= T."""
    f = SAFE[safe]()
    found = [f.certificate(norm if norm != "l3" else Lp(3), rounds=n) for n in range(1, 257)]
    bounds = [each.bound * n for n, each in enumerate(found, 1) if each is not None]
    assert (np.diff(bounds) >= -SLACK).all()


def test_equality_lets_eager_speak() -> None:
    """With error=1/2 and an eager part that is right until round 15, then wrong, all numbers are exact.

    It speaks when 2 <= 4/5 · 5/2, and on while 10 <= 20/2; then again when 12 <= 4/5 · 30/2, and on while 16 <= 32/2.
    """
    f, spoke = guarded(AlwaysFirst, tc.BinaryGrid(tc.Simplex(2)), tc.l1, error=0.5), []
    for t in range(1, 46):
        spoke += [t] * f.eager_speaks
        f.update([t <= 15, t > 15])
    assert spoke == [*range(5, 21), 30, 31, 32, 45]
    assert f.report() == GuardReport(45, 20, 25, 18.0, f.report().safe_error, 23.0, 5.0)


class AlwaysFirst(Hostile):
    def point(self) -> Array:
        return np.asarray(np.eye(self.space.dim)[0])


class Scripted(Hostile):
    """Announces points that were chosen beforehand."""

    script: list[Array]

    def point(self) -> Array:
        return np.asarray(self.script[self._state.rounds % len(self.script)])

    def _after(self, state: Past, outcome: Array) -> Past:
        return Past(state.rounds + 1, outcome)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_decisions_are_those_of_exact_arithmetic(data: st.DataObject) -> None:
    dim, rounds = data.draw(st.integers(2, 3)), data.draw(st.integers(1, 24))
    classes = data.draw(st.lists(st.integers(0, dim - 1), min_size=rounds, max_size=rounds))
    quarters = st.lists(st.integers(0, 4), min_size=dim - 1, max_size=dim - 1).map(sorted)
    cuts = data.draw(st.lists(quarters, min_size=rounds, max_size=rounds))
    points = [[b - a for a, b in zip([0, *cut], [*cut, 4], strict=True)] for cut in cuts]
    share, error = data.draw(st.sampled_from([Fraction(1, 7), Fraction(5, 11), Fraction(17, 13), Fraction(3)])), None
    if data.draw(st.booleans()):
        error = data.draw(st.sampled_from([Fraction(1, 7), Fraction(7, 13), Fraction(19, 17)]))
    norm, distance, diameter = data.draw(
        st.sampled_from([(tc.l1, one_norm, Fraction(2)), (tc.linf, sup_norm, Fraction(1))])
    )
    arity = data.draw(st.integers(2, 4))
    exact = LiteralGuard(
        [tuple(Fraction(int(j == k)) for j in range(dim)) for k in classes],
        [tuple(Fraction(n, 4) for n in point) for point in points],
        arity=arity,
        start=(Fraction(1, dim),) * dim,
        distance=distance,
        diameter=diameter,
        share=share,
        error=error,
    )
    assert all(a <= most for a, most in zip(exact.eager_error, exact.most, strict=True))  # the theorem, exactly
    edges = [a + diameter - b for a, b in zip(exact.eager_error, exact.usable, strict=False)]
    assume(all(abs(edge) > Fraction(1, 10**9) for edge in edges))
    space, options = tc.Simplex(dim), {"budget": float(share)} if error is None else {"error": float(error)}
    f = guarded(Scripted, tc.TreeCal(space, arity=arity), norm, **options)
    f.eager.script = [np.array(point) / 4 for point in points]  # type: ignore[attr-defined]
    for t, k in enumerate(classes):
        assert f.eager_speaks == exact.spoke[t]
        assert f.report().budget == pytest.approx(float(exact.allowed[t]), abs=1e-12)
        f.update(np.eye(dim)[k])
        assert f.report().eager_error == pytest.approx(float(exact.eager_error[t + 1]), abs=1e-12)
        assert f.report().safe_error == pytest.approx(float(exact.safe_error[t + 1]), abs=1e-12)
