"""Every corrector of ours through every check that we ship."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.conformance.test_forecasters import ALL_CHECKS_ON, ASK_THE_SET, SPACES, by_default, name, outcomes_for
from treecal._typing import Array
from treecal.correctors import all_correctors
from treecal.testing import CORRECTOR_CHECKS, Check, check_bad_forecasts_change_nothing, check_corrector

CASES = [
    (kind, space, number)
    for space in SPACES
    for kind in all_correctors()
    for number, _ in enumerate(kind.examples(SPACES[space]))
]


def make(kind: type[tc.Corrector], space: str, number: int) -> tc.Corrector:
    return next(islice(kind.examples(SPACES[space]), number, None))


def run(checks: tuple[Check, ...], kind: type[tc.Corrector], space: str, number: int) -> None:
    for check in checks:
        outcomes = outcomes_for(space)[:24]
        check(lambda: make(kind, space, number), outcomes, outcomes[::-1].copy())


@pytest.mark.parametrize(("kind", "space", "number"), [case for case in CASES if by_default(case)], ids=name)
def test_contract(kind: type[tc.Corrector], space: str, number: int) -> None:
    ask_the_set = (*ASK_THE_SET, check_bad_forecasts_change_nothing)
    run(CORRECTOR_CHECKS if space in ALL_CHECKS_ON else ask_the_set, kind, space, number)


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "space", "number"), CASES, ids=name)
def test_every_check_on_every_set(kind: type[tc.Corrector], space: str, number: int) -> None:
    run(CORRECTOR_CHECKS, kind, space, number)


def test_every_corrector_gives_examples() -> None:
    some = (tc.Simplex(2), tc.Cdf(0, 1))
    assert {kind for kind in all_correctors() if not any(list(kind.examples(space)) for space in some)} == set()
    assert {tc.Chain, tc.Recalibrator, tc.PlattScaling} <= set(all_correctors())
    assert tc.Corrector not in all_correctors()


@dataclass
class Errors:
    total: Array


class Shift(tc.Corrector):
    """A user's own, with no more than it must have."""

    def __init__(self, space: tc.ConvexSet, *, scores: Any = "binned", tolerance: float = 1e-6) -> None:
        super().__init__(space, scores=scores, tolerance=tolerance)
        self._state = Errors(np.zeros(space.dim))

    def _announce(self, forecast: Array) -> tc.Forecast:
        return tc.Forecast([self.space.project(forecast + self._state.total / max(self.rounds, 1))])

    def _learn(self, forecast: Array, outcome: Array) -> None:
        self._state.total += outcome - forecast


@pytest.mark.parametrize("space", ["simplex", "box"])
def test_a_users_own_passes(space: str) -> None:
    check_corrector(lambda: Shift(SPACES[space]))


class Restless(Shift):
    """Breaks its contract: it learns from forecasts that have no outcome."""

    def _announce(self, forecast: Array) -> tc.Forecast:
        self._state.total += 0.001
        return super()._announce(forecast)


class Aliasing(Shift):
    """Breaks its contract: states are its own arrays."""

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        self._learn(forecast, outcome)
        return {}

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"own": self._own_state()}


class Greedy(Shift):
    """Breaks its contract: keeps what its state does not have."""

    last: Array | None = None

    def _announce(self, forecast: Array) -> tc.Forecast:
        return super()._announce(forecast if self.last is None else self.last)

    def _learn(self, forecast: Array, outcome: Array) -> None:
        super()._learn(forecast, outcome)
        self.last = outcome


class Careless(Shift):
    """Breaks its contract: counts before it checks."""

    def update(self, outcome: Any, *, weight: float = 1.0) -> None:
        self._rounds += 1
        super().update(outcome, weight=weight)


class Lenient(Shift):
    """Breaks its contract: takes an outcome that had no forecast."""

    def update(self, outcome: Any, *, weight: float = 1.0) -> None:
        try:
            super().update(outcome, weight=weight)
        except tc.TreeCalError as error:
            if "before its forecast" not in str(error):
                raise
            self.predict(self.space.centre)
            super().update(outcome, weight=weight)


class Shallow(Shift):
    """Breaks its contract: a copy shares the arrays."""

    def __copy__(self) -> Shallow:
        again = Shallow(self.space)
        vars(again).update(vars(self))
        return again

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        self._state.total += outcome - forecast
        return {}


class Random(Shift):
    """Breaks its contract: hidden randomness."""

    def _announce(self, forecast: Array) -> tc.Forecast:
        return tc.Forecast([np.random.default_rng().dirichlet(np.ones(self.space.dim))])


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Restless, "forecasts differently|changed the next"),
        (Aliasing, "a state taken after 0 rounds changed"),
        (Greedy, "loaded from a snapshot after 1 rounds, it forecasts differently"),
        (Careless, "rounds is 2 in round 2|does not name round 1"),
        (Lenient, "an outcome without a forecast was accepted"),
        (Shallow, "what a copy by copy.copy learned changed the original"),
        (Random, "two forecasts"),
    ],
)
def test_the_checks_can_fail(broken: type[Shift], complaint: str) -> None:
    with pytest.raises((AssertionError, tc.TreeCalError), match=complaint):
        check_corrector(lambda: broken(tc.Simplex(3)))
