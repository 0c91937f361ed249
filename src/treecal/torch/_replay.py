"""A whole stream at once, on the device where its outcomes are; the CPU replays the lanes that kernels leave to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.engine import KERNEL_DISTANCES, TreeForecaster, new_treecal, read_outcomes, replay as replay_on_cpu
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import TreeArgs, TreeCal, TreeState, carry, coordinate
from treecal.geometry import TOLERANCE, Box, ConvexSet, Distance, Simplex, as_distance
from treecal.torch._read import as_tensor, runs_kernels
from treecal.tree import digits

if TYPE_CHECKING:
    from treecal.torch._triton.climbing import Bounds, Step

# of a box for the kernels, whose roots start in float32
_SMALLEST = 1e-6
_LARGEST = 1e6
_ROW_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_CLASS_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Replayed:
    """A stream that was replayed on a device. Made by `replay`.

    Attributes
    ----------
    rounds
        Number of outcomes.
    totals
        The per-node errors in ℓ1, ℓ2 and ℓ2², summed over rounds.
    next
        The forecast of the outcome that would come next; None if the tree is full.

    Examples
    --------
    >>> import torch
    >>> import treecal as tc
    >>> run = replay(torch.tensor([0, 1, 1, 0]), tc.Simplex(2))
    >>> run.rounds, run.next.mean
    (4, array([0.5, 0.5]))
    """

    def __init__(self, rounds: int, totals: dict[Distance, float], follow: Callable[[], Forecast | None]) -> None:
        self.rounds = rounds
        self.totals = totals
        self._follow = follow

    @cached_property
    def next(self) -> Forecast | None:
        """The forecast of the outcome that would come next; None if the tree is full."""
        return self._follow()

    def __repr__(self) -> str:
        return f"Replayed({self.rounds} rounds, l1 {self.totals[KERNEL_DISTANCES[0]]:.6g})"

    def error(self, distance: Distance | str = "l1", *, total: bool = False) -> float:
        """Return the per-node (labelled) calibration error: `Run.error(distance, per_node=True)`.

        Parameters
        ----------
        distance
            ℓ1, ℓ2 or ℓ2².
        total
            Sum over rounds instead of the mean.
        """
        measure = as_distance(distance)
        if measure not in self.totals:
            raise UnsupportedError(
                f"{measure!r} is not measured on the device, only ℓ1, ℓ2 and ℓ2².",
                hint="tc.replay(outcomes.cpu(), ...) measures any distance.",
            )
        if not (self.rounds or total):
            raise ParameterError("no round was replayed, so there is no error per round.")
        return self.totals[measure] / (1 if total else self.rounds)


def replay(outcomes: Any, forecaster: ConvexSet | TreeCal, *, arity: int = 8) -> Replayed:
    """Replay a whole stream on the device where it is: the per-node errors of `TreeCal`, and its next forecast.

    Outcomes are read once, at about the speed of the device's memory. Sums are made in float64, in the order of
    `tc.replay`: of eight (`arity`) outcomes one after the other, then of eight such sums, and so on. So `next` is the
    same as on the CPU bit for bit, for classes and for points. Errors are sums of one term for each node, which are
    added in another order: first along each subtree of `arity²` outcomes, then over subtrees. They agree with the
    CPU's to 1e-12 of their size, and are the same in every run on the same device.

    Kernels are there for simplices and boxes of up to 1,024 coordinates on NVIDIA's GPUs, without mixing. All else, and
    what is on the CPU, is replayed by `tc.replay` on the CPU, with the same result.

    Parameters
    ----------
    outcomes
        A tensor, or anything with DLPack (a CuPy or JAX array): points, `(T, d)`, in float64, float32, bfloat16 or
        float16; or classes, `(T,)`, whole numbers from 0. Fewer than 2^31.
    forecaster
        A new `TreeCal`; or a set, for `TreeCal(space, arity=arity)`.
    arity
        Used when a set is given.

    Examples
    --------
    >>> import torch
    >>> import treecal as tc
    >>> rows = torch.rand(1000, 10, generator=torch.Generator().manual_seed(0))
    >>> run = replay(rows, tc.Box(0, 1, dim=10))
    >>> run.error("l2") == tc.replay(rows.numpy(), tc.Box(0, 1, dim=10)).error("l2", per_node=True)
    True
    """
    rows = as_tensor("outcomes", outcomes)
    given = _treecal(forecaster, arity) if isinstance(forecaster, ConvexSet) else forecaster
    found = new_treecal(given, hint="tc.replay takes others.")
    check = _check_of(found, rows)
    if check is None:
        return _on_cpu(rows, found)
    return _on_device(rows if rows.is_contiguous() else rows.contiguous(), found, check)


@lru_cache(maxsize=64)
def _treecal(space: ConvexSet, arity: int) -> TreeCal:
    """Return a forecaster that nobody updates: to make one takes longer than to launch a kernel."""
    return TreeCal(space, arity=arity)


def _on_cpu(rows: Tensor, forecaster: TreeCal) -> Replayed:
    run = replay_on_cpu(_numpy(rows.cpu()), forecaster)
    totals = {distance: run.error(distance, per_node=True, total=True) for distance in KERNEL_DISTANCES}
    full = forecaster.tree.horizon == run.rounds
    return Replayed(run.rounds, totals, lambda: None if full else run.forecast(run.rounds))


def _check_of(forecaster: TreeForecaster, rows: Tensor) -> int | None:
    """Return what the kernels check outcomes for, or None where there are none."""
    space = forecaster.space
    if not runs_kernels(rows) or forecaster._path.mix or forecaster.tree.arity > 1024:
        return None
    from treecal.torch._triton.climbing import MOST_DIM, MOST_ROWS

    if space.dim > MOST_DIM or len(rows) > MOST_ROWS:
        return None
    if rows.ndim == 1:
        return 3 if isinstance(space, Simplex) and rows.dtype in _CLASS_TYPES else None
    if rows.ndim != 2 or rows.shape[1] != space.dim or rows.dtype not in _ROW_TYPES:
        return None
    if isinstance(space, Simplex):
        return 1
    return 2 if isinstance(space, Box) and _is_usual(space) else None


@lru_cache(maxsize=64)
def _is_usual(space: Box) -> bool:
    """Return whether a box is neither too small nor too large for kernels."""
    return bool(_SMALLEST <= np.abs(space.bounds()).max() <= _LARGEST)


class _Slice(NamedTuple):
    """Nodes of one height that the CPU measures, from `start` on: of the first lane, or of an incomplete one."""

    height: int
    start: int
    heights: int
    rows: Tensor
    whole: bool


def _on_device(rows: Tensor, forecaster: TreeCal, check: int) -> Replayed:
    from treecal.torch._triton.climbing import climb, steps_of

    tree = forecaster.tree
    dim = forecaster.space.dim
    tree.check(len(rows))
    first = np.array(forecaster._path.first, np.float64)
    bounds = _bounds(forecaster.space, first.tobytes(), rows.device)
    steps = steps_of(rows, tree, dim)
    sums = torch.empty(16 * steps[-1].target, dim, dtype=torch.float64, device=rows.device)
    found = torch.empty(steps[-1].program, 4, dtype=torch.float64, device=rows.device)
    for step in steps[:-1]:
        climb(sums if step.height else rows, sums, found, bounds, tree, 0 if step.height else check, step)
    slices: list[_Slice] = []
    for height, heights, whole, _, _, source, _, _ in steps:
        level, at, children = (sums, 16 * source, tree.arity**heights) if height else (rows, 0, tree.arity**heights)
        if whole:
            slices.append(_Slice(height, 0, heights, level[at : at + children], whole=True))
        start = whole * children
        end = len(rows) // tree.arity**height
        slices.append(_Slice(height, start, heights, level[at + start : at + end], whole=False))
    held = torch.cat([found.sum(dim=0), torch.cat([_dense(part.rows, dim) for part in slices]).flatten()])
    table = np.array([[part.height, part.start, part.heights, len(part.rows), part.whole] for part in slices], np.int64)
    fetched = held.cpu().numpy()  # waits for the device
    if len(found) and fetched[3]:
        _refuse(forecaster, rows, found[: steps[0].programs, 3].nonzero().flatten().tolist(), steps[0])
    kept = fetched[4:].reshape(-1, dim)
    tail = next(i for i, part in enumerate(slices) if not part.whole)
    at = int(table[:tail, 3].sum())
    _check_tail(forecaster.space, slices[tail], kept[at : at + len(slices[tail].rows)], bounds.edges)
    return _result(forecaster, first, len(rows), fetched[:3], table, kept)


def _check_tail(space: ConvexSet, tail: _Slice, rows: Array, edges: tuple[Array, Array]) -> None:
    """Raise for the first outcome after the whole lanes outside the set."""
    if tail.rows.ndim == 1:
        if len(rows) and not rows.any(axis=1).all():  # one is not a class
            read_outcomes(space, _numpy(tail.rows.cpu()), before=tail.start)
    elif not (isinstance(space, Box) and ((rows >= edges[0]) & (rows <= edges[1])).all()):
        read_outcomes(space, rows, before=tail.start)


@lru_cache(maxsize=64)
def _bounds(space: ConvexSet, start: bytes, device: torch.device) -> Bounds:
    """Return what outcomes are checked by, on the device."""
    from treecal.torch._triton.climbing import Bounds

    first = np.frombuffer(start).copy()
    low = high = first
    if isinstance(space, Box):
        low, high = (np.array(edge, np.float64) for edge in space.bounds())
        slack = TOLERANCE * np.maximum(np.abs(low), np.abs(high))
        low = low - slack
        high = high + slack
    least = low.astype(np.float32)
    most = high.astype(np.float32)
    least = np.where(least < low, np.nextafter(least, np.float32(np.inf)), least)
    most = np.where(most > high, np.nextafter(most, np.float32(-np.inf)), most)
    alike = all(bool((edge == edge[0]).all()) for edge in (first, low, high))
    there = [torch.from_numpy(part).to(device) for part in (first, low, high, least, most)]
    return Bounds(*there, alike, (low, high))  # type: ignore[arg-type, call-arg]


def _refuse(forecaster: TreeCal, rows: Tensor, programs: list[int], step: Step) -> None:
    """Raise for the first outcome that is not of the set: kernels know which programs read one; the CPU finds it."""
    size = step.lanes * forecaster.tree.arity**step.heights
    for program in programs:
        part = rows[program * size : (program + 1) * size]
        read_outcomes(forecaster.space, _numpy(part.cpu()), before=program * size)


def _numpy(rows: Tensor) -> Any:
    return (rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows).numpy()


def _dense(rows: Tensor, dim: int) -> Tensor:
    if rows.ndim == 2:
        return rows.double()
    return (rows[:, None] == torch.arange(dim, device=rows.device)).double()


def _result(forecaster: TreeCal, first: Array, rounds: int, found: Array, table: Integers, kept: Array) -> Replayed:
    """Return what the kernels found, with the errors of the first lanes and of those that are not whole."""
    tree = forecaster.tree
    heights = tree.heights(rounds)
    errors = found.copy()
    carried = np.zeros((heights + 2, len(first)))
    measure_slices(kept, table, rounds, TreeArgs(tree.arity, tree.depth or 0, first), errors, carried)
    totals = dict(zip(KERNEL_DISTANCES, errors.tolist(), strict=True))

    def follow() -> Forecast | None:
        if tree.horizon == rounds:
            return None
        resumed = TreeCal(**forecaster.arguments())
        resumed._state = TreeState(np.array([rounds]), carried[:heights, None])
        return resumed.predict()

    return Replayed(rounds, totals, follow)


class Lane(NamedTuple):
    """Consecutive nodes of some heights: the number of the first lowest one, its height, and how many heights."""

    start: int
    height: int
    heights: int


@strict
def measure_slices(held: Array, slices: Integers, rounds: int, tree: TreeArgs, errors: Array, carried: Array) -> None:
    """Add the errors of all slices, and write what is carried at the end of the stream to sums that are 0.

    Each slice is `(height, start, heights, count, whole)`, and its rows follow one after the other in `held`. The sum
    of the incomplete node of a slice is the last row of the next slice that has one.
    """
    dim = len(tree.first)
    at = 0
    left = 0
    last = np.empty(dim)
    for i in range(len(slices)):
        height, start, heights, count, whole = slices[i]
        lane = Lane(start, height, heights)
        rows = np.empty((count + left, dim))
        rows[:count] = held[at : at + count]
        at += count
        if whole:
            measure(rows[:count], lane, rounds, tree, errors)
            continue
        if left:
            rows[count] = last
        # What is carried within the lane, which begins where nothing is: that of a tree whose leaves are these nodes.
        ended = min(len(rows), rounds // tree.arity**height - start)
        carry(rows[:ended], TreeArgs(tree.arity, 0, tree.first), carried[height:])
        measure(rows, lane, rounds, tree, errors)
        left = min(len(rows), 1)
        if left:
            last[:] = rows[0]


@strict
def measure(rows: Array, lane: Lane, rounds: int, tree: TreeArgs, errors: Array) -> None:
    """Add the errors of the nodes of a lane in ℓ1, ℓ2 and ℓ2².

    `rows` are the sums of its lowest nodes, and become those of the nodes above.
    """
    start, height, heights = lane
    arity, depth, first = tree
    count, dim = rows.shape
    length = arity**height
    for step in range(heights):
        total = np.zeros(dim)
        for i in range(count):
            number = start + i
            digit = number % arity
            own = min(rounds - number * length, length)
            if digit == 0:
                total[:] = 0.0
            one = 0.0
            two = 0.0
            for k in range(dim):
                gap = rows[i, k] - own * coordinate(total[k], digit * length, k, first[k], None)
                one += abs(gap)
                two += gap * gap
            if depth > 0 or number > 0 or height + step == 0:
                share = 1.0 / (depth if depth > 0 else height + step + digits(number, arity))
                errors[0] += share * one
                errors[1] += share * math.sqrt(two)
                errors[2] += share * two / own
            for k in range(dim):
                total[k] += rows[i, k]
                rows[i // arity, k] = total[k]  # its own row has been read, and so have those before
        count = (count + arity - 1) // arity
        start //= arity
        length *= arity
