"""Certificates for distributions of a number, against opponents that know what is announced."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

import treecal as tc
from treecal._typing import Array
from treecal.streams import Adversary, LedgerAdversary, MeanAdversary

SPACE = tc.Cdf(0, 16, points=24)
MAKE: dict[str, Callable[[tc.ConvexSet], tc.Forecaster]] = {
    "Harmonic": tc.Harmonic,
    "TreeCal": tc.TreeCal,
    "Guarded": tc.Guarded,
    "Guarded in blocks": lambda space: tc.Guarded(space, safe=tc.Harmonic(space, block=64)),
}


class Gradient(Adversary):
    """Plays the number that the gradient of the error points to: of `Σ_p ‖V_p‖`, in L²."""

    def __init__(self, space: tc.Cdf) -> None:
        super().__init__(space)
        self.widths = space.widths
        self.biases: dict[bytes, Array] = defaultdict(lambda: np.full(space.dim, 1e-9))

    def outcome(self, forecast: tc.Forecast) -> Array:
        x = forecast.merged()
        names = [point.tobytes() for point in x.points]
        biases = np.array([self.biases[name] for name in names])
        size = np.sqrt((self.widths * biases**2).sum(axis=1))
        uphill = (x.weights / size) @ (self.widths * biases)
        outcome = self.space.minimise(-uphill)
        for name, weight, point in zip(names, x.weights, x.points, strict=True):
            self.biases[name] = self.biases[name] + weight * (outcome - point)
        return outcome


OPPONENTS: dict[str, Callable[[], Adversary]] = {
    "greedy": lambda: LedgerAdversary(SPACE, norm="crps", rng=np.random.default_rng(0)),
    "gradient": lambda: Gradient(SPACE),
    "against the mean": lambda: MeanAdversary(SPACE),
}


def errors(make: str, opponent: str, rounds: int) -> list[tuple[int, float]]:
    f, adversary, ledger, found = MAKE[make](SPACE), OPPONENTS[opponent](), tc.Ledger(SPACE), []
    for t in range(1, rounds + 1):
        x = f.predict()
        y = adversary.outcome(x)
        ledger.record(x, y)
        f.update(y)
        if t & (t - 1) == 0 or t == rounds:
            found.append((t, ledger.error("crps", per_node=True)))
    return found


def bound(make: str, rounds: int) -> float:
    found = MAKE[make](SPACE).certificate("crps", rounds=rounds)
    assert found is not None
    return found.bound


@pytest.mark.parametrize("opponent", OPPONENTS)
@pytest.mark.parametrize("make", MAKE)
def test_no_opponent_passes_a_certificate(make: str, opponent: str) -> None:
    for t, error in errors(make, opponent, 150):
        assert error <= bound(make, t) * (1 + 1e-9)


def test_opponents_beat_what_has_no_certificate() -> None:
    """A forecaster that is sure of the last outcome is wrong by half the range and more."""
    adversary, last, ledger = MeanAdversary(SPACE), SPACE.steps(8), tc.Ledger(SPACE)
    for _ in range(60):
        x = tc.Forecast([last], space=SPACE)
        last = adversary.outcome(x)
        ledger.record(x, last)
    assert ledger.error("crps") > math.sqrt(16) / 2


@pytest.mark.heavy
@pytest.mark.parametrize("opponent", OPPONENTS)
@pytest.mark.parametrize("make", MAKE)
def test_no_opponent_passes_a_certificate_in_many_rounds(make: str, opponent: str) -> None:
    for t, error in errors(make, opponent, 1500):
        assert error <= bound(make, t) * (1 + 1e-9)
