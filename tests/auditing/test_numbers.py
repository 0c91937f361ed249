"""Audits of forecasts of numbers: the counts against the measures, every kind of log, and the verdict's error rate."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import treecal as tc
from tests.cli.support import refused, run
from treecal import report
from treecal._typing import Array
from treecal.auditing import NumberAudit, NumberSums
from treecal.exceptions import FileError, ParameterError
from treecal.measures import Placed, Quantiles, coverage, crps, pinball, pit

RNG = np.random.default_rng(0)
N = 3000
CENTRE = RNG.normal(50, 10, N)
Y = RNG.normal(CENTRE, 5)
LEVELS = {"q10": 0.1, "q50": 0.5, "q90": 0.9}
SURE = {name: CENTRE + 3 * stats.norm.ppf(tau) for name, tau in LEVELS.items()}
LOG: dict[str, Any] = {
    **SURE,
    "load": Y,
    "station": np.array(["north", "south"])[RNG.integers(2, size=N)],
    "day": np.datetime64("2026-01-01") + np.arange(N) // 30,
}


def audited(log: Any = LOG, **options: Any) -> NumberAudit:
    return tc.audit(log, quantiles=[*LEVELS], outcome="load", **options)


def test_an_audit_is_what_the_measures_say() -> None:
    found = audited(by="station").whole
    forecasts = {tau: SURE[name] for name, tau in LEVELS.items()}
    assert found.crps.value == pytest.approx(crps(forecasts, Y))
    assert found.pinball == pytest.approx(pinball(forecasts, Y))
    for tau, share in coverage(forecasts, Y).items():
        assert found.placed.coverage[tau].value == pytest.approx(share.value)
    assert found.sharpness[0.8] == pytest.approx((SURE["q90"] - SURE["q10"]).mean())
    assert found.placed.intervals[0.8] == pytest.approx(((SURE["q90"] >= Y) & (SURE["q10"] < Y)).mean())
    assert found.gap == pytest.approx((Y - SURE["q50"]).mean())
    assert (found.outcome, found.spread) == pytest.approx((Y.mean(), Y.std()))
    constant = {tau: np.full(N, np.quantile(Y, tau)) for tau in LEVELS.values()}
    assert found.climatology == pytest.approx(crps(constant, Y), rel=0.03)
    assert found.skill == pytest.approx(1 - found.crps.value / found.climatology)


def test_groups_and_windows_are_audits_of_their_rows() -> None:
    found = audited(by="station", time="day", window="month")
    for name in ("north", "south"):
        rows = LOG["station"] == name
        alone = audited({key: column[rows] for key, column in LOG.items()}).whole
        part = found.groups[name]  # type: ignore[index] # of one column
        assert part.rounds == alone.rounds
        assert part.crps.value == pytest.approx(alone.crps.value)
        assert part.placed.cells.tolist() == alone.placed.cells.tolist()
        assert part.spread == pytest.approx(alone.spread)
        assert math.isnan(part.skill)
    assert sum(part.rounds for part in found.groups.values()) == N
    assert found.windows is not None
    assert [*found.windows.groups][:2] == [("2026-01",), ("2026-02",)]
    assert found.windows.groups["2026-01",].rounds == 31 * 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    frame = pd.DataFrame(LOG)
    frame.to_csv(folder / "log.csv", index=False)
    frame.to_parquet(folder / "log.parquet")
    frame.to_json(folder / "log.jsonl", orient="records", lines=True, date_format="iso")
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "pandas", "arrow"])
def test_every_kind_of_log_gives_the_same(files: Path, kind: str) -> None:
    tables: dict[str, Any] = {"pandas": pd.DataFrame(LOG), "arrow": pa.table(LOG)}
    found = audited(tables.get(kind, files / f"log.{kind}"), by="station", time="day")
    expected = audited(by="station", time="day")
    assert found.whole.placed.cells.tolist() == expected.whole.placed.cells.tolist()
    assert found.whole.crps.value == pytest.approx(expected.whole.crps.value, rel=1e-9)
    assert {key: part.rounds for key, part in found.groups.items()} == {
        key: part.rounds for key, part in expected.groups.items()
    }
    assert found.windows is not None
    assert expected.windows is not None
    assert [*found.windows.groups] == [*expected.windows.groups]


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_counts_what_the_forms_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = (0.1, 0.25, 0.5, 0.9)
    values = np.sort(rng.integers(5, size=(300, 4)), axis=1).astype(float)  # many are equal
    y, home = rng.integers(6, size=300).astype(float), rng.integers(3, size=300)
    columns = tc.auditing.Columns("y", ("a", "b", "c", "d"), levels)
    fast, slow = NumberSums(columns), NumberSums(columns)
    fast.add(Quantiles(levels, values), y, home, 3)
    slow.add(Quantiles(levels, values[:0]), y[:0], home[:0], 3)
    slow.origin = fast.origin
    slow._add(Quantiles(levels, values), y, home)
    np.testing.assert_allclose(fast.cells, slow.cells)
    np.testing.assert_allclose(fast.totals, slow.totals, atol=1e-9)
    ends = pit({tau: values[:, k] for k, tau in enumerate(levels)}, y)
    assert (ends[:, 0] < ends[:, 1]).all()


def test_other_forms() -> None:
    members = {f"m{k}": RNG.normal(CENTRE, 5) for k in range(9)}
    found = tc.audit({**members, "y": Y}, members=[*members], outcome="y")
    assert found.whole.crps.value == pytest.approx(crps({"members": np.column_stack([*members.values()])}, Y))
    assert found.whole.verdict.level == "calibrated"
    normal = tc.audit({"m": CENTRE, "s": np.full(N, 5.0), "y": Y}, mean="m", sd="s", outcome="y")
    assert normal.whole.crps.value == pytest.approx(crps({"mean": CENTRE, "sd": np.full(N, 5.0)}, Y))
    assert normal.whole.verdict.level == "calibrated"
    assert "nothing, as far as these rows tell" in str(normal)


def placed(levels: tuple[float, ...], u: Array) -> Placed:
    return Placed(levels, np.histogram(u, [0, *levels, 1])[0].astype(float))


@pytest.mark.parametrize("levels", [(0.1, 0.5, 0.9), tuple(k / 20 for k in range(1, 20))], ids=["three", "twenty"])
@pytest.mark.parametrize("rows", [40, 400])
def test_right_forecasts_are_called_off_one_time_in_twenty(levels: tuple[float, ...], rows: int) -> None:
    rng = np.random.default_rng(rows)
    off = [placed(levels, rng.random(rows)).verdict.p_value < 0.05 for _ in range(400)]
    assert np.mean(off) < 0.08


def test_the_error_is_the_gap_of_endless_rows() -> None:
    """√(∫(G − τ)² / ∫τ(1 − τ)) of the law of the PIT, here too narrow by half: G(τ) = Φ(½·Φ⁻¹(τ))."""
    rng = np.random.default_rng(0)
    levels = tuple(k / 20 for k in range(1, 20))
    tau = np.array(levels)
    true = math.sqrt(((stats.norm.cdf(stats.norm.ppf(tau) / 2) - tau) ** 2).sum() / (tau * (1 - tau)).sum())
    held, values = 0, []
    for _ in range(100):
        error = placed(levels, stats.norm.cdf(2 * rng.normal(size=500))).verdict.error
        held += error.low <= true <= error.high
        values.append(error.value)
    assert np.mean(values) == pytest.approx(true, rel=0.02)
    assert held >= 80


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (lambda z: 2 * z, "Too narrow"),
        (lambda z: z / 2, "Too wide"),
        (lambda z: z + 0.5, "Too low"),
        (lambda z: z - 0.5, "Too high"),
    ],
)
def test_the_verdict_says_which_way(move: Any, words: str) -> None:
    z = move(np.random.default_rng(0).normal(size=1000))
    verdict = placed((0.1, 0.5, 0.9), stats.norm.cdf(z)).verdict
    assert verdict.advised.found.startswith(words)
    assert verdict.level in ("somewhat off", "far off")


def test_invalid_rows_are_named_or_left_out(tmp_path: Path) -> None:
    log = {name: column[:50].copy() for name, column in LOG.items()}
    log["q50"][6] = math.nan
    log["load"][9] = math.inf
    with pytest.raises(FileError, match="row 7: q50 is missing, infinite or not a number"):
        audited(log)
    found = audited(log, on_error="collect")
    assert [(problem.row, problem.reason.split()[0]) for problem in found.problems] == [(7, "q50"), (10, "load")]
    assert found.whole.rounds == 48
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    assert audited(tmp_path / "log.parquet", on_error="skip").to_dict() == {
        **audited(log, on_error="skip").to_dict(),
        "source": "log.parquet",
    }
    with pytest.raises(FileError, match="row 1: s is -1, expected a standard deviation of 0 or more"):
        tc.audit({"m": np.zeros(3), "s": -np.ones(3), "y": np.zeros(3)}, mean="m", sd="s", outcome="y")


def test_what_is_repaired_is_counted_and_said() -> None:
    log = {name: column[:200].copy() for name, column in LOG.items()}
    log["q10"][3], log["q90"][3] = log["q90"][3], log["q10"][3]
    found = audited(log)
    assert found.repairs.crossing == 1
    assert (
        found.whole.placed.cells.tolist() == audited({k: v[:200] for k, v in LOG.items()}).whole.placed.cells.tolist()
    )
    assert "Quantiles cross in 1 row, and were sorted." in str(found)
    members = {f"m{k}": np.random.default_rng(k).normal(size=200) for k in range(4)}
    members["m2"][:7] = math.nan
    found = tc.audit({**members, "y": np.zeros(200)}, members=[*members], outcome="y")
    assert found.to_dict()["repaired"] == {"crossing": 0, "missing_members": 7}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantiles": ["q10", "q50"], "mean": "q50"}, "one of the three"),
        ({"mean": "q50"}, "one of the three"),
        ({"quantiles": {"q10": 10, "q50": 50}}, "divide levels in percent by 100"),
        ({"quantiles": ["low", "high"]}, "level is 'low'"),
        ({"members": ["q10"]}, "two members or more"),
        ({"quantiles": ["q10"], "classes": ["a"]}, "have no classes"),
        ({"quantiles": ["q10"], "window": "day"}, "beside time"),
    ],
)
def test_arguments_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        tc.audit(LOG, outcome="load", **options)


def test_the_command_line_audits_numbers(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    told = run("audit", files / "log.parquet", "--quantiles", "q10,q50,q90", "--outcome", "load", "--by", "station")
    assert "Too narrow" in told.out
    numbers = ("--quantiles", "q10=0.1,q90=0.9", "--outcome", "load", "--time", "day", "--report", page, "--json")
    found = json.loads(run("audit", files / "log.csv", *numbers).out)
    assert found["whole"]["verdict"]["level"] == "far off"
    assert len(found["windows"]["groups"]) > 5
    assert "://" not in page.read_text("utf-8").replace("http://www.w3.org", "")
    refused(run("audit", files / "log.csv", "--quantiles", "q10=a", "--outcome", "load"), "low=0.1,high=0.9")
    refused(run("audit", files / "log.csv", "--quantiles", "q10", "--forecast", "q90"), "have no --forecast")


def test_a_page_shows_all_of_it() -> None:
    found = audited(by="station", time="day", window="month")
    page = report.render_numbers(found, title="Load", details={"file": "log"}, command="treecal audit")
    assert page == report.render_numbers(found, title="Load", details={"file": "log"}, command="treecal audit")
    for words in ("Too narrow", "north", "2026-02", "Fan chart", "coverage by level", "treecal audit"):
        assert words in page
    assert "<table>" in found._repr_html_()
    assert next(iter(found.bins())).keys() == {"station", "from", "to", "rows", "expected"}
