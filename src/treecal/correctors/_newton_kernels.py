"""The online Newton step, compiled: one arithmetic for a round and for many rounds in order.

Row by row, in loops, because each step needs the parameters that the one before it left. What a kernel cannot do well,
a step out of the ball or one whose matrix rounding made singular, it leaves undone and says so.
"""

from __future__ import annotations

import math

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.correctors._newton import Design, Room
from treecal.correctors._trust_kernels import mixed, trusted

DONE, OUTSIDE, MORE = 0, 1, 2
"""Why a kernel returned: all is done; the next step needs care; there is weight for another copy."""
_SINGULAR = 1e-13  # of a pivot, relative to the diagonal: what is left is mostly rounding


@strict
def _room(copies: int, dim: int, parameters: int, blocks: int) -> Room:
    size = parameters // blocks
    return Room(
        np.empty(dim),
        np.empty((copies, dim)),
        np.empty((copies, parameters)),
        np.empty((copies, parameters)),
        np.empty(copies),
        np.empty(copies),
        np.empty(copies),
        np.empty((size, size)),
    )


@strict
def _law(theta: Array, values: Array, design: Design, logs: Array, law: Array) -> None:
    """Write `softmax(F(b)·θ)` and its logarithms."""
    logs[:] = 0.0
    for e in range(len(values)):
        logs[design.classes[e]] += theta[design.parameters[e]] * values[e]
    top = logs[0]
    for score in logs:
        top = max(top, score)
    total = 0.0
    for k in range(len(law)):
        logs[k] -= top
        law[k] = math.exp(logs[k])
        total += law[k]
    less = math.log(total)
    for k in range(len(law)):
        logs[k] -= less
        law[k] /= total


@strict
def _loss(
    theta: Array, values: Array, outcome: Array, design: Design, logs: Array, law: Array, gradient: Array
) -> float:
    """Write the law and the gradient `F(b)ᵀ(p − y)` of the log loss, which is returned."""
    _law(theta, values, design, logs, law)
    loss = 0.0
    for k in range(len(law)):
        loss -= outcome[k] * logs[k]
    gradient[:] = 0.0
    for e in range(len(values)):
        k = design.classes[e]
        gradient[design.parameters[e]] += (law[k] - outcome[k]) * values[e]
    return loss


@strict
def announce(theta: Array, trust: Array, values: Array, design: Design, means: Array) -> None:
    """Write what is announced for each row."""
    logs, laws = np.empty(means.shape[1]), np.empty((len(trust), means.shape[1]))
    for row in range(len(values)):
        for copy in range(len(trust)):
            _law(theta[copy], values[row], design, logs, laws[copy])
        mixed(trust, laws, means[row])


@strict
def losses(theta: Array, values: Array, outcomes: Array, design: Design, found: Array, gradients: Array) -> None:
    """Write the log loss of each row for each copy, `(rows, copies)`, and its gradients."""
    logs, law = np.empty(outcomes.shape[1]), np.empty(outcomes.shape[1])
    for row in range(len(values)):
        for copy in range(len(theta)):
            into = gradients[row, copy]
            found[row, copy] = _loss(theta[copy], values[row], outcomes[row], design, logs, law, into)


@strict
def _factored(A: Array, gradient: Array, block: int, left: float, count: float, room: Room, design: Design) -> bool:
    """Factor a block of the curvature as the step leaves it, by Cholesky; return whether rounding left enough of it."""
    size, blocks, factor, more = len(A), design.blocks, room.factor, (1.0 - left) * design.ridge
    for i in range(size):
        own = gradient[block + i * blocks]
        for j in range(i + 1):
            entry = left * A[i, j] + count * (own * gradient[block + j * blocks])
            if i == j:
                entry += more
            whole = entry
            for k in range(j):
                entry -= factor[i, k] * factor[j, k]
            if i > j:
                factor[i, j] = entry / factor[j, j]
            elif entry > _SINGULAR * whole:
                factor[i, i] = math.sqrt(entry)
            else:
                return False
    return True


@strict
def _step(
    theta: Array,
    A: Array,
    trust: Array,
    kept: Array,
    seen: float,
    values: Array,
    outcome: Array,
    weight: float,
    design: Design,
    room: Room,
) -> bool:
    """Take one step of every copy, if none of them needs care; `seen` is the weight of all rounds with this one."""
    copies, parameters, blocks = len(trust), theta.shape[1], design.blocks
    size = parameters // blocks
    factor = room.factor
    for copy in range(copies):
        law, gradient, after = room.laws[copy], room.gradients[copy], room.theta[copy]
        room.losses[copy] = _loss(theta[copy], values, outcome, design, room.logs, law, gradient)
        room.left[copy] = kept[copy] ** weight if weight != 1.0 else kept[copy]
        one = kept[copy] == 1.0
        room.counts[copy] = weight if one or weight == 1.0 else (1.0 - room.left[copy]) / (1.0 - kept[copy])
        length = 0.0
        for block in range(blocks):
            if not _factored(A[copy, block], gradient, block, room.left[copy], room.counts[copy], room, design):
                return False
            for i in range(size):  # forwards, then backwards
                entry = gradient[block + i * blocks]
                for k in range(i):
                    entry -= factor[i, k] * after[block + k * blocks]
                after[block + i * blocks] = entry / factor[i, i]
            for i in range(size - 1, -1, -1):
                entry = after[block + i * blocks]
                for k in range(i + 1, size):
                    entry -= factor[k, i] * after[block + k * blocks]
                after[block + i * blocks] = entry / factor[i, i]
        for j in range(parameters):
            after[j] = theta[copy, j] - after[j] * (weight / design.rate)
            length += after[j] * after[j]
        if not length <= design.radius * design.radius:
            return False
    for copy in range(copies):
        left, count, gradient = room.left[copy], room.counts[copy], room.gradients[copy]
        for block in range(blocks):
            for i in range(size):
                own = gradient[block + i * blocks]
                for j in range(i + 1):
                    entry = left * A[copy, block, i, j] + count * (own * gradient[block + j * blocks])
                    if i == j:
                        entry += (1.0 - left) * design.ridge  # of which nothing is forgotten
                    A[copy, block, i, j] = A[copy, block, j, i] = entry
        theta[copy] = room.theta[copy]
    if copies > 1:
        trusted(trust, room.losses, seen, weight, design.share, design.lasting)
    return True


@strict
def play(
    theta: Array,
    A: Array,
    trust: Array,
    kept: Array,
    seen: float,
    most: float,
    values: Array,
    outcomes: Array,
    rows: Integers,
    weights: Array,
    at: int,
    design: Design,
    means: Array,
) -> tuple[int, float, int]:
    """Take the steps from `at` on, in order: each has a row and a weight, 0 for one that only announces.

    Before the first step of a row what is announced is written. Returns the next step, the weight of all rounds, and
    why it returned: there is another copy once that weight is `most`.
    """
    room = _room(len(trust), means.shape[1], theta.shape[1], design.blocks)
    for step in range(at, len(rows)):
        row, weight = rows[step], weights[step]
        if step == 0 or rows[step - 1] != row:
            for copy in range(len(trust)):
                _law(theta[copy], values[row], design, room.logs, room.laws[copy])
            mixed(trust, room.laws, means[row])
        if weight == 0.0:
            continue
        if not _step(theta, A, trust, kept, seen + weight, values[row], outcomes[row], weight, design, room):
            return step, seen, OUTSIDE
        seen += weight
        if seen >= most:
            return step + 1, seen, MORE
    return len(rows), seen, DONE
