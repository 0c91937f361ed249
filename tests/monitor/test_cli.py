"""`treecal monitor`: files and pipes, groups, snapshots, limits, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import treecal as tc
from tests.cli.support import refused, run
from tests.monitor.test_monitor import stream
from treecal._atomic import exclusive


def write(folder: Path, *, sure: float = 1.0, rounds: int = 400) -> tuple[Path, tc.Monitor]:
    P, y = stream(3, rounds, sure=sure)
    P = np.round(P, 9)
    P[:, 2] = 1 - P[:, 0] - P[:, 1]
    rows = [
        {"a": p[0], "b": p[1], "c": p[2], "outcome": "abc"[k], "site": "xy"[i % 2]}
        for i, (p, k) in enumerate(zip(P, y, strict=True))
    ]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    m = tc.Monitor(tc.Simplex(classes=["a", "b", "c"]))
    m.update_many(P, y)
    return path, m


def test_a_file_a_pipe_and_python_agree(tmp_path: Path) -> None:
    path, m = write(tmp_path, sure=2.0)
    assert m.alarm is not None
    log = run("monitor", path, "--classes", "a,b,c", "--json")
    assert log.code == 3
    found = json.loads(log.out)
    assert found["peak"] == pytest.approx(m.peak, rel=1e-6)
    assert found["alarm"]["round"] == m.alarm.round
    pipe = run("monitor", "--classes", "a,b,c", "--json", stdin=path.read_text())
    assert pipe.code == 3
    first, last = map(json.loads, pipe.out.splitlines())
    assert first["alarm"] == found["alarm"] == last["alarm"]
    assert last["rounds"] == 400
    words = run("monitor", path, "--forecast", "a,b,c")
    assert "alarm after round" in words.out


def test_no_alarm_and_a_limit(tmp_path: Path) -> None:
    path, m = write(tmp_path)
    assert m.alarm is None
    fine = run("monitor", path, "--classes", "a,b,c")
    assert (fine.code, "no alarm." in fine.out) == (0, True)
    for limit, code in (("0.5", 0), ("0.0001", 3)):
        done = run("monitor", path, "--classes", "a,b,c", "--fail-above", limit, "--json")
        assert done.code == code
    audited = tc.audit(path, forecast=["a", "b", "c"], outcome="outcome").whole.classwise_ece
    assert json.loads(done.out)["classwise_ece"] == pytest.approx(audited, rel=1e-9)
    piped = run("monitor", "--classes", "a,b,c", "--fail-above", "0.0001", "--json", stdin=path.read_text())
    assert json.loads(piped.out)["classwise_ece"] == pytest.approx(audited, rel=1e-9)
    assert piped.code == 3


def test_snapshots_resume_and_keep_the_alarm(tmp_path: Path) -> None:
    path, _ = write(tmp_path, sure=2.0)
    lines = path.read_text().splitlines(keepends=True)
    kept = tmp_path / "watch.treecal"
    options = ["monitor", "--classes", "a,b,c", "--group", "site", "--snapshot", kept, "--json"]
    for part in (lines[:10], lines[10:300]):
        run(*options, stdin="".join(part))
    rest = tmp_path / "rest.jsonl"
    rest.write_text("".join(lines[300:]))
    unknown = run("monitor", rest, *options[1:])
    assert (unknown.code, "--new-file" in unknown.err) == (2, True)
    done = run("monitor", rest, *options[1:], "--new-file")
    whole = run("monitor", path, "--classes", "a,b,c", "--group", "site", "--json")
    assert json.loads(done.out)["statistic"] == pytest.approx(json.loads(whole.out)["statistic"], rel=1e-9)
    assert done.code == 3
    other = run("monitor", rest, "--classes", "a,b,c", "--snapshot", kept)
    assert other.code == 2
    assert "use the options it was created with" in other.err


def test_invalid_rows_and_options(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("p,outcome\n0.5,0\n1.5,1\n0.5,1\n")
    assert run("monitor", path, "--forecast", "p").code == 2
    assert run("monitor", path, "--forecast", "p", "--on-error", "skip").code == 1
    assert run("monitor", path, "--forecast", "p", "--alpha", "2").code == 2
    assert run("monitor", path, "--forecast", "p", "--fail-above", "-1").code == 2
    text = '{"forecast": [0.5], "outcome": [0.4]}\n[1]\n'
    box = run("monitor", "--dim", "1", "--box", "0", "1", "--on-error", "skip", stdin=text)
    assert box.code == 1
    assert "1 round;" in box.out


def write_csv(path: Path, rounds: int, *, sure: float = 1.0) -> list[str]:
    P, y = stream(2, rounds, sure=sure)
    lines = [f"{p[1]:.6f},{k},{'xy'[i % 2]}\n" for i, (p, k) in enumerate(zip(P, y, strict=True))]
    path.write_text("p,outcome,site\n" + "".join(lines), encoding="utf-8")
    return lines


@pytest.mark.parametrize("named", [(), ("--dim", "2")])
def test_a_growing_log_is_learned_once(tmp_path: Path, named: tuple[str, ...]) -> None:
    path, kept = tmp_path / "log.csv", tmp_path / "watch.treecal"
    lines = write_csv(path, 120)
    options = ("--forecast", "p", "--group", "site", *named, "--json")
    whole = json.loads(run("monitor", path, *options).out)
    found = {}
    for count in (1, 1, 50, 50, 120):
        path.write_text("p,outcome,site\n" + "".join(lines[:count]))
        done = run("monitor", path, *options, "--snapshot", kept)
        found = json.loads(done.out)
        assert (done.code, found["rounds"]) == (0, count)
        assert tc.load(kept).rounds == count
    assert "the first 50 rows were learned before" in done.err
    assert found["statistic"] == pytest.approx(whole["statistic"], rel=1e-9)
    assert found["peak"] == pytest.approx(whole["peak"], rel=1e-9)


def test_an_unfinished_row_a_changed_file_and_no_row(tmp_path: Path) -> None:
    path, kept = tmp_path / "log.csv", tmp_path / "watch.treecal"
    options = ("--forecast", "p", "--snapshot", kept)
    path.write_text("p,outcome\n0.5,1\n0.25,0")
    first = run("monitor", path, *options)
    assert (first.code, tc.load(kept).rounds, "left for the next run" in first.err) == (0, 1, True)
    path.write_text("p,outcome\n0.5,1\n0.25,0\n")
    again = run("monitor", path, *options)
    assert "the first row was learned before" in again.err
    assert tc.load(kept).rounds == 2
    path.write_text("p,outcome\n0.5,0\n0.25,0\n")
    changed = run("monitor", path, *options)
    assert (changed.code, "does not begin with the 2 rows" in changed.err) == (2, True)
    assert tc.load(kept).rounds == 2
    path.write_text("p,outcome\n1.5,0\n2,1\n")
    other = tmp_path / "other.treecal"
    assert run("monitor", path, "--forecast", "p", "--snapshot", other, "--on-error", "skip").code == 1
    assert not other.exists()


def test_a_snapshot_in_use_is_refused_and_parquet_resumes(tmp_path: Path) -> None:
    path, kept = tmp_path / "log.csv", tmp_path / "watch.treecal"
    write_csv(path, 30)
    with exclusive(kept):
        held = run("monitor", path, "--forecast", "p", "--snapshot", kept)
    assert (held.code, "in use" in held.err) == (2, True)
    table = pd.read_csv(path)
    for rows in (10, 30):
        table[:rows].to_parquet(tmp_path / "log.parquet")
        run("monitor", tmp_path / "log.parquet", "--forecast", "p", "--group", "site", "--snapshot", kept)
        assert tc.load(kept).rounds == rows


def test_a_single_column_named_after_the_first_class(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rng = np.random.default_rng(0)
    p = rng.random(300)
    came = np.where(rng.random(300) < p, "churn", "stay")
    path.write_text("p_churn,outcome\n" + "".join(f"{q:.6f},{y}\n" for q, y in zip(p, came, strict=True)))
    for snapshot in ((), ("--snapshot", tmp_path / "watch.treecal")):
        assert run("monitor", path, "--forecast", "p_churn", *snapshot).code == 0
    for command in ("monitor", "recalibrate"):
        for source, stdin in ((path, ""), ("-", '{"p_churn": 0.5, "outcome": "stay"}\n')):
            done = run(command, source, "--classes", "churn,stay", "--forecast", "p_churn", stdin=stdin)
            assert done.code == 2
            assert "p_churn is named after churn, the first of the classes" in done.err
    assert run("monitor", path, "--classes", "stay,churn", "--forecast", "p_churn").code == 0


def test_rounded_probabilities_are_read_with_the_option_that_the_hint_names(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("p_a,p_b,p_c,outcome\n" + "0.3333,0.3333,0.3333,a\n0.2,0.3,0.5,b\n" * 5)
    assert run("monitor", path, "--classes", "a,b,c").code == 0  # the rows of a file tell
    snapshot = ("--snapshot", tmp_path / "watch.treecal")
    for source in ((path,), (path, *snapshot), ("--kind", "csv")):
        given = ("monitor", *source, "--classes", "a,b,c")
        if source != (path,):  # they read row by row, or go on tomorrow
            refused = run(*given, stdin=path.read_bytes())
            assert refused.code == 2
            assert "--tolerance 1e-4" in refused.err
        assert run(*given, "--tolerance", "1e-4", stdin=path.read_bytes()).code == 0


def test_outcomes_that_come_late_count_in_the_order_in_which_they_come(tmp_path: Path) -> None:
    P, y = stream(2, 120, sure=3.0)
    chance = np.random.default_rng(1)
    rows: list[dict[str, object]] = []
    order: list[int] = []
    waiting: list[int] = []
    for i, p in enumerate(P.round(6)):
        at_once = chance.random() < 0.3
        rows.append({"id": f"r{i}", "p_a": p[0], "p_b": 1 - p[0]} | ({"outcome": "ab"[y[i]]} if at_once else {}))
        order += [i] * at_once
        waiting += [i] * (not at_once)
        while len(waiting) > 5:
            k = waiting.pop(int(chance.integers(len(waiting))))
            rows.append({"outcome_for": f"r{k}", "outcome": "ab"[y[k]]})
            order.append(k)
    m = tc.Monitor(tc.Simplex(classes=["a", "b"]))
    forecasts = np.column_stack([P[:, 0].round(6), 1 - P[:, 0].round(6)])
    m.update_many(forecasts[order], y[order])
    text = [json.dumps(row) + "\n" for row in rows]
    options = ("--classes", "a,b", "--id", "id", "--fail-above", 0.001, "--json")
    whole = json.loads(run("monitor", *options, stdin="".join(text)).out.splitlines()[-1])
    assert (whole["rounds"], whole["waiting"], whole["statistic"]) == (len(order), len(waiting), m.statistic)
    audited = tc.audit(forecasts[order], y[order]).whole.classwise_ece
    assert whole["classwise_ece"] == pytest.approx(audited, rel=1e-9)
    log, kept = tmp_path / "log.jsonl", tmp_path / "watch.treecal"
    for end in (3, 80, 81, len(text)):
        log.write_text("".join(text[:end]))
        done = run("monitor", log, *options, "--snapshot", kept)
    again = json.loads(done.out)
    assert {k: again[k] for k in ("rounds", "waiting", "statistic")} == {
        k: whole[k] for k in ("rounds", "waiting", "statistic")
    }
    assert done.code == 3
    unknown = run("monitor", "--classes", "a,b", "--id", "id", stdin='{"outcome_for": "x", "outcome": "a"}\n')
    assert (unknown.code, "no forecast of that id awaits one" in unknown.err) == (2, True)


@pytest.mark.parametrize("more", [(), ("--snapshot", "kept"), ("--id", "id")])
def test_what_was_rounded_to_0_is_raised(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of five hundred forecasts of 0.004 that come true is no proof of anything, but where 0.00 was written."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},0.00,{int(i == 300)}" for i in range(500)]
    Path("log.csv").write_text("\n".join(["id,p,outcome", *rows, ""]), encoding="utf-8")
    arguments = ("monitor", "log.csv", "--classes", "0,1", "--forecast", "p", *more)
    assert "gave the probability 0" in run(*arguments).out
    Path("kept").unlink(missing_ok=True)
    done = run(*arguments, "--clip", "0.005")
    assert (done.code, "no alarm" in done.out) == (0, True)
    refused(run(*arguments, "--clip", "0.5"), "--clip")
