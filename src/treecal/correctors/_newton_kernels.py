"""The online Newton step: one arithmetic for a round and for many rounds in order.

Row by row, in loops, because each step needs the parameters that the one before it left; and without a library for
linear algebra, whose sums have another order on another processor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._elementary import exp, log, power
from treecal._states import MOST_ROUNDS, State
from treecal._typing import Array, Integers
from treecal._validate import HEAVIEST
from treecal.correctors import _forgetting as forgetting
from treecal.correctors._forgetting import mixed, trusted

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


class Copies(NamedTuple):
    """The copies of one stream, which steps change, and what each keeps of its past in a round."""

    theta: Array
    curvature: Array
    trust: Array
    kept: Array


class Scalings(NamedTuple):
    """The states of streams, with room for equally many copies; `seen` decides how many of them there are."""

    theta: Array  # (streams, copies, parameters)
    curvature: Array  # (streams, copies, blocks, size, size)
    trust: Array  # (streams, copies)
    seen: Array  # (streams,)


class Speeds(NamedTuple):
    """Of each number of copies, what each keeps of its past in a round, and the weight from which on it is one more."""

    kept: Array  # (most copies + 1, most copies)
    ends: Array  # (most copies + 1,)


class Steps(NamedTuple):
    """The steps in which rounds are learned: of each its stream, its row of `values` and `outcomes`, and its weight."""

    streams: Integers
    rows: Integers
    weights: Array
    values: Array
    outcomes: Array


@lru_cache
def speeds(forget: bool) -> Speeds:
    """Return the speeds of copies that forget, or of the one that never does."""
    most = forgetting.copies(MOST_ROUNDS * HEAVIEST, FIRST) if forget else 1
    kept = np.ones((most + 2, most + 1))
    ends = np.full(most + 2, math.inf)
    for count in range(1, most + 1 if forget else 0):
        kept[count, :count] = forgetting.kept(count, FIRST)
        ends[count] = 2.0 ** (FIRST + count - 1)
    return Speeds(kept, ends)


_MOST_TURNS = 200  # of the search for a multiplier: it takes about five
_NEAR = 1e-14  # of a projection's distance from the sphere, relative to the radius


@strict
def logarithms(probabilities: Array, least: float, found: Array) -> None:
    """Write the logarithms of rows; a probability below the least is read as that."""
    for row in range(len(found)):
        for k in range(found.shape[1]):
            found[row, k] = log(min(max(probabilities[row, k], least), 1.0))


@strict
def _room(copies: int, dim: int, parameters: int, blocks: int) -> Room:
    size = parameters // blocks
    return Room(
        np.empty(dim),
        np.empty((copies, dim)),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(copies),
        np.empty((blocks, size, size)),
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
        law[k] = exp(logs[k])
        total += law[k]
    less = log(total)
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
def _count(seen: float, speeds: Speeds) -> int:
    """Return how many copies there are after so many rounds."""
    count = 1
    while seen >= speeds.ends[count]:
        count += 1
    return count


@strict
def _same(one: Array, other: Array) -> bool:
    for i in range(len(one)):
        if one[i] != other[i]:
            return False
    return True


@strict
def announce(theta: Array, trust: Array, values: Array, design: Design, means: Array) -> None:
    """Write what copies of these parameters announce for each row."""
    logs = np.empty(means.shape[1])
    laws = np.empty((len(trust), means.shape[1]))
    for row in range(len(values)):
        for copy in range(len(trust)):
            if copy > 0 and _same(theta[copy - 1], theta[copy]):  # as after a fit
                copy_into(laws[copy], laws[copy - 1])
            else:
                _law(theta[copy], values[row], design, logs, laws[copy])
        mixed(trust, laws, means[row])


@strict
def announce_streams(
    now: Scalings, streams: Integers, values: Array, design: Design, speeds: Speeds, means: Array
) -> None:
    """Write what the stream of each row announces."""
    for row in range(len(values)):
        own = streams[row]
        count = _count(now.seen[own], speeds)
        one = slice(row, row + 1)
        announce(now.theta[own, :count], now.trust[own, :count], values[one], design, means[one])


@strict
def losses(theta: Array, values: Array, outcomes: Array, weights: Array, design: Design, found: Array) -> None:
    """Write the log loss of each copy in all rows."""
    logs = np.empty(outcomes.shape[1])
    law = np.empty(outcomes.shape[1])
    gradient = np.empty(theta.shape[1])
    found[:] = 0.0
    for row in range(len(values)):
        for copy in range(len(theta)):
            found[copy] += weights[row] * _loss(theta[copy], values[row], outcomes[row], design, logs, law, gradient)


@strict
def _factor(A: Array, more: float, least: float, factor: Array) -> None:
    """Write the Cholesky factors of the blocks of `A + more·I`.

    Of a matrix that is at least `least·I` every pivot is at least that much; where rounding made it less, it is that.
    """
    for block in range(len(A)):
        for i in range(A.shape[1]):
            for j in range(i + 1):
                entry = A[block, i, j]
                if i == j:
                    entry += more
                for k in range(j):
                    entry -= factor[block, i, k] * factor[block, j, k]
                if i > j:
                    factor[block, i, j] = entry / factor[block, j, j]
                else:
                    factor[block, i, i] = math.sqrt(max(entry, least))


@strict
def _solve(factor: Array, right: Array, found: Array) -> None:
    """Solve for the right side, forwards, then backwards; parameter `i` of block `b` is at `b + i·blocks`."""
    blocks = factor.shape[0]
    size = factor.shape[1]
    for block in range(blocks):
        for i in range(size):
            entry = right[block + i * blocks]
            for k in range(i):
                entry -= factor[block, i, k] * found[block + k * blocks]
            found[block + i * blocks] = entry / factor[block, i, i]
        for i in range(size - 1, -1, -1):
            entry = found[block + i * blocks]
            for k in range(i + 1, size):
                entry -= factor[block, k, i] * found[block + k * blocks]
            found[block + i * blocks] = entry / factor[block, i, i]


@strict
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@strict
def project(u: Array, A: Array, least: float, radius: float, room: Room) -> None:
    """Move a point to the one of the Euclidean ball that is nearest in the norm of `A`, which is at least `least·I`.

    It minimises `(θ − u)ᵀA(θ − u)` over `‖θ‖ <= radius`. For `u` outside the ball `A(θ − u) + λθ = 0`, with the one
    `λ > 0` that puts `θ = u − λ(A + λI)⁻¹u` on the sphere. `1/‖θ‖` is nearly linear in `λ`, so Newton's method finds it
    in a few steps (Moré and Sorensen, 1983). It stays where `λ` must be: each coordinate of `u`, in the eigenbasis,
    shrinks by at most `Λ_min/(Λ_min + λ)`, and at least by `Λ_max/(Λ_max + λ)`.
    """
    length = math.sqrt(_dot(u, u))
    if length <= radius:
        return
    theta = room.theta
    turned = room.turned
    largest = 0.0
    for block in range(len(A)):
        trace = 0.0
        for i in range(A.shape[1]):
            trace += A[block, i, i]
        largest = max(largest, trace)
    low = least * (length / radius - 1.0)
    high = largest * (length / radius - 1.0)
    multiplier = low
    for _ in range(_MOST_TURNS):
        _factor(A, multiplier, least, room.factor)
        _solve(room.factor, u, theta)
        for i in range(len(u)):
            theta[i] = u[i] - multiplier * theta[i]
        length = math.sqrt(_dot(theta, theta))
        if abs(length / radius - 1.0) <= _NEAR:
            break
        if length > radius:
            low = multiplier
        else:
            high = multiplier
        _solve(room.factor, theta, turned)
        after = multiplier + (length / radius - 1.0) * length * length / _dot(theta, turned)
        if not low < after < high:
            after = math.sqrt(low * high)
        if after == multiplier:
            break
        multiplier = after
    for i in range(len(u)):
        u[i] = theta[i] * (radius / length)


@strict
def _step(
    stream: Copies, seen: float, values: Array, outcome: Array, weight: float, design: Design, room: Room
) -> None:
    """Take one step of every copy; `seen` is the weight of all rounds with this one."""
    theta, A, trust, kept = stream
    copies = len(trust)
    blocks = A.shape[1]
    size = A.shape[2]
    gradient = room.gradient
    step = room.step
    for copy in range(copies):
        loss = _loss(theta[copy], values, outcome, design, room.logs, room.laws[copy], gradient)
        room.losses[copy] = loss
        left = kept[copy]
        count = 1.0
        if weight != 1.0:  # as so many equal rounds
            left = power(kept[copy], weight)
            count = weight if kept[copy] == 1.0 else (1.0 - left) / (1.0 - kept[copy])
        for block in range(blocks):
            for i in range(size):
                own = gradient[block + i * blocks]
                for j in range(i + 1):
                    entry = left * A[copy, block, i, j] + count * (own * gradient[block + j * blocks])
                    if i == j:
                        entry += (1.0 - left) * design.ridge  # of which nothing is forgotten
                    A[copy, block, i, j] = entry
                    A[copy, block, j, i] = entry
        _factor(A[copy], 0.0, design.ridge, room.factor)
        _solve(room.factor, gradient, step)
        for j in range(len(step)):
            step[j] = theta[copy, j] - step[j] * (weight / design.rate)
        project(step, A[copy], design.ridge, design.radius, room)
        theta[copy] = step
    trusted(trust, room.losses[:copies], seen, weight, design.share, design.lasting)


@strict
def join(now: Scalings, own: int, count: int, design: Design, speeds: Speeds) -> None:
    """Add a copy to the `count` copies of a stream: one that remembers as much as it would hold."""
    theta = now.theta[own]
    A = now.curvature[own]
    trust = now.trust[own]
    # After so many rounds a copy holds 1/(1 − kept) of weight at most; only a heavy round makes it more.
    part = min(1.0, 1.0 / (1.0 - speeds.kept[count + 1, count]) / now.seen[own])
    theta[count] = theta[0]
    for block in range(A.shape[1]):
        for i in range(A.shape[2]):
            for j in range(A.shape[2]):
                A[count, block, i, j] = part * A[0, block, i, j] + (1.0 - part) * (design.ridge if i == j else 0.0)
    left = 1.0 - (1.0 - design.lasting) * (1.0 - 1.0 / count)
    taken = (1.0 - design.lasting) / (count * (count + 1)) / left
    trust[count] = trust[0] * taken
    trust[0] *= 1.0 - taken


@strict
def play(now: Scalings, steps: Steps, design: Design, speeds: Speeds, means: Array) -> None:
    """Take steps in order, in streams that have room for the copies they will need; one of weight 0 only announces.

    Before the first step of a row what its stream announces is written.
    """
    streams, rows, weights, values, outcomes = steps
    most = now.theta.shape[1]
    room = _room(most, means.shape[1], now.theta.shape[2], design.blocks)
    for step in range(len(rows)):
        own = streams[step]
        row = rows[step]
        weight = weights[step]
        count = min(_count(now.seen[own], speeds), most)
        theta = now.theta[own, :count]
        trust = now.trust[own, :count]
        if step == 0 or rows[step - 1] != row:
            for copy in range(count):
                _law(theta[copy], values[row], design, room.logs, room.laws[copy])
            mixed(trust, room.laws, means[row])
        if weight == 0.0:
            continue
        seen = now.seen[own] + weight
        copies = Copies(theta, now.curvature[own, :count], trust, speeds.kept[count, :count])
        _step(copies, seen, values[row], outcomes[row], weight, design, room)
        now.seen[own] = seen
        for joining in range(count, min(_count(seen, speeds), most)):
            join(now, own, joining, design, speeds)
