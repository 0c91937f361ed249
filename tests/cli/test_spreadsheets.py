"""Logs as spreadsheets write them: decimal commas, days first, TRUE beside True; and limits and windows of an audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.cli.support import Done, refused, run
from treecal.exceptions import ParameterError
from treecal.io import open_source

ROWS = 600
RNG = np.random.default_rng(0)
P = RNG.random(ROWS).round(4)
Y = RNG.random(ROWS) < P**2
DAYS = np.datetime64("2026-01-20") + np.arange(ROWS) // 8


def write(path: Path, *, day: Any = str, mark: str = ".", truth: Any = str) -> Path:
    lines = [f"{day(d)};{f'{p:.4f}'.replace('.', mark)};{truth(bool(y))}" for d, p, y in zip(DAYS, P, Y, strict=True)]
    path.write_text("\n".join(["day;p;clicked", *lines, ""]), encoding="utf-8")
    return path


def found(done: Done) -> Any:
    assert done.code == 0, done
    return {name: value for name, value in json.loads(done.out).items() if name not in ("source", "classes")}


def german(day: np.datetime64) -> str:
    year, month, number = str(day).split("-")
    return f"{number}.{month}.{year}"


def audited(path: Path, *more: object) -> Done:
    return run("audit", path, "--forecast", "p", "--outcome", "clicked", "--json", *more)


def test_decimal_commas_and_days_that_come_first(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.csv")
    excel = write(tmp_path / "excel.csv", mark=",", day=german)
    expected = found(audited(plain, "--time", "day", "--window", "month"))
    assert [group["day"] for group in expected["windows"]["groups"]] == ["2026-01", "2026-02", "2026-03", "2026-04"]
    options = ("--decimal", ",", "--time", "day", "--window", "month", "--day-first")
    assert found(audited(excel, *options)) == expected
    assert (
        found(
            run("audit", "-", "--forecast", "p", "--outcome", "clicked", "--json", *options, stdin=excel.read_bytes())
        )
        == expected
    )
    refused(audited(excel), "--decimal , reads commas")
    refused(audited(excel, "--time", "day", "--decimal", ","), ".2026", "--day-first")
    american = write(tmp_path / "american.csv", day=lambda d: "/".join([*str(d)[5:].split("-"), str(d)[:4]]))
    refused(audited(american, "--time", "day"), "/2026", "--day-first")
    refused(audited(american, "--time", "day", "--day-first"), "/2026")
    with pytest.raises(ParameterError, match="a point or a comma"):
        open_source(plain, decimal=";")


@pytest.mark.parametrize("command", ["monitor", "recalibrate"])
def test_decimal_commas_in_streams(command: str, tmp_path: Path) -> None:
    plain, excel = write(tmp_path / "plain.csv"), write(tmp_path / "excel.csv", mark=",")
    options = ("--classes", "False,True", "--forecast", "p", "--outcome", "clicked", "--json")
    expected = run(command, plain, *options)
    assert run(command, excel, *options, "--decimal", ",") == expected
    snapshot = ("--snapshot", tmp_path / "kept")
    assert json.loads(run(command, excel, *options, "--decimal", ",", *snapshot).out.splitlines()[-1])
    assert tc.load(tmp_path / "kept").rounds == ROWS
    mixed = excel.read_text().replace("0,", "0.", 1)
    refused(run(command, "--kind", "csv", *options, "--decimal", ",", stdin=mixed), "decimals have a comma here")
    refused(run(command, "--kind", "csv", *options, stdin=excel.read_bytes()), "--decimal , reads commas")


def test_true_has_one_spelling(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.csv")
    turns = iter([str.title, str.upper, str.lower] * ROWS)
    mixed = write(tmp_path / "mixed.csv", truth=lambda y: next(turns)(str(y)))
    expected = found(audited(plain))
    assert found(audited(mixed)) == expected
    assert list(json.loads(audited(mixed).out)["classes"]) == ["False", "True"]
    assert found(audited(mixed, "--classes", "FALSE,TRUE"))["whole"]["brier"] == expected["whole"]["brier"]
    labels = [line.split(";")[2] for line in mixed.read_text().splitlines()[1:]]
    assert tc.audit(P, labels).whole.brier == expected["whole"]["brier"]
    assert tc.audit({"p": P, "y": np.array(labels)}, forecast="p", outcome="y").classes == ("False", "True")
    upper = write(tmp_path / "upper.csv", truth=lambda y: str(y).upper())
    assert list(json.loads(audited(upper).out)["classes"]) == ["FALSE", "TRUE"]
    for command in ("monitor", "recalibrate"):
        options = ("--classes", "False,True", "--forecast", "p", "--outcome", "clicked", "--json")
        assert run(command, mixed, *options) == run(command, plain, *options)
        assert (
            run(command, "--kind", "csv", *options, stdin=mixed.read_bytes()).out.splitlines()[-1:]
            == (run(command, "--kind", "csv", *options, stdin=plain.read_bytes()).out.splitlines()[-1:])
        )


def test_a_limit_is_on_the_classwise_error(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv")
    error = json.loads(audited(path).out)["whole"]["classwise_ece"]
    for limit, code in ((error * 1.001, 0), (error * 0.999, 3)):
        assert audited(path, "--fail-above", limit).code == code
        watched = run(
            "monitor", path, "--forecast", "p", "--outcome", "clicked", "--alpha", 1e-99, "--fail-above", limit
        )
        assert watched.code == code
        words = run("audit", path, "--forecast", "p", "--outcome", "clicked", "--fail-above", limit).out
        assert f"Class-wise calibration error {error:.4f}, {'above' if code else 'not above'}" in words
    refused(audited(path, "--fail-above", "-1"), "--fail-above")


def test_windows_are_as_wide_as_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv")
    for unit, count in (("day", 75), ("week", 11), ("month", 4), ("year", 1)):
        windows = found(audited(path, "--time", "day", "--window", unit))["windows"]["groups"]
        assert len(windows) == count
        assert sum(window["rounds"] for window in windows) == ROWS
    refused(audited(path, "--window", "month"), "beside time")
    refused(audited(path, "--time", "p", "--window", "month"), "holds numbers, not dates")
    refused(audited(path, "--day-first"), "--time")
