"""The online Newton step: its state, what its kernels are told, and the steps that need care."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treecal._states import State
from treecal._typing import Array, Integers


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
    gradients: Array  # (copies, parameters)
    theta: Array  # (copies, parameters), after the step
    losses: Array  # (copies,)
    left: Array  # (copies,): what a copy keeps of its past
    counts: Array  # (copies,): what the round counts in it
    factor: Array  # (size, size)


def solve(matrix: Array, vector: Array, ridge: float) -> Array:
    """Return `A⁻¹v`, block by block, for `A` of at least `ridge·I`; `A` is `(…, size, size)` and `v` `(…, size)`.

    Where rounding swallowed the ridge and `A` is singular, it is the shortest solution.
    """
    size = vector.shape[-1]
    if size == 1:
        return vector / matrix[..., 0]
    if size == 2:  # by elimination, where what is left of the second pivot is at least the ridge, but for rounding
        (a, b), c = np.moveaxis(matrix[..., 0, :], -1, 0), matrix[..., 1, 1]
        factor = b / a
        second = (vector[..., 1] - factor * vector[..., 0]) / np.maximum(c - factor * b, ridge)
        return np.stack([(vector[..., 0] - b * second) / a, second], axis=-1)
    try:
        return np.asarray(np.linalg.solve(matrix, vector[..., None])[..., 0])
    except np.linalg.LinAlgError:
        traces = np.trace(matrix, axis1=-2, axis2=-1)
        if ridge > np.finfo(np.float64).eps * traces.max():
            raise
        flat = zip(matrix.reshape(-1, size, size), vector.reshape(-1, size), strict=True)
        return np.array([np.linalg.lstsq(A, v)[0] for A, v in flat]).reshape(vector.shape)


def project(point: Array, matrix: Array, *, radius: float) -> Array:
    """Return the point of the Euclidean ball that is nearest in the norm of a positive definite matrix.

    It minimises `(θ − u)ᵀA(θ − u)` over `‖θ‖ <= radius`. For `u` outside the ball `A(θ − u) + λθ = 0`, with the one
    `λ > 0` that puts `θ = (A + λI)⁻¹Au` on the sphere: a root of one variable in the eigenbasis of `A`. The matrix may
    be one of blocks, `(blocks, size, size)`, and the point then `(blocks, size)`.
    """
    size = math.sqrt((point * point).sum())
    if size <= radius:
        return point
    from scipy.optimize import brentq

    values, basis = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-300)  # rounding may make the least of them 0, or less
    inside = (basis.swapaxes(-1, -2) @ point[..., None])[..., 0]

    def shrunk(multiplier: float) -> Array:
        return np.asarray(values * inside / (values + multiplier))

    def excess(multiplier: float) -> float:
        theta = shrunk(multiplier)
        # 1/‖θ‖ is nearly linear in λ, which suits root finders.
        length = math.sqrt((theta * theta).sum())
        return radius / length - 1 if length else math.inf

    # Each coordinate shrinks by at most Λ_min/(Λ_min + λ), and at least by Λ_max/(Λ_max + λ).
    low, high = (float(value) * (size / radius - 1) for value in (values.min(), values.max()))
    if excess(low) < 0 < excess(high):
        low = brentq(excess, low, high, xtol=1e-300, rtol=1e-15, maxiter=2000, disp=False)
    theta = shrunk(low if abs(excess(low)) <= abs(excess(high)) else high)
    return np.asarray((basis @ theta[..., None])[..., 0] * (radius / math.sqrt((theta * theta).sum())))
