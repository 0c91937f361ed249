"""The floor under every forecaster: SignTree. Measured, not proven."""

from __future__ import annotations

import numpy as np
import pytest

import treecal as tc
from treecal.forecasters._harmonic import harmonic_error
from treecal.streams import play, sign_tree


def errors(depth: int) -> dict[str, float]:
    """Return the ℓ1 error per round of every forecaster that can live in so many dimensions."""
    outcomes = sign_tree(depth, 64, np.random.default_rng(depth))
    space = tc.Simplex(outcomes.shape[1])
    makers: dict[str, tc.Forecaster] = {
        "TreeCal": tc.TreeCal(space, arity=8),
        "TreeCal, binary": tc.TreeCal(space, arity=2, depth=depth),
        "AdaptiveTreeCal": tc.AdaptiveTreeCal(space),
        "AdaptiveTreeCal, block": tc.AdaptiveTreeCal(space, rule="block"),
        "SampleTreeCal": tc.SampleTreeCal(space, arity=4, block=4, rng=np.random.default_rng(0)),
        "RunningMean": tc.RunningMean(space),
    }
    found = {name: play(forecaster, outcomes).error("l1") for name, forecaster in makers.items()}
    # Harmonic's points are all different, so its labelled error, which FFT gives, is its error.
    return found | {"Harmonic": harmonic_error(outcomes, space=space)}


def check(depth: int) -> None:
    for name, error in errors(depth).items():
        assert error >= 1 / depth, name


def test_nobody_gets_below_the_floor() -> None:
    check(8)


@pytest.mark.heavy
@pytest.mark.parametrize("depth", [9, 10, 11, 12])
def test_nobody_gets_below_the_floor_later_either(depth: int) -> None:
    check(depth)


def test_the_floor_is_not_trivial() -> None:
    """On another stream of the same length and dimension the running mean is below it."""
    outcomes = np.eye(1025)[np.zeros(256, int)]
    assert play(tc.RunningMean(tc.Simplex(1025)), outcomes).error("l1") < 1 / 8
