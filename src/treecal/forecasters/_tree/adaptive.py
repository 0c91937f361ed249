"""AdaptiveTreeCal: TreeCal whose heights earn their weight."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from treecal._platform import parts, side_by_side
from treecal._states import check_array, check_rounds
from treecal._typing import Array, Integers, Outcomes
from treecal.columns import Field
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecast import Forecast, TreeForecast
from treecal.forecasters._base import Forecaster, checked_space
from treecal.forecasters._tree.path import Path, PathState, TreeState
from treecal.forecasters._tree.steps import kernel_args
from treecal.forecasters._tree.treecal import TreeStreams
from treecal.forecasters._tree.weighting import WeightState, weigh, weighting
from treecal.geometry import ConvexSet, Lp, Norm, as_norm
from treecal.theory import Certificate, certificate
from treecal.tree import Tree

Rule = Literal["stick", "block"]
_GAPS = 2**14  # numbers in the gaps of nodes that are held at once: they stay near the processor
_COMPILED = {1.0: 1, 2.0: 2, math.inf: 3}
"""The exponents of the norms that kernels know, with their numbers there."""


@dataclass(frozen=True, eq=False)
class AdaptiveState(TreeState):
    """The state of `n` streams whose heights are weighted."""

    costs: Array
    """Of each height, `(heights, n)`."""
    weights: Array
    """Of each height, `(heights, n)`."""
    scale: Array
    """The largest cost per round, `(n,)`: seen so far (stick), or known beforehand (block)."""


class AdaptiveTreeCal(Forecaster):
    """TreeCal's points, with more weight on the heights that have erred less: the forecaster to start with.

    Uniform weights over the heights are safe against the worst stream and wasteful on most: where outcomes are i.i.d.
    the long intervals are almost perfect and the leaves are noise. As long as a node keeps one weight, the per-node
    error is exactly `Σ_nodes weight·rounds·‖mean − point‖`, so the heights are experts, and
    `E_j = Σ_{finished nodes of height j} rounds·‖mean − point‖` is the cost of height `j` so far.

    - `rule="stick"`: the nodes that start share out the weight of those that ended, in proportion to
      `exp(−η·E_j)` with `η = rate / (s·(1 + √(t·arity^(depth−1))))` after `t` rounds, `s` the largest gap seen. A new
      top height starts with less than the least cost so far, by half of what the mean cost is more. No worst-case bound
      is known; measured at 10^4 and 10^5 rounds, its ℓ1 error is at most half of TreeCal's on i.i.d. streams,
      and at most 3 % more, mostly less, where they change or an adversary plays.
    - `rule="block"`: Hedge over the heights, whose rounds are the top nodes: weights change when one of these starts,
      and Hedge restarts when the tree grows. The total per-node error in `norm` is at most TreeCal's on the same
      outcomes plus `block_regret(rounds, ...)`. It needs a set that knows its diameter.

    Costs TreeCal's `O(dim)` and one norm a finished node: `arity/(arity − 1)` norms a round. `O(depth·dim)` memory.

    Parameters
    ----------
    space
        The set outcomes lie in.
    arity, depth, mix, start
        As for `TreeCal`.
    norm
        The norm of the costs: by default ℓ1 on the simplex, ℓ2 elsewhere.
    rule
        How weights follow the costs: "stick" for use, "block" for the guarantee.
    rate
        How fast the stick rule learns; the block rule has its own rate. The defaults of `rate` and `arity` were chosen
        on synthetic streams only: i.i.d. ones, regimes of 100 to 10,000 rounds, and two adversaries.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> uniform, adaptive = tc.TreeCal(space, arity=4), tc.AdaptiveTreeCal(space, arity=4)
    >>> ledgers = {f: tc.Ledger(space) for f in (uniform, adaptive)}
    >>> for k in rng.integers(2, size=2000):
    ...     for f, ledger in ledgers.items():
    ...         ledger.record(f.predict(), np.eye(2)[k])
    ...         f.update(np.eye(2)[k])
    >>> [round(ledger.error("l1"), 2) for ledger in ledgers.values()]
    [0.2, 0.09]

    References
    ----------
    Fishelson, Golowich, Mohri and Schneider, "High-Dimensional Calibration from Swap Regret", 2025, for the tree.
    Freund and Schapire, "A Decision-Theoretic Generalization of On-Line Learning", 1997, for Hedge.
    """

    _fields = ("space", "arity", "depth", "norm", "rule", "rate", "mix", "start")

    def __init__(
        self,
        space: ConvexSet,
        *,
        arity: int = 4,
        depth: int | None = None,
        norm: Norm | str | None = None,
        rule: Rule = "stick",
        rate: float = 9.0,
        mix: float = 0.0,
        start: ArrayLike | None = None,
    ) -> None:
        self.space = checked_space(space)
        self.tree = Tree(arity, depth)
        if rule not in get_args(Rule):
            raise ParameterError.expected("rule", rule, "'stick' or 'block'")
        if not (isinstance(rate, int | float | np.number) and 0 <= rate < math.inf):
            raise ParameterError.expected("rate", rate, "a number of 0 or more", hint="0 gives TreeCal's own weights.")
        self.norm = space.default_norm if norm is None else as_norm(norm, space)
        self.rule = rule
        self.rate = float(rate)
        block = rule == "block"
        self._path = Path(space, self.tree, mix=mix, start=start)
        self.arity = self.tree.arity
        self.depth = self.tree.depth
        self.mix = self._path.mix
        self.start = self._path.start
        self._weighting = weighting(self.tree, block=block, rate=self.rate)
        heights = self.depth or 1
        scale = float(space.diameter(self.norm)) if block else 0.0
        equal: WeightState = [0.0] * heights, [1 / heights] * heights, scale
        self._now = self._path.fresh(), equal

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._now[0][0]

    def _announce(self) -> Forecast:
        (rounds, _, points), (_, shares, _) = self._now
        self.tree.check(rounds + 1)
        weights = np.array(shares)
        weights.setflags(write=False)
        return TreeForecast(points, weights, rounds, self.arity, self.space)

    def _learn(self, outcome: Array) -> None:
        while True:
            now = path, (costs, weights, scale) = self._now
            after = rounds, sums, _ = self._path.step(path, outcome)
            new = [0.0] * (len(sums) - len(costs))  # top height
            costs = costs + new
            weights = weights + new
            scale = weigh(self._weighting, rounds, len(sums), self._ended(path, outcome), scale, costs, weights)
            if self._now is now:  # no other thread has learned meanwhile
                self._now = after, (costs, weights, scale)
                return

    _fork = Forecaster._light_fork

    def _ended(self, path: PathState, outcome: Array) -> list[float]:
        """Return the costs of the nodes that end with this outcome: `rounds·‖mean − point‖`, lowest first."""
        rounds, sums, points = path
        costs = []
        nodes = rounds
        length = 1
        total = outcome
        for height, point in enumerate(points):
            gap = total - length * point
            # An ℓp norm does not depend on the order of the classes; sorted, neither does its rounding.
            costs.append(float(self.norm(np.sort(gap) if isinstance(self.norm, Lp) else gap)))
            nodes, digit = divmod(nodes, self.arity)
            if digit + 1 < self.arity:
                break
            total = sums[height] + total
            length = length * self.arity
        return costs

    def _check(self, state: AdaptiveState) -> None:
        check_rounds(state.rounds, 1)
        self._path.check(state)
        shape = state.sums.shape[:2]
        for name, array in (("costs", state.costs), ("weights", state.weights)):
            check_array(name, array, shape)
        check_array("scale", state.scale, shape[1:])

    @property
    def _state(self) -> AdaptiveState:
        (rounds, sums, _), (costs, weights, scale) = self._now
        heights = np.array(costs)[:, None], np.array(weights)[:, None]
        return AdaptiveState(np.array([rounds]), np.array(sums)[:, None], *heights, np.array([scale]))

    @_state.setter
    def _state(self, state: AdaptiveState) -> None:
        path = self._path.resume(int(state.rounds[0]), state.sums[:, 0])
        self._now = path, (state.costs[:, 0].tolist(), state.weights[:, 0].tolist(), float(state.scale[0]))

    def _streams(self) -> WeightedStreams:
        return WeightedStreams(self)

    name = "adaptive"

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        if self.rule != "block" or self.norm != norm or self.mix:
            return None
        tree: dict[str, Any] = {"arity": self.arity, "depth": self.depth, "start": self.start}
        return certificate(self.space, norm, rounds=rounds, rule="block", **tree)

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Forecaster:
        """Return the block rule on the best of some arities."""
        tried = (cls(space, arity=arity, rule="block", norm=norm) for arity in (8, 16, 32, 64, 128))
        return min(tried, key=lambda f: certificate(space, norm, rounds=rounds, arity=f.arity, rule="block").bound)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield a growing tree, one of fixed depth that is mixed, and the block rule where the diameter is known."""
        yield from (cls(space, arity=3), cls(space, arity=2, depth=6, norm="linf", mix=0.1))
        with suppress(UnsupportedError):
            yield cls(space, arity=3, rule="block")


class WeightedStreams(TreeStreams):
    """Many streams of `AdaptiveTreeCal`: sums, costs and weights of their heights, and the scale of costs."""

    def __init__(self, thing: AdaptiveTreeCal) -> None:
        super().__init__(thing)
        self._norm = _COMPILED.get(thing.norm.p, 0) if isinstance(thing.norm, Lp) else 0

    def _fields(self, thing: Any) -> tuple[Field, ...]:
        rounds, sums = super()._fields(thing)
        new = thing._state
        weighted = (Field(name, new=getattr(new, name)[:, 0], length=sums.length) for name in ("costs", "weights"))
        return rounds, sums, *weighted, Field("scale", new=new.scale[0])

    def _weights(self, rows: Integers, heights: int) -> Array:
        weights: Array = self.columns["weights"]
        return weights[rows, :heights]

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        """Learn outcomes and update weights; if there are many, threads share the streams."""
        shares = [(low, high, 0) for low, high in parts(len(self.rounds), len(rows), self.threads)]
        self.torn = True
        while True:
            done = side_by_side(lambda share: self._learn_share(rows, outcomes, *share), shares)
            if min(done) == len(rows):
                break
            self._grow()
            shares = [(low, high, at) for (low, high, _), at in zip(shares, done, strict=True)]
        self.torn = False

    def _learn_share(self, rows: Integers, outcomes: Outcomes, low: int, high: int, at: int) -> int:
        """Learn for some of the streams, until a tree has to grow; return the first outcome that was not learned.

        Rounds are played some at a time: first their sums and gaps, then the norms of the gaps, then the weights.
        """
        from treecal.forecasters._tree import wide as kernels

        rule = self.thing._weighting
        dim = self.thing.space.dim
        columns = self.columns
        weighted = kernels.Weights(columns["costs"], columns["weights"], columns["scale"])
        gaps = np.empty((dim, max(_GAPS // dim, 2 * columns["costs"].shape[1])))
        places, nows, ended = np.empty((3, min(gaps.shape[1], len(rows))), np.int64)
        noted = kernels.Gaps(low, high, places, nows, ended, gaps)
        args = *kernel_args(self.thing._path), self._trees(), noted
        while at < len(rows):
            at, count, used = kernels.learn_gaps(rows, outcomes, at, *args)
            if count == 0:
                break
            kernels.weigh_rows(rows, count, noted, self._costs(gaps, used), rule, weighted)
        return at

    def _costs(self, gaps: Array, count: int) -> Array:
        """Return the norms of the first gaps, the columns of an array, which may be overwritten."""
        from treecal.forecasters._tree import wide as kernels

        if not self._norm or len(gaps) > kernels.MOST:
            return node_costs(self.thing.norm, gaps[:, :count].T)
        costs = np.empty(count)
        kernels.costs_of(gaps, self._norm, costs)
        return costs


def node_costs(norm: Norm, gaps: Array) -> Array:
    """Return the norm of each gap, rounded as AdaptiveTreeCal rounds that of one."""
    if isinstance(norm, Lp):
        gaps = np.sort(gaps, axis=1)
        if norm.p in (1, 2, math.inf):
            return norm(gaps)
    return np.array([norm(gap) for gap in gaps])  # powers and products of one row are rounded in their own way
