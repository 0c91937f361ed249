"""Replaying in small pieces, and what a run or a ledger holds, ready to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import treecal as tc
from treecal._typing import Array
from treecal.engine import Run, _climb as climb
from treecal.forecasters import Rule
from treecal.ledger import Reading

Make = Callable[[], tc.TreeCal | tc.AdaptiveTreeCal]
DISTANCES = (tc.l1, tc.l2, tc.l2.squared, tc.linf)


def replay(outcomes: Any, make: Make, *, piece: int = 12, **options: Any) -> Run:
    """Replay with pieces of few numbers, so that a short stream has many of them and a tree above."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(climb, "_PIECE", piece)
        return tc.replay(outcomes, make(), **options)


@st.composite
def makers(draw: st.DrawFn, space: tc.ConvexSet, *, adaptive: bool | None = None) -> Make:
    """Draw a forecaster that can be replayed, as a function that makes it anew."""
    tree: dict[str, Any] = {
        "arity": draw(st.integers(2, 9)),
        "depth": draw(st.none() | st.integers(1, 6)),
        "mix": draw(st.sampled_from([0.0, 0.0, 0.1, 1.0])),
        "start": draw(st.none() | st.integers(0, 99).map(lambda seed: space.sample(np.random.default_rng(seed)))),
    }
    if draw(st.booleans()) if adaptive is None else adaptive:
        rule: Rule = draw(st.sampled_from(["stick", "block"]))
        norm = draw(st.sampled_from([None, "l1", "l2", "linf"]))
        return lambda: tc.AdaptiveTreeCal(space, rule=rule, norm=norm, **tree)
    return lambda: tc.TreeCal(space, **tree)


def horizon(forecaster: tc.TreeCal | tc.AdaptiveTreeCal, most: int) -> int:
    """The rounds there can be, at most so many."""
    return most if forecaster.depth is None else min(most, forecaster.arity**forecaster.depth)


def rows_of(ledger: tc.Ledger) -> dict[tuple[bytes, tuple[int, ...]], list[float]]:
    """The rows of a ledger whose mass is positive: mass and outcome sum, by point and key."""
    state = ledger.get_state()
    totals = state["totals"].sum(axis=1)
    return {
        (point.tobytes(), tuple(key)): total.tolist()
        for point, key, total in zip(state["points"], state["keys"].tolist(), totals, strict=True)
        if total[0] > 0
    }


def groups_of(reading: Reading) -> dict[bytes, tuple[float, list[float]]]:
    """Mass and mean outcome of each point."""
    columns = zip(reading.forecasts, reading.weights.tolist(), reading.outcomes.tolist(), strict=True)
    groups = {point.tobytes(): (mass, outcome) for point, mass, outcome in columns}
    assert len(groups) == len(reading)  # no point twice
    return groups


def labelled_errors(run: Run) -> list[float]:
    return [run.error(distance, per_node=True) for distance in DISTANCES]


def corners(dim: int, classes: Any) -> Array:
    rows: Array = np.eye(dim)[np.asarray(classes)]
    return rows
