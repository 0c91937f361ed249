"""TreeCal: Algorithm 1 of the paper, and its form without a horizon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space, checked_start
from treecal.geometry import ConvexSet, Norm
from treecal.geometry._outcomes import FLOAT64, classes, read_outcome
from treecal.theory import Certificate, certificate, plan
from treecal.tree import Clock, path_nodes

_divide = np.divide


class LabelledPath:
    """The labels on the path from root to leaf, kept by sums that are carried upwards like an odometer's digits.

    `sums[j]` is the sum of all outcomes in the finished children, of height `j`, of the current node above; the label
    at height `j` is that sum divided once by its count, or the start point for a first child. Adding a finished sum
    one height up is the tree's own summation order: whoever keeps to it gets the same labels bit for bit.

    Parameters
    ----------
    space, arity, depth, mix, start
        As for `TreeCal`.
    unit
        Outcomes in one leaf: 1, or the block length when whole blocks are added.
    """

    def __init__(
        self, space: ConvexSet, *, arity: int, depth: int | None, mix: float, start: ArrayLike | None, unit: int = 1
    ) -> None:
        if not (isinstance(mix, int | float | np.number) and 0 <= mix <= 1):
            raise ParameterError.expected("mix", mix, "a number from 0 to 1")
        self.space, self.clock, self.unit, self.mix = space, Clock(arity, depth), unit, float(mix)
        self.start = checked_start(space, start)
        self.pull = self.mix * space.centre
        self.first = self.start if self.mix == 0 else (1 - self.mix) * self.start + self.pull
        self.restore(0, np.zeros((self.clock.height, space.dim)))

    def restore(self, leaves: int, sums: Sequence[Array] | Array) -> None:
        """Go on from the sums as they stood after so many leaves."""
        self.clock.seek(leaves)
        self.sums = [np.array(total) for total in sums]
        self._show(np.tile(self.first, (self.clock.height, 1)))
        for height, digit in enumerate(self.clock.digits):
            if digit:
                self._relabel(height, digit)

    def _show(self, labels: Array) -> None:
        """Go on with a copy of these labels, and with a new forecast that shows them."""
        clock, self.labels = self.clock, labels.copy()
        self._leaf = self.labels[0]
        nodes = (path_nodes, clock.rounds, clock.arity, len(labels))
        self._shown = Forecast.trusted(self.labels, uniform(len(labels)), nodes, self.space)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.restore(self.clock.rounds, self.sums)  # the view of the first row came as an array of its own

    def forecast(self) -> Forecast:
        """Return the uniform distribution over the labels, each under its node; the same object until `add`."""
        if self.clock.depth is not None:
            self.clock.check()
        return self._shown

    def add(self, outcome: Array) -> None:
        """Add one leaf's outcome, or the sum of its outcomes, and label the nodes that start next."""
        if self.clock.depth is not None:
            self.clock.check()
        self.sums[0] += outcome
        self._advance()

    def _advance(self) -> None:
        """End a leaf, whose outcome has been added, and label the nodes that start next."""
        clock = self.clock
        # The labels are known to this path, its forecast and the view of their first row (and to the call itself).
        if getrefcount(self._shown) > 2 or getrefcount(self.labels) > 4:
            self._show(self.labels)  # someone holds the forecast, or has its points: that one must not change
        digit = clock.digits[0] + 1
        if digit < clock.arity:  # most rounds end a leaf and no more: tick() and _relabel(), written out
            clock.digits[0] = digit
            clock.rounds += 1
            _divide(self.sums[0], _as_array(digit * self.unit), self._leaf)
            if self.mix:
                self._draw(self._leaf)
        else:
            self._carry(clock.tick())
        self._shown._nodes = (path_nodes, clock.rounds, clock.arity, len(self.sums))

    def _carry(self, risen: int) -> None:
        """Carry the sums of the nodes that ended up to this height, and label the nodes that start."""
        sums = self.sums
        if risen == len(sums):
            if self.clock.depth is not None:
                return  # the last leaf: nothing starts
            sums.append(np.zeros(self.space.dim))
            self._show(np.vstack([self.labels, self.first]))
        for height in range(risen):
            sums[height + 1] += sums[height]
            sums[height].fill(0.0)
            self.labels[height] = self.first
        self._relabel(risen, self.clock.digits[risen])

    def _relabel(self, height: int, digit: int) -> None:
        """Label the node that starts at this height with the mean of its `digit` finished siblings."""
        label = self.labels[height]
        _divide(self.sums[height], _as_array(digit * self.clock.powers[height] * self.unit), label)
        if self.mix:
            self._draw(label)

    def _draw(self, label: Array) -> None:
        """Draw a label towards the centre."""
        label *= 1 - self.mix
        label += self.pull


@lru_cache(maxsize=4096)
def _as_array(count: int) -> Array:
    """Return a count as an array without axes: NumPy divides by one faster than by a number of Python's."""
    return np.array(float(count))


class TreeCal(LabelledPath, Forecaster):
    """Calibrated forecasts in every norm at once, against any sequence (Algorithm 1).

    Time is cut into an `arity`-ary tree of intervals. When an interval starts it is labelled with the mean of the
    outcomes its parent has seen so far (a first child with the start point), and each round's forecast is uniform over
    the labels of the intervals the round lies in.

    For every set and norm the squared calibration error per round is at most `(√(J/depth) + √(r²μ₀ + D²μ₁))²`, where
    `J` is the Jensen gap of the best regularizer (Theorem treecal with its constants put right). The algorithm
    knows neither norm nor regularizer.

    Costs `O(dim)` arithmetic a round, amortised, and `O(depth·dim)` memory for ever.

    Parameters
    ----------
    space
        The set outcomes lie in.
    arity
        Children of each interval, the paper's H.
    depth
        Heights of the tree, the paper's L, for at most `arity**depth` rounds. Without it the tree grows with the
        stream: while it has `m` heights each has weight `1/m`.
    mix
        Share of the centre in every label, `(1 − mix)·label + mix·centre` (Peng's variant): keeps logarithmic scores
        finite.
    start
        The label of first children; by default the set's centre.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.TreeCal(tc.Simplex(2), arity=2)
    >>> for y in [[1, 0], [1, 0], [0, 1]]:
    ...     f.update(y)
    >>> x = f.predict()
    >>> x.points
    array([[0., 1.],
           [1., 0.]])
    >>> x.nodes.tolist()  # the leaf of round 4, and the interval of rounds 3 and 4
    [[0, 3], [1, 1]]

    References
    ----------
    Fishelson, Golowich, Mohri and Schneider, "High-Dimensional Calibration from Swap Regret", 2025.
    """

    _fields = ("space", "arity", "depth", "mix", "start")

    def __init__(
        self,
        space: ConvexSet,
        *,
        arity: int = 8,
        depth: int | None = None,
        mix: float = 0.0,
        start: ArrayLike | None = None,
    ) -> None:
        super().__init__(checked_space(space), arity=arity, depth=depth, mix=mix, start=start)
        self.arity, self.depth = self.clock.arity, self.clock.depth
        self._shape, self._classes = (space.dim,), classes(space)

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self.clock.rounds

    predict = _announce = LabelledPath.forecast
    _learn = LabelledPath.add

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls._announce is not LabelledPath.forecast or cls._learn is not LabelledPath.add:
            raise TypeError(f"{cls.__name__} would not be heard: TreeCal's subclasses override predict and update.")

    def update(self, outcome: ArrayLike) -> None:
        """Learn the outcome of the round. A bad one raises a `TreeCalError` and changes nothing."""
        # `Forecaster.update` and `add`, written out, with a shorter way for classes.
        if type(outcome) is np.ndarray and outcome.dtype is FLOAT64 and outcome.shape == self._shape:
            k = self._classes.get(outcome.tobytes())
            if k is None and not self.space.admits(outcome):
                outcome = read_outcome(self.space, outcome, self.rounds + 1)
        else:
            k, outcome = None, read_outcome(self.space, outcome, self.rounds + 1)
        if self.clock.depth is not None:
            self.clock.check()
        if k is None:
            self.sums[0] += outcome
        else:
            self.sums[0][k] += 1.0  # no sum is -0.0, so that adding the zeros too would change nothing
        self._advance()

    def get_state(self) -> dict[str, Any]:
        """Return the number of rounds and the carried sums: the labels follow from them."""
        return {"rounds": self.rounds, "sums": np.array(self.sums)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self.restore(state["rounds"], state["sums"])

    name = "treecal"

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        if self.mix:
            return None
        return certificate(self.space, norm, rounds=rounds, arity=self.arity, depth=self.depth, start=self.start)

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Forecaster:
        """Return the tree that `tc.plan` finds."""
        best = plan(space, norm, rounds=rounds)
        return cls(space, arity=best.arity, depth=best.depth)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield a growing tree, one of fixed depth, and one mixed with the centre."""
        yield from (cls(space, arity=3), cls(space, arity=2, depth=6), cls(space, arity=4, mix=0.1))
