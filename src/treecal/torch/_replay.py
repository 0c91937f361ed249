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

_FEW = 8  # lanes: fewer are left to the CPU
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
    found: Tensor = torch.utils.dlpack.from_dlpack(outcomes)
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
    """Nodes of one height that the CPU measures, from `start` on: of the first lane, or of one that is not whole."""

    height: int
    start: int
    heights: int
    rows: Tensor
    whole: bool


def _on_device(rows: Tensor, forecaster: TreeCal, check: int) -> Replayed:
    from treecal.torch._climb import climb, heights_at_once

    tree, rounds = forecaster.tree, len(rows)
    tree.check(rounds)
    first, low, high = torch.from_numpy(_constants(forecaster)).to(rows.device)
    slices: list[_Slice] = []
    found: list[Tensor] = []
    level, height = rows, 0
    while height < (end := tree.heights(rounds)):
        heights = min(heights_at_once(tree.arity), end - height)
        children = tree.arity**heights
        whole = rounds // (tree.arity**height * children)
        if whole < _FEW:
            heights, whole = end - height, 0
        tail = level[whole * children :]
        if whole:
            slices.append(_Slice(height, 0, heights, level[:children], whole=True))
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
                bounds=(low, high),
            )
            found.append(errors)
        slices.append(_Slice(height, whole * children, heights, tail, whole=False))
        height += heights
    totals, held = _fetched(found, slices, forecaster.space.dim)
    if totals and totals[0][3]:
        _refuse(forecaster, rows, found[0][:, 3].nonzero().flatten().tolist())
    last = next(part for part in slices if not part.whole)
    read_outcomes(forecaster.space, _numpy(last.rows.cpu()), before=last.start)
    return _result(forecaster, rounds, totals, slices, held)


def _fetched(found: list[Tensor], slices: list[_Slice], dim: int) -> tuple[list[list[float]], list[Array]]:
    """Return the errors of each kernel, and the rows of the slices: all in one transfer, which waits for the device."""
    parts = [_dense(part.rows, dim) for part in slices]
    held = torch.cat([errors.sum(dim=0) for errors in found] + [part.flatten() for part in parts]).cpu().numpy()
    at = 4 * len(found)
    totals, rows = held[:at].reshape(-1, 4).tolist(), []
    for part in parts:
        rows.append(held[at : at + part.numel()].reshape(-1, dim))
        at += part.numel()
    return totals, rows


def _constants(forecaster: TreeCal) -> Array:
    """Return the start point, and the bounds of a box with what rounding may add; for other sets any."""
    first, space = np.array(forecaster._path.first, np.float64), forecaster.space
    if not isinstance(space, Box):
        return np.stack([first, first, first])
    low, high = (np.array(edge, np.float64) for edge in space.bounds())
    slack = TOLERANCE * np.maximum(np.abs(low), np.abs(high))
    return np.stack([first, low - slack, high + slack])


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


def _dense(rows: Tensor, dim: int) -> Tensor:
    if rows.ndim == 2:
        return rows.double()
    return (rows[:, None] == torch.arange(dim, device=rows.device)).double()


def _result(
    forecaster: TreeCal, rounds: int, totals: list[list[float]], slices: list[_Slice], held: list[Array]
) -> Replayed:
    """Return what the kernels found, with the errors of the first lanes and of those that are not whole."""
    from treecal.torch._edges import measure

    tree, first = forecaster.tree, np.array(forecaster._path.first, np.float64)
    errors, left = np.zeros(3), np.zeros((0, len(first)))
    carried = np.zeros((tree.heights(rounds) + 2, len(first)))
    for part, own in zip(slices, held, strict=True):
        rows = own.copy() if part.whole else np.concatenate([own, left])
        room = np.zeros((part.heights, len(first)))
        measure(rows, part.start, part.height, part.heights, rounds, tree.arity, tree.depth or 0, first, errors, room)
        if not part.whole:  # the sum of one that is not whole is the last row of the next
            carried[part.height : part.height + part.heights] = room
            left = rows[: min(len(rows), 1)]
    sums = {
        distance: math.fsum([errors[i], *(own[i] for own in totals)]) for i, distance in enumerate(KERNEL_DISTANCES)
    }
    if tree.horizon == rounds:
        return Replayed(rounds, sums, None)
    resumed = TreeCal(**forecaster.arguments())
    resumed._state = TreeState(np.array([rounds]), carried[: tree.heights(rounds), None])
    return Replayed(rounds, sums, resumed.predict())
