"""What a replayed guard announced, as the rows of a ledger, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.columns import add_outcome


@inlined
def _add(kept: Array, share: float, outcome: Array) -> None:
    """Add a weight and its outcome to `kept[0]`, and what rounding lost to `kept[1]`."""
    for j in range(kept.shape[1]):
        total, amount = kept[0, j], share if j == 0 else share * outcome[j - 1]
        kept[0, j] = total + amount
        seen = kept[0, j] - total
        kept[1, j] += (total - (kept[0, j] - seen)) + (amount - seen)


@strict
def eager_rows(slots: Integers, outcomes: Any, kept: Array) -> None:
    """Add up the rounds and outcomes of each point that the eager part announced: `kept[slot]`."""
    outcome = np.empty(kept.shape[2] - 1)
    for t in range(len(slots)):
        if slots[t] >= 0:
            outcome[:] = 0.0
            add_outcome(outcome, outcomes, t)
            _add(kept[slots[t]], 1.0, outcome)
