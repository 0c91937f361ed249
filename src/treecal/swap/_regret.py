"""Regrets: what could have been saved in hindsight. All are totals over the rounds, as in the paper.

*External*: by one fixed play throughout. *Swap*: by one play for each play that was made,
`Σ_a max_b Σ_t x_t(a)·(ℓ_t(a) − ℓ_t(b))`. *Per-node* swap (the paper's labelled one): by one for each play on each node
of the tree, never less. *Pure*: the same with the one play that was drawn each round.

The classes record round by round; the functions feed whole runs to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ForecastError, LossError, ParameterError, UnsupportedError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex
from treecal.ledger import Ledger
from treecal.swap._losses import BregmanLoss, LinearLoss, Loss, read_loss

LARGEST_MATRIX = 2**30
"""The most bytes that an n by n table of losses may take: n is at most 11,585."""


class ActionRegret:
    """External and swap regret over finitely many actions, in memory that does not grow.

    Parameters
    ----------
    actions
        Number of actions `n`.
    swap
        Whether to keep what swap regret needs: `Σ_t x_t(a)·ℓ_t(b)`, n by n numbers, and as much work a round. More
        than 11,585 actions are refused.

    Examples
    --------
    >>> regret = ActionRegret(2)
    >>> for action, loss in [(0, [1, 0]), (0, [0, 1]), (1, [0, 1]), (0, [1, 0])]:
    ...     regret.record(action, loss)
    >>> regret.external(), regret.swap()  # 0 should have been 1, and 1 should have been 0
    (1.0, 2.0)
    """

    def __init__(self, actions: int, *, swap: bool = True) -> None:
        n = whole_number("actions", actions, least=2)
        if swap and 8 * n * n > LARGEST_MATRIX:
            raise UnsupportedError(
                f"swap regret over {n} actions needs {n} x {n} numbers, {8e-9 * n * n:.3g} GB; "
                f"the limit is {LARGEST_MATRIX / 1e9:.3g} GB.",
                hint="ActionRegret(n, swap=False) keeps what external regret needs.",
            )
        self.space = Simplex(n)
        self.rounds = 0
        """Number of rounds recorded."""
        self._paid = 0.0
        self._losses = np.zeros(n)
        self._by_play = np.zeros((n, n)) if swap else None

    def record(self, play: ArrayLike, loss: Loss | ArrayLike) -> None:
        """Record one round: the weights, or the one action that was played, and the loss of each action."""
        weights = self._weights(play)
        read = read_loss(loss, self.space, round_=self.rounds + 1)
        if not isinstance(read, LinearLoss):
            raise LossError(f"{read!r} is not a vector over actions.")
        self.rounds += 1
        self._paid += float(weights @ read.vector)
        self._losses += read.vector
        if self._by_play is not None:
            self._by_play += weights[:, None] * read.vector

    def _weights(self, play: ArrayLike) -> Array:
        space = self.space
        given = np.asarray(play)
        if given.ndim == 0 and given.dtype.kind in "iu" and 0 <= given < space.dim:
            weights = np.zeros(space.dim)
            weights[given] = 1.0
            return weights
        if given.shape != (space.dim,) or given.dtype.kind not in "iuf" or not space.contains(given):
            raise ForecastError(f"play is {given!r}, expected weights over {space.dim} actions, or one of them.")
        return np.asarray(given, dtype=np.float64)

    def external(self) -> float:
        """Return the external regret."""
        return self._paid - float(self._losses.min())

    def swap(self) -> float:
        """Return the swap regret."""
        if self._by_play is None:
            raise UnsupportedError("swap regret was not recorded.", hint="ActionRegret(actions, swap=True).")
        return math.fsum(np.diagonal(self._by_play) - self._by_play.min(axis=1))


class PointRegret:
    """External and swap regret over the points of a convex set, for linear or for Bregman losses.

    Keeps a row for every distinct point played, compared bit for bit. For Bregman losses the swap regret is the
    calibration error of a ledger (Lemma 2.2).

    Parameters
    ----------
    space
        The set.

    Examples
    --------
    >>> from treecal.geometry import Ball
    >>> regret = PointRegret(Ball(2))
    >>> regret.record([1.0, 0.0], LinearLoss([1.0, 0.0]))
    >>> regret.record([-1.0, 0.0], LinearLoss([-1.0, 0.0]))
    >>> regret.external(), regret.swap()
    (2.0, 4.0)
    """

    def __init__(self, space: ConvexSet) -> None:
        self.space = space
        self.rounds = 0
        """Number of rounds recorded."""
        self._paid = 0.0
        self._total: Loss | None = None
        self._ledger = Ledger(space)
        self._rows: dict[tuple[bytes, bytes], tuple[Array, Array]] = {}

    def record(self, play: Forecast | ArrayLike, loss: Loss | ArrayLike) -> None:
        """Record one round: the distribution, or the one point that was played, and the loss."""
        space = self.space
        if not isinstance(play, Forecast):
            play = Forecast(np.asarray(play)[None], space=space)
        elif play.space is not space and play.space != space:
            play = Forecast(play.points, weights=play.weights, nodes=play.nodes, space=space)
        like = None if self._total is None else self._total.kind
        read = read_loss(loss, space, round_=self.rounds + 1, like=like)
        if isinstance(read, BregmanLoss):
            if read.count != 1 or read.scale != 1:
                raise LossError(f"{read!r} is an average, expected the loss of one outcome a round.")
            self._ledger.record(play, read.total)
        elif isinstance(read, LinearLoss):
            for i, (point, weight) in enumerate(zip(play.points + 0.0, play.weights, strict=True)):
                node = b"" if play.nodes is None else play.nodes[i].tobytes()
                _, sums = self._rows.setdefault((point.tobytes(), node), (point, np.zeros(space.dim)))
                sums += weight * read.vector
        else:
            raise LossError(f"the swap regret of {read!r} has no closed form, expected a linear or Bregman loss.")
        self.rounds += 1
        self._paid += float(play.weights @ read.value(play.points))
        self._total = read if self._total is None else self._total + read

    def external(self) -> float:
        """Return the external regret."""
        if self._total is None:
            return 0.0
        return self._paid - float(self._total.value(self._total.minimise(self.space)))

    def swap(self, *, per_node: bool = False) -> float:
        """Return the swap regret: by point, or by point and node."""
        if isinstance(self._total, BregmanLoss):
            return self._ledger.error(self._total.regularizer, per_node=per_node, total=True)
        by_point: dict[tuple[bytes, bytes], tuple[Array, Array]] = {}
        for (point, node), (p, v) in self._rows.items():
            name = (point, node if per_node else b"")
            by_point[name] = (p, by_point[name][1] + v if name in by_point else v)
        return math.fsum(_saving(p, v, self.space) for p, v in by_point.values())


def external_regret(
    plays: Sequence[Forecast] | ArrayLike, losses: Sequence[Loss] | ArrayLike, *, space: ConvexSet | None = None
) -> float:
    """Return the external regret of a whole run.

    Parameters
    ----------
    plays
        Weights over actions `(rounds, n)`; or the one action drawn in each round, integers `(rounds,)`; or Forecasts;
        or, with `space`, one point in each round `(rounds, d)`.
    losses
        One for each round: vectors, or losses.
    space
        The convex set the plays lie in; without it they are weights over actions.

    Examples
    --------
    >>> external_regret([[0.5, 0.5], [0.5, 0.5]], [[1, 0], [1, 0]])
    1.0
    """
    return _run(plays, losses, space=space, swap=False).external()


def swap_regret(
    plays: Sequence[Forecast] | ArrayLike,
    losses: Sequence[Loss] | ArrayLike,
    *,
    per_node: bool = False,
    space: ConvexSet | None = None,
) -> float:
    """Return the full swap regret of a whole run; with drawn actions or points, the pure one.

    Parameters
    ----------
    plays, losses, space
        As for `external_regret`.
    per_node
        Count equal points on different nodes separately; for Forecasts with nodes, such as `TreeSwap.parts()`.

    Examples
    --------
    >>> swap_regret([[1, 0], [0, 1]], [[1, 0], [0, 1]]), swap_regret([0, 1], [[1, 0], [0, 1]])
    (2.0, 2.0)
    """
    run = _run(plays, losses, space=space, swap=True)
    if isinstance(run, PointRegret):
        return run.swap(per_node=per_node)
    if per_node:
        raise ParameterError("per_node is True, and weights have no nodes; expected Forecasts with nodes.")
    return run.swap()


def _run(plays: Any, losses: Any, *, space: ConvexSet | None, swap: bool) -> ActionRegret | PointRegret:
    if len(plays) != len(losses) or not len(plays):
        raise ParameterError(f"there are {len(plays)} plays and {len(losses)} losses, expected one of each a round.")
    regret: ActionRegret | PointRegret
    if space is None and isinstance(plays[0], Forecast):
        space = plays[0].space
    if space is not None:
        regret = PointRegret(space)
    else:
        first = losses[0]
        regret = ActionRegret(first.dim if isinstance(first, Loss) else np.size(first), swap=swap)
    for play, loss in zip(plays, losses, strict=True):
        regret.record(play, loss)
    return regret


def _saving(point: Array, losses: Array, space: ConvexSet) -> float:
    """Return `<v, p> − min_q <v, q>`, 0 where rounding makes it negative."""
    return max(float(losses @ (point - space.minimise(losses))), 0.0)
