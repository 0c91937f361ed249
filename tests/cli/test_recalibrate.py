"""`treecal recalibrate`: a model's forecasts, corrected before the outcome is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.cli.support import refused, run, start
from treecal.correctors import ByGroup, Cells, Centroids, Rationed, all_correctors

RNG = np.random.default_rng(0)
SAID = RNG.dirichlet([2, 2], size=200)
HAPPENED = (RNG.random(200) < 0.25 + 0.5 * SAID[:, 1]).astype(int)
NAMES = ("rain", "sun")
ROWS = [{"forecast": b.tolist(), "outcome": NAMES[k]} for b, k in zip(SAID, HAPPENED, strict=True)]
SPACE = tc.Simplex(2)


def text(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("options", "corrector"),
    [
        ([], tc.AutoCorrector(SPACE)),
        (["--method", "mean"], tc.Recalibrator(SPACE)),
        (["--method", "shift", "--groups", "cells"], tc.Recalibrator(SPACE, groups=Cells(), make="shift")),
        (["--groups", "centroids"], tc.Recalibrator(SPACE, groups=Centroids())),
        (["--method", "adaptive"], tc.Recalibrator(SPACE, make=lambda: tc.AdaptiveTreeCal(SPACE))),
        (["--method", "platt"], tc.PlattScaling(SPACE)),
        (["--method", "temperature"], tc.TemperatureScaling(SPACE)),
        (["--method", "vector"], tc.VectorScaling(SPACE)),
        (["--method", "vector-then-mean"], tc.Chain([tc.VectorScaling(SPACE), tc.Recalibrator(SPACE)])),
        (["--method", "gated"], tc.Gated(tc.VectorScaling(SPACE))),
        (["--method", "guarded"], tc.GuardedCorrector(SPACE)),
        (["--method", "vector-then-guarded"], tc.GuardedCorrector(SPACE, corrector=tc.VectorScaling(SPACE))),
    ],
)
def test_every_method_is_the_library_s(options: list[str], corrector: Any) -> None:
    done = run("recalibrate", "--classes", "rain,sun", *options, "--json", stdin=text(ROWS))
    assert (done.code, done.err) == (0, "")
    *lines, last = done.lines
    assert len(lines) == len(ROWS)
    for t, (line, b, k) in enumerate(zip(lines, SAID, HAPPENED, strict=True)):
        assert line["round"] == t + 1
        assert list(line["mean"].values()) == corrector.predict(b).mean.tolist()
        corrector.update(np.eye(2)[k])
    report = corrector.report()
    assert last["scores"]["before"]["brier"] == report.before.brier
    assert last["scores"]["after"]["log"] == report.after.log


def test_it_says_what_the_guard_did() -> None:
    corrector = tc.GuardedCorrector(SPACE)
    for b, k in zip(SAID, HAPPENED, strict=True):
        corrector.predict(b)
        corrector.update(np.eye(2)[k])
    did, certificate = corrector.guard(), corrector.certificate("l1", rounds=200)
    assert certificate is not None
    guard = run("recalibrate", "--classes", "rain,sun", "--method", "guarded", "--json", stdin=text(ROWS)).lines[-1][
        "guard"
    ]
    assert guard == {
        "norm": "l1",
        "eager": {"rounds": did.eager_rounds, "error": did.eager_error / 200},
        "safe": {"rounds": did.safe_rounds, "bound": did.safe_bound / 200},
        "budget": did.budget / 200,
        "left": did.left / 200,
        "bound": min(certificate.bound, 2.0),
    }
    shown = run("recalibrate", "--classes", "rain,sun", "--method", "guarded", stdin=text(ROWS)).err
    assert f"The guard: eager forecast {did.eager_rounds} rounds" in shown
    assert "guard" not in run("recalibrate", "--classes", "rain,sun", stdin=text(ROWS)).err


def test_every_corrector_of_the_package_is_offered() -> None:
    names = [name for kind in all_correctors() for name in kind.methods()]
    unnamed = [kind for kind in all_correctors() if not kind.methods()]
    assert unnamed == [ByGroup, Rationed]  # --by makes the one, and the other is for decisions
    assert len(set(names)) == len(names)
    offered = run("recalibrate", "--classes", "a,b", "--method", "guess").err
    assert all(f'"{name}"' in offered for name in names)


def test_scores_for_people_go_to_standard_error() -> None:
    done = run("recalibrate", "--classes", "rain,sun", stdin=text(ROWS))
    assert done.err.startswith("200 rounds")
    assert "before" in done.err
    assert "after" in done.err
    assert len(done.lines) == 200


def test_files_by_column(tmp_path: Path) -> None:
    expected = run("recalibrate", "--classes", "rain,sun", stdin=text(ROWS)).out
    path = tmp_path / "model.csv"
    cells = [f"{b[0]!r},{b[1]!r},{NAMES[k]}" for b, k in zip(SAID.tolist(), HAPPENED, strict=True)]
    path.write_text("\n".join(["rain,sun,outcome", *cells]))
    assert run("recalibrate", path, "--classes", "rain,sun").out == expected
    path.write_text("\n".join(["p0,p1,weather", *cells]))
    arguments = ["--forecast", "p0,p1", "--outcome", "weather"]
    assert run("recalibrate", path, "--classes", "rain,sun", *arguments).out == expected
    named = [{"forecast": dict(zip(NAMES, b, strict=True)), "outcome": o} for b, o in (row.values() for row in ROWS)]
    assert run("recalibrate", "--classes", "rain,sun", stdin=text(named)).out == expected


def test_in_a_pipe_probabilities_come_first_and_the_outcome_after() -> None:
    expected = run("recalibrate", "--classes", "rain,sun", stdin=text(ROWS[:30])).lines
    with start("recalibrate", "--classes", "rain,sun") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for row, line in zip(ROWS[:30], expected, strict=True):
            process.stdin.write(json.dumps({"forecast": row["forecast"]}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == line
            process.stdin.write(json.dumps({"outcome": row["outcome"]}) + "\n")
            process.stdin.flush()
        out, err = process.communicate()
    assert (process.returncode, out) == (0, "")
    assert err.startswith("30 rounds")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"forecast": [0.5, 0.47], "outcome": "sun"}', "sum to 0.97"),
        ('{"forecast": [0.5, 0.5], "outcome": "hail"}', "outcome is 'hail', expected one of rain, sun"),
        ('{"forecast": [0.5, 0.5], "outcome": [0.5, 0.47]}', "the outcome lies outside"),
        ('{"forecast": [0.5, 0.5], "outcome": null}', "outcome is missing"),
        ('{"forecast": [1], "outcome": "sun"}', "forecast is [1], expected a list of 2 numbers"),
        ('{"forecast": 1.5, "outcome": "sun"}', "forecast is 1.5, expected a probability"),
        ('{"rain": 0.5, "outcome": "sun"}', "sun is missing, expected a number"),
        ('{"p": 0.5}', "neither probabilities (forecast, or rain and sun, or p_rain and p_sun) nor outcome, only p"),
        ('{"outcome": "sun"}', "has an outcome, and neither it nor a row before has a forecast for it"),
        ("[0.5, 0.5]", "not an object"),
        ("{}", "nothing"),
    ],
)
def test_a_bad_row_is_named_and_changes_nothing(row: str, words: str) -> None:
    first, last = text(ROWS[:2]), text(ROWS[2:4])
    done = run("recalibrate", "--classes", "rain,sun", stdin=first + row + "\n" + last)
    refused(done, "line 3 (row 3): ", words)
    skipped = run("recalibrate", "--classes", "rain,sun", "--on-error", "skip", stdin=first + row + "\n" + last)
    assert skipped.code == 1
    assert "1 invalid row left out" in skipped.err
    assert skipped.out == run("recalibrate", "--classes", "rain,sun", stdin=first + last).out


def test_bad_options() -> None:
    refused(run("recalibrate", "--classes", "a,b,c", "--method", "platt"), "Simplex(2)")
    refused(run("recalibrate", "--classes", "a,b", "--method", "platt", "--groups", "cells"), "has no groups")
    refused(run("recalibrate", "--dim", 2, "--box", 0, 1), "Hint: ")
    refused(run("recalibrate", "--classes", "a,b", "--method", "guess"), "guess")


def test_no_rows_no_scores() -> None:
    done = run("recalibrate", "--classes", "a,b")
    assert (done.code, done.out, done.err) == (0, "", "treecal: no outcomes, so no scores.\n")


@pytest.mark.parametrize("decimals", [2, 3, 4])
@pytest.mark.parametrize("method", ["auto", "isotonic"])
def test_a_file_says_to_how_many_decimals_it_was_rounded(decimals: int, method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), 60).round(decimals)
    labels = rng.choice([*"abcd"], 60)
    rows = [",".join(f"{p:.{decimals}f}" for p in row) + f",{label}" for row, label in zip(P, labels, strict=True)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["a,b,c,d,outcome", *rows]) + "\n")
    options = ["--classes", "a,b,c,d", "--method", method]
    done = run("recalibrate", path, *options)
    assert (done.code, len(done.lines)) == (0, 60)
    assert run("recalibrate", *options, stdin=path.read_text()).code == 2  # nobody has seen the first rows of a pipe
