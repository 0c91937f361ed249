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

from treecal._compile import strict
from treecal._elementary import exp, log, power
from treecal._states import MOST_ROUNDS, State
from treecal._typing import Array, Integers
from treecal._validate import HEAVIEST
from treecal.correctors import _forgetting as forgetting
from treecal.correctors._forgetting import trusted

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
    """Where a point is projected."""

    theta: Array  # (parameters,)
    turned: Array  # (parameters,)
    factor: Array  # (blocks, size, size)


class Work(NamedTuple):
    """Where the rounds of a stream are played.

    Copies are the last axis and the innermost loops, so that compiled code takes several of them at once.
    """

    theta: Array  # (parameters, copies)
    curvature: Array  # (blocks, size, size, copies), below the diagonals
    factor: Array  # the same
    trust: Array  # (copies,)
    kept: Array  # (copies,)
    left: Array  # (copies,): what is kept of the past in a step
    counts: Array  # (copies,): for how many rounds a step counts
    logs: Array  # (dim, copies)
    laws: Array  # (dim, copies)
    tops: Array  # (copies,)
    losses: Array  # (copies,)
    gradient: Array  # (parameters, copies)
    step: Array  # (parameters, copies)


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
def _room(parameters: int, blocks: int) -> Room:
    size = parameters // blocks
    return Room(np.empty(parameters), np.empty(parameters), np.empty((blocks, size, size)))


@strict
def _work(copies: int, dim: int, parameters: int, blocks: int) -> Work:
    size = parameters // blocks
    return Work(
        np.empty((parameters, copies)),
        np.empty((blocks, size, size, copies)),
        np.empty((blocks, size, size, copies)),
        np.empty(copies),
        np.empty(copies),
        np.empty(copies),
        np.empty(copies),
        np.empty((dim, copies)),
        np.empty((dim, copies)),
        np.empty(copies),
        np.empty(copies),
        np.empty((parameters, copies)),
        np.empty((parameters, copies)),
    )


@strict
def _take_points(theta: Array, trust: Array, work: Work) -> None:
    """Take the parameters of a stream's copies, and the trust in them."""
    for copy in range(len(trust)):
        work.trust[copy] = trust[copy]
        for j in range(theta.shape[1]):
            work.theta[j, copy] = theta[copy, j]


@strict
def _take(now: Scalings, own: int, count: int, speeds: Speeds, work: Work) -> None:
    """Take the state of a stream."""
    _take_points(now.theta[own, :count], now.trust[own, :count], work)
    A = now.curvature
    for copy in range(count):
        work.kept[copy] = speeds.kept[count, copy]
        for block in range(A.shape[2]):
            for i in range(A.shape[3]):
                for j in range(i + 1):
                    work.curvature[block, i, j, copy] = A[own, copy, block, i, j]


@strict
def _put(now: Scalings, own: int, count: int, work: Work) -> None:
    """Put it back."""
    A = now.curvature
    for copy in range(count):
        now.trust[own, copy] = work.trust[copy]
        for j in range(now.theta.shape[2]):
            now.theta[own, copy, j] = work.theta[j, copy]
        for block in range(A.shape[2]):
            for i in range(A.shape[3]):
                for j in range(i + 1):
                    A[own, copy, block, i, j] = work.curvature[block, i, j, copy]
                    A[own, copy, block, j, i] = work.curvature[block, i, j, copy]


@strict
def _laws(count: int, values: Array, row: int, design: Design, work: Work) -> None:
    """Write `softmax(F(b)·θ)` and its logarithms for so many copies, as `_law` does for one."""
    theta = work.theta
    logs = work.logs
    laws = work.laws
    tops = work.tops
    dim = len(logs)
    for k in range(dim):
        for c in range(count):
            logs[k, c] = 0.0
    for e in range(values.shape[1]):
        k = design.classes[e]
        j = design.parameters[e]
        value = values[row, e]
        for c in range(count):
            logs[k, c] += theta[j, c] * value
    for c in range(count):
        tops[c] = logs[0, c]
    for k in range(1, dim):
        for c in range(count):
            tops[c] = max(tops[c], logs[k, c])
    for k in range(dim):
        for c in range(count):
            logs[k, c] -= tops[c]
            laws[k, c] = exp(logs[k, c])
    for c in range(count):
        tops[c] = 0.0
    for k in range(dim):
        for c in range(count):
            tops[c] += laws[k, c]
    for k in range(dim):
        for c in range(count):
            laws[k, c] /= tops[c]
    for c in range(count):
        tops[c] = log(tops[c])
    for k in range(dim):
        for c in range(count):
            logs[k, c] -= tops[c]


@strict
def _mix(count: int, work: Work, mean: Array) -> None:
    """Write the mean of the laws by trust, as `mixed` does."""
    for k in range(len(mean)):
        mean[k] = work.trust[0] * work.laws[k, 0]
    for c in range(1, count):
        trust = work.trust[c]
        for k in range(len(mean)):
            mean[k] += trust * work.laws[k, c]


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
def announce(theta: Array, trust: Array, values: Array, design: Design, means: Array) -> None:
    """Write what copies of these parameters announce for each row."""
    work = _work(len(trust), means.shape[1], theta.shape[1], design.blocks)
    _take_points(theta, trust, work)
    for row in range(len(values)):
        _laws(len(trust), values, row, design, work)
        _mix(len(trust), work, means[row])


@strict
def announce_streams(
    now: Scalings, streams: Integers, values: Array, design: Design, speeds: Speeds, means: Array
) -> None:
    """Write what the stream of each row announces."""
    work = _work(now.theta.shape[1], means.shape[1], now.theta.shape[2], design.blocks)
    for row in range(len(values)):
        own = streams[row]
        count = _count(now.seen[own], speeds)
        _take_points(now.theta[own, :count], now.trust[own, :count], work)
        _laws(count, values, row, design, work)
        _mix(count, work, means[row])


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
def _learn(
    count: int, seen: float, values: Array, outcomes: Array, row: int, weight: float, design: Design, work: Work
) -> None:
    """Take one step of every copy, given their laws; `seen` is the weight of all rounds with this one."""
    theta, A, _, trust, kept, left, counts, logs, laws, tops, losses, gradient, step = work
    dim = len(logs)
    parameters = len(theta)
    blocks = A.shape[0]
    size = A.shape[1]
    ridge = design.ridge
    for c in range(count):
        losses[c] = 0.0
        left[c] = kept[c]
        counts[c] = 1.0
    if weight != 1.0:  # as so many equal rounds
        for c in range(count):
            left[c] = power(kept[c], weight)
            counts[c] = weight if kept[c] == 1.0 else (1.0 - left[c]) / (1.0 - kept[c])
    for k in range(dim):
        outcome = outcomes[row, k]
        for c in range(count):
            losses[c] -= outcome * logs[k, c]
    for j in range(parameters):
        for c in range(count):
            gradient[j, c] = 0.0
    for e in range(values.shape[1]):
        k = design.classes[e]
        j = design.parameters[e]
        value = values[row, e]
        outcome = outcomes[row, k]
        for c in range(count):
            gradient[j, c] += (laws[k, c] - outcome) * value
    for block in range(blocks):
        for i in range(size):
            own = block + i * blocks
            for j in range(i + 1):
                other = block + j * blocks
                for c in range(count):
                    product = gradient[own, c] * gradient[other, c]
                    A[block, i, j, c] = left[c] * A[block, i, j, c] + counts[c] * product
            for c in range(count):
                A[block, i, i, c] += (1.0 - left[c]) * ridge  # of which nothing is forgotten
        _factor_and_solve(count, block, ridge, work)
    for j in range(parameters):
        for c in range(count):
            step[j, c] = theta[j, c] - step[j, c] * (weight / design.rate)
    for c in range(count):
        tops[c] = 0.0
    for j in range(parameters):
        for c in range(count):
            tops[c] += step[j, c] * step[j, c]
    for c in range(count):
        if tops[c] > 0.99 * design.radius * design.radius:  # it is not moved if it is inside, and seldom this far
            _project_copy(c, design, work)
    for j in range(parameters):
        for c in range(count):
            theta[j, c] = step[j, c]
    trusted(trust[:count], losses[:count], seen, weight, design.share, design.lasting)


@strict
def _factor_and_solve(count: int, block: int, least: float, work: Work) -> None:
    """Write `A⁻¹∇` for a block of every copy, as `_factor` and `_solve` do for one."""
    A = work.curvature
    factor = work.factor
    gradient = work.gradient
    step = work.step
    blocks = A.shape[0]
    size = A.shape[1]
    for i in range(size):
        for j in range(i + 1):
            for c in range(count):
                factor[block, i, j, c] = A[block, i, j, c]
            for k in range(j):
                for c in range(count):
                    factor[block, i, j, c] -= factor[block, i, k, c] * factor[block, j, k, c]
            if i > j:
                for c in range(count):
                    factor[block, i, j, c] /= factor[block, j, j, c]
            else:
                for c in range(count):
                    factor[block, i, i, c] = math.sqrt(max(factor[block, i, i, c], least))
    for i in range(size):
        own = block + i * blocks
        for c in range(count):
            step[own, c] = gradient[own, c]
        for k in range(i):
            other = block + k * blocks
            for c in range(count):
                step[own, c] -= factor[block, i, k, c] * step[other, c]
        for c in range(count):
            step[own, c] /= factor[block, i, i, c]
    for i in range(size - 1, -1, -1):
        own = block + i * blocks
        for k in range(i + 1, size):
            other = block + k * blocks
            for c in range(count):
                step[own, c] -= factor[block, k, i, c] * step[other, c]
        for c in range(count):
            step[own, c] /= factor[block, i, i, c]


@strict
def _project_copy(copy: int, design: Design, work: Work) -> None:
    """Move the point that a copy's step led to into the ball."""
    parameters = len(work.step)
    blocks, size, _, _ = work.curvature.shape
    point = np.empty(parameters)
    A = np.empty((blocks, size, size))
    for j in range(parameters):
        point[j] = work.step[j, copy]
    for block in range(blocks):
        for i in range(size):
            for j in range(i + 1):
                A[block, i, j] = work.curvature[block, i, j, copy]
                A[block, j, i] = A[block, i, j]
    project(point, A, design.ridge, design.radius, _room(parameters, blocks))
    for j in range(parameters):
        work.step[j, copy] = point[j]


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
    work = _work(most, means.shape[1], now.theta.shape[2], design.blocks)
    count = 0
    held = -1
    for step in range(len(rows)):
        own = streams[step]
        row = rows[step]
        weight = weights[step]
        if own != held:
            if held >= 0:
                _put(now, held, count, work)
            held = own
            count = min(_count(now.seen[own], speeds), most)
            _take(now, own, count, speeds, work)
        _laws(count, values, row, design, work)
        if step == 0 or rows[step - 1] != row:
            _mix(count, work, means[row])
        if weight == 0.0:
            continue
        seen = now.seen[own] + weight
        _learn(count, seen, values, outcomes, row, weight, design, work)
        now.seen[own] = seen
        after = min(_count(seen, speeds), most)
        if after > count:
            _put(now, own, count, work)
            for joining in range(count, after):
                join(now, own, joining, design, speeds)
            count = after
            _take(now, own, count, speeds, work)
    if held >= 0:
        _put(now, held, count, work)
