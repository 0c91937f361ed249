"""The tree's arithmetic, for ints, arrays and inside kernels, against an odometer that is turned by hand."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from treecal import tree
from treecal._compile import strict
from treecal.exceptions import HorizonError, ParameterError
from treecal.tree import MOST_LEAVES, Tree

DIGITS, CARRIES = strict(tree.digits), strict(tree.carries)


def turned(arity: int, depth: int | None) -> list[list[int]]:
    """The digits of the path, lowest first, after 0, 1, 2, … rounds."""
    digits, all_ = [0] * (depth or 1), []
    for _ in range(600):
        all_.append(digits.copy())
        for height in range(len(digits)):
            digits[height] = (digits[height] + 1) % arity
            if digits[height]:
                break
        else:
            if depth is not None:
                break
            digits.append(1)
    return all_


@given(arity=st.integers(2, 9), depth=st.none() | st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_an_odometer_turned_by_hand(arity: int, depth: int | None) -> None:
    own, paths = Tree(arity, depth), turned(arity, depth)
    assert own.heights(np.arange(len(paths))).tolist() == [len(digits) for digits in paths]
    for t, digits in enumerate(paths):
        assert own.heights(t) == len(digits)
        assert [own.count(t, j) for j in range(len(digits))] == [d * arity**j for j, d in enumerate(digits)]
        assert own.path(t).tolist() == [[j, t // arity**j] for j in range(len(digits))]
        if t:
            zeros = next((j for j, digit in enumerate(digits) if digit), len(digits))
            assert tree.carries(t, arity) == zeros
    for rounds in range(1, len(paths)):
        spans = own.epochs(rounds)
        assert [t for begin, end, _ in spans for t in range(begin, end)] == list(range(rounds))
        assert all(len(paths[t]) == heights for begin, end, heights in spans for t in (begin, end - 1))


@given(arity=st.integers(2, 9), depth=st.none() | st.integers(1, 5), start=st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_parts_are_the_heights_of_the_path_while_a_node_is_played(arity: int, depth: int | None, start: int) -> None:
    own, paths = Tree(arity, depth), turned(arity, depth)
    for height in range(4 if depth is None else depth):
        for index, parts in enumerate(own.parts(height, start, 20).tolist(), start):
            rounds = range(index * arity**height, (index + 1) * arity**height)
            played = {len(paths[t]) for t in islice(rounds, 40) if t < len(paths) and len(paths[t]) > height}
            if depth is None or index < arity ** (depth - height):
                assert played <= {parts}


@given(arity=st.integers(2, 10**6), t=st.integers(1, MOST_LEAVES - 1))
@settings(deadline=None)  # the first call compiles
def test_kernels_count_as_python_does(arity: int, t: int) -> None:
    assert DIGITS(t, arity) == tree.digits(t, arity)
    assert CARRIES(t, arity) == tree.carries(t, arity)
    assert arity ** (tree.digits(t, arity) - 1) <= t < arity ** tree.digits(t, arity)
    assert t % arity ** tree.carries(t, arity) == 0
    assert tree.digits(t, arity) <= Tree(arity).most_heights


def test_round_numbers_may_be_as_large_as_theory_likes() -> None:
    own = Tree(8, depth=400)
    assert own.horizon == 8**400
    own.check(8**400)
    with pytest.raises(HorizonError, match="beyond the horizon"):
        own.check(8**400 + 1)
    with pytest.raises(ParameterError, match="depth is 400, expected at most 21 for arity 8"):
        own.check_countable()
    assert Tree(8).heights(8**400) == 401
