"""Points told apart by their bits, in a hash table, as a dictionary would."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.engine.support import groups_of, replay
from treecal._typing import Array, Integers
from treecal.engine._climb import Level
from treecal.engine._groups import Groups


def level(labels: Array, sums: Array, rounds: Integers) -> Level:
    return Level(0, 0, sums, labels, rounds, np.ones(len(labels), np.int64))


def dictionary(levels: list[Level], units: list[Array]) -> dict[bytes, tuple[float, list[float]]]:
    """Mass and mean outcome by point; sums in the order in which they come, as the table makes them."""
    dim = levels[0].sums.shape[1]
    totals: defaultdict[bytes, Array] = defaultdict(lambda: np.zeros(1 + dim))
    for nodes, weights in zip(levels, units, strict=True):
        for label, total, rounds, unit in zip(nodes.points, nodes.sums, nodes.rounds, weights, strict=True):
            if unit:
                totals[label.tobytes()] += unit * np.append(float(rounds), total)
    return {name: (total[0], (total[1:] / total[0]).tolist()) for name, total in totals.items()}


@given(st.integers(1, 5), st.integers(1, 400), st.integers(1, 3), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_groups_are_a_dictionary(dim: int, size: int, values: int, seed: int) -> None:
    """Points of few values, so that they repeat; weights some of which are 0."""
    rng = np.random.default_rng(seed)
    groups, levels, units = Groups(dim), [], []
    for _ in range(3):
        labels = rng.integers(values, size=(size, dim)) / 7
        levels.append(level(labels, rng.normal(size=(size, dim)), rng.integers(1, 9, size=size)))
        units.append(rng.integers(3, size=size) / 3)
        groups.add(levels[-1].points, levels[-1].rounds, units[-1], levels[-1].sums)
    assert groups_of(groups.reading(3 * size, 1.0)) == dictionary(levels, units)


def test_the_table_grows() -> None:
    """Far more points than the first table has room for, in any order, each coming twice."""
    rng, size = np.random.default_rng(0), 30_000
    labels = np.column_stack([rng.permutation(size) / size, np.repeat(0.25, size)])
    groups, levels, units = Groups(2), [], []
    for order in (np.arange(size), rng.permutation(size)):
        levels.append(level(labels[order], rng.normal(size=(size, 2)), rng.integers(1, 9, size=size)))
        units.append(np.ones(size))
        groups.add(levels[-1].points, levels[-1].rounds, units[-1], levels[-1].sums)
    reading = groups.reading(2 * size, 1.0)
    assert len(reading) == size
    assert groups_of(reading) == dictionary(levels, units)


def test_points_that_differ_in_one_bit_are_different() -> None:
    labels = np.array([[0.1, 0.2], [np.nextafter(0.1, 1), 0.2], [0.2, 0.1], [0.1, 0.2], [5e-324, 0.0], [0.0, 5e-324]])
    groups = Groups(2)
    groups.add(labels, np.ones(6, np.int64), np.ones(6), np.ones((6, 2)))
    assert groups_of(groups.reading(6, 1.0)).keys() == {row.tobytes() for row in labels}
    assert sorted(groups.reading(6, 1.0).weights) == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("depth", [None, 4])
@pytest.mark.parametrize("piece", [1, 40, 2**22])
def test_leaves_counted_apart_are_grouped_alike(depth: int | None, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make, classes = (
        partial(tc.TreeCal, tc.Simplex(3), arity=5, depth=depth),
        np.random.default_rng(0).integers(3, size=612),
    )
    counted = groups_of(replay(classes, make, piece=piece).exact())
    monkeypatch.setattr(sys.modules["treecal.engine._run"], "_STATES", 0)
    assert counted == groups_of(replay(classes, make, piece=piece).exact())


@pytest.mark.parametrize("piece", [1, 40])
def test_minus_zero_is_zero(piece: int) -> None:
    """First children are labelled −0.0 and later ones 0.0: one point, in all that a run says of itself."""
    space, zeros = tc.Box(-1, 1, dim=1), np.array([[-0.0], [0.0], [-0.0], [0.0], [-0.0], [-0.0], [0.0], [-0.0], [0.5]])
    for kind in (tc.TreeCal, tc.AdaptiveTreeCal):
        run = replay(zeros, partial(kind, space, arity=2, start=[-0.0]), piece=piece)
        assert len(run.exact()) == 1
        assert not np.signbit(run.exact().forecasts).any()
        assert not np.signbit(run.ledger().get_state()["points"]).any()
    run = replay([2] * 9, lambda: tc.TreeCal(tc.Simplex(3), arity=2, start=[0.0, -0.0, 1.0]), piece=piece)
    assert len(run.exact()) == 1


@pytest.mark.parametrize("depth", [None, 7])
@pytest.mark.parametrize("arity", [2, 4])
def test_masses_of_one_hot_outcomes_are_exact(arity: int, depth: int | None) -> None:
    """Each is a whole number of parts of a round, correctly rounded: here against rationals, with no label in sight."""
    rounds, dim = min(3000, arity**depth if depth else 3000), 4
    classes = np.random.default_rng(arity).choice(dim, size=rounds, p=[0.85, 0.05, 0.05, 0.05])
    run = replay(classes, lambda: tc.TreeCal(tc.Simplex(dim), arity=arity, depth=depth), piece=4 * arity**2)
    totals: defaultdict[tuple[Fraction, ...], list[Fraction]] = defaultdict(lambda: [Fraction(0)] * (1 + dim))
    for t, k in enumerate(classes.tolist()):
        heights = depth or 1
        while depth is None and t >= arity**heights:
            heights += 1
        for height in range(heights):
            before = classes[t // arity ** (height + 1) * arity ** (height + 1) : t // arity**height * arity**height]
            counts = np.bincount(before, minlength=dim).tolist() if len(before) else [1] * dim
            point = tuple(Fraction(count, sum(counts)) for count in counts)
            totals[point][0] += Fraction(1, heights)
            totals[point][1 + k] += Fraction(1, heights)
    expected = {
        np.array(point, float).tobytes(): (float(mass), [float(entry / mass) for entry in sums])
        for point, (mass, *sums) in totals.items()
    }
    assert groups_of(run.exact()) == expected
    error = math.fsum(
        float(mass) * sum(abs(float(entry / mass - p)) for entry, p in zip(sums, point, strict=True))
        for point, (mass, *sums) in totals.items()
    )
    assert run.error("l1", total=True) == pytest.approx(error, rel=1e-12)


def test_leaves_given_as_classes_outgrow_the_table() -> None:
    """A wide tree over many classes: its leaves alone have more points than the first table has room for."""
    classes = np.random.default_rng(0).integers(50, size=12_000)
    space = tc.Simplex(50)
    run, dense = (
        replay(rows, lambda: tc.TreeCal(space, arity=100), piece=2**14) for rows in (classes, np.eye(50)[classes])
    )
    assert len(run.exact()) > 10_000
    assert groups_of(run.exact()) == groups_of(dense.exact())
    assert math.fsum(run.exact().weights) == pytest.approx(12_000, rel=1e-14)
