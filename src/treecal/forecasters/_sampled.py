"""Sampled: Algorithm 3 of the paper, one pure forecast a round."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import MOST_ROUNDS, State, check_array, check_count, generator_from, generator_state
from treecal._typing import Array, Changes, Saved
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, LockedForecaster
from treecal.forecasters._tree.adaptive import AdaptiveTreeCal
from treecal.forecasters._tree.treecal import TreeCal
from treecal.geometry import ConvexSet

_Now = tuple[Forecaster, Array, int, int | None]


@dataclass(frozen=True, eq=False)
class Block(State):
    """The outcome sum and rounds of the unfinished block, the draw that awaits its outcome, and the generator."""

    block_sum: Array
    block_seen: int
    drawn: int | None
    rng: dict[str, Any]


class Sampled(LockedForecaster):
    """Any forecaster, announcing one point a round (Algorithm 3).

    Every distribution of the forecaster is kept for a block of rounds; each round of the block announces one fresh draw
    from it, and the block's mean outcome is what the forecaster learns. In expectation this adds at most
    `K·D·√(n/block)` to the calibration error per round of the forecaster on the block means, `n` the points of its
    distributions and `K` the norm's type-2 constant: 1 for ℓ2, `√d` for ℓ1.

    Parameters
    ----------
    forecaster
        A new one; a copy of it is played.
    block
        Rounds in a block, the paper's S. Short blocks follow changes, long ones draw closer to the distribution. The
        default was never more than twice as bad as the best of 1 to 64 on the arena's streams, over 2,000 and 10,000
        rounds; shorter and longer ones were.
    rng
        The generator of the draws, one a round, by `predict`. The default has a fixed seed: pass your own where an
        adversary might guess it.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.Sampled(tc.AdaptiveTreeCal(tc.Simplex(2)), block=2, rng=np.random.default_rng(7))
    >>> for y in [[1, 0], [0, 1], [1, 0]]:
    ...     x = f.predict()
    ...     f.update(y)
    >>> len(f.predict()), f.predict().mean
    (1, array([0.5, 0.5]))
    """

    _fields: ClassVar[tuple[str, ...]] = ("forecaster", "block", "rng")
    _parts = ("forecaster",)

    def __init__(self, forecaster: Forecaster, *, block: int = 16, rng: np.random.Generator | None = None) -> None:
        rng = np.random.default_rng(0) if rng is None else rng
        if not isinstance(forecaster, Forecaster) or forecaster.rounds:
            raise ParameterError.expected("forecaster", forecaster, "a new Forecaster")
        if not isinstance(rng, np.random.Generator):
            raise ParameterError.expected("rng", rng, "a numpy.random.Generator", hint="numpy.random.default_rng(0).")
        LockedForecaster.__init__(self, forecaster.space)
        self.block = whole_number("block", block, least=1)
        self.rng = rng
        if self.block > MOST_ROUNDS:
            raise ParameterError.expected("block", block, "at most 2**62: rounds are counted in 64 bits")
        forecaster = deepcopy(forecaster)
        forecaster._in_blocks(self.block)
        # The forecaster; outcome sum and rounds of the unfinished block; and the draw that awaits its outcome.
        self._now: _Now = forecaster, np.zeros(self.space.dim), 0, None

    @property
    def forecaster(self) -> Forecaster:
        """The forecaster whose distributions are drawn from: after each block another one."""
        return self._now[0]

    @forecaster.setter
    def forecaster(self, forecaster: Forecaster) -> None:
        self._now = (forecaster, *self._now[1:])

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        forecaster, _, seen, _ = self._now
        return forecaster.rounds * self.block + seen

    @property
    def mixture(self) -> Forecast:
        """The distribution that this block's points are drawn from."""
        return self.forecaster.predict()

    def _announce(self) -> Forecast:
        forecaster, total, seen, drawn = self._now
        mixture = forecaster.predict()
        if drawn is None:
            equal = np.array_equal(mixture._weights, uniform(len(mixture)))
            drawn = int(self.rng.integers(len(mixture)) if equal else self.rng.choice(len(mixture), p=mixture.weights))
            self._now = forecaster, total, seen, drawn
        pick = slice(drawn, drawn + 1)
        nodes = None if mixture.nodes is None else mixture.nodes[pick]
        return Forecast.trusted(mixture._points[pick], uniform(1), nodes, self.space)

    def _learn(self, outcome: Array) -> None:
        forecaster, total, seen, _ = self._now
        forecaster.predict()  # raises if there is no round left
        total = total + outcome
        seen = seen + 1
        if seen == self.block:
            forecaster = forecaster._fork()
            forecaster._learn_block(total)
            total = np.zeros_like(total)
            seen = 0
        self._now = forecaster, total, seen, None

    _fork = Forecaster._light_fork

    def redrawn(self) -> Sampled:
        """Return one that draws afresh: the round that it has drawn for is void, and its draw is known by now."""
        twin = self._fork()
        twin._now = (*self._now[:3], None)
        twin._announced = None
        return twin

    @property
    def _state(self) -> Block:
        _, total, seen, drawn = self._now
        return Block(total, seen, drawn, generator_state(self.rng))

    @_state.setter
    def _state(self, state: Block) -> None:
        self.rng.bit_generator.state = state.rng  # in place: others may draw from it, too
        self._now = self.forecaster, state.block_sum, state.block_seen, state.drawn

    def _resumed(self, state: Saved) -> Changes:
        after = super()._resumed(state)
        if (drawn := state["drawn"]) is not None:
            check_count("the draw", drawn, most=len(after["forecaster"].predict()) - 1)
        return after

    def _check(self, state: Block) -> None:
        check_array("block_sum", state.block_sum, (self.space.dim,))
        check_count("block_seen", state.block_seen, most=self.block - 1)
        mine = type(self.rng.bit_generator).__name__
        kept = generator_from(state.rng).bit_generator
        if type(kept).__name__ != mine:
            raise SnapshotError(f"the state is of a {type(kept).__name__} generator, and rng is a {mine}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.forecaster!r}, block={self.block})"


class SampleTreeCal(Sampled):
    """TreeCal, announcing one point a round: `Sampled(TreeCal(...))`.

    Parameters
    ----------
    space
        The set outcomes lie in.
    arity, depth, mix, start
        As for `TreeCal`; a fixed depth gives `block · arity**depth` rounds.
    block, rng
        As for `Sampled`.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.SampleTreeCal(tc.Simplex(2), arity=4, block=2, rng=np.random.default_rng(7))
    >>> for y in [[1, 0], [0, 1], [1, 0]]:
    ...     x = f.predict()
    ...     f.update(y)
    >>> len(f.predict()), f.predict().mean
    (1, array([0.5, 0.5]))
    """

    _fields = ("space", "arity", "depth", "block", "mix", "start", "rng")

    def __init__(
        self,
        space: ConvexSet,
        *,
        block: int = 16,
        rng: np.random.Generator | None = None,
        arity: int = 8,
        depth: int | None = None,
        mix: float = 0.0,
        start: ArrayLike | None = None,
    ) -> None:
        tree = TreeCal(space, arity=arity, depth=depth, mix=mix, start=start)
        super().__init__(tree, block=block, rng=rng)
        self.arity = tree.arity
        self.depth = tree.depth
        self.mix = tree.mix
        self.start = tree.start

    name = "sampled"
    __repr__ = Forecaster.__repr__

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield a growing tree, one of fixed depth, and another forecaster, with draws of two kinds."""
        yield cls(space, arity=2, block=3, rng=np.random.default_rng(3))
        yield cls(space, arity=2, depth=5, block=2, rng=np.random.Generator(np.random.MT19937(3)))
        yield Sampled(AdaptiveTreeCal(space, arity=3), block=2)
