"""Recalibration: calibeating is what it says it is, keeps its bound, and puts a bad model right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treecal as tc
from treecal import state
from treecal._exact import Array
from treecal.exceptions import ForecastError, HorizonError, OutcomeError, ParameterError, SnapshotError
from treecal.forecasters import Forecaster
from treecal.forecasters.corrector import Corrector
from treecal.forecasters.groups import ByKey, Cells, Centroids, Groups, TopClass
from treecal.forecasters.recalibrate import calibeating_bound
from treecal.geometry import TOLERANCE
from treecal.testing import bad_outcomes

ROOT_TWO = math.sqrt(2)
INSIDE: dict[str, Callable[[tc.ConvexSet], Forecaster]] = {
    "TreeCal": lambda space: tc.TreeCal(space, arity=3),
    "AdaptiveTreeCal": tc.AdaptiveTreeCal,
    "Harmonic": tc.Harmonic,
    "BinaryGrid": lambda space: tc.BinaryGrid(bins=12),
    "RunningMean": tc.RunningMean,
}


def run(f: Corrector, forecasts: Array, outcomes: Array) -> list[tc.Forecast]:
    announced = []
    for b, y in zip(forecasts, outcomes, strict=True):
        announced.append(f.predict(b))
        f.update(y)
    return announced


def some_rounds(dim: int, rounds: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(dim), rounds), np.eye(dim)[rng.integers(dim, size=rounds)]


def softmax(scores: Array) -> Array:
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def model(kind: str, dim: int, rounds: int, seed: int) -> tuple[Array, Array]:
    """A model's forecasts and what came: what it knows is right, and what it makes of it is not, or is."""
    rng, time = np.random.default_rng(seed), np.linspace(0, 1, rounds)[:, None]
    scores = rng.normal(0, 1.2, (rounds, dim))
    truth = softmax(scores)
    outcomes = np.eye(dim)[(rng.random((rounds, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(max=dim - 1)]
    said = {
        "right": scores,
        "overconfident": 3 * scores,
        "drifting": (1.5 + 2 * time) * scores + 1.5 * time * np.eye(dim)[0],
    }
    return softmax(said[kind]), outcomes


# What it is


def literal_mean(forecasts: Array, outcomes: Array, key: Callable[[Array], Hashable], prior: float) -> Array:
    """SPEC §10 as it is written: each round over all the past."""
    said = []
    for t, b in enumerate(forecasts):
        past = [s for s in range(t) if key(forecasts[s]) == key(b)]
        if not past:
            said.append(b)
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
    announced = run(tc.Recalibrator(tc.Simplex(dim), groups=groups, prior=prior), forecasts, outcomes)
    assert all(len(x) == 1 for x in announced)
    np.testing.assert_allclose(
        [x.mean for x in announced], literal_mean(forecasts, outcomes, key, prior), rtol=0, atol=1e-14
    )


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
    # Labels of different groups' trees are told apart; and merging groups only averages errors away.
    for norm in ("l1", "l2"):
        apart = math.fsum(ledger.error(norm, labelled=True, total=True) for ledger in ledgers.values())
        assert together.error(norm, labelled=True, total=True) == pytest.approx(apart)
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
)
def test_simple_calibeating_keeps_its_bound(
    dim: int, rounds: int, seed: int, prior: float, groups: Groups, kind: str
) -> None:
    space, rng = tc.Simplex(dim), np.random.default_rng(seed)
    f = tc.Recalibrator(space, groups=groups, prior=prior)
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
    assert report.group_refinement is not None
    diameter = float(space.diameter("l2"))
    bound = calibeating_bound(rounds, groups=report.groups, diameter=diameter, prior=prior)
    assert report.after.brier <= report.group_refinement + bound + 1e-9


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_the_bound_is_not_idle(prior: float) -> None:
    """Outcomes that alternate cost a quarter of it or so; and it falls like log T/T."""
    for rounds in (100, 1000):
        f = tc.Recalibrator(tc.Simplex(2), groups=lambda b: 0, prior=prior)
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


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("kind", ["overconfident", "drifting"])
@pytest.mark.parametrize(
    "groups", [None, Centroids(count=12), Cells(width=0.2)], ids=["top class", "centroids", "cells"]
)
def test_a_bad_model_is_put_right(groups: Groups | None, kind: str, dim: int, seed: int) -> None:
    """Calibration error halved or better in both readings, and the Brier and log scores no worse."""
    f = tc.Recalibrator(tc.Simplex(dim), groups=groups)
    run(f, *model(kind, dim, 3000, seed))
    report = f.report()
    error = {role: ledger.binned(resolution=0.1).error("l1") for role, ledger in f.ledgers.items()}
    assert error["after"] < 0.5 * error["before"]
    assert report.after.calibration < 0.5 * report.before.calibration
    assert report.after.brier < report.before.brier
    assert report.after.log is not None
    assert report.before.log is not None
    assert report.after.log < report.before.log


@pytest.mark.parametrize("name", ["BinaryGrid", "AdaptiveTreeCal"])
def test_calibrated_calibeating_is_calibrated_exactly(name: str) -> None:
    """With no binning: a model's forecasts, and group means, hardly repeat; those of a grid or a tree do."""
    space = tc.Simplex(2)
    f = tc.Recalibrator(space, groups=TopClass(bins=5), make=lambda: INSIDE[name](space))
    run(f, *model("overconfident", 2, 3000, 3))
    assert f.ledgers["after"].error("l1") < 0.15
    assert f.ledgers["before"].error("l1") > 0.5
    assert f.report().mean.brier < f.report().before.brier


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dim", [2, 4])
def test_a_good_model_stays_nearly_as_good(dim: int, seed: int) -> None:
    f = tc.Recalibrator(tc.Simplex(dim), groups=TopClass(bins=5))
    run(f, *model("right", dim, 4000, seed))
    report = f.report()
    assert report.after.brier < report.before.brier + (0.012 if dim == 2 else 0.03)  # a group says less than a forecast
    assert report.after.calibration < 0.005


# Its report


def test_the_report_is_what_one_would_compute() -> None:
    space = tc.Simplex(3)
    f = tc.Recalibrator(space, groups=Cells(width=0.5), make=lambda: tc.TreeCal(space, arity=2, mix=0.1))
    forecasts, outcomes = some_rounds(3, 120, 9)
    forecasts = np.round(4 * forecasts[:, :2]) / 4 @ np.array([[1, 0, 0], [0, 1, 0]]) / 2 + [0.25, 0.25, 0.0]
    forecasts[:, 2] = 1 - forecasts.sum(axis=1)
    announced = run(f, forecasts, outcomes)
    report = f.report(resolution=None)
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
        ledger = tc.Ledger(space)
        for x, y in zip(said, outcomes, strict=True):
            ledger.record(x, y)
        table = ledger.table("l2")
        assert scores.calibration == pytest.approx(table.mass @ table.gap**2 / 120)
        # Refinement, said directly: outcomes are one-hot, so their variance is 1 − ‖mean‖².
        assert scores.refinement == pytest.approx(table.mass @ (1 - tc.l2.square(table.outcome)) / 120)
    cells: dict[Hashable, list[Array]] = {}
    for b, y in zip(forecasts, outcomes, strict=True):
        cells.setdefault(Cells(width=0.5).key(b), []).append(y)
    assert report.groups == len(cells)
    assert report.group_refinement == pytest.approx(
        sum(((np.array(ys) - np.mean(ys, axis=0)) ** 2).sum() for ys in cells.values()) / 120
    )


def test_the_report_can_be_read() -> None:
    f = tc.Recalibrator(tc.Simplex(2))
    run(f, *model("overconfident", 2, 50, 0))
    lines = str(f.report()).splitlines()
    assert lines[0] == "50 rounds, forecasts alike in cells of 0.1"
    assert [line.split()[0] for line in lines[2:5]] == ["before", "after", "mean"]
    assert lines[2].split()[1] == f"{f.report().before.brier:.4f}"
    assert "told apart exactly" in str(f.report(resolution=None))
    box = tc.Recalibrator(tc.Box(0, 1, dim=1), groups=Cells(width=0.5))
    run(box, np.full((3, 1), 0.5), np.ones((3, 1)))
    assert box.report().before.log is None
    assert len(str(box.report()).splitlines()[2].split()) == 4


def test_without_an_audit_there_is_no_report() -> None:
    f = tc.Recalibrator(tc.Simplex(2), audit=False)
    run(f, *some_rounds(2, 5, 0))
    with pytest.raises(ParameterError, match="audit is False(.|\n)*audit=True"):
        f.report()
    with pytest.raises(ParameterError, match="no round is recorded"):
        tc.Recalibrator(tc.Simplex(2)).report()


# Bad input


@pytest.mark.parametrize("make", [None, "AdaptiveTreeCal", "BinaryGrid"])
def test_bad_input_names_the_round_and_changes_nothing(make: str | None) -> None:
    space = tc.Simplex(2)
    f = tc.Recalibrator(space, groups=Centroids(count=3), make=None if make is None else lambda: INSIDE[make](space))
    for t, (b, y) in enumerate(zip(*some_rounds(2, 12, 1), strict=True)):
        before = state.dumps(f)
        for bad in bad_outcomes(space).values():
            with pytest.raises(ForecastError, match=f"forecast at round {t + 1} "):
                f.predict(bad)
        with pytest.raises(OutcomeError, match=f"round {t + 1} came before its forecast(.|\n)*predict"):
            f.update(y)
        assert state.dumps(f) == before
        x = f.predict(b)
        before = state.dumps(f)
        for bad in bad_outcomes(space).values():
            with pytest.raises(OutcomeError, match=f"outcome at round {t + 1} "):
                f.update(bad)
            with pytest.raises(ForecastError):
                f.predict(bad)
        assert state.dumps(f) == before
        assert f.predict(b) is x
        f.update(y)
        assert f.rounds == t + 1


def test_a_group_whose_tree_is_full_says_so_and_changes_nothing() -> None:
    space = tc.Simplex(2)
    f = tc.Recalibrator(space, groups=lambda b: 0, make=lambda: tc.TreeCal(space, arity=2, depth=1))
    run(f, *some_rounds(2, 2, 0))
    with pytest.raises(HorizonError):
        f.predict([0.5, 0.5])
    assert f.rounds == 2
    assert f.report().rounds == 2


def test_the_last_forecast_before_an_outcome_counts() -> None:
    space = tc.Simplex(2)
    plain, fickle, buffer = (tc.Recalibrator(space, groups=Centroids(count=4)) for _ in range(3))
    scratch = np.empty(2)
    for b, y in zip(*some_rounds(2, 60, 2), strict=True):
        x = plain.predict(b)
        fickle.predict(b[::-1])
        fickle.predict([1.0, 0.0])
        assert fickle.predict(b) == fickle.predict(b.tolist()) == x
        scratch[:] = b
        assert buffer.predict(scratch) == x
        scratch[:] = np.nan
        for f in (plain, fickle, buffer):
            f.update(y)
    assert state.dumps(plain) == state.dumps(fickle) == state.dumps(buffer)


def test_arguments_that_make_no_sense() -> None:
    space, box = tc.Simplex(2), tc.Box(0, 1, dim=2)
    with pytest.raises(ParameterError, match=r"groups is None, expected a rule(.|\n)*Cells"):
        tc.Recalibrator(box)
    with pytest.raises(ParameterError, match=r"needs classes, and .* has none(.|\n)*Cells"):
        tc.Recalibrator(box, groups=TopClass())
    with pytest.raises(ParameterError, match="prior is -1"):
        tc.Recalibrator(space, prior=-1)
    with pytest.raises(ParameterError, match="prior is 1, expected nothing, because make decides"):
        tc.Recalibrator(space, prior=1, make=lambda: tc.TreeCal(space))
    with pytest.raises(ParameterError, match=r"on Simplex\(3\), expected Simplex\(2\)"):
        tc.Recalibrator(space, make=lambda: tc.TreeCal(tc.Simplex(3)))
    with pytest.raises(ParameterError, match=r"make\(\) is 3, expected a forecaster"):
        tc.Recalibrator(space, make=lambda: 3)  # type: ignore[arg-type, return-value]
    used = tc.TreeCal(space)
    used.update([1, 0])
    with pytest.raises(ParameterError, match="seen 1 rounds, expected a new one"):
        tc.Recalibrator(space, make=lambda: used)
    with pytest.raises(ParameterError, match="source is 3"):
        tc.Recalibrator(space, source=3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="audit is 'no'"):
        tc.Recalibrator(space, audit="no")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="function is 3"):
        tc.Recalibrator(space, groups=3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="expected something hashable"):
        tc.Recalibrator(space, groups=lambda b: []).predict([0.5, 0.5])  # type: ignore[arg-type, return-value]
    with pytest.raises(ParameterError, match="width is 0"):
        Cells(width=0)
    with pytest.raises(ParameterError, match="expected one corrector or more"):
        tc.Chain([])
    with pytest.raises(ParameterError, match="expected one set"):
        tc.Chain([tc.Recalibrator(space), tc.Recalibrator(tc.Simplex(3))])
    with pytest.raises(ParameterError, match="a source of its own"):
        tc.Chain([tc.Recalibrator(space, source=lambda b: b)])


# Sources


class Coin:
    """A classifier in scikit-learn's manner."""

    def __init__(self, columns: int = 2) -> None:
        self.columns = columns

    def predict_proba(self, rows: Any, /) -> Array:
        p = np.asarray(rows, dtype=float).sum(axis=1)
        return np.column_stack([1 - p, *[p / (self.columns - 1)] * (self.columns - 1)])


def test_a_source_is_asked_for_the_forecast() -> None:
    space = tc.Simplex(2)
    given = tc.Recalibrator(space)
    function = tc.Recalibrator(space, source=lambda p: [1 - p, p])
    classifier = tc.Chain([tc.Recalibrator(space)], source=Coin())
    for p, y in zip(np.random.default_rng(0).random(50), some_rounds(2, 50, 4)[1], strict=True):
        x = given.predict([1 - p, p])
        assert function.predict(p) == x
        assert classifier.predict([p / 4, 3 * p / 4 - p / 8, p / 8]).mean == pytest.approx(x.mean, abs=1e-12)
        for f in (given, function, classifier):
            f.update(y)
    with pytest.raises(ForecastError, match=r"forecast at round 1 has shape \(3,\), expected 2 real numbers"):
        tc.Recalibrator(space, source=Coin(columns=3)).predict([0.5])


# Groups


def test_confidence_bins_go_from_a_guess_to_certainty() -> None:
    for dim in (1, 2, 5):
        groups = TopClass(bins=4).fresh(tc.Simplex(dim))
        assert groups.key(np.eye(dim)[-1]) == (dim - 1, 3)
        assert groups.key(np.full(dim, 1 / dim)) == (0, 0 if dim > 1 else 3)
        forecasts = np.random.default_rng(0).dirichlet(np.full(dim, 0.3), 500)
        assert {groups.key(b) for b in forecasts} <= set(itertools.product(range(dim), range(4)))
    assert TopClass(bins=4) == TopClass(bins=4) != TopClass(bins=5)


def test_centroids_are_the_means_of_what_they_had() -> None:
    rng, groups = np.random.default_rng(0), Centroids(count=3).fresh(tc.Simplex(2))
    had: list[list[Array]] = []
    for b in np.vstack([[[0.5, 0.5]] * 3, rng.dirichlet([1, 1], 200)]):
        gaps = [float(np.linalg.norm(np.mean(each, axis=0) - b)) for each in had]
        new = len(had) < 3 and min(gaps, default=1.0) > 0
        expected = len(had) if new else int(np.argmin(gaps))
        assert groups.key(b) == (expected,) == groups.key(b)
        groups.learn(b)
        had[expected : expected + 1] = [[*had[expected], b]] if not new else [[b]]
    assert [len(each) for each in had] == groups.get_state()["met"].tolist()


def test_one_rule_can_serve_many() -> None:
    rule = Centroids(count=2)
    first, second = (tc.Recalibrator(tc.Simplex(2), groups=rule) for _ in range(2))
    run(first, *some_rounds(2, 20, 0))
    assert second.predict([0.9, 0.1]).mean.tolist() == [0.9, 0.1]
    assert state.dumps(second) != state.dumps(first)


# Snapshots


class Disc(tc.ConvexSet):
    """A set of a user's own."""

    dim, centre = 2, np.zeros(2)

    def contains(self, points: object, *, tol: float = TOLERANCE) -> Array:  # type: ignore[override]
        return tc.l2(points) <= 1 + tol  # type: ignore[arg-type, return-value]


def savable() -> dict[str, Callable[[], Corrector]]:
    space = tc.Simplex(2)
    makers: dict[str, Callable[[], Corrector]] = {
        name: lambda make=make: tc.Recalibrator(space, make=lambda: make(space))  # type: ignore[misc]
        for name, make in INSIDE.items()
    }
    return makers | {
        "mean": lambda: tc.Recalibrator(space),
        "prior": lambda: tc.Recalibrator(space, groups=Cells(width=0.3), prior=0.0),
        "centroids": lambda: tc.Recalibrator(space, groups=Centroids(count=5), audit=False),
        "chain": lambda: tc.Chain([tc.PlattScaling(space), tc.Chain([tc.Recalibrator(space)])]),
    }


@pytest.mark.parametrize("peek", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 40])
@pytest.mark.parametrize("name", savable())
def test_snapshots_resume(name: str, stop: int, peek: bool, tmp_path: Path) -> None:
    f, (forecasts, outcomes) = savable()[name](), some_rounds(2, 80, 6)
    run(f, forecasts[:stop], outcomes[:stop])
    if peek:
        f.predict(forecasts[stop])
    tc.save(f, tmp_path / "f")
    again = tc.load(tmp_path / "f")
    assert again.rounds == stop
    assert repr(again.space) == repr(f.space)
    if peek:  # the forecast that waits for its outcome came along
        f.update(outcomes[stop])
        again.update(outcomes[stop])
        stop += 1
    ours, theirs = (run(each, forecasts[stop:], outcomes[stop:]) for each in (f, again))
    assert ours == theirs
    assert state.dumps(f) == state.dumps(again)
    if f.audit:
        assert f.report() == again.report()


def test_a_set_of_the_users_own_is_given_again() -> None:
    disc = Disc()
    for f in (
        tc.Recalibrator(disc, groups=Cells(width=1), make=lambda: tc.TreeCal(disc)),
        tc.Chain([tc.Recalibrator(disc, groups=Cells(width=1))]),
    ):
        run(f, np.array([[0.1, 0.2], [0.6, 0.1]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
        content = state.dumps(f)
        again = state.loads(content, space=disc)
        assert again.predict([0.1, 0.2]) == f.predict([0.1, 0.2])
        with pytest.raises(SnapshotError, match="of the class Disc"):
            state.loads(content)


def test_code_is_not_written() -> None:
    space = tc.Simplex(2)

    class Mine(tc.TreeCal):
        pass

    class MyGroups(TopClass):
        pass

    rng = np.random.default_rng(0)
    for f, what in (
        (tc.Recalibrator(space, groups=lambda b: 0), "function.*cannot be saved: a snapshot holds data, not code"),
        (tc.Recalibrator(space, groups=MyGroups()), "MyGroups.*cannot be saved"),
        (tc.Recalibrator(space, source=lambda b: b), r"function.*cannot be saved(.|\n)*predict\(source"),
        (tc.Recalibrator(space, source=Coin()), "Coin.*cannot be saved"),
        (tc.Recalibrator(space, make=lambda: Mine(space)), "Mine is not a forecaster"),
        (
            tc.Recalibrator(space, make=lambda: tc.SampleTreeCal(space, block=2, rng=rng)),
            "a SampleTreeCal in every group cannot be saved",
        ),
    ):
        run(f, *some_rounds(2, 5, 0))
        with pytest.raises(SnapshotError, match=what):
            state.dumps(f)
