"""The classical algorithms for swap regret over finitely many actions: a learner, or a regret, for every action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array, whole_number
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.geometry import TOLERANCE
from treecal.swap._learners import Learner
from treecal.swap._losses import LinearLoss, Loss


class BlumMansour(Learner):
    """One learner for every action, played by the fixed point of their advice.

    The play is a `p` with `p = pQ`, row i of Q the play of learner i, and learner i is fed the loss `p_i·ℓ`. The swap
    regret is at most the sum of the learners' external regrets. With `Hedge(n, rounds=T // n)` for each, so that
    `η = √(8n ln n/T)`, it is at most `√(T·n·ln n/2)` after T rounds with losses in [0, 1].

    A round costs `O(n³)` time and `O(n²)` memory: for many actions, see `TreeSwap`.

    Parameters
    ----------
    make_learner
        Makes a new learner over the actions; it is called n times.
    actions
        Number of actions `n`.

    Examples
    --------
    >>> from treecal.swap import Hedge
    >>> learner = BlumMansour(lambda: Hedge(3, rounds=33), actions=3)
    >>> for t in range(100):
    ...     learner.observe([0.0, t % 2, 1.0])
    >>> learner.act().round(3)
    array([1., 0., 0.])

    References
    ----------
    Blum and Mansour, "From External to Internal Regret", 2007.
    """

    _takes = (LinearLoss,)

    def __init__(self, make_learner: Callable[[], Learner], *, actions: int) -> None:
        super().__init__(whole_number("actions", actions, least=2))
        self._learners = [make_learner() for _ in range(self.space.dim)]
        for learner in self._learners:
            if not isinstance(learner, Learner) or learner.actions != actions:
                raise ParameterError.expected("make_learner()", learner, f"a Learner over {actions} actions")
        if len(set(map(id, self._learners))) < actions:
            raise ParameterError("make_learner() gave the same learner twice, expected a new one each time.")

        self._due: list[dict[str, Any]] = []  # what the learners' attributes are to be after the last round

    def _choose(self) -> Array:
        return stationary([learner.act() for learner in self._caught_up()])

    def observe(self, loss: Loss | ArrayLike) -> None:
        """Learn the loss of the round: a `Loss`, or a plain vector. An invalid one raises and changes nothing."""
        super().observe(loss)
        self._caught_up()

    def _learn(self, loss: LinearLoss) -> None:
        losses = (LinearLoss.trusted(weight * loss.vector) for weight in self.act())
        self._due = [vars(learner._after(each)) for learner, each in zip(self._caught_up(), losses, strict=True)]

    def _caught_up(self) -> list[Learner]:
        """Return the learners after the last round: here they learn it, if an interrupt has kept them from it."""
        for learner, due in zip(self._learners, self._due, strict=False):
            attributes = vars(learner)
            rounds = due["_rounds"]
            if learner._rounds < rounds:
                attributes.update(due)
        return self._learners


class InternalRegretMatching(Learner):
    """Plays the fixed point of the positive internal regrets: as likely to leave an action as to enter it.

    `r(a, b)` is what playing b in place of a would have saved. For losses in [0, 1] no internal regret exceeds
    `√((n − 1)·rounds)`, and the swap regret is at most `√(n(n − 1)·rounds)`: the play makes the positive part of r
    orthogonal to each step, a step has squared length at most `n − 1`, and swap regret takes one b for each of n a's.

    A round costs `O(n³)` time and `O(n²)` memory.

    Parameters
    ----------
    actions
        Number of actions `n`.

    Examples
    --------
    >>> learner = InternalRegretMatching(3)
    >>> for _ in range(50):
    ...     learner.observe([1.0, 0.0, 1.0])
    >>> learner.act().round(3)
    array([0., 1., 0.])

    References
    ----------
    Foster and Vohra, "Calibrated Learning and Correlated Equilibrium", 1997; Hart and Mas-Colell, "A Simple Adaptive
    Procedure Leading to Correlated Equilibrium", 2000.
    """

    _takes = (LinearLoss,)

    def __init__(self, actions: int) -> None:
        super().__init__(whole_number("actions", actions, least=2))
        self._regrets = np.zeros((actions, actions))

    def _choose(self) -> Array:
        flow = np.maximum(self._regrets, 0.0)
        leaving = flow.sum(axis=1)
        fastest = leaving.max()
        if fastest == 0:
            return np.array(self.space.centre)
        flow /= fastest
        flow[np.diag_indices_from(flow)] = 1 - leaving / fastest
        return stationary(flow)

    def _learn(self, loss: LinearLoss) -> None:
        v = loss.vector
        self._regrets = self._regrets + self.act()[:, None] * np.subtract.outer(v, v)

    def regret_bound(self, rounds: int) -> float:
        """Return `√(n(n − 1)·rounds)`, which holds for the swap regret too; for losses in [0, 1]."""
        n = self.space.dim
        return float(np.sqrt(n * (n - 1) * whole_number("rounds", rounds, least=0)))


def stationary(matrix: ArrayLike) -> Array:
    """Return a distribution `p = pQ` of a stochastic matrix, to within 1e-10 in ℓ1; one of them if there are several.

    Parameters
    ----------
    matrix
        `Q`: each row is non-negative and sums to 1.

    Examples
    --------
    >>> stationary([[0.5, 0.5], [0.25, 0.75]])
    array([0.33333333, 0.66666667])
    >>> stationary([[1.0, 0.0], [0.0, 1.0]])
    array([0.5, 0.5])
    """
    Q = finite_array("matrix", matrix, ndim=2)
    n = len(Q)
    if Q.shape != (n, n) or not n:
        raise ParameterError(f"matrix has shape {Q.shape}, expected a square.")
    if Q.min() < -TOLERANCE or np.abs(Q.sum(axis=1) - 1).max() > TOLERANCE:
        raise ParameterError("matrix is not stochastic: expected rows of non-negative numbers that sum to 1.")
    system = Q.T - np.eye(n)
    right = np.zeros(n)
    # The balance equations sum to 0, so Σp = 1 can replace one of them. Where the chain is reducible the rest may be
    # singular, and least squares over all equations picks one of the solutions.
    last = system[-1].copy()
    system[-1] = 1.0
    right[-1] = 1.0
    try:
        p = _cleaned(np.linalg.solve(system, right))
    except np.linalg.LinAlgError:
        p = np.full(n, np.nan)
    if not _residual(p, Q) <= 1e-10:  # NaN included
        system[-1] = last
        full = np.vstack([system, np.ones(n)])
        p = _cleaned(np.linalg.lstsq(full, np.append(np.zeros(n), 1.0), rcond=None)[0])
        if not _residual(p, Q) <= 1e-10:
            raise UnsupportedError("the stationary distribution of this matrix could not be found to within 1e-10.")
    return p


def _cleaned(solution: ArrayLike) -> Array:
    """Return the solution without negative entries, which are rounding, and with sum 1."""
    p = np.maximum(np.asarray(solution, dtype=np.float64), 0.0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.asarray(p / p.sum())


def _residual(p: Array, Q: Array) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.abs(p @ Q - p).sum())
