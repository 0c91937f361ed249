"""A scaling's fit to a log: Newton's method on the regularised log loss, to convergence.

In loops, row by row, without a library for linear algebra or an optimiser: the same bits on every processor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._elementary import power
from treecal._typing import Array, Integers
from treecal.correctors._newton_kernels import Design, _dot, _factor, _law, _loss, _solve

_MOST_STEPS = 100  # of Newton's method, which takes about eight
_MOST_TURNS = 100  # of the search for a multiplier, which takes about five
_CONVERGED = 1e-11  # a step, beside the parameters
_SQUARED = 1e-8  # a step where conjugate gradients do nothing: the error after it is about its square
_ROUNDING = 1e-6  # a step that is smaller, and not half as large as the one before it, is rounding
_ON_THE_SPHERE = 1e-10
_SLACK = 1e-13  # by which rounding may make a cost larger
_LEAST_SHARE = 1e-10
_RESIDUAL = 1e-6  # the square of what conjugate gradients leave, beside what they begin with


class Objective(NamedTuple):
    """What a fit minimises: `f(θ) = Σ counts·loss + rate·(θ − start)ᵀA(θ − start)/2`."""

    values: Array  # (rows, entries): of `F(b)`
    outcomes: Array  # (rows, dim)
    counts: Array  # (rows,)
    start: Array  # (parameters,)
    curvature: Array  # (blocks, size, size): `A`, at least `least·I`
    least: float
    pairs: Integers  # (pairs, 3): entries of one class and one block, the later parameter first; their place in blocks


class Workspace(NamedTuple):
    """Where a fit works."""

    logs: Array  # (dim,)
    laws: Array  # (rows, dim): at the latest parameters
    gradient: Array  # (parameters,)
    step: Array  # (parameters,)
    moved: Array  # (parameters,)
    mean: Array  # (blocks, size)
    left: Array  # (parameters,): of conjugate gradients, as the next three
    better: Array  # (parameters,)
    along: Array  # (parameters,)
    turned: Array  # (parameters,)
    hessian: Array  # (blocks, size, size)
    factor: Array  # (blocks, size, size)


@strict
def remembered(keeps: float, weights: Array, counts: Array) -> float:
    """Write what each row of a log counts at its end, if a round keeps so much of the past; return what is kept of it.

    A weight counts as so many equal rounds.
    """
    later = 0.0
    for row in range(len(weights) - 1, -1, -1):
        weight = weights[row]
        if keeps == 1.0:
            counts[row] = weight
        else:
            counts[row] = power(keeps, later) * (1.0 - power(keeps, weight)) / (1.0 - keeps)
        later += weight
    return power(keeps, later)


@strict
def _pulled(A: Array, theta: Array, scale: float, found: Array) -> None:
    """Add `scale·A·θ`."""
    blocks = A.shape[0]
    size = A.shape[1]
    for block in range(blocks):
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += A[block, i, j] * theta[block + j * blocks]
            found[block + i * blocks] += scale * total


@strict
def _cost(theta: Array, multiplier: float, log: Objective, design: Design, work: Workspace) -> float:
    """Write the laws of all rows; return `f(θ) + multiplier·‖θ‖²/2`."""
    total = 0.0
    for row in range(len(log.values)):
        _law(theta, log.values[row], design, work.logs, work.laws[row])
        loss = 0.0
        for k in range(len(work.logs)):
            loss -= log.outcomes[row, k] * work.logs[k]
        total += log.counts[row] * loss
    off = work.left
    pull = work.turned
    for i in range(len(theta)):
        off[i] = theta[i] - log.start[i]
        pull[i] = 0.0
    _pulled(log.curvature, off, design.rate, pull)
    return total + (_dot(off, pull) + multiplier * _dot(theta, theta)) / 2.0


@strict
def _slope(theta: Array, multiplier: float, log: Objective, design: Design, work: Workspace) -> None:
    """Write the gradient, given the laws."""
    gradient = work.gradient
    off = work.left
    for i in range(len(theta)):
        off[i] = theta[i] - log.start[i]
        gradient[i] = multiplier * theta[i]
    _pulled(log.curvature, off, design.rate, gradient)
    for row in range(len(log.values)):
        weight = log.counts[row]
        for e in range(log.values.shape[1]):
            k = design.classes[e]
            gradient[design.parameters[e]] += weight * (work.laws[row, k] - log.outcomes[row, k]) * log.values[row, e]


@strict
def _bend(log: Objective, design: Design, work: Workspace) -> None:
    """Write the Hessian's blocks, below their diagonals, without the multiplier: `Σ Fᵀ(diag p − ppᵀ)F + rate·A`."""
    hessian = work.hessian
    mean = work.mean
    blocks = design.blocks
    size = hessian.shape[1]
    for block in range(blocks):
        for i in range(size):
            for j in range(i + 1):
                hessian[block, i, j] = design.rate * log.curvature[block, i, j]
    flat = hessian.ravel()
    sums = mean.ravel()
    places = (design.parameters % blocks) * size + design.parameters // blocks
    for row in range(len(log.values)):
        values = log.values[row]
        law = work.laws[row]
        weight = log.counts[row]
        sums[:] = 0.0
        for e in range(len(values)):
            sums[places[e]] += law[design.classes[e]] * values[e]
        for pair in range(len(log.pairs)):
            e = log.pairs[pair, 0]
            flat[log.pairs[pair, 2]] += weight * law[design.classes[e]] * (values[e] * values[log.pairs[pair, 1]])
        for block in range(blocks):
            for i in range(size):
                own_mean = weight * mean[block, i]
                for j in range(i + 1):
                    hessian[block, i, j] -= own_mean * mean[block, j]


@strict
def _times_hessian(
    direction: Array, multiplier: float, log: Objective, design: Design, work: Workspace, found: Array
) -> None:
    """Write the product of the whole Hessian, with the multiplier, and a direction."""
    for i in range(len(direction)):
        found[i] = multiplier * direction[i]
    _pulled(log.curvature, direction, design.rate, found)
    moves = work.logs
    for row in range(len(log.values)):
        values = log.values[row]
        law = work.laws[row]
        moves[:] = 0.0
        for e in range(len(values)):
            moves[design.classes[e]] += values[e] * direction[design.parameters[e]]
        mean = _dot(law, moves)
        for e in range(len(values)):
            k = design.classes[e]
            found[design.parameters[e]] += log.counts[row] * law[k] * (moves[k] - mean) * values[e]


@strict
def _solved(right: Array, multiplier: float, log: Objective, design: Design, work: Workspace, found: Array) -> None:
    """Solve for the right side with the Hessian whose blocks are written.

    One block is all of it; several are left out of each other, and conjugate gradients do the rest.
    """
    _factor(work.hessian, multiplier, design.rate * log.least, work.factor)
    _solve(work.factor, right, found)
    if design.blocks == 1:
        return
    left = work.left
    better = work.better
    along = work.along
    turned = work.turned
    copy_into(left, right)
    copy_into(along, found)
    size = first = _dot(left, found)
    found[:] = 0.0
    for _ in range(len(right)):
        if size <= _RESIDUAL * first:
            break
        _times_hessian(along, multiplier, log, design, work, turned)
        part = size / _dot(along, turned)
        for i in range(len(right)):
            found[i] += part * along[i]
            left[i] -= part * turned[i]
        _solve(work.factor, left, better)
        before = size
        size = _dot(left, better)
        for i in range(len(right)):
            along[i] = better[i] + size / before * along[i]


@strict
def _largest(numbers: Array) -> float:
    found = 0.0
    for number in numbers:
        found = max(found, abs(number))
    return found


@strict
def _descend(theta: Array, multiplier: float, log: Objective, design: Design, work: Workspace) -> None:
    """Move to the minimum of `f(θ) + multiplier·‖θ‖²/2`, in full steps, or in parts where those do not pay."""
    moved = work.moved
    step = work.step
    cost = _cost(theta, multiplier, log, design, work)
    last = math.inf
    converged = _SQUARED if design.blocks == 1 else _CONVERGED
    for _ in range(_MOST_STEPS):
        _slope(theta, multiplier, log, design, work)
        _bend(log, design, work)
        _solved(work.gradient, multiplier, log, design, work, step)
        falls = _dot(work.gradient, step)
        share = 1.0
        while True:
            for i in range(len(theta)):
                moved[i] = theta[i] - share * step[i]
            after = _cost(moved, multiplier, log, design, work)
            if after <= cost - 1e-4 * share * falls + _SLACK * abs(cost):
                break
            share /= 2.0
            if share < _LEAST_SHARE:
                _cost(theta, multiplier, log, design, work)  # the laws of where it stays
                return
        copy_into(theta, moved)
        cost = after
        size = share * _largest(step) / (1.0 + _largest(theta))
        if size <= converged or (size <= _ROUNDING and size > last / 2.0):
            return
        last = size


@strict
def optimum(theta: Array, log: Objective, design: Design) -> None:
    """Move parameters to the best ones in the ball.

    If the minimum of `f` is outside, the best ones on the sphere minimise `f(θ) + λ‖θ‖²/2` for one `λ > 0`, which is
    found as in `project`: `1/‖θ‖` is nearly linear in it.
    """
    parameters = len(theta)
    radius = design.radius
    work = Workspace(
        np.empty(log.outcomes.shape[1]),
        np.empty(log.outcomes.shape),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(log.curvature.shape[:2]),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(parameters),
        np.empty(log.curvature.shape),
        np.empty(log.curvature.shape),
    )
    multiplier = 0.0
    low = 0.0
    high = math.inf
    for _ in range(_MOST_TURNS):
        _descend(theta, multiplier, log, design, work)
        length = math.sqrt(_dot(theta, theta))
        if length > radius:
            low = multiplier
        elif multiplier == 0.0:
            return
        else:
            high = multiplier
        if abs(length / radius - 1.0) <= _ON_THE_SPHERE:
            break
        _bend(log, design, work)
        _solved(theta, multiplier, log, design, work, work.step)
        after = multiplier + (length / radius - 1.0) * length * length / _dot(theta, work.step)
        if not low < after < high:
            after = (low + high) / 2.0
        if after == multiplier:
            break
        multiplier = after
    share = min(1.0, radius / math.sqrt(_dot(theta, theta)))
    for i in range(parameters):
        theta[i] *= share


@strict
def curvature(theta: Array, log: Objective, design: Design, found: Array) -> None:
    """Write `Σ counts·∇∇ᵀ`, by block."""
    dim = log.outcomes.shape[1]
    blocks = found.shape[0]
    size = found.shape[1]
    logs = np.empty(dim)
    law = np.empty(dim)
    gradient = np.empty(len(theta))
    found[:] = 0.0
    for row in range(len(log.values)):
        _loss(theta, log.values[row], log.outcomes[row], design, logs, law, gradient)
        for block in range(blocks):
            for i in range(size):
                own = log.counts[row] * gradient[block + i * blocks]
                for j in range(i + 1):
                    found[block, i, j] += own * gradient[block + j * blocks]
    for block in range(blocks):
        for i in range(size):
            for j in range(i):
                found[block, j, i] = found[block, i, j]
