"""The climb through the tree of a whole stream on a GPU: its steps, and the launches of their kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from treecal._typing import Array
from treecal.torch._triton.kernels.climb import climb_nodes
from treecal.torch._triton.kernels.pieces import HAS_TUPLES, climb_rows
from treecal.torch._triton.launch import launch, power_of_two
from treecal.tree import Tree

MOST_DIM = 1024
"""Rows of more coordinates are left to the CPU."""
MOST_ROWS = 2**31 - 2**12
_UNROLLED = 16  # children of a node, at most, for two heights at a time and for loops without a counter
_WARPS = 4
_MANY = 2**16  # lanes, so that there is one for each thread of a device
_FEW = 8  # lanes: fewer are left to the CPU
_NARROW = 16  # coordinates of a row that one thread holds, at most
_TILE = 1024  # numbers of the rows that a program holds otherwise
_ROW_LANES = 32  # of a program that reads pieces of rows
_REGISTERS = 168  # of each of its threads, so that there are enough
_MOST_DIM = 16  # of rows
_MOST_ARITY = 16
_MOST_AT_ONCE = 126  # numbers of rows that a thread holds


class Bounds(NamedTuple):
    """What outcomes are checked by.

    Attributes
    ----------
    first, low, high
        The start point; and the bounds of a box with what rounding may add, of other sets anything.
    least, most
        The bounds in float32: those within the box, so that for float32 numbers it is the same to be within them.
    alike
        Whether start point and bounds are the same in all coordinates.
    edges
        `low` and `high` on the CPU.
    """

    first: Tensor
    low: Tensor
    high: Tensor
    least: Tensor
    most: Tensor
    alike: bool
    edges: tuple[Array, Array]


class Step(NamedTuple):
    """Some heights that are climbed at a time, by whole lanes: programs, and where they read and write.

    Attributes
    ----------
    height, heights
        The foot, and how many.
    whole, lanes, programs
        Lanes, how many of them a program of the kernel has, and programs: 0 for what is left to the CPU.
    source, target
        The first of the rows that are read and of those that are written, in units of 16 rows.
    program
        The first of the programs.
    """

    height: int
    heights: int
    whole: int
    lanes: int
    programs: int
    source: int
    target: int
    program: int


def climb(rows: Tensor, sums: Tensor, found: Tensor, bounds: Bounds, tree: Tree, check: int, step: Step) -> None:
    """Climb a step: write the sums of its lanes, and by program their errors in ℓ1, ℓ2 and ℓ2², and how many refused.

    `rows` are outcomes, or the sums of the step before; `check` says what they are checked for: 0 nothing, 1 a simplex,
    2 a box, 3 classes. `found` is `(programs, 4)`.
    """
    arity = tree.arity
    dim = sums.shape[1]
    digits = 0
    power = 1
    while power <= step.whole:
        digits += 1
        power *= arity
    parts = tree.depth or step.height + step.heights
    grows = tree.depth is None
    key = rows.device, rows.dtype, rows.ndim, dim, arity, step.heights, grows, check, rows.data_ptr() % 16, bounds.alike
    group = _rows_at_once(rows, arity) if check else 0
    if group:
        launch(
            climb_rows,
            ("rows", *key),
            step.programs,
            (
                *(rows, sums, found, bounds.first, bounds.least, bounds.most, step.whole, parts, digits),
                *(arity, step.heights, grows, check, step.lanes, dim, group, bounds.alike),
            ),
            num_warps=step.lanes // 32,
            **({"maxnreg": _REGISTERS} if rows.is_cuda else {}),
        )
        return
    launch(
        climb_nodes,
        ("climb", *key),
        step.programs,
        (
            *(rows, sums, found, bounds.first, bounds.low, bounds.high, _columns(dim, rows.device)),
            *(step.source, step.target, step.program, step.whole, arity**step.height, parts, digits),
            *(arity, step.heights, grows, rows.ndim == 1, check, step.lanes),
            *(dim, max(2, power_of_two(dim)), dim <= _NARROW, arity <= _UNROLLED),
        ),
        num_warps=_WARPS,
    )


def steps_of(rows: Tensor, tree: Tree, dim: int) -> list[Step]:
    """Return the steps to the root; the last is left to the CPU.

    Two heights are climbed at a time if there are lanes enough for all threads of a device.
    """
    steps = []
    height = 0
    end = tree.heights(len(rows))
    source = 0
    target = 0
    program = 0
    while height < end:
        nodes = len(rows) // tree.arity**height
        several = tree.arity <= _UNROLLED and nodes >= _MANY * tree.arity**2
        heights = min(2 if several else 1, end - height)
        whole = nodes // tree.arity**heights
        if whole < _FEW:
            heights = end - height
            whole = 0
        lanes = _ROW_LANES if not height and _rows_at_once(rows, tree.arity) else _lanes(dim)
        steps.append(Step(height, heights, whole, lanes, -(-whole // lanes), source, target, program))
        source = target
        target += -(-whole // 16)
        program += steps[-1].programs
        height += heights
    return steps


def _lanes(dim: int) -> int:
    """Return how many lanes a program of `_climb` has."""
    return 32 * _WARPS if dim <= _NARROW else max(1, _TILE // power_of_two(dim))


_known: dict[tuple[int, torch.device], Tensor] = {}


def _columns(dim: int, device: torch.device) -> Tensor:
    """Return the numbers of the coordinates."""
    if (dim, device) not in _known:
        _known[dim, device] = torch.arange(dim, dtype=torch.int32, device=device)
    return _known[dim, device]


def _rows_at_once(rows: Tensor, arity: int) -> int:
    """Return how many rows of a lane are read at once, a part of a node's children; or 0, if they are not for this."""
    dim = rows.shape[1] if rows.ndim == 2 else 0
    if not 0 < dim <= _MOST_DIM or arity > _MOST_ARITY or rows.element_size() > 4 or not HAS_TUPLES:
        return 0
    parts = [n for n in range(1, arity + 1) if arity % n == 0 and n * dim <= _MOST_AT_ONCE and n * dim % 2 == 0]
    return max(parts, default=0)
