"""What all correctors share: invalid input, groups, snapshots."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import treecal as tc
from tests.correctors.models import INSIDE, run, some_rounds
from treecal import state
from treecal._typing import Array
from treecal.correctors import Cells, Centroids, TopClass
from treecal.exceptions import (
    ForecastError,
    HorizonError,
    OutcomeError,
    ParameterError,
    SnapshotError,
    UnsupportedError,
)
from treecal.geometry import TOLERANCE
from treecal.testing import bad_outcomes

# Invalid input


@pytest.mark.parametrize("make", [None, "AdaptiveTreeCal", "BinaryGrid"])
def test_bad_input_names_the_round_and_changes_nothing(make: str | None) -> None:
    space = tc.Simplex(2)
    f = tc.Recalibrator(space, groups=Centroids(count=3), make="mean" if make is None else lambda: INSIDE[make](space))
    for t, (b, y) in enumerate(zip(*some_rounds(2, 12, 1), strict=True)):
        before = state.dumps(f)
        for bad in bad_outcomes(space).values():
            with pytest.raises(ForecastError, match=f"forecast at round {t + 1} "):
                f.predict(bad)
        with pytest.raises(OutcomeError, match=f"round {t + 1} arrived before its forecast(.|\n)*predict"):
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


def test_a_round_that_is_cancelled_never_was() -> None:
    space = tc.Simplex(2)
    plain, fickle, buffer = (tc.Recalibrator(space, groups=Centroids(count=4)) for _ in range(3))
    scratch = np.empty(2)
    for b, y in zip(*some_rounds(2, 60, 2), strict=True):
        x = plain.predict(b)
        fickle.predict(b[::-1])
        with pytest.raises(ForecastError, match=r"awaits its outcome(.|\n)*tc\.Late(.|\n)*cancel"):
            fickle.predict([1.0, 0.0])
        fickle.cancel()
        fickle.predict([1.0, 0.0])
        fickle.cancel()
        assert fickle.predict(b) == fickle.predict(b.tolist()) == x
        scratch[:] = b
        assert buffer.predict(scratch) == x
        scratch[:] = np.nan
        for f in (plain, fickle, buffer):
            f.update(y)
    assert state.dumps(plain) == state.dumps(fickle) == state.dumps(buffer)


def test_arguments_that_make_no_sense() -> None:
    space, box = tc.Simplex(2), tc.Box(0, 1, dim=2)
    with pytest.raises(ParameterError, match=r"TopClass\(bins=10\) needs classes, and Box.* has none(.|\n)*Cells"):
        tc.Recalibrator(box)
    with pytest.raises(ParameterError, match=r"needs classes, and .* has none(.|\n)*Cells"):
        tc.Recalibrator(box, groups=TopClass())
    with pytest.raises(ParameterError, match="prior is -1"):
        tc.Recalibrator(space, prior=-1)
    with pytest.raises(ParameterError, match="make is 'median', expected 'mean', 'shift', or a function"):
        tc.Recalibrator(space, make="median")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="projection"):
        tc.Recalibrator(Disc(), groups=Cells(), make="shift")
    with pytest.raises(ParameterError, match="prior is 1, expected nothing, because make decides"):
        tc.Recalibrator(space, prior=1, make=lambda: tc.TreeCal(space))
    with pytest.raises(ParameterError, match=r"gave TreeCal\(Simplex\(3\).*expected a new forecaster on Simplex\(2\)"):
        tc.Recalibrator(space, make=lambda: tc.TreeCal(tc.Simplex(3)))
    with pytest.raises(ParameterError, match=r"make\(\) gave 3, expected a new forecaster"):
        tc.Recalibrator(space, make=lambda: 3)  # type: ignore[arg-type, return-value]
    used = tc.TreeCal(space)
    used.update([1, 0])
    with pytest.raises(ParameterError, match="after 1 rounds, expected a new forecaster"):
        tc.Recalibrator(space, make=lambda: used)
    with pytest.raises(ParameterError, match="scores is 'no'"):
        tc.Recalibrator(space, scores="no")  # type: ignore[arg-type]
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
    assert first.report().groups == 2
    by_hand = rule.fresh(tc.Simplex(2))
    for b in some_rounds(2, 20, 0)[0]:
        by_hand.learn(b)
    assert np.array_equal(first.get_state()["own"]["rule"]["sums"], by_hand.get_state()["sums"])
    assert second.predict([0.9, 0.1]).mean.tolist() == [0.9, 0.1]
    assert state.dumps(second) != state.dumps(first)


# Snapshots


class Disc(tc.ConvexSet):
    """A set of a user's own."""

    dim, centre = 2, np.zeros(2)

    def contains(self, points: object, *, tol: float = TOLERANCE) -> Array:  # type: ignore[override]
        return tc.l2(points) <= 1 + tol  # type: ignore[arg-type, return-value]


def savable() -> dict[str, Callable[[], tc.Corrector]]:
    space = tc.Simplex(2)
    makers: dict[str, Callable[[], tc.Corrector]] = {
        name: lambda make=make: tc.Recalibrator(space, make=lambda: make(space))  # type: ignore[misc]
        for name, make in INSIDE.items()
    }
    return makers | {
        "mean": lambda: tc.Recalibrator(space),
        "shift": lambda: tc.Recalibrator(space, make="shift", prior=2),
        "prior": lambda: tc.Recalibrator(space, groups=Cells(width=0.3), prior=0.0),
        "centroids": lambda: tc.Recalibrator(space, groups=Centroids(count=5), scores=None),
        "chain": lambda: tc.Chain([tc.PlattScaling(space), tc.Chain([tc.Recalibrator(space)])]),
    }


@pytest.mark.parametrize("name", savable())
def test_files_resume(name: str, tmp_path: Path) -> None:
    """After any number of rounds, snapshots resume by the conformance tests."""
    f, (forecasts, outcomes) = savable()[name](), some_rounds(2, 80, 6)
    run(f, forecasts[:40], outcomes[:40])
    f.predict(forecasts[40])
    tc.save(f, tmp_path / "f")
    again = tc.load(tmp_path / "f")
    assert again.rounds == 40
    assert repr(again.space) == repr(f.space)
    for each in (f, again):  # the forecast that waits for its outcome came along
        each.update(outcomes[40])
    ours, theirs = (run(each, forecasts[41:], outcomes[41:]) for each in (f, again))
    assert ours == theirs
    assert state.dumps(f) == state.dumps(again)
    if f.scores:
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


def test_a_forecaster_to_make_more_of_is_as_good_as_a_function() -> None:
    space, rounds = tc.Simplex(2), some_rounds(2, 40, 7)
    pattern = tc.TreeCal(space, arity=3)
    by_pattern, by_function = tc.Recalibrator(space, make=pattern), tc.Recalibrator(space, make=lambda: pattern)
    assert run(by_pattern, *rounds) == run(tc.Recalibrator(space, make=lambda: tc.TreeCal(space, arity=3)), *rounds)
    assert pattern.rounds == 0
    assert repr(by_pattern) == repr(by_function)


def test_code_is_not_written() -> None:
    space = tc.Simplex(2)

    class Mine(tc.TreeCal):
        pass

    class MyGroups(TopClass):
        pass

    rng = np.random.default_rng(0)
    draws = tc.Recalibrator(space, make=lambda: tc.SampleTreeCal(space, block=2, rng=rng))
    assert repr(draws).startswith("Recalibrator(Simplex(2), groups=TopClass(bins=10), make=SampleTreeCal(")
    assert repr(tc.Chain([draws])) == f"Chain([{draws!r}])"
    for f, what in (
        (tc.Recalibrator(space, groups=lambda b: 0), "function.*cannot be saved: a snapshot holds data, not code"),
        (tc.Recalibrator(space, groups=MyGroups()), "MyGroups.*cannot be saved"),
        (tc.Recalibrator(space, make=lambda: Mine(space)), "Mine cannot be saved"),
        (draws, "a SampleTreeCal in every group cannot be saved"),
    ):
        run(f, *some_rounds(2, 5, 0))
        with pytest.raises(SnapshotError, match=what):
            state.dumps(f)
