"""Outcomes as they arrive: in brief, and the one rule of what an outcome is to its round, for `Late` and the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from treecal._typing import Array

Arrival = Literal["learned", "replayed", "amended", "late", "conflict", "unknown"]
"""What became of an outcome."""
Outcome = int | bytes
"""An outcome in brief: the index of a class, or the bytes of any other point; `VOID` where there is none."""
VOID = -1


@dataclass(slots=True)
class Standing:
    """Where a round stands when an outcome arrives.

    Attributes
    ----------
    void
        Whether its outcome is not learned: it was due before, or too many others were pending.
    outcomes
        Those that arrived: the first, and what it was amended to. None yet if the round is pending.

    Examples
    --------
    >>> round = Standing()
    >>> [round.take(1), round.take(1), round.take(0), round.take(0, amend=True), round.take(0)]
    ['learned', 'replayed', 'conflict', 'amended', 'replayed']
    >>> overdue = Standing(void=True)
    >>> [overdue.take(1), overdue.take(1), overdue.take(0)]
    ['late', 'late', 'conflict']
    """

    void: bool = False
    outcomes: list[Outcome] = field(default_factory=list)

    def take(self, outcome: Outcome, *, amend: bool = False) -> Arrival:
        """Take an outcome, and return what became of it.

        The first is learned, or late if the round is void. The same again is a replay, or late. Another one is an
        amendment if it is meant to be, and otherwise a conflict, which is not kept.
        """
        first = not self.outcomes
        if first or (amend and outcome != self.outcomes[-1]):
            self.outcomes.append(outcome)
            if not first:
                return "amended"
            return "late" if self.void else "learned"
        if outcome not in self.outcomes:
            return "conflict"
        return "late" if self.void else "replayed"


def briefs(outcomes: Array) -> list[Outcome]:
    """Return the outcomes in the rows of an array in brief.

    Examples
    --------
    >>> briefs(np.array([[0.0, 1.0], [1.0, 0.0]]))
    [1, 0]
    """
    tops = outcomes.argmax(axis=1)
    corners = (outcomes.max(axis=1, initial=0.0) == 1) & (np.count_nonzero(outcomes, axis=1) == 1)
    found: list[Outcome] = tops.tolist()
    for i in np.flatnonzero(~corners).tolist():
        found[i] = (outcomes[i] + 0.0).tobytes()  # -0.0 and 0.0 are one outcome
    return found


def whole(outcome: Outcome, dim: int) -> Array:
    """Return the outcome that `briefs` was given."""
    if isinstance(outcome, bytes):
        return np.frombuffer(outcome).copy()
    return np.asarray(np.eye(1, dim, outcome)[0])
