"""Every forecaster of ours through every check that we ship."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import treecal as tc
from treecal._typing import Array
from treecal.forecasters import Forecaster
from treecal.geometry import TOLERANCE, Lp
from treecal.testing import CHECKS, Check, check_forecaster, sample_outcomes


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
    "a user's own": Disc(),
}

MAKERS: dict[str, Callable[[tc.ConvexSet], Forecaster]] = {
    "TreeCal": lambda space: tc.TreeCal(space, arity=3),
    "TreeCal, depth 6": lambda space: tc.TreeCal(space, arity=2, depth=6),
    "TreeCal, mixed": lambda space: tc.TreeCal(space, arity=4, mix=0.1),
    "SampleTreeCal": lambda space: tc.SampleTreeCal(space, arity=2, block=3, rng=np.random.default_rng(3)),
    "SampleTreeCal, depth 5": lambda space: tc.SampleTreeCal(
        space, arity=2, depth=5, block=2, rng=np.random.Generator(np.random.MT19937(3))
    ),
    "RunningMean": tc.RunningMean,
    "AdaptiveTreeCal": lambda space: tc.AdaptiveTreeCal(space, arity=3),
    "AdaptiveTreeCal, depth 6": lambda space: tc.AdaptiveTreeCal(space, arity=2, depth=6, norm="linf", mix=0.1),
    "AdaptiveTreeCal, block": lambda space: tc.AdaptiveTreeCal(space, arity=3, rule="block"),
    "Harmonic": tc.Harmonic,
    "BinaryGrid": lambda space: tc.BinaryGrid(bins=10),
    "BinaryGrid, odd": lambda space: tc.BinaryGrid(bins=7),
    "SimplexGrid": lambda space: tc.SimplexGrid(space, resolution=6),  # type: ignore[arg-type]
}

ONLY: dict[str, set[str]] = {
    "AdaptiveTreeCal, block": set(SPACES) - {"a user's own"},  # which does not know its diameter
    "BinaryGrid": {"pair"},
    "BinaryGrid, odd": {"pair"},
    "SimplexGrid": {"pair", "simplex"},
}
CASES = [(maker, space) for space in SPACES for maker in MAKERS if space in ONLY.get(maker, SPACES)]


def outcomes_for(space: tc.ConvexSet) -> Array:
    drawable = tc.Ball(2) if isinstance(space, Disc) else space
    return sample_outcomes(drawable, 60, np.random.default_rng(0))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("maker", "space"), CASES)
def test_contract(check: Check, maker: str, space: str) -> None:
    check(lambda: MAKERS[maker](SPACES[space]), outcomes_for(SPACES[space]))


def test_every_forecaster_is_here() -> None:
    made = {type(maker(tc.Simplex(2))).__name__ for maker in MAKERS.values()}
    assert made == set(tc.forecasters.__all__) - {"Forecaster"}


class Forgetful(tc.RunningMean):
    """Breaks its contract: an outcome it refuses counts as a round."""

    def update(self, outcome: object) -> None:
        self._rounds += 1
        super().update(outcome)  # type: ignore[arg-type]


class Sloppy(tc.TreeCal):
    """Breaks its contract: hands out its own buffer."""

    def predict(self) -> tc.Forecast:
        x = super().predict()
        self._buffer = getattr(self, "_buffer", np.zeros((64, self.space.dim)))
        self._buffer[: len(x)] = x.points
        return tc.Forecast.trusted(self._buffer[: len(x)], x.weights, x.nodes, self.space)


@pytest.mark.parametrize("broken", [Forgetful, Sloppy])
def test_the_checks_can_fail(broken: type[Forecaster]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_forecaster(lambda: broken(tc.Simplex(3)))  # type: ignore[call-arg]
