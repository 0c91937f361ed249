"""The online Newton step: its state, and what its kernels are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from treecal._states import State
from treecal._typing import Array, Integers

FIRST = 6
"""The shortest half-life is `2^6` rounds: at the usual rate the step forgets about ten times as fast."""


@dataclass(eq=False)
class Newton(State):
    """The state of the online Newton step, for each copy: those that forget follow the one that never does."""

    theta: Array  # (copies, parameters)
    curvature: Array  # (copies, blocks, size, size): `A`, of the losses so far
    trust: Array  # (copies,)
    seen: float  # the weight of all rounds


class Design(NamedTuple):
    """Where the entries of `F(b)` are, and the constants of the step."""

    classes: Integers  # (entries,)
    parameters: Integers  # (entries,)
    blocks: int
    rate: float
    ridge: float
    radius: float
    share: float
    lasting: float


class Room(NamedTuple):
    """Where a step works."""

    logs: Array  # (dim,)
    laws: Array  # (copies, dim)
    gradient: Array  # (parameters,)
    step: Array  # (parameters,)
    theta: Array  # (parameters,): a point that is projected
    turned: Array  # (parameters,)
    losses: Array  # (copies,)
    factor: Array  # (blocks, size, size)
