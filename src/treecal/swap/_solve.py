"""Minimisers over a convex set with a projection, for losses without a closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treecal._typing import Array
from treecal.exceptions import UnsupportedError
from treecal.geometry import ConvexSet

_STEEPEST = 1e8  # the entropy's gradient is infinite on the boundary; a finite one there still points inwards
_STEPS = 10_000


def descend(value: Callable[[Array], Array], gradient: Callable[[Array], Array], space: ConvexSet) -> Array:
    """Return a minimiser of a smooth convex function, by spectral projected gradients (Birgin, Martínez and Raydan).

    It ends where a projected unit step moves no coordinate by more than 1e-10 times the point's size, the condition
    of optimality; or where rounding lets no step improve the value further.
    """

    def slope(point: Array) -> Array:
        return np.clip(gradient(point), -_STEEPEST, _STEEPEST)

    point = np.array(space.centre)
    here = float(value(point))
    g = slope(point)
    rate = 1.0
    recent = [here]
    best = point
    least = here
    for _ in range(_STEPS):
        if np.abs(space.project(point - g) - point).max() <= 1e-10 * (1 + np.abs(point).max()):
            return point
        direction = space.project(point - rate * g) - point
        fall = float(g @ direction)
        length = 1.0
        goal = max(recent)
        while (there := float(value(point + length * direction))) > goal + 1e-4 * length * fall:
            length /= 2
            if length < 1e-12:  # no step is an improvement that float64 can see
                return best
        step = length * direction
        point = point + step
        before = g
        g = slope(point)
        bend = float(step @ (g - before))
        rate = min(max(float(step @ step) / bend, 1e-10), 1e10) if bend > 0 else 1e10
        recent = [*recent[-9:], there]  # the last ten: the value may rise between, which spectral steps need
        if there < least:
            best = point
            least = there
    raise UnsupportedError.by(space, "minimiser of this loss", f"projected gradients took {_STEPS} steps")


def search(value: Callable[[Array], Array], space: ConvexSet) -> Array:
    """Return a local minimiser of a function whose gradient is not known, by SciPy.

    Minimises `value(Π(z)) + ‖z − Π(z)‖²` over all `z`, Π the projection onto the set: its minimisers project onto those
    of the function over the set, and the function is never evaluated outside the set.
    """
    from scipy.optimize import minimize

    def lifted(z: Array) -> float:
        inside = space.project(z)
        return float(value(inside)) + float(np.square(z - inside).sum())

    found = minimize(lifted, np.array(space.centre), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    return space.project(found.x)
