"""What people have in their hands: groups in lists, arrays, series and tables; labels that are floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treecal as tc
from treecal.exceptions import OutcomeError, ParameterError
from treecal.state import dumps

TWO = tc.Simplex(2)
P = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5], [0.9, 0.1]])
Y = [1, 0, 0, 1]
WITH_GROUPS: dict[str, Callable[[], tc.Corrector]] = {
    "by group": lambda: tc.ByGroup(tc.Recalibrator(TWO)),
    "multi": lambda: tc.Multicalibrator(TWO),
    "gated": lambda: tc.Gated(tc.ByGroup(tc.PlattScaling(TWO))),
    "chain": lambda: tc.Chain([tc.PlattScaling(TWO), tc.ByGroup(tc.Recalibrator(TWO))]),
    "one by one": lambda: tc.ByGroup(tc.Recalibrator(TWO, scores=None), scores="exact"),
}
FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "array": np.array,
    "objects": lambda names: np.array(names, object),
    "series": pd.Series,
    "shuffled series": lambda names: pd.Series(names, index=[3, 1, 2, 0]),
    "categories": lambda names: pd.Series(names, dtype="category"),
    "index": pd.Index,
}


def learned(f: tc.Corrector, groups: Any) -> tuple[Any, ...]:
    """Everything that comes of these groups: of a log, of many rounds, by id."""
    f.fit(P, Y, groups=groups)
    x = f.update_many(P, Y, groups=groups)
    late = tc.Late(f)
    return (
        x.tobytes(),
        f.predict_many(P, groups=groups).tobytes(),
        dumps(f),
        late.predict_many(P, ids=range(4), groups=groups).tobytes(),
        dumps(late),
    )


@pytest.mark.parametrize("names", [["a", "b", "a", "c"], [3, 1, 3, 3], [0.5, 1.5, 0.5, 2.0], [True, False, True, True]])
@pytest.mark.parametrize("make", WITH_GROUPS.values(), ids=WITH_GROUPS)
def test_groups_come_in_any_form(make: Callable[[], tc.Corrector], names: list[Any]) -> None:
    expected = learned(make(), names)
    for form in FORMS.values():
        assert learned(make(), form(names)) == expected


def test_the_rows_of_a_table_are_the_groups_of_rounds() -> None:
    names = [("JFK", "winter"), ("LGA", "winter"), ("JFK", "summer"), ("JFK", "winter")]
    expected = learned(tc.Multicalibrator(TWO), names)
    table = pd.DataFrame(names, columns=["airport", "season"])
    for groups in (np.array(names), table, table.to_numpy(), [tuple(row) for row in np.array(names)]):
        assert learned(tc.Multicalibrator(TWO), groups) == expected


@pytest.mark.parametrize(
    "groups",
    [
        np.array(["a"] * 3),
        np.array("a"),
        pd.Series(["a", "b", "c", None]).replace({None: np.nan}),
        {"a": 1, "b": 2, "c": 3, "d": 4},
        {"a", "b", "c", "d"},
        "abcd",
        np.zeros((4, 2, 2)),
        np.array(["2026-11-16"] * 4, "M8[ns]"),
        np.array(["2026-11-16"] * 4, "M8[D]"),
        [["a"], ["b"], ["c"], ["d"]],
    ],
    ids=["too few", "one", "missing", "dictionary", "set", "text", "cube", "times", "days", "lists"],
)
def test_what_names_no_groups_is_refused_and_nothing_changed(groups: Any) -> None:
    f = tc.ByGroup(tc.Recalibrator(TWO))
    before = dumps(f)
    for act in (f.fit, f.update_many, lambda P, Y, groups: f.predict_many(P, groups=groups)):
        with pytest.raises(ParameterError, match="group"):
            act(P, Y, groups=groups)
    assert dumps(f) == before


def test_labels_that_are_floats_are_refused_with_the_remedy_one_or_many() -> None:
    f = tc.PlattScaling(TWO)
    remedy = "as .*integer"
    for labels in (np.array(Y, float), pd.Series(Y, dtype=float), [1.0, 0.0, 0, 1]):
        for act in (f.fit, f.update_many):
            with pytest.raises(OutcomeError, match=remedy):
                act(P, labels)
    with pytest.raises(OutcomeError, match=remedy):
        f.learn(P[0], 1.0)
    with pytest.raises(OutcomeError, match="missing"):
        f.update_many(P, [1.0, np.nan, 0.0, 1.0])
    with pytest.raises(OutcomeError, match=r"classes\.$"):  # probabilities are no classes
        f.update_many(P, P[:, 0])
    assert f.rounds == 0
