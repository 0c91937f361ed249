"""Reductions: swap regret from calibrated forecasts, and the ℓ1 ball from the simplex."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster
from treecal.geometry import Ball, ConvexSet, Norm, Polytope, Simplex, as_norm, l1, read_point
from treecal.ledger import Ledger
from treecal.swap._learners import Learner
from treecal.swap._losses import LinearLoss, Loss


class BestResponse(Learner):
    """Any forecaster as a swap-regret learner: forecast the coming loss, and play the best response to the forecast.

    For each forecast point p it plays `argmin_q <q, p>` over the actions, with p's weight. The full swap regret is at
    most `diam_*(actions)` times the forecaster's calibration error, in every norm (Lemma 4.2).

    Parameters
    ----------
    forecaster
        Forecasts the vectors v of the losses `<q, v>`.
    actions
        Either a `ConvexSet` of q's, and a play is one of its points; or an `(n, d)` array with one action in each row,
        and a play is n weights. With `numpy.eye(n)` the vectors v are the losses of n actions; with a matrix of costs
        they are the mixed actions of an opponent.

    Examples
    --------
    >>> import treecal as tc
    >>> space = tc.Box(0, 1, dim=3)
    >>> learner, ledger = BestResponse(tc.TreeCal(space, arity=4), actions=np.eye(3)), tc.Ledger(space)
    >>> for t in range(20):
    ...     loss = np.eye(3)[t % 2]
    ...     ledger.record(learner.forecaster.predict(), loss)
    ...     learner.observe(loss)
    >>> learner.act().round(2)  # the third action is never worse, but a new leaf has no information
    array([0.33, 0.  , 0.67])
    >>> round(learner.swap_bound(ledger, norm="l2"), 2)
    16.37
    """

    def __init__(self, forecaster: Forecaster, *, actions: ConvexSet | ArrayLike) -> None:
        if not isinstance(forecaster, Forecaster):
            raise ParameterError.expected("forecaster", forecaster, "a Forecaster", hint="TreeCal(space).")
        self.hull = actions if isinstance(actions, ConvexSet) else Polytope(vertices=actions)
        self.matrix = None if isinstance(actions, ConvexSet) else finite_array("actions", actions, ndim=2)
        super().__init__(self.hull if self.matrix is None else len(self.matrix))
        self.forecaster = forecaster
        if self.hull.dim != forecaster.space.dim:
            raise ParameterError(f"actions lie in R^{self.hull.dim}, and forecasts in R^{forecaster.space.dim}.")

    def parts(self) -> Forecast:
        """Return the best response to each forecast point, with the forecast's nodes; `act` is their mean."""
        x = self.forecaster.predict()
        responses = self.space.minimise(x.points if self.matrix is None else x.points @ self.matrix.T)
        return Forecast.trusted(responses, x.weights, x.nodes, self.space)

    def _choose(self) -> Array:
        return self.parts().mean

    def _read(self, loss: Loss | ArrayLike) -> LinearLoss:
        """Read the vector v of the round, which must be a point of the forecaster's set."""
        vector = loss.vector if isinstance(loss, LinearLoss) else loss
        return LinearLoss.trusted(read_point(self.forecaster.space, vector, self.rounds + 1))

    @property
    def rounds(self) -> int:
        """Number of losses seen, by the forecaster."""
        return self.forecaster.rounds

    def observe(self, loss: Loss | ArrayLike) -> None:
        """Learn the vector of the round, which the forecaster learns. An invalid one raises and changes nothing."""
        self._learn(self._read(loss))

    def _after(self, loss: Loss | ArrayLike) -> Self:
        twin = copy(self)
        twin.observe(loss)
        twin._rounds = twin.rounds
        return twin

    def _learn(self, loss: LinearLoss) -> None:
        self.forecaster.update(loss.vector)

    def swap_bound(self, ledger: Ledger, *, norm: Norm | str = "l2") -> float:
        """Return a bound on the full swap regret, given the ledger of the forecasts: `diam_* · Cal`."""
        norm = as_norm(norm)
        return float(self.hull.diameter(norm.dual)) * ledger.error(norm, total=True)

    def __repr__(self) -> str:
        return f"BestResponse({self.forecaster!r}, actions={self.actions or self.hull!r})"


def l1_ball_to_simplex(points: ArrayLike) -> Array:
    """Return `φ(y)`: the positive and the negative part of each coordinate in turn, and 1 less their sum.

    Maps the unit ℓ1 ball of R^d into the simplex with 2d + 1 corners; `simplex_to_l1_ball` undoes it.

    Examples
    --------
    >>> l1_ball_to_simplex([0.25, -0.5])
    array([0.25, 0.  , 0.  , 0.5 , 0.25])
    """
    y = np.asarray(points, dtype=np.float64)
    parts = np.stack([np.maximum(y, 0.0), np.maximum(-y, 0.0)], axis=-1).reshape(*y.shape[:-1], -1)
    size = parts.sum(axis=-1, keepdims=True)
    # A point may lie outside the ball by the tolerance of sets.
    return np.concatenate([parts / np.maximum(size, 1.0), np.maximum(1 - size, 0.0)], axis=-1)


def simplex_to_l1_ball(points: ArrayLike) -> Array:
    """Return `ψ(z)`, `z_{2i−1} − z_{2i}`: linear, onto the unit ℓ1 ball, and never increasing an ℓ1 distance.

    Examples
    --------
    >>> simplex_to_l1_ball([0.25, 0.0, 0.0, 0.5, 0.25])
    array([ 0.25, -0.5 ])
    """
    z = np.asarray(points, dtype=np.float64)
    if z.ndim == 0 or z.shape[-1] % 2 == 0 or z.shape[-1] < 3:
        raise ParameterError(f"points have shape {z.shape}, expected (..., 2d + 1).")
    return z[..., 0:-1:2] - z[..., 1:-1:2]


class L1BallForecaster(Forecaster):
    """A forecaster on the unit ℓ1 ball, built on one on the simplex with 2d + 1 corners (Lemma D.1).

    Its ℓ1 calibration error is at most that of the forecaster on the simplex.

    Parameters
    ----------
    forecaster
        A forecaster on `Simplex(2d + 1)`.

    Examples
    --------
    >>> import treecal as tc
    >>> f = L1BallForecaster(tc.TreeCal(tc.Simplex(5), arity=4))
    >>> f.update([0.25, -0.5])
    >>> f.predict().mean
    array([ 0.25, -0.5 ])
    """

    _fields = ("forecaster",)

    def __init__(self, forecaster: Forecaster) -> None:
        space = forecaster.space if isinstance(forecaster, Forecaster) else None
        if not isinstance(space, Simplex) or space.dim % 2 == 0 or space.dim < 3:
            raise ParameterError.expected("forecaster", forecaster, "a Forecaster on Simplex(2d + 1)")
        self.forecaster = forecaster
        self.space = Ball(space.dim // 2, norm=l1)

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self.forecaster.rounds

    def _announce(self) -> Forecast:
        x = self.forecaster.predict()
        return Forecast.trusted(simplex_to_l1_ball(x.points), x.weights, x.nodes, self.space)

    def _learn(self, outcome: Array) -> None:
        self.forecaster.update(l1_ball_to_simplex(outcome))

    def _fork(self) -> Self:
        twin = self._light_fork()
        twin.forecaster = self.forecaster._fork()
        return twin

    def get_state(self) -> dict[str, Any]:
        """Return the state of the forecaster on the simplex."""
        return self.forecaster.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self.forecaster.set_state(state)
        self._announced = None
