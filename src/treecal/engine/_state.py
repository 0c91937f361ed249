"""Tree forecasters as kernels take them: configuration as NamedTuples of numbers and arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.forecasters import AdaptiveTreeCal, TreeCal
from treecal.forecasters._path import Path
from treecal.forecasters._weighting import Weighting
from treecal.geometry import ConvexSet, Lp, Norm
from treecal.theory._hedge import hedge_rate

if TYPE_CHECKING:
    from treecal.engine._kernels import Mix, Rule, TreeArgs


TreeForecaster = TreeCal | AdaptiveTreeCal
"""What engines run: state of arrays, one column for each stream."""


def new_tree_forecaster(forecaster: ConvexSet | TreeForecaster) -> TreeForecaster:
    """Return a forecaster that engines can run and that has seen nothing yet; for a set, TreeCal on it."""
    if isinstance(forecaster, ConvexSet):
        return TreeCal(forecaster)
    if type(forecaster) not in (TreeCal, AdaptiveTreeCal):
        raise ParameterError.expected("forecaster", forecaster, "a set, a TreeCal or an AdaptiveTreeCal")
    if forecaster.rounds:
        raise ParameterError.expected("forecaster", forecaster, "a new one", hint="this one has seen outcomes.")
    return forecaster


def kernel_args(path: Path) -> tuple[TreeArgs, Mix | None]:
    """Return the tree with its start point, and how points are mixed: None if they are not."""
    from treecal.engine._kernels import Mix, TreeArgs

    tree = TreeArgs(path.tree.arity, path.tree.depth or 0, path.first)
    return tree, Mix(1 - path.mix, path.pull) if path.mix else None


def kernel_rule(weighting: Weighting) -> Rule:
    """Return how heights are weighted."""
    from treecal.engine._kernels import Rule

    arity, depth, block = weighting.tree.arity, weighting.tree.depth, weighting.block
    rates = np.full(weighting.tree.most_heights + 1, weighting.rate)
    if block:
        rates[1:] = [hedge_rate(arity, height, grows=depth is None) for height in range(1, len(rates))]
    return Rule(arity, depth or 0, block, rates)


def node_costs(norm: Norm, gaps: Array) -> Array:
    """Return the norm of each gap, rounded as AdaptiveTreeCal rounds that of one."""
    if isinstance(norm, Lp):
        gaps = np.sort(gaps, axis=1)
        if norm.p in (1, 2, math.inf):
            return norm(gaps)
    return np.array([norm(gap) for gap in gaps])  # powers and products of one row are rounded in their own way
