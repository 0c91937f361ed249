"""The functions of trees and of their weights that kernels call, compiled."""

from __future__ import annotations

from treecal import tree
from treecal._compile import strict
from treecal.forecasters import _weighting

digits, carries, weigh = strict(tree.digits), strict(tree.carries), strict(_weighting.weigh)
