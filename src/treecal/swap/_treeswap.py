"""TreeSwap: Algorithm 2 of the paper, which makes swap regret small out of any learner's external regret."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.swap._learners import Learner
from treecal.swap._losses import Loss
from treecal.tree import Tree, carries


class TreeSwap(Learner):
    """Small full swap regret from small external regret, against any losses (Algorithm 2).

    Time is divided into an `arity`-ary tree of intervals. Every node above the leaves has its own learner, which makes
    one play for each of its children in turn and observes the average loss of each when it ends. A round's play is the
    uniform mixture of the plays of the intervals it lies in.

    With losses in [0, b] and a learner whose external regret after n steps is at most `E(n)`, the per-node swap regret
    (the paper's labelled one) of a full tree is at most `rounds·(E(arity)/arity + b/depth)` (Theorem C.1, with 1 for
    its 3); `treeswap_bound` gives it for every number of rounds. The number of actions enters only through E.

    Only the `O(depth)` learners on the current path are kept. A round costs one `observe` of a learner, and an
    amortised `arity/(arity − 1)` times its `act` and the making of a new one.

    Parameters
    ----------
    make_learner
        Makes a new learner, such as `lambda: Hedge(n, rounds=arity)`; it is called for every node.
    arity
        Children of each interval, the paper's H.
    depth
        Heights of the tree, the paper's L, for at most `arity**depth` rounds. Without it the tree grows with the
        stream: while it has `m` heights each has weight `1/m`, and a new root's learner starts from the average loss
        of all rounds before.

    Examples
    --------
    >>> from treecal.swap import Hedge
    >>> learner = TreeSwap(lambda: Hedge(2, rounds=4), arity=4, depth=2)
    >>> for _ in range(5):
    ...     learner.observe([1.0, 0.0])
    >>> learner.act().round(3)
    array([0.236, 0.764])
    >>> learner.parts().nodes.tolist()  # the leaf of round 6, and the interval of rounds 5 to 8
    [[0, 5], [1, 1]]

    On a convex set, with `FollowTheLeader` on Bregman losses, the mixture is TreeCal's forecast:

    >>> import treecal as tc
    >>> from treecal.swap import BregmanLoss, FollowTheLeader
    >>> space, R = tc.Simplex(2), tc.SquaredEuclidean()
    >>> learner, f = TreeSwap(lambda: FollowTheLeader(space), arity=2), tc.TreeCal(space, arity=2)
    >>> for y in [[1, 0], [1, 0], [0, 1]]:
    ...     learner.observe(BregmanLoss(R, y))
    ...     f.update(y)
    >>> learner.parts() == f.predict()
    True

    References
    ----------
    Dagan, Daskalakis, Fishelson and Golowich, "From External to Swap Regret 2.0", 2024; Peng and Rubinstein, "Fast
    Swap Regret Minimization and Applications to Approximate Correlated Equilibria", 2024.
    """

    def __init__(self, make_learner: Callable[[], Learner], *, arity: int = 8, depth: int | None = None) -> None:
        self.tree = Tree(arity, depth)
        self.tree.check_countable()
        self.arity = self.tree.arity
        self.depth = self.tree.depth
        if not callable(make_learner):
            hint = "each node needs its own learner: lambda: Hedge(n, rounds=arity)."
            raise ParameterError.expected("make_learner", make_learner, "a function that makes a learner", hint=hint)
        self._make = make_learner
        self._made: Learner | None = None  # the last one
        first = self._fresh()
        super().__init__(first.space if first.actions is None else first.actions)
        height = self.depth or 1
        # By height: the sum of the losses of the node's finished siblings.
        self._sums: list[Loss | None] = [None] * height
        self._path = _Path([first, *(self._fresh() for _ in range(height - 1))], [], [], height)

    def _fresh(self) -> Learner:
        learner = self._make()
        if not isinstance(learner, Learner) or learner.rounds or learner is self._made:
            raise ParameterError.expected(
                "make_learner()", learner, "a new Learner each time", hint="lambda: Hedge(n, rounds=arity)."
            )
        self._made = learner
        return learner

    def _learn(self, loss: Loss) -> None:
        self.tree.check(self.rounds + 1)
        # The nodes below height `risen` on the path end with this round, and so do their parents' learners; the learner
        # at `risen` moves on to its next child. Whatever may raise comes before any change.
        learners = self._path.learners
        sums = self._sums
        risen = carries(self.rounds + 1, self.arity)
        ended = loss
        for j in range(risen):
            ended = _plus(sums[j], ended)
        above = learners[risen:]
        if risen == len(learners) and self.depth is None:  # the tree grows
            above = [self._fresh()]
            sums = [*sums, None]
        if above:
            length = self.arity**risen
            above = [above[0]._after(ended if length == 1 else ended / length), *above[1:]]
            sums = [*([None] * risen), _plus(sums[risen], ended), *sums[risen + 1 :]]
        self._sums, self._path = sums, self._path.after([*(self._fresh() for _ in range(risen)), *above], risen + 1)

    def _choose(self) -> Array:
        self.tree.check(self.rounds + 1)
        path = self._path.refreshed()
        return path.stacked[0] / len(path.learners)

    def parts(self) -> Forecast:
        """Return the plays on the path, with nodes `(height, index)`, from leaf to root; `act` is their mean."""
        while True:
            rounds = self.rounds
            self.tree.check(rounds + 1)
            plays = np.array(self._path.refreshed().plays)
            if self.rounds == rounds:  # no other thread has observed meanwhile
                return TreeForecast(plays, uniform(len(plays)), rounds, self.arity, self.space)

    def regret_bound(self, rounds: int) -> float:
        """Return `treeswap_bound` with the learner's own bound: for the per-node swap regret, losses in [0, 1]."""
        return treeswap_bound(rounds, arity=self.arity, depth=self.depth, regret=self._make().regret_bound)

    def __repr__(self) -> str:
        depth = "" if self.depth is None else f", depth={self.depth}"
        return f"TreeSwap({self._path.learners[0]!r}, arity={self.arity}{depth})"


class _Path:
    """The learners on the path, each that of the node above a height, and what they play.

    `plays` are those for the current children, and `stacked` the sums of the plays from each height to the root. The
    lowest `stale` of both are out of date: they are made when needed, by whichever thread comes first or by several.
    """

    def __init__(self, learners: list[Learner], plays: list[Array], stacked: list[Array], stale: int) -> None:
        more = [np.empty(0)] * (len(learners) - len(plays))
        self.learners = learners
        self.plays = plays + more
        self.stacked = stacked + more
        self.stale = stale

    def after(self, learners: list[Learner], changed: int) -> _Path:
        """Return the path of the next round, on which the lowest learners are others."""
        stale = min(max(self.stale, changed), len(learners))
        return _Path(learners, self.plays, self.stacked, stale)

    def refreshed(self) -> _Path:
        """Return the path with all plays made."""
        for j in range(self.stale - 1, -1, -1):
            play = self.plays[j] = self.learners[j].act()
            self.stacked[j] = play if j + 1 == len(self.plays) else self.stacked[j + 1] + play
            self.stale = j
        return self


def treeswap_bound(
    rounds: int, *, arity: int, regret: Callable[[int], float], depth: int | None = None, scale: float = 1.0
) -> float:
    """Return a bound on the per-node swap regret of TreeSwap after any number of rounds.

    Per round that is `regret(arity)/arity + scale/depth` on a full tree. The proof, which covers all cases:

    Write `S_v` for the sum of the losses in the rounds of a node v, `p_v` for its play, and `M_j` for the sum of
    `min S_v` over the nodes of height j. The per-node swap regret is `1/depth` times the sum over all nodes of
    `S_v(p_v) − min S_v`. A parent u of height j + 1 with k finished children and a share λ < 1 of one more has, over
    its children, `Σ S_v(p_v) − min S_u <= arity^j·((1 − λ)·E(k) + λ·E(k + 1))`, E the learner's regret: the left side
    is convex in λ (a minimum of linear functions is concave), and λ = 0 and 1 are the learner's own regret. Summed
    over parents and heights the minima telescope to `M_depth − M_0 <= scale·rounds`.

    Without a depth, a node is played in one epoch only, in which the tree has m heights. In epoch m the root's first
    child is the tree of epoch m − 1 and is not played, so its learner's loss on it comes off: what telescopes is
    `G_m − G_(m−1)`, `G_m` the least total loss in the first `arity^m` rounds. Weighted with 1/m and summed by parts,
    that is at most `scale·(T/M + Σ_{m<M} arity^m·(1/m − 1/(m + 1)))`.

    Parameters
    ----------
    rounds
        Rounds played, the paper's T.
    arity, depth
        As for `TreeSwap`.
    regret
        The learner's external regret bound after n steps, for losses in [0, scale], such as its `regret_bound`.
    scale
        Losses lie in [0, scale].

    Examples
    --------
    >>> from treecal.swap import Hedge
    >>> bound = treeswap_bound(64**3, arity=64, depth=3, regret=Hedge(10, rounds=64).regret_bound)
    >>> print(f"{bound / 64**3:.6f} {np.sqrt(np.log(10) / 2 / 64) + 1 / 3:.6f}")
    0.467456 0.467456
    """
    rounds = whole_number("rounds", rounds, least=0)
    tree = Tree(arity, depth)
    tree.check_countable()
    if tree.horizon is not None and rounds > tree.horizon:
        raise ParameterError.expected("rounds", rounds, f"at most {tree.horizon}, the leaves of the tree")
    arity = tree.arity

    def after(steps: int) -> float:
        return float(regret(steps)) if steps else 0.0

    def parents(span: int, j: int) -> float:
        """Bound the regret of the parents of height j + 1 over `span` rounds."""
        length: int = arity**j
        full, rest = divmod(span, length * arity)
        steps, part = divmod(rest, length)
        share = part / length
        return length * (full * after(arity) + (1 - share) * after(steps) + share * after(steps + 1))

    if tree.depth is not None:
        return (scale * rounds + math.fsum(parents(rounds, j) for j in range(tree.depth))) / tree.depth
    total = 0.0
    for begun, end, m in tree.epochs(rounds):
        # The root's learner has one step for the earlier epochs; the heights below lie within this one.
        total += (sum(parents(end - begun, j) for j in range(m - 1)) + parents(end, m - 1)) / m
        total += scale * (end / m if end == rounds else end * (1 / m - 1 / (m + 1)))
    return total


def _plus(total: Loss | None, loss: Loss) -> Loss:
    return loss if total is None else total + loss
