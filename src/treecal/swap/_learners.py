"""Learners: `act()` plays, `observe(loss)` learns, and the external regret stays small.

Over finitely many actions a play is a vector of weights, over a convex set it is one of its points. External regret is
the loss of the plays less that of the best fixed play in hindsight, summed over rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import HorizonError, LossError, ParameterError, UnsupportedError
from treecal.geometry import ConvexSet, Simplex
from treecal.swap._losses import LinearLoss, Loss, read_loss


class Learner(ABC):
    """An online learner: `act()` plays, `observe(loss)` learns, round after round.

    A subclass defines `_choose` and `_learn`. Losses are checked first: an invalid one raises a `LossError` and changes
    nothing. `_learn` is called on a copy that shares all attributes: it replaces those it changes, and they are taken
    over at once if nothing fails or interrupts it. So several threads may play and observe.

    Parameters
    ----------
    over
        What is played: a number of actions, two or more, or a `ConvexSet`.

    Examples
    --------
    >>> class Uniform(Learner):
    ...     def _choose(self):
    ...         return self.space.centre
    ...     def _learn(self, loss):
    ...         pass
    >>> learner = Uniform(4)
    >>> learner.act()
    array([0.25, 0.25, 0.25, 0.25])
    >>> learner.observe([0.0, 1.0, float("nan"), 0.0])
    Traceback (most recent call last):
    ...
    treecal.exceptions.LossError: loss at round 1 holds nan at [2], expected finite numbers.
    <BLANKLINE>
    Hint: a loss is a vector of finite numbers, or a Loss.
    """

    _takes: ClassVar[tuple[type[Loss], ...]] = (Loss,)

    def __init__(self, over: ConvexSet | int) -> None:
        self.actions: int | None
        """Number of actions; None on a convex set."""
        self.space: ConvexSet
        """Where plays lie: the set, or the simplex of weights over the actions."""
        if isinstance(over, ConvexSet):
            self.actions = None
            self.space = over
        else:
            self.actions = whole_number("actions", over, least=2)
            self.space = Simplex(self.actions)
        self._rounds = 0
        self._kind: tuple[Any, ...] | None = None
        self._play: tuple[int, Array] | None = None  # and the rounds before it

    @property
    def rounds(self) -> int:
        """Number of losses seen."""
        return self._rounds

    @abstractmethod
    def _choose(self) -> Array:
        """Return the play for the coming round."""

    @abstractmethod
    def _learn(self, loss: Any) -> None:
        """Learn from a checked loss: assign new attributes, and change no array or list in place."""

    def act(self) -> Array:
        """Return the play for the coming round, read-only; the same one until `observe`."""
        while True:
            made = self._play
            rounds = self.rounds
            if made is not None and made[0] == rounds:
                return made[1]
            play = np.asarray(self._choose())
            play.setflags(write=False)
            if self.rounds == rounds:  # no other thread has observed meanwhile
                self._play = rounds, play

    def observe(self, loss: Loss | ArrayLike) -> None:
        """Learn the loss of the round: a `Loss`, or a plain vector. An invalid one raises and changes nothing."""
        attributes = vars(self)
        while True:
            rounds = self._rounds
            after = vars(self._after(loss))
            if self._rounds == rounds:  # no other thread has observed meanwhile
                attributes.update(after)
                return

    def _after(self, loss: Loss | ArrayLike) -> Self:
        """Return the learner that has observed this loss too; this one stays as it is."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        read = twin._read(loss)
        twin._learn(read)
        twin._kind, twin._rounds, twin._play = read.kind, twin._rounds + 1, None
        return twin

    def __copy__(self) -> Self:
        return deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self).copy()  # in one go, whatever another thread learns while a copy is made

    def _read(self, loss: Loss | ArrayLike) -> Loss:
        read = read_loss(loss, self.space, round_=self.rounds + 1, like=self._kind)
        if not isinstance(read, self._takes):
            raise LossError(
                f"loss at round {self.rounds + 1} is a {type(read).__name__}, and {type(self).__name__} takes "
                f"{' or '.join(kind.__name__ for kind in self._takes)}.",
                hint="for a convex loss, use the gradient at the play: LinearLoss(gradient).",
            )
        return read

    def regret_bound(self, rounds: int) -> float:
        """Return a bound on the external regret after `rounds` rounds, for the losses that the class names."""
        raise UnsupportedError.by(self, "regret bound", "none is known for all losses")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.actions or self.space!r})"


class FollowTheLeader(Learner):
    """Plays the minimiser of all losses so far, and the centre at first.

    For Bregman losses that is the mean outcome, and `TreeSwap` of it is TreeCal (Lemma 3.2); for linear losses it is
    the set's linear minimiser, for quadratics and callables a numerical one. It has no regret bound: losses that
    alternate between two actions cost it one a round.

    Parameters
    ----------
    over
        A number of actions, or a `ConvexSet`.

    Examples
    --------
    >>> learner = FollowTheLeader(3)
    >>> learner.observe([1.0, 0.0, 1.0])
    >>> learner.act()
    array([0., 1., 0.])
    """

    def __init__(self, over: ConvexSet | int) -> None:
        super().__init__(over)
        self._total: Loss | None = None

    def _choose(self) -> Array:
        return np.array(self.space.centre) if self._total is None else self._total.minimise(self.space)

    def _learn(self, loss: Loss) -> None:
        self._total = loss if self._total is None else self._total + loss

    def regret_bound(self, rounds: int) -> float:
        """Raise: alternating losses make the regret grow linearly."""
        raise UnsupportedError.by(self, "regret bound", "alternating losses make it pay every round")


class BeTheLeader(FollowTheLeader):
    """Plays the minimiser of all losses up to and *including* the coming one: its external regret is never positive.

    It needs the losses in advance, and `observe` checks that they are the ones given. For analysis and tests;
    Theorem 3.1 compares TreeCal with it.

    Parameters
    ----------
    over
        A number of actions, or a `ConvexSet`.
    losses
        All losses, in order.

    Examples
    --------
    >>> learner = BeTheLeader(2, losses=[[1.0, 0.0], [0.0, 1.0]])
    >>> learner.act()
    array([0., 1.])
    >>> learner.observe([0.0, 1.0])
    Traceback (most recent call last):
    ...
    treecal.exceptions.LossError: loss at round 1 is not the one that was given in advance.
    <BLANKLINE>
    Hint: Be-The-Leader needs the losses in advance; for a real stream use FollowTheLeader.
    """

    def __init__(self, over: ConvexSet | int, *, losses: Sequence[Loss | ArrayLike]) -> None:
        super().__init__(over)
        if isinstance(losses, Loss) or not len(losses):
            raise ParameterError(
                f"losses is {losses!r}, expected a list of all losses.",
                hint="Be-The-Leader counts the coming loss, so it needs the losses in advance.",
            )
        self._foreseen: list[Loss] = []
        for loss in losses:
            self._foreseen.append(self._read(loss))
            self._kind = self._foreseen[0].kind

    def _coming(self) -> Loss:
        if self.rounds == len(self._foreseen):
            raise HorizonError(
                f"round {self.rounds + 1} is one too many: {self.rounds} losses were given in advance.",
                hint="Be-The-Leader needs the losses in advance; for a real stream use FollowTheLeader.",
            )
        return self._foreseen[self.rounds]

    def _choose(self) -> Array:
        coming = self._coming()
        return (coming if self._total is None else self._total + coming).minimise(self.space)

    def _learn(self, loss: Loss) -> None:
        if loss != self._coming():
            raise LossError(
                f"loss at round {self.rounds + 1} is not the one that was given in advance.",
                hint="Be-The-Leader needs the losses in advance; for a real stream use FollowTheLeader.",
            )
        super()._learn(loss)

    def regret_bound(self, rounds: int) -> float:
        """Return 0, for losses of any kind and size."""
        whole_number("rounds", rounds, least=0)
        return 0.0


class RegretMatching(Learner):
    """Plays each action in proportion to its positive regret so far (Hart and Mas-Colell). No rate to choose.

    For losses in [0, 1] the external regret is at most `√((n − 1)·rounds)`: the play makes the regret vector's positive
    part orthogonal to each step, and a step has squared length at most `n − 1`.

    Parameters
    ----------
    actions
        Number of actions `n`.

    Examples
    --------
    >>> learner = RegretMatching(3)
    >>> learner.observe([1.0, 0.0, 0.5])
    >>> learner.act()
    array([0., 1., 0.])
    >>> learner.regret_bound(50)
    10.0
    """

    _takes = (LinearLoss,)

    def __init__(self, actions: int) -> None:
        super().__init__(whole_number("actions", actions, least=2))
        self._regrets = np.zeros(self.space.dim)

    def _choose(self) -> Array:
        positive = np.maximum(self._regrets, 0.0)
        total = positive.sum()
        return positive / total if total > 0 else np.array(self.space.centre)

    def _learn(self, loss: LinearLoss) -> None:
        self._regrets = self._regrets + (self.act() @ loss.vector - loss.vector)

    def regret_bound(self, rounds: int) -> float:
        """Return `√((n − 1)·rounds)`, for losses in [0, 1]."""
        return float(np.sqrt((self.space.dim - 1) * whole_number("rounds", rounds, least=0)))
