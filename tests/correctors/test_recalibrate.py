"""Recalibration: calibeating is what it says it is, keeps its bound, and puts a bad model right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.correctors.models import INSIDE, model, run, some_rounds
from tests.some import some
from treecal._typing import Array
from treecal.correctors import ByKey, Cells, Centroids, Groups, TopClass, calibeating_bound
from treecal.correctors._recalibrator import Simple
from treecal.exceptions import (
    ParameterError,
)
from treecal.forecasters import Forecaster

ROOT_TWO = math.sqrt(2)


# What it is


def literal_mean(
    forecasts: Array, outcomes: Array, key: Callable[[Array], Hashable], prior: float, *, shift: bool = False
) -> Array:
    """Calibeating as it is defined: each round over all the past."""
    said = []
    for t, b in enumerate(forecasts):
        past = [s for s in range(t) if key(forecasts[s]) == key(b)]
        if not past:
            said.append(b)
            continue
        if shift:
            gap = sum(outcomes[s] - forecasts[s] for s in past) / (prior + len(past))
            said.append(tc.Simplex(len(b)).project(b + gap))
            continue
        first = forecasts[past[0]]
        said.append((prior * first + sum(outcomes[s] for s in past)) / (prior + len(past)))
    return np.array(said)


def top_class(b: Array) -> Hashable:
    confidence, floor = max(b), 1 / len(b)
    for k in range(4):
        if confidence < floor + (k + 1) / 4 * (1 - floor):
            return list(b).index(confidence), k
    return list(b).index(confidence), 3


@pytest.mark.parametrize("prior", [0.0, 1.0, 2.5])
@pytest.mark.parametrize(
    ("groups", "key"),
    [
        (TopClass(bins=4), top_class),
        (Cells(width=0.25), lambda b: tuple(round(4 * x) for x in b)),
        (lambda b: b[0] > 0.5, lambda b: b[0] > 0.5),
    ],
    ids=["top class", "cells", "a key"],
)
@pytest.mark.parametrize("dim", [2, 3])
def test_it_is_calibeating_to_the_letter(dim: int, groups: Any, key: Any, prior: float) -> None:
    forecasts, outcomes = some_rounds(dim, 150, dim)
    announced = run(tc.Recalibrator(tc.Simplex(dim), groups=groups, prior=prior, forget=False), forecasts, outcomes)
    assert all(len(x) == 1 for x in announced)
    np.testing.assert_allclose(
        [x.mean for x in announced], literal_mean(forecasts, outcomes, key, prior), rtol=0, atol=1e-14
    )
    f = tc.Recalibrator(tc.Simplex(dim), groups=groups, prior=prior, make="shift", forget=False)
    announced = run(f, forecasts, outcomes)
    expected = literal_mean(forecasts, outcomes, key, prior, shift=True)
    np.testing.assert_allclose([x.mean for x in announced], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", INSIDE)
def test_each_group_has_a_forecaster_of_its_own(name: str) -> None:
    space = tc.Simplex(2)
    forecasts, outcomes = some_rounds(2, 200, 5)
    f = tc.Recalibrator(space, groups=TopClass(bins=3), make=lambda: INSIDE[name](space))
    alone: dict[Hashable, Forecaster] = {}
    ledgers: dict[Hashable, tc.Ledger] = {}
    brier, together = 0.0, tc.Ledger(space)
    for b, y in zip(forecasts, outcomes, strict=True):
        x, key = f.predict(b), TopClass(bins=3).key(b)
        expected = alone[key].predict() if key in alone else tc.Forecast([b], space=space)
        np.testing.assert_array_equal(x.points, expected.points)
        np.testing.assert_array_equal(x.weights, expected.weights)
        f.update(y)
        alone.setdefault(key, INSIDE[name](space)).update(y)
        ledgers.setdefault(key, tc.Ledger(space)).record(expected, y)
        together.record(x, y)
        brier += float(x.weights @ tc.l2.square(y - x.points))
    assert len(alone) == 6
    # Integers of different groups' trees are told apart; and merging groups only averages errors away.
    for norm in ("l1", "l2"):
        apart = math.fsum(ledger.error(norm, per_node=True, total=True) for ledger in ledgers.values())
        if f.predict(forecasts[0]).nodes is None:
            assert together.error(norm, per_node=True, total=True) <= apart + 1e-9
        else:
            assert together.error(norm, per_node=True, total=True) == pytest.approx(apart)
        apart = math.fsum(ledger.error(norm, total=True) for ledger in ledgers.values())
        assert together.error(norm, total=True) <= apart + 1e-9
    # Calibrated calibeating: at most the group-refinement and the groups' squared errors.
    report = f.report()
    squared = math.fsum(ledger.error(tc.l2.squared, total=True) for ledger in ledgers.values()) / 200
    assert report.after.brier == pytest.approx(brier / 200)
    assert report.group_refinement is not None
    assert report.after.brier <= report.group_refinement + squared + 1e-12


# What it promises


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 120),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    st.sampled_from([TopClass(bins=2), Cells(width=0.4), Centroids(count=3), ByKey(lambda b: 0)]),
    st.sampled_from(["drawn", "soft", "against", "away"]),
    st.sampled_from(["mean", "shift"]),
    st.booleans(),
)
def test_simple_calibeating_keeps_its_bound(
    dim: int, rounds: int, seed: int, prior: float, groups: Groups, kind: str, make: Simple, forget: bool
) -> None:
    space, rng = tc.Simplex(dim), np.random.default_rng(seed)
    f = tc.Recalibrator(space, groups=groups, prior=prior, make=make, forget=forget)
    for _ in range(rounds):
        x = f.predict(rng.dirichlet(np.full(dim, 0.5))).mean
        f.update(
            {
                "drawn": np.eye(dim)[rng.integers(dim)],
                "soft": rng.dirichlet(np.ones(dim)),
                "against": np.eye(dim)[x.argmin()],
                "away": np.eye(dim)[-1],
            }[kind]
        )
    report = f.report()
    assert report.groups is not None
    best = report.group_refinement if make == "mean" else report.shift_refinement
    assert best is not None
    diameter = float(space.diameter("l2")) * (1 if make == "mean" else 2)
    bound = calibeating_bound(rounds, groups=report.groups, diameter=diameter, prior=prior, forget=forget)
    assert report.after.brier <= best + bound + 1e-9
    assert report.shift_refinement is not None
    assert -1e-9 <= report.shift_refinement <= report.before.brier + 1e-12


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_the_bound_is_not_idle(prior: float) -> None:
    """Outcomes that alternate cost a quarter of it or so; and it falls like log T/T."""
    for rounds in (100, 1000):
        f = tc.Recalibrator(tc.Simplex(2), groups=lambda b: 0, prior=prior, forget=False)
        run(f, np.tile([0.0, 1.0], (rounds, 1)), np.eye(2)[np.arange(rounds) % 2])
        report, bound = f.report(), calibeating_bound(rounds, groups=1, diameter=ROOT_TWO, prior=prior)
        assert report.group_refinement == pytest.approx(0.5)
        assert 0.2 * bound < report.after.brier - 0.5 <= bound
    assert bound < 0.02


@pytest.mark.parametrize("prior", [0.0, 0.5, 1.0, 3.0])
def test_the_bound_is_that_of_the_worst_split(prior: float) -> None:
    for rounds, groups in itertools.product(range(1, 9), range(1, 4)):
        if groups > rounds:
            continue
        splits = [s for s in itertools.product(range(1, rounds + 1), repeat=groups) if sum(s) == rounds]
        worst = max(sum(prior + sum(1 / (prior + t) for t in range(1, n + 1)) for n in split) for split in splits)
        assert calibeating_bound(rounds, groups=groups, diameter=3.0, prior=prior) == pytest.approx(9 * worst / rounds)


def test_the_identity_behind_the_bound() -> None:
    rng, prior = np.random.default_rng(0), 0.7
    start, outcomes = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 40)
    means = (prior * start + np.cumsum(outcomes, axis=0)) / (prior + np.arange(1, 41))[:, None]
    before = np.vstack([start, means[:-1]])
    least = prior * tc.l2.square(means[-1] - start) + tc.l2.square(outcomes - means[-1]).sum()
    grown = (1 - 1 / (prior + np.arange(1, 41))) @ tc.l2.square(outcomes - before)
    assert grown == pytest.approx(float(least), rel=1e-12)


# What it is for


@pytest.mark.parametrize("dim", some([2, 3, 5], every=3))
@pytest.mark.parametrize("kind", ["overconfident", "drifting"])
@pytest.mark.parametrize(
    ("make", "groups"),
    [("mean", None), ("mean", Centroids(count=12)), ("shift", TopClass(bins=5))],
    ids=["by top class", "by centroids", "shifts"],
)
def test_a_bad_model_is_put_right(make: Simple, groups: Groups | None, kind: str, dim: int) -> None:
    """The calibration error of each class halved or better, and the Brier score lower; the log score of means, too."""
    f = tc.Recalibrator(tc.Simplex(dim), groups=groups, make=make)
    run(f, *model(kind, dim, 2000, 10 + dim))
    report = f.report()
    assert report.after.calibration < 0.5 * report.before.calibration
    assert report.after.brier < report.before.brier
    assert report.after.log is not None
    assert report.before.log is not None
    assert make == "shift" or report.after.log < report.before.log


@pytest.mark.parametrize("name", ["BinaryGrid", "AdaptiveTreeCal"])
def test_calibrated_calibeating_is_calibrated_exactly(name: str) -> None:
    """With no binning: a model's forecasts, and group means, hardly repeat; those of a grid or a tree do."""
    space = tc.Simplex(2)
    f = tc.Recalibrator(space, groups=TopClass(bins=5), make=lambda: INSIDE[name](space), scores="exact")
    run(f, *model("overconfident", 2, 3000, 3))
    assert f.ledgers["after"].error("l1") < 0.15
    assert f.ledgers["before"].error("l1") > 0.5
    assert f.report().mean.brier < f.report().before.brier


@pytest.mark.parametrize(("make", "dim"), [("mean", 2), ("shift", 2), ("shift", 4)])
def test_a_good_model_stays_nearly_as_good(make: Simple, dim: int) -> None:
    """Group means where groups tell nearly all that forecasts do; shifts always, but for `log T/T` for each group."""
    f = tc.Recalibrator(tc.Simplex(dim), groups=TopClass(bins=5), make=make)
    run(f, *model("right", dim, 2000, dim))
    report = f.report()
    assert report.after.brier < report.before.brier + 0.006 * dim
    if dim == 2:
        assert report.after.calibration < 0.005


def test_group_means_forget_what_shifts_keep() -> None:
    f, g = (tc.Recalibrator(tc.Simplex(4), groups=TopClass(bins=5), make=make) for make in get_args(Simple))
    for each in (f, g):
        run(each, *model("right", 4, 1500, 4))
    assert f.report().after.brier > g.report().after.brier + 0.015


# Its report


def test_the_report_is_what_one_would_compute() -> None:
    space = tc.Simplex(3)
    f = tc.Recalibrator(space, groups=Cells(width=0.5), make=lambda: tc.TreeCal(space, arity=2, mix=0.1))
    forecasts, outcomes = some_rounds(3, 120, 9)
    forecasts = np.round(4 * forecasts[:, :2]) / 4 @ np.array([[1, 0, 0], [0, 1, 0]]) / 2 + [0.25, 0.25, 0.0]
    forecasts[:, 2] = 1 - forecasts.sum(axis=1)
    announced = run(f, forecasts, outcomes)
    report = f.report()
    distributions = {
        "before": [tc.Forecast([b]) for b in forecasts],
        "after": announced,
        "mean": [tc.Forecast([x.mean]) for x in announced],
    }
    for role, said in distributions.items():
        scores = getattr(report, role)
        expected = [sum(w * ((y - p) ** 2).sum() for p, w in zip(x.points, x.weights, strict=True))
                    for x, y in zip(said, outcomes, strict=True)]  # fmt: skip
        assert scores.brier == pytest.approx(np.mean(expected))
        logs = [-sum(w * math.log(max(p @ y, 1e-9)) for p, w in zip(x.points, x.weights, strict=True))
                for x, y in zip(said, outcomes, strict=True)]  # fmt: skip
        assert scores.log == pytest.approx(np.mean(logs))
        gaps = 0.0
        for k in range(3):
            bins: dict[int, list[tuple[float, float, float]]] = {}
            for x, y in zip(said, outcomes, strict=True):
                for p, w in zip(x.points, x.weights, strict=True):
                    bins.setdefault(round(10 * p[k]), []).append((w, w * p[k], w * y[k]))
            for weight, forecast, outcome in (np.sum(rows, axis=0) for rows in bins.values()):
                gaps += (outcome - forecast) ** 2 / weight
        assert scores.calibration == pytest.approx(gaps / 120)
        assert scores.refinement == pytest.approx(scores.brier - scores.calibration)
    cells: dict[Hashable, list[Array]] = {}
    for b, y in zip(forecasts, outcomes, strict=True):
        cells.setdefault(Cells(width=0.5).key(b), []).append(y)
    assert report.groups == len(cells)
    moved: dict[Hashable, list[Array]] = {}
    for b, y in zip(forecasts, outcomes, strict=True):
        moved.setdefault(Cells(width=0.5).key(b), []).append(y - b)
    assert report.shift_refinement == pytest.approx(
        sum(((np.array(gaps) - np.mean(gaps, axis=0)) ** 2).sum() for gaps in moved.values()) / 120
    )
    assert report.group_refinement == pytest.approx(
        sum(((np.array(ys) - np.mean(ys, axis=0)) ** 2).sum() for ys in cells.values()) / 120
    )


def test_the_report_can_be_read() -> None:
    f = tc.Recalibrator(tc.Simplex(2))
    run(f, *model("overconfident", 2, 50, 0))
    lines = str(f.report()).splitlines()
    assert lines[0] == "50 rounds, each class in bins of a tenth"
    assert [line.split()[0] for line in lines[2:5]] == ["before", "after", "mean"]
    assert lines[2].split()[1] == f"{f.report().before.brier:.4f}"
    box = tc.Recalibrator(tc.Box(0, 1, dim=1), groups=Cells(width=0.5))
    run(box, np.full((3, 1), 0.5), np.ones((3, 1)))
    assert box.report().before.log is None
    assert len(str(box.report()).splitlines()[2].split()) == 4


def test_without_scores_there_is_no_report() -> None:
    f = tc.Recalibrator(tc.Simplex(2), scores=None)
    run(f, *some_rounds(2, 5, 0))
    with pytest.raises(ParameterError, match=r"no scores are kept(.|\n)*scores='binned'"):
        f.report()
    with pytest.raises(ParameterError, match="no round is scored"):
        tc.Recalibrator(tc.Simplex(2)).report()
