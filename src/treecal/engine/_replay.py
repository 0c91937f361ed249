"""A whole stream at once, of any forecaster that compiled code can play."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard, overload

from treecal._platform import processors
from treecal._validate import whole_number
from treecal.engine._climb import KERNEL_DISTANCES, TreeForecaster, new_tree_forecaster
from treecal.engine._guarded import GuardedRun, guarded_run
from treecal.engine._run import Run
from treecal.forecasters import AdaptiveTreeCal, Guarded, TreeCal
from treecal.geometry import ConvexSet, Distance, as_distance


def can_replay(forecaster: object) -> TypeGuard[TreeForecaster | Guarded]:
    """Return whether `replay` takes such a forecaster; any other one is played a round at a time."""
    return type(forecaster) in (TreeCal, AdaptiveTreeCal) or (isinstance(forecaster, Guarded) and forecaster.usual)


@overload
def replay(
    outcomes: Any,
    forecaster: ConvexSet | TreeForecaster,
    *,
    arity: int = 8,
    distances: Iterable[Distance | str] = (),
    threads: int | None = None,
) -> Run: ...


@overload
def replay(
    outcomes: Any,
    forecaster: Guarded,
    *,
    arity: int = 8,
    distances: Iterable[Distance | str] = (),
    threads: int | None = None,
) -> GuardedRun: ...


def replay(
    outcomes: Any,
    forecaster: ConvexSet | TreeForecaster | Guarded,
    *,
    arity: int = 8,
    distances: Iterable[Distance | str] = (),
    threads: int | None = None,
) -> Run | GuardedRun:
    """Forecast a whole stream at once, as the forecaster would round by round: the same points, bit for bit.

    Costs `O(dim)` a round, near the speed at which memory is read; with classes `O(1 + dim/arity)`.

    Parameters
    ----------
    outcomes
        All of them: an array or memory map `(T, d)` of numbers (float32 is summed in float64); on a simplex also the
        classes, `(T,)` integers from 0. Or an iterator of such arrays or of Arrow batches, of any sizes: memory then
        does not grow with the stream, and results are the same.
    forecaster
        A new `TreeCal` or `AdaptiveTreeCal`; a new `Guarded`, of which a `GuardedRun` is returned; or a set, for
        `TreeCal(space, arity=arity)`.
    arity
        Used when a set is given.
    distances
        For iterators, which cannot be read twice: what `Run.error` should measure besides ℓ1, ℓ2 and ℓ2².
    threads
        Number of threads; by default that of processors. Results do not depend on it.

    Examples
    --------
    >>> import numpy as np, treecal as tc
    >>> classes = np.random.default_rng(0).integers(3, size=100_000)
    >>> run = tc.replay(classes, tc.Simplex(3), arity=8)
    >>> round(run.error("l1"), 3), round(run.error("l1", per_node=True), 3)
    (0.184, 0.366)
    >>> run.forecast(99_999)  # what was forecast of the last outcome
    Forecast(6 points in R^3, mean [0.3957 0.2646 0.3397])
    """
    if isinstance(forecaster, ConvexSet):
        forecaster = TreeCal(forecaster, arity=arity)
    if isinstance(forecaster, Guarded):
        return guarded_run(forecaster, outcomes)
    if threads is None:
        threads = processors()
    whole_number("threads", threads, least=1)
    forecaster = new_tree_forecaster(forecaster)
    measures = [as_distance(distance, forecaster.space) for distance in distances]
    others = tuple(measure for measure in measures if measure not in KERNEL_DISTANCES)
    return Run(forecaster, outcomes, others, threads)
