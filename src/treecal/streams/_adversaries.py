"""Adversaries: they see the forecast and choose the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import repeat

import numpy as np

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster
from treecal.geometry import ConvexSet, Norm, as_norm
from treecal.geometry._vertices import vertices
from treecal.ledger import Ledger


class Adversary(ABC):
    """Chooses each outcome after the forecast is announced, and remembers what it must.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> class Stubborn(Adversary):
    ...     def outcome(self, forecast):
    ...         return self.extremes(forecast.mean)[0]
    >>> Stubborn(Simplex(3)).outcome(Forecast([[0.2, 0.3, 0.5]]))
    array([1., 0., 0.])
    """

    def __init__(self, space: ConvexSet) -> None:
        self.space = space
        self._corners = vertices(space)

    def extremes(self, direction: Array) -> Array:
        """Return extreme points to choose from: all vertices, or those farthest along the direction and the axes."""
        if self._corners is not None:
            return self._corners
        axes = np.eye(self.space.dim)
        return self.space.minimise(np.concatenate([-direction[None], direction[None], axes, -axes]))

    @abstractmethod
    def outcome(self, forecast: Forecast) -> Array:
        """Return the outcome that answers the forecast; called once a round."""


class MeanAdversary(Adversary):
    """Plays the point of the set farthest against the mean forecast: on the simplex, the class thought least likely.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> MeanAdversary(Simplex(3)).outcome(Forecast([[0.2, 0.3, 0.5]]))
    array([1., 0., 0.])
    """

    def outcome(self, forecast: Forecast) -> Array:
        """Return the minimiser of `<y, mean − centre>`."""
        return self.space.minimise(forecast.mean - self.space.centre)


class LedgerAdversary(Adversary):
    """Plays the extreme point that raises the unlabelled calibration error most, given all that was recorded.

    It keeps `V_p = Σ_t x_t(p)(y_t − p)` for every point; the error is `Σ_p ‖V_p‖`, and an outcome y moves the points of
    the forecast by `x(p)(y − p)`. All candidates are tried at once.

    Parameters
    ----------
    space
        The set.
    norm
        The norm the error is counted in.
    rng
        Breaks ties; without it the first of equal candidates is played. Ties are common at the start of a game and
        steer the rest of it, so compare forecasters by means over several seeds.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import LedgerAdversary, play
    >>> space = tc.Simplex(2)
    >>> play(tc.TreeCal(space, arity=4), LedgerAdversary(space), rounds=500).error("l1") > 0.3
    True
    """

    def __init__(self, space: ConvexSet, *, norm: Norm | str = "l1", rng: np.random.Generator | None = None) -> None:
        super().__init__(space)
        self.norm, self.rng = as_norm(norm), rng
        self._biases: dict[bytes, Array] = {}

    def outcome(self, forecast: Forecast) -> Array:
        """Return a candidate of greatest error."""
        x, names = forecast, _names(forecast)
        if len(set(names)) < len(names):
            x = forecast.merged()
            names = _names(x)
        nothing = np.zeros(self.space.dim)
        biases = np.array([self._biases.get(name, nothing) for name in names])
        candidates = self.extremes(x.weights @ biases)
        moved = biases + x.weights[:, None] * (candidates[:, None] - x.points)
        error = self.norm(moved).sum(axis=1)
        ties = np.flatnonzero(error >= error.max() * (1 - 1e-12))
        best = int(ties[0] if self.rng is None else self.rng.choice(ties))
        self._biases.update(zip(names, moved[best], strict=True))
        return np.asarray(candidates[best])


def _names(forecast: Forecast) -> list[bytes]:
    return [row.tobytes() for row in forecast.points + 0.0]


def play(forecaster: Forecaster, stream: Array | Adversary, *, rounds: int | None = None) -> Ledger:
    """Play a forecaster against outcomes or an adversary, and return its ledger.

    Parameters
    ----------
    forecaster
        It goes on from wherever it is.
    stream
        Outcomes, one row a round; or an adversary.
    rounds
        How many: by default all of the outcomes; an adversary must be told.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import iid
    >>> space = tc.Simplex(2)
    >>> play(tc.TreeCal(space), iid(space, 100, np.random.default_rng(0))).rounds
    100
    """
    if isinstance(stream, Adversary):
        if rounds is None:
            raise ParameterError("an adversary goes on for ever: say rounds=.")
        turns: Iterable[Adversary | Array] = repeat(stream, whole_number("rounds", rounds, least=0))
    else:
        turns = np.asarray(stream)[:rounds]
    ledger = Ledger(forecaster.space)
    for turn in turns:
        x = forecaster.predict()
        y = turn.outcome(forecaster.mixture) if isinstance(turn, Adversary) else turn
        ledger.record(x, y)
        forecaster.update(y)
    return ledger
