"""Names of streams: a dictionary of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import treecal as tc
from treecal.engine._keys import Names
from treecal.exceptions import ParameterError, SnapshotError

TREE = tc.TreeCal(tc.Simplex(2))
CITIES = ["Oslo", "Århus", "", "東京", "a\0b", "x" * 1000]


def test_a_table_is_a_dictionary() -> None:
    """Through growth, drops and reuse."""
    rng, names, rows = np.random.default_rng(0), Names(), dict[str, int]()
    for step in range(300):
        some = [str(k) for k in rng.integers(3000, size=rng.integers(1, 60))]
        found, new = names.found_or_added(some)
        assert len(new) == len(set(some) - set(rows))
        for name, row in zip(some, found.tolist(), strict=True):
            assert rows.setdefault(name, row) == row
        gone = rng.choice(list(rows), size=min(len(rows) - 1, int(rng.integers(60))), replace=False).tolist()
        names.drop(np.array([rows.pop(name) for name in gone], np.int64))
        if step % 50 == 0:
            again = names.resumed(names.state(), names.rows.used)
            assert again.find(list(rows)).tolist() == list(rows.values())
            names = again
    assert len(names) == len(rows) == len(set(rows.values()))
    assert names.find(list(rows)).tolist() == list(rows.values())
    assert dict(zip(names.listed.tolist(), names.rows.all().tolist(), strict=True)) == rows
    with pytest.raises(ParameterError, match="no name"):
        names.find(["3000"])


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        np.array,
        lambda names: np.array(names, object),
        lambda names: np.array(names, np.dtypes.StringDType()),
        lambda names: np.array(names).astype(">U1000"),
        lambda names: np.array(names).repeat(2)[::2],
        pa.array,
        lambda names: pa.array(["gone", *names, "gone"])[1:-1],
        lambda names: pa.chunked_array([names[:2], names[2:]]),
        lambda names: pa.array(names, pa.large_string()),
        lambda names: pa.array(names).dictionary_encode(),
        lambda names: pa.array(names, pa.string_view()),
        pd.Series,
        lambda names: pd.Series(names, dtype="category"),
        lambda names: pd.Series(names, dtype="string"),
        pl.Series,
        lambda names: iter(names),
    ],
)
def test_names_of_any_form(form: Any) -> None:
    bank, expected = tc.Bank(TREE, names=CITIES), np.arange(len(CITIES)) + 1
    bank.update(form(np.repeat(CITIES, expected).tolist()), np.zeros(expected.sum(), int))
    assert bank.rounds.tolist() == expected.tolist()
    assert bank.keys.tolist() == CITIES
    bank.update(form([]), [])


BAD: dict[str, tuple[Any, str]] = {
    "unknown": (["Oslo", "Rom"], "key 1 is 'Rom', which is no name"),
    "a string": ("Oslo", "expected a list of names"),
    "bytes": ([b"Oslo", b"Oslo"], "key 0 is b'Oslo', expected a name"),
    "numbers": ([0, 1], "key 0 is 0, expected a name"),
    "an array of numbers": (np.arange(2), "key 0 is 0, expected a name"),
    "None": (None, "keys are a NoneType"),
    "one is missing": (["Oslo", None], "key 1 is None, expected a name"),
    "one is null": (pa.array(["Oslo", None]), "key 1 is None, expected a name"),
    "one is NaN": (pd.Series(["Oslo", np.nan]), "key 1 is nan, expected a name"),
    "a column of numbers": (pl.Series([1, 2]), "key 0 is 1, expected a name"),
    "two axes": (np.array([["Oslo", "Oslo"]]), "key 0 is .*, expected a name"),
    "half a pair": (["Oslo", "\ud800"], "key 1 is .* UTF-8"),
    "half a pair in an array": (np.array(["Oslo", "\ud800"]), "key 1 is .* UTF-8"),
    "one too many": (["Oslo"] * 3, "3 keys and 2 outcomes"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_names_change_nothing(what: str) -> None:
    bank = tc.Bank(TREE, names=["Oslo"])
    keys, message = BAD[what]
    for add in (False, True):
        if what != "unknown" or not add:
            with pytest.raises(ParameterError, match=message):
                bank.update(keys, [0, 0], add=add)
    assert bank.keys.tolist() == ["Oslo"]
    assert bank.rounds.tolist() == [0]


def test_names_that_are_added_go_if_nothing_is_learned() -> None:
    bank = tc.Bank(tc.TreeCal(tc.Simplex(2), arity=2, depth=1), names=["a"])
    with pytest.raises(tc.TreeCalError, match="stream 'b': round 3 is beyond"):
        bank.update(["a", "b", "b", "b"], [0, 0, 1, 0], add=True)
    for bad in (np.array([0, 2]), np.array([[1, 0], [0, np.nan]])):
        with pytest.raises(tc.TreeCalError, match="row 1"):
            bank.update(["a", "b"], bad, add=True)
    assert bank.keys.tolist() == ["a"]
    assert bank.rounds.tolist() == [0]
    bank.update(["a", "b", "b"], [0, 0, 1], add=True)
    assert bank.rounds.tolist() == [1, 2]


def test_names_are_new_and_different() -> None:
    bank = tc.Bank(TREE, names=["a"])
    for bad, message in ((["b", "a"], "name 1 is 'a', which is there already"), (["b", "c", "b"], "name 2 is 'b'")):
        with pytest.raises(ParameterError, match=message):
            bank.add(bad)
    with pytest.raises(ParameterError, match="a list of names"):
        bank.add(2)
    assert bank.keys.tolist() == ["a"]
    with pytest.raises(ParameterError, match="streams"):
        tc.Bank(TREE, names=["a"], streams=2)
    with pytest.raises(ParameterError, match="numbered"):
        tc.Bank(TREE, streams=2).update([0], [0], add=True)
    with pytest.raises(ParameterError, match=r"names=\[...\]"):
        tc.Bank(TREE, streams=2).update(["a"], [0])


def test_states_whose_names_cannot_be() -> None:
    bank = tc.Bank(TREE, names=["a", "bé", "c", "d"])
    bank.drop(["c"])
    good = bank.get_state()
    text, ends, dropped = (good["keys"][name] for name in ("text", "ends", "dropped"))
    assert (text.tobytes().decode(), ends.tolist(), dropped.tolist()) == ("abéd", [1, 4, 4, 5], [2])
    for bad in (
        {"text": text[:-1]},
        {"text": text.astype(np.int64)},
        {"text": np.full_like(text, 255)},
        {"text": np.frombuffer(b"abab", np.uint8), "ends": np.array([2, 4, 4, 4])},
        {"text": np.frombuffer(b"abcda", np.uint8), "ends": np.array([1, 4, 4, 5])},
        {"ends": ends[:-1]},
        {"ends": np.array([1, 3, 3, 5])},
        {"ends": np.array([4, 1, 4, 5])},
        {"ends": np.array([1, 3, 4, 5])},
        {"dropped": np.array([4])},
        {"dropped": np.array([2, 2])},
        {"dropped": np.array([2.0])},
        {"dropped": np.array([0])},
        {"more": 1},
    ):
        with pytest.raises(SnapshotError):
            bank.set_state(good | {"keys": good["keys"] | bad})
    with pytest.raises(SnapshotError):
        tc.Bank(TREE).set_state(good)
    assert bank.keys.tolist() == ["a", "bé", "d"]
