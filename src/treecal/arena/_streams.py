"""The streams of the headline race: random, hard, adversarial and real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.geometry import ConvexSet, Simplex
from treecal.streams import (
    Adversary,
    ClassStream,
    LedgerAdversary,
    MeanAdversary,
    alternation,
    atlantic_storms,
    drift,
    iid,
    new_york_flights,
    random_walk,
    regime_switches,
    seattle_weather,
    seattle_wet_or_dry,
)

Source = Callable[[ConvexSet, int, np.random.Generator], "Array | Adversary"]
"""A function from a set, a number of rounds and a generator to outcomes, one row per round, or an adversary."""


@dataclass(frozen=True)
class Fixed:
    """A stream without chance: `race` plays it with one seed only, unless the forecaster itself draws.

    Parameters
    ----------
    source
        A function `(space, rounds)` that returns outcomes or an adversary.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import alternation
    >>> stream = Fixed(partial(alternation, arity=2))
    >>> stream(tc.Simplex(2), 4, np.random.default_rng(0))[:, 0]
    array([1., 0., 0., 1.])
    """

    source: Callable[[ConvexSet, int], Array | Adversary]

    def __call__(self, space: ConvexSet, rounds: int, rng: np.random.Generator) -> Array | Adversary:
        """Return the outcomes, or the adversary."""
        return self.source(space, rounds)


@dataclass(frozen=True)
class Recorded:
    """A recorded stream of classes, with its own set and length.

    Parameters
    ----------
    load
        A function that returns the stream.
    most
        The number of rounds to play, if not all.

    Examples
    --------
    >>> from treecal import arena
    >>> weather = arena.REAL["Seattle"]
    >>> weather.space, weather.rounds
    (Simplex(classes=['drizzle', 'fog', 'rain', 'snow', 'sun']), 1461)
    """

    load: Callable[[], ClassStream]
    most: int | None = None

    @property
    def space(self) -> Simplex:
        """The simplex of its classes."""
        return _loaded(self.load).space

    @property
    def rounds(self) -> int:
        """Its length."""
        return len(self.outcomes)

    @property
    def outcomes(self) -> Array:
        """One-hot rows, `(rounds, classes)`."""
        return _loaded(self.load).outcomes[: self.most]

    def __call__(self, space: ConvexSet, rounds: int, rng: np.random.Generator) -> Array:
        """Return the first outcomes."""
        if space != self.space or not 0 < rounds <= self.rounds:
            raise ParameterError(
                f"this stream has {self.rounds} rounds on {self.space!r}, not {rounds} on {space!r}.",
                hint="race it alone: [stream.space], rounds=stream.rounds.",
            )
        return self.outcomes[:rounds]


@lru_cache(maxsize=8)
def _loaded(load: Callable[[], ClassStream]) -> ClassStream:
    return load()


def _against_mean(space: ConvexSet, rounds: int) -> Adversary:
    return MeanAdversary(space)


def _against_ledger(space: ConvexSet, rounds: int, rng: np.random.Generator) -> Adversary:
    return LedgerAdversary(space, rng=rng)


STREAMS: dict[str, Source] = {
    "i.i.d.": iid,
    "regimes of 50": partial(regime_switches, every=50),
    "regimes of 997": regime_switches,
    "drift": drift,
    "random walk": random_walk,
    "alternation": Fixed(partial(alternation, arity=8)),
    "against the mean": Fixed(_against_mean),
    "against the ledger": _against_ledger,
}
"""Streams of the headline race, by name: on any set, and of any length."""

REAL: dict[str, Recorded] = {
    "Seattle": Recorded(seattle_weather),
    "wet or dry": Recorded(seattle_wet_or_dry),
    "storms": Recorded(atlantic_storms),
    "flights": Recorded(new_york_flights, most=20_000),
}
"""Real streams of the headline race, by name. The data need the extra `data`."""
