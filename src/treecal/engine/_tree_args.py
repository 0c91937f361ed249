"""Tree forecasters as kernels take them: their arguments, as NamedTuples of numbers and arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.forecasters import AdaptiveTreeCal, Path, TreeCal
from treecal.geometry import ConvexSet, Lp, Norm

TreeForecaster = TreeCal | AdaptiveTreeCal
"""What engines run: forecasters whose state has a column for each stream."""


def new_tree_forecaster(forecaster: ConvexSet | TreeForecaster) -> TreeForecaster:
    """Return the forecaster if engines can run it and it is new; for a set, TreeCal on it."""
    if isinstance(forecaster, ConvexSet):
        return TreeCal(forecaster)
    if type(forecaster) not in (TreeCal, AdaptiveTreeCal):
        raise ParameterError.expected("forecaster", forecaster, "a set, a TreeCal or an AdaptiveTreeCal")
    if forecaster.rounds:
        raise ParameterError.expected("forecaster", forecaster, "a new one", hint="this one has seen outcomes.")
    return forecaster


def new_treecal(forecaster: ConvexSet | TreeCal, *, hint: str) -> TreeCal:
    """Return the forecaster if it is a new TreeCal; for a set, TreeCal on it. The hint says who takes others."""
    if not isinstance(forecaster, ConvexSet) and type(forecaster) is not TreeCal:
        raise ParameterError.expected("forecaster", forecaster, "a set or a TreeCal", hint=hint)
    found = new_tree_forecaster(forecaster)
    assert isinstance(found, TreeCal)
    return found


class TreeArgs(NamedTuple):
    """The tree, and the point of first children; `depth` is 0 for a growing tree."""

    arity: int
    depth: int
    first: Array


class Mix(NamedTuple):
    """Points are `share·point + pull`. Without mixing, kernels take None and are compiled without it."""

    share: float
    pull: Array


def kernel_args(path: Path) -> tuple[TreeArgs, Mix | None]:
    """Return the tree with its start point, and how points are mixed: None if they are not."""
    tree = TreeArgs(path.tree.arity, path.tree.depth or 0, path.first.copy())  # never locked: one compilation
    return tree, Mix(1 - path.mix, path.pull) if path.mix else None


def node_costs(norm: Norm, gaps: Array) -> Array:
    """Return the norm of each gap, rounded as AdaptiveTreeCal rounds that of one."""
    if isinstance(norm, Lp):
        gaps = np.sort(gaps, axis=1)
        if norm.p in (1, 2, math.inf):
            return norm(gaps)
    return np.array([norm(gap) for gap in gaps])  # powers and products of one row are rounded in their own way
