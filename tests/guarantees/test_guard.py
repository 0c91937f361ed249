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
from treecal.exceptions import UnsupportedError
from treecal.forecasters import GuardReport
from treecal.geometry import Lp, Mahalanobis, Norm

SLACK = 1e-9
NORMS: dict[str, Norm] = {"l1": tc.l1, "l2": tc.l2, "linf": tc.linf, "l3": Lp(3)}
BUDGETS: dict[str, dict[str, Any]] = {
    "nothing": {"budget": 0},
    "usual": {},
    "half": {"budget": 0.5},
    "double": {"budget": 2},
    "no error": {"error": 0.0},
    "a little error": {"error": 0.2},
    "much error": {"error": 0.6},
}
OPPONENTS = ("mean", "ledger", "accomplice", "random")
SAFE: dict[str, Callable[[], tc.Forecaster]] = {
    "grid": lambda: tc.BinaryGrid(tc.Simplex(2)),
    "harmonic": lambda: tc.Harmonic(tc.Simplex(3), block=16),
    "tree": lambda: tc.TreeCal(tc.Simplex(3), arity=3),
    "tree of four": lambda: tc.TreeCal(tc.Simplex(4)),
    "fixed tree": lambda: tc.TreeCal(tc.Simplex(3), arity=2, depth=8),
    "tree in a box": lambda: tc.TreeCal(tc.Box([-1.0, 0.0], [1.0, 5.0]), arity=3),
    "harmonic in a ball": lambda: tc.Harmonic(tc.Ball(2), block=4096),
    "harmonic for ever": lambda: tc.Harmonic(tc.Ball(2), start=[1.0, 0.0]),
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
    budget: float = 0.1,
    error: float | None = None,
    exact: bool = True,
) -> Iterator[Round]:
    """Play, and yield after each round what the guard said before it and what everyone's error is, counted here."""
    space = safe.space
    eager, own, both = (Total(space, norm) for _ in range(3))
    diameter = float(space.diameter(norm))
    rate = min(safe._rate(norm), diameter / 2)
    unspent = 0.0

    def credit(t: int) -> float:
        more = rate * t
        if not rate and t:
            more = bound(safe, norm, 2 ** int(np.log2(t))) or 0.0
        return 10 * diameter * bool(budget) + budget * more

    for t in range(1, rounds + 1):
        x, before = predict(), report()
        allowed = credit(t - 1) + rate * (before.eager_rounds + 1) - unspent
        allowed = allowed if error is None else error * t
        assert before.budget == pytest.approx(allowed, abs=1e-6) or not exact
        assert before.left == before.budget - before.eager_error
        spoke = before.eager_error + diameter <= before.budget
        y = answer(x, spoke)
        update(y)
        after = report()
        assert (after.eager_rounds, after.safe_rounds) == (
            before.eager_rounds + spoke,
            before.safe_rounds + (not spoke),
        )
        (eager if spoke else own).record(x, y)
        both.record(x, y)
        if spoke:
            unspent = max(unspent, budget * rate * t + rate * after.eager_rounds - eager.error)
        most = error * t if error is not None else credit(t)
        earned = 0.0 if error is not None else rate * after.eager_rounds
        assert eager.error <= most + earned + SLACK
        yield Round(spoke, before, eager.error, own.error, both.error, most, bound(safe, norm, t))


def guarded(kind: type[Hostile], safe: tc.Forecaster, norm: Norm, **options: Any) -> tc.Guarded:
    world = World()
    f = world.guard = tc.Guarded(safe.space, eager=kind(safe.space, world), safe=safe, norm=norm, **options)
    return f


def assert_theorem(
    kind: type[Hostile], safe: tc.Forecaster, norm: Norm, against: str, options: dict[str, Any], rounds: int
) -> GuardReport:
    f = guarded(kind, safe, norm, **options)
    answer = opponent(against, safe.space, norm, rounds, seed=rounds)
    ledger, ahead = tc.Ledger(safe.space), list[float]()

    def update(y: Array) -> None:
        ledger.record(f.predict(), y)
        f.update(y)

    for t, now in enumerate(defend(f.predict, update, f.report, safe, answer, norm, rounds, **options), 1):
        report = f.report()
        assert report.eager_error == pytest.approx(now.eager, abs=SLACK)  # its points are on no tree
        assert report.safe_bound >= now.safe - SLACK
        assert now.total <= now.eager + now.safe + SLACK
        assert now.bound is not None
        assert now.safe <= now.bound + SLACK
        assert now.total <= now.most + now.bound + SLACK
        if ahead:  # what was foreseen in the middle
            assert now.total <= t * ahead.pop(0) + SLACK
        if t == rounds // 2:
            more = (f.certificate(norm, rounds=n, after=ledger) for n in range(1, rounds - t + 1))
            ahead = [each.bound for each in more if each is not None]
            assert len(ahead) == rounds - t
    found = f.certificate(norm, rounds=rounds)
    assert found is not None
    assert now.total <= rounds * found.bound + SLACK
    return f.report()


def cases(*, all_of_them: bool) -> list[tuple[type[Hostile], str, str, str, str]]:
    """Every hostile part under every budget, and with every opponent; norms and safe parts in turn, or all."""
    if all_of_them:
        return list(product(HOSTILE, SAFE, NORMS, OPPONENTS, BUDGETS))
    norms, safes = [*NORMS], [name for name in SAFE if name != "block"]
    pairs = product(HOSTILE, OPPONENTS, BUDGETS)
    return [
        (kind, safes[(i + i // 8) % 8], norms[(i + i // 36) % 4], against, budget)
        for i, (kind, against, budget) in enumerate(pairs)
    ]


@pytest.mark.parametrize(("kind", "against"), list(product(HOSTILE, OPPONENTS)))
def test_the_theorem_holds_in_every_round(kind: type[Hostile], against: str) -> None:
    for hostile, safe, norm, other, budget in cases(all_of_them=False):
        if (hostile, other) == (kind, against):
            report = assert_theorem(kind, SAFE[safe](), NORMS[norm], against, BUDGETS[budget], rounds=50)
            assert (report.eager_rounds == 0) == (budget in ("nothing", "no error"))


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
        for safe in (tc.TreeCal(tc.Simplex(3)), tc.Harmonic(tc.Simplex(3), block=10)):
            assert assert_theorem(kind, safe, norm, "accomplice", {"budget": 1.5}, 60).eager_rounds
    with pytest.raises(UnsupportedError, match="no certificate"):
        tc.Guarded(tc.Simplex(3), safe=tc.AdaptiveTreeCal(tc.Simplex(3)))
    f = tc.Guarded(tc.Simplex(3), safe=tc.AdaptiveTreeCal(tc.Simplex(3)), error=0.3)
    answer = opponent("ledger", f.space, tc.l1, 60, seed=1)
    for now in defend(f.predict, f.update, f.report, tc.TreeCal(f.space), answer, tc.l1, 60, error=0.3):
        assert now.eager <= now.most + SLACK
        assert f.report().safe_bound == 2 * f.report().safe_rounds
    assert f.certificate("l1", rounds=10) is None


@pytest.mark.parametrize("safe", SAFE)
@pytest.mark.parametrize("norm", NORMS)
def test_bounds_grow_at_their_rate(safe: str, norm: str) -> None:
    """The theorem needs U(m) − U(n) >= r(m − n)."""
    f, measure = SAFE[safe](), NORMS[norm]
    at = [*range(1, 40), *range(40, 20_000, 397)] if "fixed" not in safe else [*range(1, 257)]
    totals = [(n, bound(f, measure, n)) for n in at]
    if totals[0][1] is not None:
        bounds = np.array([each for _, each in totals if each is not None])
        assert (np.diff(bounds) >= f._rate(measure) * np.diff(at) * (1 - 1e-9) - SLACK).all()


@pytest.mark.parametrize("safe", ["grid", "tree", "fixed tree"])
def test_eager_parts_on_trees_and_distributions(safe: str) -> None:
    """Their error by node is at least the exact one, which is what the theorem is about."""
    space = SAFE[safe]().space
    eager = [tc.TreeCal(space, arity=2), tc.AdaptiveTreeCal(space), tc.SampleTreeCal(space, arity=2, block=2)]
    for part, against in product([*eager, tc.Harmonic(space), tc.Codebook(tc.TreeCal(space))], ("ledger", "random")):
        f = tc.Guarded(space, eager=part, safe=SAFE[safe](), budget=1.0)
        answer = opponent(against, space, tc.l1, 70, seed=1)
        played = defend(f.predict, f.update, f.report, SAFE[safe](), answer, tc.l1, 70, budget=1.0, exact=False)
        for now in played:
            assert f.report().eager_error >= now.eager - SLACK
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
    safe = tc.TreeCal(space, arity=2)
    for now in defend(f.predict, f.update, f.report, safe, answer, tc.l1, 300, budget=1.0, exact=False):
        assert f.report().eager_error >= now.eager - SLACK
        assert now.eager <= now.most + SLACK


def test_equality_lets_eager_speak() -> None:
    """With error=1/2 and an eager part that is right until round 15, then wrong, all numbers are exact.

    It speaks when 2 <= 4/2, and on while 10 <= 20/2; then in each round in which 2 more are within t/2.
    """
    f, spoke = guarded(AlwaysFirst, tc.BinaryGrid(tc.Simplex(2)), tc.l1, error=0.5), []
    for t in range(1, 46):
        spoke += [t] * f.eager_speaks
        f.update([t <= 15, t > 15])
    assert spoke == [*range(4, 21), 24, 28, 32, 36, 40, 44]
    assert f.report() == GuardReport(45, 23, 22, 22.0, f.report().safe_bound, 23.0, 1.0)


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
    dim, rounds = data.draw(st.integers(2, 3)), data.draw(st.integers(1, 40))
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
    space, options = tc.Simplex(dim), {"budget": float(share)} if error is None else {"error": float(error)}
    f = guarded(Scripted, tc.Harmonic(space, block=data.draw(st.integers(2, 9))), norm, **options)
    f.eager.script = [np.array(point) / 4 for point in points]  # type: ignore[attr-defined]
    exact = LiteralGuard(
        [tuple(Fraction(int(j == k)) for j in range(dim)) for k in classes],
        [tuple(Fraction(n, 4) for n in point) for point in points],
        distance=distance,
        diameter=diameter,
        share=Fraction(options.get("budget", 0)),
        rate=Fraction(f._now[1].rate),
        error=error,
    )
    assert all(a <= most for a, most in zip(exact.eager_error, exact.most, strict=True))  # the theorem, exactly
    edges = [a + diameter - b for a, b in zip(exact.eager_error, exact.allowed, strict=False)]
    assume(all(abs(edge) > Fraction(1, 10**9) for edge in edges))
    for t, k in enumerate(classes):
        assert f.eager_speaks == exact.spoke[t]
        assert f.report().budget == pytest.approx(float(exact.allowed[t]), abs=1e-12)
        f.update(np.eye(dim)[k])
        assert f.report().eager_error == pytest.approx(float(exact.eager_error[t + 1]), abs=1e-12)
