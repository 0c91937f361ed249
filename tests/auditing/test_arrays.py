"""Audits of two arrays are those of a log with these columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(3), 400).round(1)
P /= P.sum(axis=1, keepdims=True)
Y = RNG.integers(3, size=400)


def digits(found: tc.auditing.Audit) -> dict[str, Any]:
    return found.to_dict() | {"source": None}


def test_two_arrays_have_the_digits_of_their_columns() -> None:
    expected = digits(tc.audit({"p": P, "y": Y}, forecast="p", outcome="y"))
    assert tc.audit(P, Y).source == "the arrays"
    for p, y in ((P, Y), (P.tolist(), Y.tolist()), (np.asfortranarray(P), Y.astype(np.int8)), (P, Y.astype(float))):
        assert digits(tc.audit(p, y)) == expected
    assert tc.audit(P, np.eye(3)[Y]).to_dict()["whole"] == expected["whole"]
    assert tc.audit(P, np.eye(3, dtype=int)[Y].tolist()).classes == ("0", "1", "2")
    single = P.astype(np.float32)
    assert digits(tc.audit(single, Y)) == digits(tc.audit({"p": single, "y": Y}, forecast="p", outcome="y"))


def test_names_and_two_classes() -> None:
    names = np.array(["rain", "snow", "sun"])
    named = tc.audit(P, names[Y], classes=["rain", "snow", "sun"])
    assert named.classes == ("rain", "snow", "sun")
    assert [named.whole.classes[name].ece for name in names] == [
        tc.audit(P, Y).whole.classes[k].ece for k in ("0", "1", "2")
    ]
    assert tc.audit(P, np.eye(3)[Y], classes=names.tolist()).whole.to_dict() == named.whole.to_dict()
    p, rain = P[:, 0], Y == 0
    expected = digits(tc.audit({"p": p, "y": rain}, forecast="p", outcome="y"))
    for y in (rain, rain.astype(int), rain.tolist()):
        assert digits(tc.audit(p, y)) == expected
    assert tc.audit(p, np.column_stack([~rain, rain]).astype(int)).whole.to_dict() == expected["whole"]


@pytest.mark.parametrize("labels", [("churn", "stay"), ("stay", "churn"), ("0", "1")])
def test_a_single_column_is_of_the_class_that_it_is_named_after(labels: tuple[str, str], tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    first, second = labels
    p, y = P[:, 0], np.where(Y == 0, first, second)
    table = pandas.DataFrame({f"p_{first}": p, f"p_{second}": 1 - p, "y": y, "score": 1 - p})
    both = tc.audit(table, forecast=[f"p_{second}", f"p_{first}"], outcome="y").whole.to_dict()
    for source in (table, tmp_path / "log.csv"):
        table.to_csv(tmp_path / "log.csv", index=False)
        found = tc.audit(source, forecast=f"p_{first}", outcome="y")
        assert found.classes == (second, first)
        assert found.whole.to_dict() == both
    assert tc.audit(table[f"p_{first}"], y).whole.to_dict() == both
    assert tc.audit(table, forecast="score", outcome="y").classes == tuple(sorted(labels))  # which names no class
    with pytest.raises(tc.TreeCalError, match=f"p_{first} is named after {first}, the first of the classes"):
        tc.audit(table, forecast=f"p_{first}", outcome="y", classes=labels)
    assert tc.audit(table, forecast=f"p_{second}", outcome="y", classes=labels).classes == labels


@settings(max_examples=10, deadline=None)
@given(st.permutations(["rain", "snow", "sun"]), st.sampled_from(["", "p_", "P", "model.p_", "s"]))
def test_a_table_is_read_by_its_columns_with_a_prefix(order: list[str], prefix: str) -> None:
    pandas = pytest.importorskip("pandas")
    names = ["rain", "snow", "sun"]
    y = np.array(names)[Y]
    table = pandas.DataFrame(P, columns=names)[order].add_prefix(prefix)
    assert tc.audit(table, y, exact=False).whole.classes[order[0]].ece == pytest.approx(
        tc.audit(P, y, classes=names, exact=False).whole.classes[order[0]].ece
    )
    expected = tc.Recalibrator(tc.Simplex(classes=names)).predict_many(P[:5])
    assert np.allclose(tc.Recalibrator(tc.Simplex(classes=names)).predict_many(table[:5]), expected)
    one = tc.Recalibrator(tc.Simplex(classes=names)).predict(table.iloc[0])
    assert np.allclose(one.mean, expected[0])


def test_columns_of_other_libraries() -> None:
    pandas, polars, torch = (pytest.importorskip(name) for name in ("pandas", "polars", "torch"))
    expected = digits(tc.audit(P, Y))
    names = np.array(["rain", "snow", "sun"])[Y]
    for y in (pandas.Series(Y), polars.Series(Y), torch.tensor(Y), pandas.Series(Y).convert_dtypes()):
        assert digits(tc.audit(P, y)) == expected
    for y in (pandas.Series(names), pandas.Series(names, dtype="category"), polars.Series(names)):
        assert tc.audit(P, y).classes == ("rain", "snow", "sun")
    assert digits(tc.audit(torch.tensor(P), Y)) == digits(tc.audit(pandas.DataFrame(P), Y)) == expected
    with pytest.raises(tc.TreeCalError, match=r"P is a Tensor that is no array: .*detach"):
        tc.audit(torch.tensor(P, requires_grad=True), Y)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((P, Y[:-1]), {}, r"y has shape \(399,\), expected \(400,\), the classes, or \(400, 3\), one-hot"),
        ((P[:, :1], Y), {}, r"P has shape \(400, 1\), expected a column for each class"),
        ((P[None], Y), {}, "P is float64 of shape"),
        ((Y.astype(str), Y), {}, "expected probabilities of shape"),
        (([[0.5], [0.5, 0.5]], [0, 1]), {}, "P is a list that is no array"),
        ((P, Y), {"by": "y"}, "two arrays have no columns"),
        ((P, Y), {"forecast": "p"}, "two arrays have no columns"),
        ((P, Y), {"weight": "w"}, r"weight is 'w', expected an array of shape \(400,\)"),
        ((P, Y), {"weight": [1.0]}, r"weight has shape \(1,\)"),
        (({"p": P, "y": Y},), {"forecast": "p"}, r"(?s)outcome is missing.*audit\(P, y\) for two arrays"),
        (({"p": P, "y": Y},), {}, "forecast is missing"),
        (({"p": P, "y": Y},), {"forecast": "p", "outcome": "y", "weight": Y}, "expected a column of the log"),
        ((P * 1.1, Y), {}, "the arrays, row 1: the probabilities sum to 1.1"),
        ((P, np.where(np.arange(400) == 7, 9, Y)), {"classes": range(3)}, r"row 8: y is 9, expected one of 0, 1, 2"),
        ((P, np.eye(3)[Y] / 2), {}, r"row 1: the outcome is .* expected one 1 among y\[0\], y\[1\], y\[2\]"),
        ((np.ma.masked_array(P, P > 0.9), Y), {}, "P has masked entries"),
    ],
)
def test_what_is_no_pair_of_arrays_is_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(tc.TreeCalError, match=message):
        tc.audit(*arguments, **options)


def test_percent_and_no_rows_are_named() -> None:
    for p, y in ((P * 100, Y), (P[:, 0] * 100, Y == 0)):
        with pytest.raises(tc.TreeCalError, match=r"(?s)expected a probability from 0 to 1.*in percent, divide by 100"):
            tc.audit(p, y)
    with pytest.raises(tc.TreeCalError, match=r"(?s)'60%', expected a number.*divide by 100"):
        tc.audit({"p": np.array(["60%", "40%"]), "y": np.array([0, 1])}, forecast="p", outcome="y")
    with pytest.raises(tc.TreeCalError, match=r"^there are no rows in the arrays\.$"):
        tc.audit(P[:0], Y[:0])
    with pytest.raises(tc.TreeCalError, match=r"^there is no valid row of positive weight in the arrays\.$"):
        tc.audit(P, Y, weight=np.zeros(400))
