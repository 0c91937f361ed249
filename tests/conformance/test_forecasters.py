"""Every forecaster of ours through every check that we ship."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice, product
from typing import Self

import numpy as np
import pytest

import treecal as tc
from treecal._typing import Array
from treecal.forecasters import REGISTRY, Forecaster
from treecal.geometry import TOLERANCE, Lp
from treecal.testing import (
    CHECKS,
    Check,
    check_arrays_of_any_form,
    check_bad_outcomes_change_nothing,
    check_forecaster,
    check_forecasts_are_distributions,
    check_snapshots_resume,
    sample_outcomes,
)


class Disc(tc.ConvexSet):
    """A user's set with no more than it must have."""

    dim, centre = 2, np.zeros(2)

    def contains(self, points: object, *, tol: float = TOLERANCE) -> Array:  # type: ignore[override]
        return ~(tc.l2(points) > 1 + tol)  # type: ignore[arg-type, return-value] # lets NaN in: the forecaster must not


SPACES: dict[str, tc.ConvexSet] = {
    "simplex": tc.Simplex(3),
    "pair": tc.Simplex(2),
    "box": tc.Box([-1.0, 0.0], [1.0, 5.0]),
    "l1 ball": tc.Ball(3, norm="l1", radius=2.0),
    "l3 ball": tc.Ball(2, norm=Lp(3), centre=[1.0, 2.0]),
    "triangle": tc.Polytope(vertices=[[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]]),
    "square": tc.Polytope(halfspaces=([[1, 0], [-1, 0], [0, 1], [0, -1]], [1, 1, 1, 1])),
    "product": tc.Product(tc.Simplex(2), tc.Box(0, 1, dim=1)),
    "numbers": tc.Cdf(0, 10, thresholds=[0, 1, 2, 5], clip=True),
    "a user's own": Disc(),
}


ALL_CHECKS_ON = ("simplex", "pair", "box")
ASK_THE_SET: tuple[Check, ...] = (
    check_forecasts_are_distributions,
    check_arrays_of_any_form,
    check_bad_outcomes_change_nothing,
    check_snapshots_resume,
)
"""Those whose answer depends on the set's own code. The others hold on every set if they hold on one."""


def cases() -> Iterator[tuple[type[Forecaster], str, int]]:
    """Yield every example of every forecaster that has a name, on every set: class, set, and which example."""
    for space, kind in product(SPACES, REGISTRY.values()):
        yield from ((kind, space, number) for number, _ in enumerate(kind.examples(SPACES[space])))


def by_default(case: tuple[object, str, int]) -> bool:
    """Return whether `make test` tries an example: all of them on one set, and on the others one of each class."""
    _, space, number = case
    return space == "simplex" or number == 0


def name(case: object) -> str:
    return case.__name__ if isinstance(case, type) else str(case)


@cache
def drawn(space: str) -> Array:
    """Return outcomes in a set, which on a polytope cost a linear program each."""
    drawable = tc.Ball(2) if isinstance(SPACES[space], Disc) else SPACES[space]
    return sample_outcomes(drawable, 40, np.random.default_rng(0))  # enough for a carry to every height they reach


def outcomes_for(space: str) -> Array:
    return drawn(space).copy()


def run(checks: tuple[Check, ...], kind: type[Forecaster], space: str, number: int) -> None:
    for check in checks:
        check(lambda: next(islice(kind.examples(SPACES[space]), number, None)), outcomes_for(space))


@pytest.mark.parametrize(("kind", "space", "number"), [case for case in cases() if by_default(case)], ids=name)
def test_contract(kind: type[Forecaster], space: str, number: int) -> None:
    run(CHECKS if space in ALL_CHECKS_ON else ASK_THE_SET, kind, space, number)


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "space", "number"), list(cases()), ids=name)
def test_every_check_on_every_set(kind: type[Forecaster], space: str, number: int) -> None:
    run(CHECKS, kind, space, number)


def test_every_forecaster_is_here() -> None:
    exported = [getattr(tc.forecasters, name) for name in tc.forecasters.__all__]
    ours = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, Forecaster)} - {Forecaster}
    assert {type(f) for kind in REGISTRY.values() for f in kind.examples(tc.Simplex(2))} == ours
    assert len(list(cases())) >= 102
    assert {case[:2] for case in cases() if by_default(case)} == {case[:2] for case in cases()}
    missing = set(product(REGISTRY.values(), SPACES)) - {(kind, space) for kind, space, _ in cases()}
    assert missing == {
        *((tc.BinaryGrid, space) for space in SPACES if space != "pair"),
        *((tc.SimplexGrid, space) for space in SPACES if space not in ("pair", "simplex")),
        *((kind, "a user's own") for kind in (tc.Guarded, tc.Tracker)),  # they need the size of the set
    }


class Forgetful(tc.RunningMean):
    """Breaks its contract: an outcome it refuses counts as a round."""

    def update(self, outcome: object) -> None:
        self._state.rounds += 1
        super().update(outcome)  # type: ignore[arg-type]


class Sloppy(tc.TreeCal):
    """Breaks its contract: hands out its own buffer."""

    def predict(self) -> tc.Forecast:
        x = super().predict()
        self._buffer = getattr(self, "_buffer", np.zeros((64, self.space.dim)))
        self._buffer[: len(x)] = x.points
        return tc.Forecast.trusted(self._buffer[: len(x)], x.weights, x.nodes, self.space)


class Shallow(tc.BinaryGrid):
    """Breaks its contract: a copy shares the array that `update` writes to."""

    def _learn(self, outcome: Array) -> None:
        bias = self._state.bias
        super()._learn(outcome)
        bias[:] = self._state.bias
        self._state.bias = bias

    def __copy__(self) -> Self:
        again = type(self)(self.space)
        again._state = replace(self._state)
        return again


@pytest.mark.parametrize("broken", [Forgetful, Sloppy])
def test_the_checks_can_fail(broken: type[Forecaster]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_forecaster(lambda: broken(tc.Simplex(3)))


def test_a_shallow_copy_is_found() -> None:
    with pytest.raises(AssertionError, match=r"what a copy by copy\.copy learned changed the original"):
        check_forecaster(lambda: Shallow(tc.Simplex(2)))
