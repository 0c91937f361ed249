"""The metric on a GPU: where its kernels work, how they are laid out, and their launches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from treecal.torch._triton.kernels.count import RECORD, START, tally_classes, write_softmax
from treecal.torch._triton.kernels.marked import tally_marked
from treecal.torch._triton.launch import current_stream, launch, multiprocessors, power_of_two

_MOST_ROWS = 2048  # of a program: sums of that many rows fit into 62 bits
_ROWS = 2  # of a program
_EACH = 8  # warps of a multiprocessor
_STAGES = 3  # tiles that are read ahead
_LONG = 12  # warps of a multiprocessor where a row has several
_HELD = 32  # numbers of a row that a thread holds
_SCORED = 256  # rows of a program of the second kernel, one for each thread
_PARTS = 32  # in which the second kernel adds up the sums of classes
_LIMIT = 2.0**-4  # probabilities from it on are marked, since their squares are too large to be summed with others
_FEW_BINS = 64  # of the most likely class, which are summed within a program


class _Shape(NamedTuple):
    """How rows lie in a program, by the number of classes: see `tally_classes`. A warp has a row, or a group of one."""

    chunks: int
    width: int
    each: int
    groups: int

    @property
    def rows(self) -> int:
        """Rows of a program: two, which do not wait for each other, or as many as fit; one if a row has groups."""
        return _ROWS * 32 * self.each // self.width if self.groups == 1 else 1

    @property
    def warps(self) -> int:
        """Warps of a program: one for each group of chunks."""
        return self.groups

    @classmethod
    def of(cls, classes: int, size: int) -> _Shape:
        """Return the shape for a number of classes, of numbers of `size` bytes."""
        each = 16 // size
        block = max(8 * each, power_of_two(classes))
        width = min(block, 32 * each)
        chunks = block // width
        return cls(chunks, width, each, max(1, chunks * each // _HELD))

    def programs(self, rows: int, device: torch.device) -> int:
        """Return how many programs count the rows: as many as the device runs at a time, or fewer."""
        held = self.rows * self.block // (32 * self.warps)  # numbers, by each thread
        warps = min(max(_EACH * _ROWS * _HELD // held, _EACH), 32) if self.groups == 1 else _LONG
        return min(-(-rows // self.rows), max(1, warps // self.warps) * multiprocessors(device))

    @property
    def block(self) -> int:
        """Classes of a row, with room."""
        return self.chunks * self.width


class _Room:
    """What the first kernel leaves to the second, on one device and stream: kept between calls."""

    def __init__(self, device: torch.device, rows: int, shape: _Shape) -> None:
        self.rows = rows
        lanes = shape.groups * shape.width // shape.each
        self.records = torch.empty(rows, RECORD, dtype=torch.int32, device=device)
        self.words = torch.empty(rows, lanes // 8, dtype=torch.int64, device=device)
        self.marks = self.words.view(torch.int8)  # one byte is written, and eight are read
        self.sums = torch.empty(shape.programs(rows, device), shape.block, dtype=torch.int64, device=device)


_rooms: dict[tuple[Any, ...], _Room] = {}


def _room(x: Tensor, shape: _Shape) -> _Room:
    # Work on one stream is done in order; on two streams it may not be, so that each has its own room.
    key = x.device, current_stream(x), shape
    room = _rooms.get(key)
    if room is None or room.rows < x.shape[0]:
        room = _rooms[key] = _Room(x.device, x.shape[0], shape)
    return room


@torch.library.custom_op("treecal::tally_rows", mutates_args=("counts",))
def _tally_op(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    _tally(counts, logits, outcomes, bins)


@_tally_op.register_fake
def _(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    return None


def tally_rows(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    """Add rows to the counts, in place: those of `Sums`, one after the other."""
    (_tally_op if torch.compiler.is_compiling() else _tally)(counts, logits, outcomes, bins)


def _vector(x: Tensor) -> int:
    """Return how many numbers are read at a time, by the number of classes."""
    return min(16 // x.element_size(), x.shape[1] & -x.shape[1])


def _readable(logits: Tensor) -> Tensor:
    """Return the rows, or a copy that can be read by as many numbers at a time as all rows of as many classes.

    How they are read is how their exponentials are added up: so a row's probabilities do not depend on where it lies.
    """
    vector = _vector(logits)
    apart = vector > 1 and (logits.data_ptr() % 16 or logits.stride(0) % vector)
    return logits.clone(memory_format=torch.contiguous_format) if apart or logits.stride(1) != 1 else logits


def _tally(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    x = _readable(logits)
    y = outcomes if outcomes.dtype in (torch.int64, torch.int32) else outcomes.long()
    y = y if y.is_contiguous() else y.contiguous()
    rows = x.shape[0]
    most = _MOST_ROWS * multiprocessors(x.device)
    if rows <= most:  # slicing takes time, too
        _count(counts, x, y, bins)
        return
    for start in range(0, rows, most):
        _count(counts, _readable(x[start : start + most]), y[start : start + most], bins)


class _Plan(NamedTuple):
    """How rows of one shape and type are counted: the limit of what is marked, and the kernels' constants."""

    limit: float
    shape: _Shape
    classes: tuple[Any, ...]
    marked: tuple[Any, ...]


_plans: dict[tuple[Any, ...], _Plan] = {}


def _plan(x: Tensor, bins: int) -> _Plan:
    classes = x.shape[1]
    shape = _Shape.of(x.shape[1], x.element_size())
    base = _wrapped(shape.block // 4 * int(np.float64(START).view(np.int64)))  # of each four
    few = max(16, power_of_two(bins)) if bins <= _FEW_BINS else 0
    chunks, width, each, groups = shape
    return _Plan(
        min(1 / bins, _LIMIT),
        shape,
        (classes, chunks, shape.rows, width, each, groups, _vector(x), x.is_cuda, _STAGES),
        (classes, bins, _SCORED, width, each, groups, shape.block, base, _PARTS, few, x.is_cuda),
    )


def _count(counts: Tensor, x: Tensor, y: Tensor, bins: int) -> None:
    rows, classes = x.shape
    stride = x.stride(0)
    key = x.device, x.dtype, y.dtype, classes, bins, x.data_ptr() % 16, y.data_ptr() % 16
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(x, bins)
    room = _room(x, plan.shape)
    programs = plan.shape.programs(rows, x.device)
    tiles = -(-rows // _SCORED)
    launch(
        tally_classes,
        ("classes", *key),
        programs,
        (x, y, room.records, room.marks, room.sums, rows, stride, plan.limit, *plan.classes),
        num_warps=plan.shape.warps,
    )
    launch(
        tally_marked,
        ("marked", *key, counts.data_ptr() % 16),
        2 * tiles + _PARTS * -(-classes // _SCORED),
        (x, y, room.records, room.words, room.sums, counts, rows, programs, tiles, stride, *plan.marked),
        num_warps=_SCORED // 32,
        enable_fp_fusion=False,  # squares of scores are rounded before they are counted
    )


def _wrapped(value: int) -> int:
    """Return a number as 64 bits hold it."""
    return (value + 2**63) % 2**64 - 2**63


def softmax_rows(logits: Tensor) -> Tensor:
    """Return the softmax of rows, in float32: as the metric counts it, from the sums that its kernel makes."""
    x = _readable(logits)
    rows, classes = x.shape
    out = torch.empty(rows, classes, dtype=torch.float32, device=x.device)
    plan = _plan(x, 1)
    room = _Room(x.device, rows, plan.shape)
    y = torch.zeros(rows, dtype=torch.int64, device=x.device)  # any class
    tally_classes[(plan.shape.programs(rows, x.device),)](
        x, y, room.records, room.marks, room.sums, rows, x.stride(0), plan.limit, *plan.classes,
        num_warps=plan.shape.warps,
    )  # fmt: skip
    write_softmax[(rows,)](x, room.records, out, rows, x.stride(0), classes, power_of_two(classes), x.is_cuda)
    return out
