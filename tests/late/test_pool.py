"""The pool's certificate holds whatever the outcomes and delays; the bound beforehand covers every division."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.some import some
from treecal.state import dumps, loads

TWO = tc.Simplex(2)
CERTIFIED: dict[str, Callable[[], Any]] = {
    "grid": lambda: tc.BinaryGrid(TWO),
    "tree": lambda: tc.TreeCal(TWO, arity=2),
    "guarded": lambda: tc.Guarded(TWO),
    "guarded, tree": lambda: tc.Guarded(TWO, safe=tc.TreeCal(TWO, arity=3)),
    "guarded scaling": lambda: tc.GuardedCorrector(TWO, corrector=tc.PlattScaling(TWO)),
}


class Adversary:
    """Knows every forecast that waits; makes that outcome come next, with that value, which adds most to the error."""

    def __init__(self, most: int, *, random: bool, seed: int) -> None:
        self.most, self.random, self.rng = most, random, np.random.default_rng(seed)
        self.gaps: dict[bytes, Any] = {}

    def added(self, x: tc.Forecast, y: Any) -> float:
        more: dict[bytes, Any] = {}
        for p, w in zip(x.points, x.weights, strict=True):
            more[p.tobytes()] = more.get(p.tobytes(), 0.0) + w * (y - p)
        old = (self.gaps.get(key, np.zeros(2)) for key in more)
        return sum(
            float(np.abs(was + gap).sum() - np.abs(was).sum()) for was, gap in zip(old, more.values(), strict=True)
        )

    def choose(self, waiting: dict[int, tc.Forecast]) -> tuple[int, Any]:
        moves = [(i, y) for i in waiting for y in np.eye(2)]
        i, y = max(moves, key=lambda move: self.added(waiting[move[0]], move[1]))
        if self.random:  # any delay, and the worst outcome
            i = int(self.rng.choice(list(waiting)))
            y = max(np.eye(2), key=lambda y: self.added(waiting[i], y))
        for p, w in zip(waiting[i].points, waiting[i].weights, strict=True):
            self.gaps[p.tobytes()] = self.gaps.get(p.tobytes(), 0.0) + w * (y - p)
        return i, y


@pytest.mark.parametrize(("name", "random", "most"), some(product(CERTIFIED, [True, False], [2, 7]), every=3))
def test_adversarial_delays_do_not_break_the_certificate(name: str, random: bool, most: int) -> None:
    late, adversary, rng = (
        tc.Late(CERTIFIED[name]()),
        Adversary(most, random=random, seed=most),
        np.random.default_rng(5),
    )
    ledger, waiting, ahead = tc.Ledger(TWO), dict[int, tc.Forecast](), dict[int, float]()
    corrects = isinstance(late.thing, tc.Corrector)
    for t in range(150):
        waiting[t] = late.predict(*[rng.dirichlet([1, 1])] * corrects, id=t)
        while len(waiting) >= most or (waiting and rng.random() < 0.2):
            i, y = adversary.choose(waiting)
            ledger.record(waiting.pop(i), y)
            late.update(i, y)
            assert ledger.error("l1") <= ahead.get(late.rounds, 2.0) + 1e-12
        if t == 60:  # what is foreseen holds
            for more in (1, 7, 30, 80):
                found = late.certificate("l1", rounds=more, after=ledger, outstanding=most)
                assert found is not None
                ahead[late.rounds + more] = found.bound
        if t % 50 == 49:
            bound = late.certificate("l1")
            assert bound is not None
            assert ledger.error("l1") <= bound.bound + 1e-12
    assert late.copies <= most
    foreseen = late.certificate("l1", rounds=late.rounds, outstanding=most)
    assert foreseen is not None
    assert late.certificate("l1").bound <= foreseen.bound + 1e-12  # type: ignore[union-attr]
    if not corrects:
        assert late.ledger.error("l1") == pytest.approx(ledger.error("l1"))


@pytest.mark.parametrize("name", ["grid", "tree", "guarded"])
def test_the_bound_beforehand_covers_every_division(name: str) -> None:
    thing = CERTIFIED[name]()
    total = [0.0, *(n * thing.certificate("l1", rounds=n).bound for n in range(1, 81))]
    worst = np.array(total)  # of one copy, by rounds; then of one more each time
    for copies in range(2, 5):
        worst = np.array([max(worst[n - own] + total[own] for own in range(n + 1)) for n in range(81)])
        for rounds in (2, 5, 33, 80):
            found = tc.Late(thing, limit=copies).certificate("l1", rounds=rounds)
            assert found is not None
            assert worst[rounds] / rounds - 1e-12 <= found.bound <= max(1.1 * worst[rounds] / rounds, 1e-9)


@pytest.mark.parametrize("name", CERTIFIED)
def test_bounds_on_the_total_grow_with_the_rounds(name: str) -> None:
    """As the bound beforehand assumes."""
    at = sorted({*range(1, 200), *np.geomspace(200, 10**6, 60).astype(int).tolist()})
    totals = [n * CERTIFIED[name]().certificate("l1", rounds=n).bound for n in at]
    assert (np.diff(totals) >= 0).all()


def test_one_copy_is_certified_as_ever() -> None:
    for make in CERTIFIED.values():
        late, alone = tc.Late(make(), limit=1), make().certificate("l1", rounds=1000)
        assert late.certificate("l1", rounds=1000).bound == alone.bound  # type: ignore[union-attr]


def test_the_copy_with_most_rounds_is_asked() -> None:
    late = tc.Late(tc.BinaryGrid(TWO))
    late.predict_many(ids=[1, 2, 3])
    late.update_many([3, 1, 2], [0, 0, 0])
    for t in range(10, 30):
        late.predict(id=t)
        late.update(t, 0)
    pool = late._rounds.pool
    assert pool is not None
    assert [copy.rounds for copy in pool.copies] == [21, 1, 1]
    late.predict_many(ids=[40, 41])
    late.expire(0)
    late.update(41, 1)
    assert [copy.rounds for copy in pool.copies] == [21, 2, 1]


def test_what_certificates_need() -> None:
    late = tc.Late(tc.BinaryGrid(TWO))
    with pytest.raises(tc.TreeCalError, match="how many rounds may be pending"):
        late.certificate("l1", rounds=10)
    with pytest.raises(tc.TreeCalError, match="rounds is not"):
        late.certificate("l1", outstanding=3)
    with pytest.raises(tc.TreeCalError):
        late.certificate("l1", rounds=0, outstanding=3)
    assert tc.Late(tc.AdaptiveTreeCal(tc.Simplex(3))).certificate("l1", rounds=9, outstanding=2) is None


@pytest.mark.parametrize("by_limit", [True, False])
def test_a_void_round_does_not_give_away_the_next_draw(by_limit: bool) -> None:
    late = tc.Late(tc.Sampled(tc.TreeCal(TWO, arity=2), block=1), limit=1)
    for t in range(61):
        late.predict(id=("learned", t))
        late.update(("learned", t), int(t % 3 == 0))
    drawn = []
    for t in range(60):
        drawn.append(late.predict(id=t, due=None if by_limit else t, now=t).mean[0])
        assert late.predict(id=t).mean[0] == drawn[-1]  # the same while it waits
        if not by_limit:
            assert late.expire(t + 0.5) == [t]
        assert loads(dumps(late)).predict(id="next") == copy.deepcopy(late).predict(id="next")
    assert (late.copies, late.rounds, late.void) == (1, 61, 60 - by_limit)
    assert len({tuple(drawn[i : i + 2]) for i in range(59)}) > 4
