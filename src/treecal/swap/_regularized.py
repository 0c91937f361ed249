"""Follow-The-Regularized-Leader, and its two best-known cases: Hedge and lazy gradient descent."""

from __future__ import annotations

import math

import numpy as np

from treecal._elementary import exponentials
from treecal._typing import Array
from treecal._validate import positive_number, whole_number
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.geometry import Box, ConvexSet, NegativeEntropy, QuadraticForm, Regularizer, Simplex, SquaredEuclidean
from treecal.swap._learners import Learner
from treecal.swap._losses import LinearLoss
from treecal.swap._numeric_losses import QuadraticLoss, descend


class FollowTheRegularizedLeader(Learner):
    """Plays the minimiser of `<V, p> + R(p)/η`, V the sum of the losses so far.

    If `D_R(q|p) >= α‖q − p‖²` and every loss vector has `‖v‖_* <= G`, the external regret is at most
    `(max R − min R)/η_T + (G²/4α)·Σ_t η_t`, for rates that never rise. Closed forms for the entropy on the simplex, and
    for `‖p‖₂²` on every set that has a projection; projected gradients for the rest.

    Parameters
    ----------
    over
        A number of actions, or a `ConvexSet`.
    regularizer
        `R`.
    rate
        `η`.
    anytime
        Whether the rate falls, `η_t = rate/√t`, for when the number of rounds is not known.

    Examples
    --------
    >>> from treecal.geometry import Ball
    >>> learner = FollowTheRegularizedLeader(Ball(2), regularizer=SquaredEuclidean(), rate=0.5)
    >>> learner.observe([1.0, 2.0])
    >>> learner.act()
    array([-0.25, -0.5 ])
    """

    _takes = (LinearLoss,)
    # Regret is at most `_spread/η_T + _cost·Σ η_t`, where both are known.
    _spread: float | None = None
    _cost: float | None = None

    def __init__(self, over: ConvexSet | int, *, regularizer: Regularizer, rate: float, anytime: bool = False) -> None:
        super().__init__(over)
        if not isinstance(regularizer, Regularizer):
            raise ParameterError.expected("regularizer", regularizer, "a Regularizer", hint="NegativeEntropy().")
        self.regularizer = regularizer
        self.rate = positive_number("rate", rate)
        self.anytime = anytime
        self._sum: Array | None = None

    def _rate(self, round_: int) -> float:
        return self.rate / math.sqrt(round_) if self.anytime else self.rate

    def _learn(self, loss: LinearLoss) -> None:
        self._sum = loss.vector if self._sum is None else self._sum + loss.vector

    def _choose(self) -> Array:
        pull = np.zeros(self.space.dim) if self._sum is None else self._sum * self._rate(self._rounds + 1)
        match self.regularizer, self.space:
            case NegativeEntropy(), Simplex():
                return softmin(pull)
            case NegativeEntropy(), Box(low=low, high=high):  # ln x + 1 + pull = 0 in each coordinate
                return np.clip(_exponentials(-1 - pull), low, high)
            case SquaredEuclidean(), _:
                return self.space.project(-pull / 2)
            case QuadraticForm(matrix=matrix), _:
                return QuadraticLoss(matrix, vector=pull).minimise(self.space)
        R = self.regularizer
        return descend(lambda p: p @ pull + R.value(p), lambda p: pull + R.gradient(p), self.space)

    def regret_bound(self, rounds: int) -> float:
        """Return the bound that the class states; only `Hedge` and `LazyGradientDescent` have its constants."""
        rounds = whole_number("rounds", rounds, least=0)
        if self._spread is None or self._cost is None:
            raise UnsupportedError.by(self, "regret bound", "the range of R on the set is not known")
        if rounds == 0:
            return 0.0
        # Σ 1/√t <= 2√T
        rates = 2 * self.rate * math.sqrt(rounds) if self.anytime else self.rate * rounds
        return self._spread / self._rate(rounds) + self._cost * rates


class Hedge(FollowTheRegularizedLeader):
    """Exponential weights over actions, `p_i ∝ exp(−η·V_i)`: FTRL with the entropy.

    For losses in [0, 1] the external regret is at most `ln n/η + η·rounds/8`, hence `√(T ln n/2)` after the T rounds it
    was tuned for (`η = √(8 ln n/T)`). Without them `η_t = 2√(ln n/t)`, and it is at most `√(t ln n)` after every t.

    Parameters
    ----------
    actions
        Number of actions `n`.
    rounds
        The number of rounds, if known; inside `TreeSwap` that is the arity.

    Examples
    --------
    >>> learner = Hedge(2, rounds=8)
    >>> learner.observe([1.0, 0.0])
    >>> learner.act().round(3)
    array([0.303, 0.697])
    >>> round(learner.regret_bound(8), 3), round(Hedge(2).regret_bound(8), 3)
    (1.665, 2.355)

    References
    ----------
    Cesa-Bianchi and Lugosi, "Prediction, Learning, and Games", 2006, sections 2.2 and 2.3; Bubeck, "Introduction to
    Online Optimization", 2011, theorem 2.4, for the rate without a horizon.
    """

    def __init__(self, actions: int, *, rounds: int | None = None) -> None:
        n = whole_number("actions", actions, least=2)
        square = 4 * math.log(n) if rounds is None else 8 * math.log(n) / whole_number("rounds", rounds, least=1)
        super().__init__(n, regularizer=NegativeEntropy(), rate=math.sqrt(square), anytime=rounds is None)
        # Weights do not change when a constant is added to the losses, so [0, 1] counts as G = ½, and α = ½ in ℓ1.
        self._spread = math.log(n)
        self._cost = 1 / 8


class LazyGradientDescent(FollowTheRegularizedLeader):
    """Plays the projection of `centre − η·V`: FTRL with the squared distance from the centre.

    If every loss vector has `‖v‖₂ <= G` and the set lies within r of its centre, the external regret is at most
    `r²/(2η) + η·G²·rounds/2`, hence `r·G·√T` after the T rounds it was tuned for (`η = r/(G√T)`). Without them
    `η_t = r/(G√(2t))`, and it is at most `r·G·√(2t)` after every t.

    Parameters
    ----------
    over
        A number of actions, or a `ConvexSet` with a projection.
    rounds
        The number of rounds, if known.
    lipschitz
        `G`, the greatest ℓ2 norm of a loss vector.

    Examples
    --------
    >>> from treecal.geometry import Ball
    >>> learner = LazyGradientDescent(Ball(2), rounds=4)
    >>> learner.observe([0.0, 1.0])
    >>> learner.act(), learner.regret_bound(4)
    (array([ 0. , -0.5]), 2.0)
    """

    def __init__(self, over: ConvexSet | int, *, rounds: int | None = None, lipschitz: float = 1.0) -> None:
        lipschitz = positive_number("lipschitz", lipschitz)
        super().__init__(over, regularizer=SquaredEuclidean(), rate=1.0, anytime=rounds is None)
        r = float(self.space.radius("l2"))
        if r == 0:
            raise ParameterError.expected("over", over, "a set of more than one point")
        self.rate = r / lipschitz / math.sqrt(2 if rounds is None else whole_number("rounds", rounds, least=1))
        self._spread = r * r / 2
        self._cost = lipschitz**2 / 2

    def _choose(self) -> Array:
        if self._sum is None:
            return np.array(self.space.centre)
        return self.space.project(self.space.centre - self._rate(self._rounds + 1) * self._sum)


def softmin(values: Array) -> Array:
    """Return weights in proportion to `exp(−values)`, without overflow."""
    weights = _exponentials(values.min() - values)
    weights /= weights.sum()
    return weights


def _exponentials(exponents: Array) -> Array:
    """Return `e^x` of each, with the same bits on every processor: learners may amplify the last one."""
    found = np.empty(len(exponents))
    exponentials.for_rows(len(found) // 16)(exponents, found)
    return found
