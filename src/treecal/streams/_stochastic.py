"""Random outcomes, one row per round: i.i.d., in regimes, drifting, on a random walk.

On the simplex an outcome is a class, drawn with the probabilities of the round; on other sets it is a point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array, whole_number
from treecal.exceptions import ParameterError
from treecal.geometry import ConvexSet, Simplex


def iid(space: ConvexSet, rounds: int, rng: np.random.Generator, *, mean: ArrayLike | None = None) -> Array:
    """Return independent draws from one distribution: on the simplex with the given mean, by default a random one.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> iid(Simplex(2), 4, np.random.default_rng(0), mean=[1.0, 0.0])
    array([[1., 0.],
           [1., 0.],
           [1., 0.],
           [1., 0.]])
    """
    rounds = whole_number("rounds", rounds, least=1)
    if not isinstance(space, Simplex):
        if mean is not None:
            raise ParameterError.expected("mean", mean, f"None on {space!r}: it has an effect only on the simplex")
        return space.sample(rng, rounds)
    law = space.sample(rng) if mean is None else finite_array("mean", mean, ndim=1)
    if law.shape != (space.dim,) or not space.contains(law):
        raise ParameterError.expected("mean", mean, f"a point of {space!r}")
    return _classes(np.tile(law, (rounds, 1)), rng)


def regime_switches(space: ConvexSet, rounds: int, rng: np.random.Generator, *, every: int = 997) -> Array:
    """Return draws whose distribution is replaced by a new random one at regular intervals.

    On sets other than the simplex the regime is a random point, and outcomes are drawn halfway towards it.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> outcomes = regime_switches(Simplex(3), 1000, np.random.default_rng(0), every=500)
    >>> outcomes[:500].mean(axis=0).round(1), outcomes[500:].mean(axis=0).round(1)
    (array([0.4, 0.6, 0. ]), array([0. , 0.2, 0.8]))
    """
    rounds = whole_number("rounds", rounds, least=1)
    every = whole_number("every", every, least=1)
    regimes = space.sample(rng, -(-rounds // every))
    return _draw(space, np.repeat(regimes, every, axis=0)[:rounds], rng)


def drift(space: ConvexSet, rounds: int, rng: np.random.Generator) -> Array:
    """Return draws whose distribution moves steadily from one random distribution to another.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> outcomes = drift(Simplex(3), 1000, np.random.default_rng(0))
    >>> outcomes[:100].mean(axis=0).round(1), outcomes[-100:].mean(axis=0).round(1)
    (array([0.3, 0.6, 0.1]), array([0. , 0.2, 0.8]))
    """
    rounds = whole_number("rounds", rounds, least=1)
    begin, end = space.sample(rng, 2)
    share = np.linspace(0, 1, rounds)[:, None]
    return _draw(space, (1 - share) * begin + share * end, rng)


def random_walk(space: ConvexSet, rounds: int, rng: np.random.Generator, *, step: float = 0.05) -> Array:
    """Return draws whose distribution follows a random walk, projected back to the set when it leaves it.

    Examples
    --------
    >>> from treecal.geometry import Ball
    >>> random_walk(Ball(2), 100, np.random.default_rng(0)).shape
    (100, 2)
    """
    rounds = whole_number("rounds", rounds, least=1)
    if not 0 < step < np.inf:
        raise ParameterError.expected("step", step, "a positive number")
    low, high = space.bounds()
    steps = step * (high - low) * rng.standard_normal((rounds, space.dim))
    laws = np.empty((rounds, space.dim))
    law = space.sample(rng)
    for t in range(rounds):
        laws[t] = law = space.project(law + steps[t])
    return _draw(space, laws, rng)


def _draw(space: ConvexSet, laws: Array, rng: np.random.Generator) -> Array:
    if isinstance(space, Simplex):
        return _classes(laws, rng)
    return (laws + space.sample(rng, len(laws))) / 2


def _classes(laws: Array, rng: np.random.Generator) -> Array:
    """Draw one class for each row of probabilities, as vertices."""
    edges = np.cumsum(laws, axis=1)
    drawn = (rng.random((len(laws), 1)) * edges[:, -1:] >= edges).sum(axis=1)
    outcomes: Array = np.eye(laws.shape[1])[np.minimum(drawn, laws.shape[1] - 1)]
    return outcomes
