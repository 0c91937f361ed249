"""SampleTreeCal: Algorithm 3 of the paper, one pure forecast a round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space
from treecal.forecasters._treecal import LabelledPath
from treecal.geometry import ConvexSet


class SampleTreeCal(Forecaster):
    """TreeCal for those who must say one thing: each round announces a single point (Algorithm 3).

    Every distribution of TreeCal is kept for a block of rounds; each round of the block plays one fresh draw from it,
    and the block's mean outcome is what the tree learns. In expectation this adds at most `K·D·√(depth/block)` to the
    calibration error per round of TreeCal on the block means, `K` the norm's type-2 constant: 1 for ℓ2, `√d` for ℓ1.

    Parameters
    ----------
    space
        The set outcomes lie in.
    arity, depth, mix, start
        As for `TreeCal`; a fixed depth gives `block · arity**depth` rounds.
    block
        Rounds in a block, the paper's S. Short blocks follow changes, long ones draw closer to the distribution.
    rng
        Where the draws come from, one a round, and only by `predict`. By default the same ones each time: give a
        generator of your own where someone might guess them.

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
        self.space = checked_space(space)
        self.block = whole_number("block", block, least=1)
        rng = np.random.default_rng(0) if rng is None else rng
        if not isinstance(rng, np.random.Generator):
            raise ParameterError.expected("rng", rng, "a numpy.random.Generator", hint="numpy.random.default_rng(0).")
        self.rng = rng
        # Block sums, not block means, go up the tree: one division, so that equal rationals stay equal floats.
        self._path = LabelledPath(space, arity=arity, depth=depth, mix=mix, start=start, unit=self.block)
        self.arity, self.depth = self._path.clock.arity, self._path.clock.depth
        self.mix, self.start = self._path.mix, self._path.start
        self._block_sum = np.zeros(space.dim)
        self._block_seen = 0
        self._drawn: int | None = None

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._path.clock.rounds * self.block + self._block_seen

    @property
    def mixture(self) -> Forecast:
        """The distribution that this block's points are drawn from: TreeCal's own forecast."""
        return self._path.forecast()

    def _announce(self) -> Forecast:
        mixture = self.mixture
        if self._drawn is None:
            self._drawn = int(self.rng.integers(len(mixture)))
        assert mixture.nodes is not None
        pick = slice(self._drawn, self._drawn + 1)
        return Forecast.trusted(mixture.points[pick], uniform(1), mixture.nodes[pick], self.space)

    def _learn(self, outcome: Array) -> None:
        self._path.clock.check()
        self._block_sum += outcome
        self._block_seen += 1
        if self._block_seen == self.block:
            self._path.add(self._block_sum)
            self._block_sum[:] = 0.0
            self._block_seen = 0
        self._drawn = None

    def get_state(self) -> dict[str, Any]:
        """Return the tree's sums, the unfinished block, and the draw that was announced but not yet answered."""
        return {
            "blocks": self._path.clock.rounds,
            "sums": np.array(self._path.sums),
            "block_sum": self._block_sum,
            "block_seen": self._block_seen,
            "drawn": self._drawn,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self._path.restore(state["blocks"], state["sums"])
        self._block_sum = np.array(state["block_sum"])
        self._block_seen, self._drawn = state["block_seen"], state["drawn"]
        self._announced = None

    name = "sampled"

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield a growing tree and one of fixed depth, with draws of two kinds."""
        yield cls(space, arity=2, block=3, rng=np.random.default_rng(3))
        yield cls(space, arity=2, depth=5, block=2, rng=np.random.Generator(np.random.MT19937(3)))
