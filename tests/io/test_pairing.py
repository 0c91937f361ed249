"""Columns are paired with classes by their names, however spelled and ordered: alike through every entrance."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.cli.support import run
from tests.some import some

import treecal as tc
from treecal.exceptions import TreeCalError
from treecal.geometry import paired
from treecal.integrations.sklearn import calibration_error
from treecal.io import write_csv

RIGHT = [
    "p_yes,p_no", "p_no,p_yes", "yes,no", "no,yes", "Yes,No", "YES,NO", "No,Yes", "P(yes),P(no)", "P(no),P(yes)",
    "p(Yes),p(No)", "yes_prob,no_prob", "no_prob,yes_prob", "YES_PROB,NO_PROB", "P_YES,P_NO", "P_no,P_yes", "yes%,no%",
    "no %,yes %", "prob.yes,prob.no", "proba yes,proba no", "probYes,probNo", "pYes,pNo", "pyes,pno",
    "model1_yes_score,model1_no_score", "model1_no_score,model1_yes_score", "P(y=yes),P(y=no)", "P(y=no|x),P(y=yes|x)",
    "score[yes],score[no]", "yes (p),no (p)", "yes1,no1", "1yes,1no", "class-yes,class-no", "p_yes,score_no",
    "yes probability,p(no)", "a_no_b,a_yes_b",
]  # fmt: skip
BY_ORDER = ["a,b", "first,second", "x0,x1", "nope,yesterday", "p_oui,p_non", "noyes,yesno", "bayes,anno"]
REFUSED = ["p_yes,rest", "yes_a,yes_b", "p_no_a,p_no_b", "rest,p_no", "yes,yes_too"]
SINGLE = ["p_yes", "P(yes)", "yes_prob", "YES", "yes%", "p_no", "P(no)", "no_prob", "No%", "score"]
ROWS = 200
CLASSES = ["no", "yes"]


def log(columns: list[str]) -> dict[str, np.ndarray]:
    """Return rows of a right forecast, each column that holds `yes` or `no` of that class, others in sorted order."""
    rng = np.random.default_rng(0)
    p = (2 * rng.integers(1000, size=ROWS) + 1) / 2000  # never a half
    y = np.where(rng.random(ROWS) < p, "yes", "no")
    found = {"outcome": y}
    for k, name in enumerate(columns):
        of_yes = "yes" in name.lower() if len(columns) > 1 or name != "score" else True
        if len(columns) > 1 and ",".join(columns) in BY_ORDER:
            of_yes = k == 1
        found[name] = p if of_yes else 1 - p
    return found


def answers(columns: list[str], folder: Path) -> list[float | str]:
    """Return the accuracy that each entrance finds, or how it refused."""
    table = log(columns)
    path = folder / "log.csv"
    write_csv(path, [list(table), *zip(*(column.tolist() for column in table.values()), strict=True)])
    found: list[float | str] = []
    for source in (path, table, pd.DataFrame(table)):
        try:
            found.append(tc.audit(source, forecast=columns, outcome="outcome").whole.accuracy)
        except TreeCalError as error:
            found.append(str(error))
    listed = ",".join(f'"{name}"' for name in columns)
    done = run("audit", path, "--forecast", listed, "--json")
    found.append(json.loads(done.out)["whole"]["accuracy"] if done.code == 0 else done.err)
    return found


def right() -> float:
    table = log(["p_yes"])
    return float(np.mean((table["p_yes"] > 0.5) == (table["outcome"] == "yes")))


@pytest.mark.parametrize("columns", some([*RIGHT, *BY_ORDER, *SINGLE], every=6))
def test_every_entrance_pairs_alike(columns: str, tmp_path: Path) -> None:
    found = answers(columns.split(","), tmp_path)
    assert found == [pytest.approx(right())] * len(found)


@pytest.mark.parametrize("columns", REFUSED)
def test_what_is_not_one_to_one_and_contradicts_the_order_is_refused(columns: str, tmp_path: Path) -> None:
    for answer in answers(columns.split(","), tmp_path):
        assert "is named after" in str(answer)
        assert "--classes" in str(answer)


def test_the_table_is_long() -> None:
    assert len(RIGHT + BY_ORDER + REFUSED + SINGLE) >= 50


@pytest.mark.parametrize("columns", [*RIGHT, *BY_ORDER])
def test_frames_are_read_by_the_same_names(columns: str) -> None:
    names = columns.split(",")
    table = log(names)
    frame = pd.DataFrame({name: table[name] for name in names})
    space = tc.Simplex(classes=CLASSES)
    if paired(names, CLASSES) is None:
        with pytest.raises(TreeCalError, match="expected no, yes"):
            tc.Monitor(space).update_many(frame, table["outcome"])
        for one in (dict(frame.iloc[0]), frame.iloc[0]):
            with pytest.raises(TreeCalError, match="expected no, yes"):
                tc.Recalibrator(space).predict(one)
        with pytest.raises(TreeCalError, match="expected no, yes"):
            calibration_error(table["outcome"], frame)
        return
    watch = tc.Monitor(space)
    watch.update_many(frame, table["outcome"])
    assert watch.alarm is None
    assert tc.audit(frame, table["outcome"]).whole.accuracy == pytest.approx(right())
    yes = next(table[name] for name, label in zip(names, paired(names, CLASSES) or (), strict=True) if label == "yes")
    expected = tc.Recalibrator(space).predict_many(np.column_stack([1 - yes, yes]))
    assert np.allclose(tc.Recalibrator(space).predict_many(frame), expected)
    for one in (dict(frame.iloc[0]), frame.iloc[0]):
        assert np.allclose(tc.Recalibrator(space).predict(one).mean, [1 - yes[0], yes[0]])
    by_position = calibration_error(table["outcome"], np.column_stack([1 - yes, yes]))
    assert calibration_error(table["outcome"], frame) == by_position


COMMANDS = ["monitor", "recalibrate", "audit"]
SPELLED = ["yes_prob,no_prob", "P(yes),P(no)", "P_YES,P_NO", "yes%,no%"]


@pytest.mark.parametrize(("columns", "command"), some(product(SPELLED, COMMANDS), every=2))
def test_commands_show_the_pairs_and_refuse_another_order(command: str, columns: str, tmp_path: Path) -> None:
    table = log(columns.split(","))
    path = tmp_path / "log.csv"
    write_csv(path, [list(table), *zip(*(column.tolist() for column in table.values()), strict=True)])
    refused = run(command, path, "--classes", "no,yes", "--forecast", columns)
    assert refused.code == 2
    assert "stands for no" in refused.err
    assert "--classes yes,no" in refused.err
    for options in (("--classes", "yes,no", "--forecast", columns), ("--classes", "no,yes")):
        done = run(command, path, *options)
        assert done.code == 0
        words = done.out + done.err
        assert all(name in words for name in columns.split(","))
        document = json.loads(run(command, path, *options, "--json").out.splitlines()[-1])
        assert document["classes"] == {"yes": columns.split(",")[0], "no": columns.split(",")[1]}


def test_a_series_is_of_the_class_that_it_is_named_after() -> None:
    table = log(["P(no)"])
    with pytest.raises(TreeCalError, match=r"P\(no\) is named after no"):
        calibration_error(table["outcome"], pd.Series(table["P(no)"], name="P(no)"))


def test_objects_are_read_by_name_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    table = log(["P(yes)", "P(no)"])
    rows = zip(*(table[name].tolist() for name in table), strict=True)
    lines = [json.dumps({"outcome": y, "forecast": {"P(yes)": p, "P(no)": q}}) for y, p, q in rows]
    path.write_text("\n".join(lines))
    done = run("recalibrate", path, "--classes", "no,yes", "--json")
    assert json.loads(done.out.splitlines()[-1])["classes"] == {"no": "forecast.P(no)", "yes": "forecast.P(yes)"}
    p, q = table["P(yes)"][0], table["P(no)"][0]
    assert json.loads(done.out.splitlines()[0])["mean"] == {"no": pytest.approx(q), "yes": pytest.approx(p)}
    for command in (("audit", path), ("monitor", path, "--classes", "no,yes")):
        refused = run(*command, "--forecast", "forecast")
        assert refused.code == 2
        assert "holds objects, expected numbers" in refused.err


def test_columns_of_outcomes_and_forecasts_are_in_one_order() -> None:
    table = log(["p_yes", "p_no"])
    came = table.pop("outcome") == "yes"
    table |= {"is_no": (~came).astype(int), "is_yes": came.astype(int)}
    for source in (table, pd.DataFrame(table)):
        assert tc.audit(source, forecast=["p_no", "p_yes"], outcome=["is_no", "is_yes"]).whole.accuracy > 0.5
        with pytest.raises(TreeCalError, match="p_yes is named after yes, but stands for no"):
            tc.audit(source, forecast=["p_yes", "p_no"], outcome=["is_no", "is_yes"])


def test_a_frame_is_audited_by_its_outcome_alone() -> None:
    table = log(["P(yes)", "P(no)"])
    for source in (table, pd.DataFrame(table)):
        found = tc.audit(source, outcome="outcome")
        assert found.columns == ("P(no)", "P(yes)")
        assert found.whole.accuracy == pytest.approx(right())


OTHERS = [  # classes in the order of the columns, as files state them
    ("1.0,0.0", "p_1,p_0"), ("0.0,1.0", "p0,p1"), ("True,False", "p_1,p_0"), ("TRUE,FALSE", "prob1,prob0"),
    ("1,0", "p_true,p_false"), ("0,1", "P(False),P(True)"), ("low,high", "lowprob,highprob"),
    ("low,high", "problow,probhigh"), ("spam,not spam", "p_spam,p_not_spam"), ("Class B,Class A", "p_b,p_a"),
    ("Iris-virginica,Iris-setosa", "virginica,setosa"), ("is_on,is_off", "P(on),P(off)"), ("1,10", "p_1,p_10"),
    ("C++,C", "p_C++,p_C"), ("Very Good,Good", "pVeryGood,pGood"),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "columns"), some(OTHERS, every=3))
def test_columns_of_classes_that_are_spelled_otherwise(labels: str, columns: str, tmp_path: Path) -> None:
    """Integers beside a missing one are written as 1.0, classes have a common beginning, 0 and 1 stand for truth."""
    first, second = labels.split(",")
    names = columns.split(",")
    rng = np.random.default_rng(0)
    p = (2 * rng.integers(1000, size=ROWS) + 1) / 2000
    came = rng.random(ROWS) < p
    table = {names[0]: p, names[1]: 1 - p, "outcome": np.where(came, first, second)}
    path = tmp_path / "log.csv"
    write_csv(path, [list(table), *zip(*(column.tolist() for column in table.values()), strict=True)])
    for source in (path, table):
        for given in (names, names[::-1], names[:1], names[1:]):
            found = tc.audit(source, forecast=given, outcome="outcome").whole
            assert found.accuracy == pytest.approx(np.mean((p > 0.5) == came))
    document = json.loads(run("monitor", path, "--json").out.splitlines()[-1])
    assert document["classes"] == {first: names[0], second: names[1]}


def test_true_is_1_beside_false_only() -> None:
    assert paired(["p1", "p0"], ["False", "True"]) == ("True", "False")
    assert paired(["p0", "p1", "p2"], ["true", "a", "b"]) is None
    table = {"p0": [0.5, 0.2, 0.1], "p1": [0.3, 0.5, 0.1], "p2": [0.2, 0.3, 0.8], "y": ["true", "a", "b"]}
    assert tc.audit(table, forecast=["p0", "p1", "p2"], outcome="y", classes=["true", "a", "b"]).whole.accuracy == 1


def test_columns_in_the_wrong_order_are_named_first() -> None:
    table = log(["p_yes", "p_no"])
    swapped = {"a": table["p_yes"], "b": table["p_no"], "outcome": table["outcome"]}
    found = tc.audit(swapped, forecast=["a", "b"], outcome="outcome")
    assert str(found).startswith("The columns seem to be of the other class each")
    brier = tc.audit(swapped, forecast=["b", "a"], outcome="outcome").whole
    assert found.whole.swapped_skill == pytest.approx(brier.skill, abs=0.02)
    assert not str(brier).startswith("The columns seem")


def test_one_column_of_two_classes_is_asked_for_by_name(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("yes,outcome\n0.2,no\n0.9,yes\n")
    done = run("audit", path)
    assert done.code == 2
    assert "has no column 'no'" in done.err
    assert "of two classes one column will do: forecast='yes', in the shell --forecast yes." in done.err
    assert run("audit", path, "--forecast", "yes").code == 0
