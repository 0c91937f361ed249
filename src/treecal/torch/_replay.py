"""A whole stream at once, on the device where its outcomes are."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from treecal._typing import Array
from treecal.engine import replay as replay_on_cpu
from treecal.engine._climb import KERNEL_DISTANCES
from treecal.engine._outcomes import read_outcomes
from treecal.engine._state import TreeForecaster, new_tree_forecaster
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import TreeCal
from treecal.forecasters._path import TreeState
from treecal.geometry import TOLERANCE, Box, ConvexSet, Distance, Simplex, as_distance
from treecal.torch._device import HAS_TRITON

_SMALLEST, _LARGEST = 1e-6, 1e6  # of a box for the kernels, whose roots start in float32
_ROW_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_CLASS_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Replayed(NamedTuple):
    """A stream that was replayed on a device. Made by `replay`.

    Attributes
    ----------
    rounds
        Number of outcomes.
    totals
        The per-node errors in ℓ1, ℓ2 and ℓ2², summed over rounds.
    next
        The forecast of the outcome that would come next.

    Examples
    --------
    >>> import torch
    >>> import treecal as tc
    >>> run = replay(torch.tensor([0, 1, 1, 0]), tc.Simplex(2))
    >>> run.rounds, run.next.mean
    (4, array([0.5, 0.5]))
    """

    rounds: int
    totals: dict[Distance, float]
    next: Forecast | None

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
    rows = outcomes.detach() if isinstance(outcomes, Tensor) else _from_dlpack(outcomes)
    found = TreeCal(forecaster, arity=arity) if isinstance(forecaster, ConvexSet) else new_tree_forecaster(forecaster)
    if not isinstance(found, TreeCal):
        raise ParameterError.expected("forecaster", forecaster, "a set or a TreeCal", hint="tc.replay takes others.")
    check = _check_of(found, rows)
    if check is None:
        return _on_cpu(rows, found)
    return _on_device(rows.contiguous(), found, check)


def _from_dlpack(outcomes: Any) -> Tensor:
    if not hasattr(outcomes, "__dlpack__"):
        raise ParameterError(f"outcomes are a {type(outcomes).__name__}, expected a tensor, or an array with DLPack.")
    found: Tensor = torch.from_dlpack(outcomes)
    return found


def _on_cpu(rows: Tensor, forecaster: TreeCal) -> Replayed:
    held = rows.cpu()
    given = (held.float() if held.dtype in (torch.bfloat16, torch.float16) else held).numpy()
    run = replay_on_cpu(given, forecaster)
    totals = {distance: run.error(distance, per_node=True, total=True) for distance in KERNEL_DISTANCES}
    full = forecaster.tree.horizon == run.rounds
    return Replayed(run.rounds, totals, None if full else run.forecast(run.rounds))


def _check_of(forecaster: TreeForecaster, rows: Tensor) -> int | None:
    """Return what the kernels check outcomes for, or None where there are none."""
    space = forecaster.space
    if not (HAS_TRITON and rows.is_cuda and len(rows)) or forecaster._path.mix or forecaster.tree.arity > 1024:
        return None
    from treecal.torch._climb import MOST_DIM, MOST_ROWS

    if space.dim > MOST_DIM or len(rows) > MOST_ROWS:
        return None
    if rows.ndim == 1:
        return 3 if isinstance(space, Simplex) and rows.dtype in _CLASS_TYPES else None
    if rows.ndim != 2 or rows.shape[1] != space.dim or rows.dtype not in _ROW_TYPES:
        return None
    if isinstance(space, Simplex):
        return 1
    if isinstance(space, Box):
        size = float(np.abs(space.bounds()).max())
        return 2 if _SMALLEST <= size <= _LARGEST else None
    return None


class _Slice(NamedTuple):
    """Nodes of one height that the CPU measures: those of the first lane, or of the last one, which is not whole."""

    height: int
    start: int
    rows: Tensor
    heights: int


def _on_device(rows: Tensor, forecaster: TreeCal, check: int) -> Replayed:
    from treecal.torch._climb import climb, heights_at_once

    tree, rounds = forecaster.tree, len(rows)
    tree.check(rounds)
    first, *bounds = (torch.from_numpy(part).to(rows.device) for part in _constants(forecaster))
    heads: list[_Slice] = []
    tails: list[_Slice] = []
    found: list[Tensor] = []
    level, height = rows, 0
    while height < tree.heights(rounds):
        heights = heights_at_once(tree.arity)
        if tree.depth is not None:
            heights = min(heights, tree.depth - height)
        children = tree.arity**heights
        whole = rounds // (tree.arity**height * children)
        tails.append(_Slice(height, whole * children, level[whole * children :], heights))
        if whole:
            heads.append(_Slice(height, 0, level[:children], heights))
            level, errors = climb(
                level,
                first,
                arity=tree.arity,
                heights=heights,
                length=tree.arity**height,
                whole=whole,
                parts=tree.depth or height + heights,
                grows=tree.depth is None,
                check=0 if height else check,
                bounds=(bounds[0], bounds[1]),
            )
            found.append(errors)
        else:
            level = first.new_empty((0, len(first)))
        height += heights
    found = found or [first.new_zeros((1, 4))]
    totals = torch.stack([errors.sum(dim=0) for errors in found]).cpu().tolist()  # waits for the device
    heads, tails = ([part._replace(rows=part.rows.cpu()) for part in parts] for parts in (heads, tails))
    if totals[0][3]:
        _refuse(forecaster, rows, found[0][:, 3].nonzero().flatten().tolist())
    read_outcomes(forecaster.space, _numpy(tails[0].rows), before=tails[0].start)
    return _result(forecaster, rounds, [own[:3] for own in totals], heads, tails)


def _constants(forecaster: TreeCal) -> tuple[Array, Array, Array]:
    """Return the start point, and the bounds of a box with what rounding may add; for other sets any."""
    first, space = np.array(forecaster._path.first, np.float64), forecaster.space
    if not isinstance(space, Box):
        return first, first, first
    low, high = (np.array(edge, np.float64) for edge in space.bounds())
    slack = TOLERANCE * np.maximum(np.abs(low), np.abs(high))
    return first, low - slack, high + slack


def _refuse(forecaster: TreeCal, rows: Tensor, programs: list[int]) -> None:
    """Raise for the first outcome that is not of the set: kernels know which programs saw one, and the CPU which."""
    from treecal.torch._climb import heights_at_once, lanes_of

    tree = forecaster.tree
    heights = min(heights_at_once(tree.arity), tree.depth or 2)
    size = lanes_of(forecaster.space.dim) * tree.arity**heights
    for program in programs:
        part = rows[program * size : (program + 1) * size]
        read_outcomes(forecaster.space, _numpy(part.cpu()), before=program * size)


def _numpy(rows: Tensor) -> Any:
    return (rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows).numpy()


def _result(
    forecaster: TreeCal, rounds: int, sums: list[list[float]], heads: list[_Slice], tails: list[_Slice]
) -> Replayed:
    """Return what the kernels found with the errors of the first lanes and of the last ones."""
    terms = [list(column) for column in zip(*sums, strict=True)]
    for part in heads:
        _measure(forecaster, part, _dense(part.rows, forecaster.space.dim), rounds, terms)
    carried, left = [], np.zeros((0, forecaster.space.dim))
    for part in tails:  # the sum of one that is not whole is the last row of the next
        rows = np.concatenate([_dense(part.rows, forecaster.space.dim), left])
        own, left = _measure(forecaster, part, rows, rounds, terms)
        carried += own
    totals = {distance: math.fsum(own) for distance, own in zip(KERNEL_DISTANCES, terms, strict=True)}
    if forecaster.tree.horizon == rounds:
        return Replayed(rounds, totals, None)
    resumed = TreeCal(**forecaster.arguments())
    state = np.array(carried[: forecaster.tree.heights(rounds)])
    resumed._state = TreeState(np.array([rounds]), state[:, None])
    return Replayed(rounds, totals, resumed.predict())


def _dense(rows: Tensor, dim: int) -> Array:
    if rows.ndim == 2:
        return rows.double().numpy()
    return np.eye(dim)[rows.numpy()]


def _measure(
    forecaster: TreeCal, part: _Slice, rows: Array, rounds: int, terms: list[list[float]]
) -> tuple[list[Array], Array]:
    """Add the errors of the nodes of a lane; return what it carries at the end of the stream, by height, and its sum."""
    tree, first, carried = forecaster.tree, forecaster._path.first, []
    start, nothing = part.start, np.zeros(len(first))
    for height in range(part.height, part.height + part.heights):
        length, above, open_, total = tree.arity**height, [], nothing, nothing
        parts = tree.parts(height, start, len(rows))
        for i, row in enumerate(rows):
            digit, count = (start + i) % tree.arity, min(rounds - (start + i) * length, length)
            total = nothing if digit == 0 else total
            gap = row - count * (first if digit == 0 else total / float(digit * length))
            if parts[i]:
                squares = float(gap @ gap)
                for own, error in zip(terms, (np.abs(gap).sum(), math.sqrt(squares), squares / count), strict=True):
                    own.append(float(error) / int(parts[i]))
            open_, total = total if count < length else total + row, total + row
            if digit == tree.arity - 1 or i == len(rows) - 1:
                above.append(total)
        carried.append(open_ if rounds // length % tree.arity else nothing)
        rows, start = np.array(above).reshape(-1, len(first)), start // tree.arity
    return carried, rows
