from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal import arena, plots
from treecal._typing import Array
from treecal.exceptions import ParameterError, TreeCalError
from treecal.streams import Adversary, LedgerAdversary, iid, play

FORECASTERS: dict[str, arena.Maker] = {
    "tree": partial(tc.TreeCal, arity=3),
    "mean": tc.RunningMean,
    "grid": tc.BinaryGrid,
}


def ledger_adversary(space: tc.ConvexSet, rounds: int, rng: np.random.Generator) -> Adversary:
    return LedgerAdversary(space)


STREAMS: dict[str, arena.Source] = {"iid": iid, "adversary": ledger_adversary}
SPACES = [tc.Simplex(2), tc.Simplex(3)]


@pytest.fixture(scope="module")
def table() -> Any:
    return arena.race(FORECASTERS, STREAMS, SPACES, rounds=60, norms=("l1", "l2"), seeds=(0, 1), workers=1)


def rows(table: Any, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if all(row[key] == value for key, value in wanted.items())]


def test_every_cell_is_there_once(table: Any) -> None:
    last = rows(table, rounds=60)
    cells = {(r["forecaster"], r["stream"], r["dim"], r["seed"], r["norm"]) for r in last}
    assert len(cells) == len(last) == 3 * 2 * 2 * 2 * 2
    assert all((r["error"] is None) == (r["forecaster"] == "grid" and r["dim"] == 3) for r in last)
    assert all(r["per_node"] >= r["error"] - 1e-12 for r in last if r["error"] is not None)


def test_a_refusal_says_why(table: Any) -> None:
    (row, *_) = rows(table, forecaster="grid", dim=3)
    assert "expected Simplex(2)" in row["note"]


def test_errors_are_those_of_a_plain_run(table: Any) -> None:
    """Against the adversary, which has no randomness, the table can be checked by hand."""
    (row,) = rows(table, forecaster="tree", stream="adversary", dim=3, seed=1, norm="l1", rounds=60)
    ledger = play(tc.TreeCal(tc.Simplex(3), arity=3), LedgerAdversary(tc.Simplex(3)), rounds=60)
    assert row["error"] == ledger.error("l1")


def test_everybody_meets_the_same_stream(table: Any) -> None:
    """Two forecasters that are the same get the same errors; another seed gives others."""
    twins: dict[str, arena.Maker] = {"a": tc.RunningMean, "b": tc.RunningMean}
    again = arena.race(twins, {"iid": iid}, [tc.Simplex(2)], rounds=60, seeds=(0, 1), workers=1)
    a, b = ([r["error"] for r in rows(again, forecaster=name)] for name in "ab")
    assert a == b
    mean = [r["error"] for r in rows(table, forecaster="mean", stream="iid", dim=2, norm="l1")]
    assert mean == a
    assert a[: len(a) // 2] != a[len(a) // 2 :]


def test_processes_make_no_difference(table: Any) -> None:
    again = arena.race(FORECASTERS, STREAMS, SPACES, rounds=60, norms=("l1", "l2"), seeds=(0, 1), workers=2)
    assert again.drop_columns(["seconds"]).equals(table.drop_columns(["seconds"]))


class StoppedError(Exception):
    pass


def broken(space: tc.ConvexSet, rounds: int, rng: np.random.Generator) -> Array:
    raise StoppedError


def test_a_stopped_race_goes_on(tmp_path: Path, table: Any) -> None:
    arguments: dict[str, Any] = {"rounds": 60, "norms": ("l1", "l2"), "seeds": (0, 1), "workers": 1, "folder": tmp_path}
    with pytest.raises(StoppedError):
        arena.race(FORECASTERS, {"iid": iid, "adversary": broken}, SPACES, **arguments)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert 0 < len(kept) < 24
    assert not [name for name in kept if name.startswith(".")]
    again = arena.race(FORECASTERS, STREAMS, SPACES, **arguments)
    assert again.drop_columns(["seconds"]).equals(table.drop_columns(["seconds"]))
    assert all((tmp_path / name).read_bytes() == content for name, content in kept.items())
    # and a third time nothing is played at all
    assert arena.race(FORECASTERS, {"iid": broken, "adversary": broken}, SPACES, **arguments).equals(again)


def test_the_printed_table(table: Any) -> None:
    text = arena.show(table)
    errors = arena.final(table)
    best = min(errors[2, "iid", name] for name in FORECASTERS)
    assert f"**{best:.3f}**" in text
    assert "### 3 dimensions" in text
    mean = np.mean([r["error"] for r in rows(table, forecaster="mean", stream="iid", dim=3, norm="l1", rounds=60)])
    assert errors[3, "iid", "mean"] == pytest.approx(float(mean))


def test_pictures(table: Any) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    ax = plots.plot_errors(table, stream="iid", dim=2, certificates={"tree": lambda _: 1.0})
    assert len(ax.lines) == 4
    assert ax.lines[1].get_linestyle() == "--"
    last = np.asarray(ax.lines[0].get_ydata(), dtype=float)[-1]
    assert last == pytest.approx(arena.final(table)[2, "iid", "tree"])
    plain = plt.subplots()[1]
    assert plots.plot_ranking(arena.final(table), ax=plain) is plain
    assert len(plots.plot_times(table).lines) == 3
    with pytest.raises(ParameterError, match="no errors for the stream 'rain'"):
        plots.plot_errors(table, stream="rain", dim=2)
    plt.close("all")


def test_bad_input() -> None:
    with pytest.raises(TreeCalError, match="streams is empty"):
        arena.race(FORECASTERS, {}, SPACES, rounds=10)
    with pytest.raises(TreeCalError, match="rounds is 0"):
        arena.race(FORECASTERS, STREAMS, SPACES, rounds=0)


def test_progress_counts_the_runs(tmp_path: Path) -> None:
    def told(seeds: tuple[int, ...]) -> list[tuple[int, int]]:
        counts: list[tuple[int, int]] = []
        arguments: dict[str, Any] = {"rounds": 10, "seeds": seeds, "workers": 1, "folder": tmp_path}
        arena.race(FORECASTERS, {"iid": iid}, SPACES[:1], **arguments, progress=lambda *pair: counts.append(pair))
        return counts

    assert told((0,)) == [(1, 3), (2, 3), (3, 3)]
    assert told((0, 1)) == [(4, 6), (5, 6), (6, 6)]  # three are in the folder


def test_brier_and_resolution_are_those_of_the_rounds() -> None:
    """Also where outcomes are no vertices and forecasts are distributions."""
    space, forecaster, ledger = tc.Ball(2), tc.TreeCal(tc.Ball(2), arity=3), tc.Ledger(tc.Ball(2))
    outcomes = space.sample(np.random.default_rng(0), 50)
    scores = []
    for y in outcomes:
        x = forecaster.predict()
        scores.append(float(x.weights @ np.square(y - x.points).sum(axis=1)))
        ledger.record(x, y)
        forecaster.update(y)
    found = ledger.exact().brier(squares=float(np.square(outcomes).sum()))
    assert found.score == pytest.approx(np.mean(scores))
    assert found.uncertainty == pytest.approx(np.square(outcomes - outcomes.mean(axis=0)).sum(axis=1).mean())
    assert found.score == pytest.approx(found.calibration - found.resolution + found.uncertainty)
    with pytest.raises(ParameterError, match="no round"):
        tc.Ledger(space).exact().brier(0)
    table = arena.race({"tree": partial(tc.TreeCal, arity=3)}, {"ball": one_ball}, [space], rounds=50, workers=1)
    row = table.to_pylist()[-1]
    assert [row[key] for key in ("brier", "resolution", "uncertainty")] == pytest.approx(
        [found.score, found.resolution, found.uncertainty]
    )


def one_ball(space: tc.ConvexSet, rounds: int, rng: np.random.Generator) -> Array:
    return space.sample(np.random.default_rng(0), rounds)


def test_a_constant_has_no_resolution() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    for k in (0, 1, 1, 1):
        ledger.record([0.25, 0.75], np.eye(2)[k])
    found = ledger.exact().brier(squares=4)
    assert found.calibration == found.resolution == 0
    assert found.score == found.uncertainty == 0.375


@pytest.mark.parametrize("make", [tc.TreeCal, tc.AdaptiveTreeCal, tc.Harmonic], ids=lambda kind: kind.__name__)
def test_a_run_at_once_is_the_run_round_by_round(make: arena.Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    def figures(streamed: int) -> Any:
        monkeypatch.setattr("treecal.arena._run.STREAMED", streamed)
        table = arena.race({"f": make}, {"iid": iid}, [tc.Simplex(3)], rounds=200, at=[50], workers=1)
        assert table.column("rounds").to_pylist() == [50, 200]
        assert (table.column("seconds").to_pylist()[-1] is None) == (streamed < 200)
        columns = ("error", "per_node", "brier", "resolution", "uncertainty")
        return np.array([table.column(name).to_pylist() for name in columns])

    assert figures(20) == pytest.approx(figures(1000), abs=1e-9)


def test_chance_has_seeds_and_the_rest_has_one() -> None:
    """A forecaster that draws gets draws of its own with each seed, on a stream that is always the same."""
    streams = {name: arena.STREAMS[name] for name in ("alternation", "against the mean", "i.i.d.")}
    rivals: dict[str, arena.Maker] = {"mean": tc.RunningMean, "drawn": tc.SampleTreeCal}
    table = arena.race(rivals, streams, [tc.Simplex(3)], rounds=600, seeds=(3, 4, 5), at=[], workers=1)
    seeds: dict[tuple[str, str], list[int]] = {}
    for row in table.to_pylist():
        seeds.setdefault((row["forecaster"], row["stream"]), []).append(row["seed"])
    assert seeds["mean", "alternation"] == seeds["mean", "against the mean"] == [3]
    assert all(those == [3, 4, 5] for (name, stream), those in seeds.items() if name == "drawn" or stream == "i.i.d.")
    assert len({r["error"] for r in rows(table, forecaster="drawn", stream="alternation")}) == 3


def test_who_is_too_slow_is_said_to_be(tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 60, "seeds": (0, 1), "workers": 1, "folder": tmp_path}
    rivals = {"tree": FORECASTERS["tree"]}
    table = arena.race(rivals, {"iid": iid}, SPACES[:1], limit=1e-9, **how)
    assert [row["error"] for row in table.to_pylist()] == [None, None]
    assert [row["rounds"] for row in table.to_pylist()] == [60, 60]
    first, second = table.column("note").to_pylist()
    assert first.startswith("too slow: 60 rounds would take ")
    assert second.startswith("too slow for more seeds: ")
    assert "| tree | too slow |" in arena.show(table)
    assert arena.final(table) == {}
    with pytest.raises(StoppedError):  # a greater limit is a new chance
        arena.race(rivals, {"iid": broken}, SPACES[:1], limit=600, **how)
    assert arena.race(rivals, {"iid": broken}, SPACES[:1], limit=1e-9, **how).equals(table)
    assert arena.final(arena.race(rivals, {"iid": iid}, SPACES[:1], limit=600, **how))
    with pytest.raises(ParameterError, match="limit is 0"):
        arena.race(rivals, {"iid": iid}, SPACES[:1], limit=0, **how)


def test_a_changed_configuration_is_raced_again(tmp_path: Path) -> None:
    def errors(arity: int) -> Any:
        makers: dict[str, arena.Maker] = {"a tree": partial(tc.TreeCal, arity=arity)}
        return arena.race(makers, {"iid": iid}, SPACES[:1], rounds=40, folder=tmp_path, workers=1)["error"]

    assert errors(2) != errors(3)
    assert errors(2) == errors(2)
    assert [path.name[:7] for path in tmp_path.iterdir()] == ["a-tree-"] * 2


def test_real_streams_have_their_own_sets() -> None:
    assert list(arena.REAL) == ["Seattle", "wet or dry", "storms", "flights"]
    dry = arena.REAL["wet or dry"]
    table = arena.race({"mean": tc.RunningMean}, {"dry": dry}, [dry.space], rounds=100, seeds=(0, 1), workers=1)
    (row,) = rows(table, rounds=100)
    ledger = play(tc.RunningMean(dry.space), dry.outcomes[:100])
    assert row["error"] == ledger.error("l1")
    for space, rounds in ((tc.Simplex(3), 10), (dry.space, 2000)):
        with pytest.raises(ParameterError, match="this stream has 1461 rounds on"):
            dry(space, rounds, np.random.default_rng(0))


def test_the_summary_has_mean_and_spread(table: Any) -> None:
    cells = arena.summary(table, norm="l2").to_pylist()
    assert len(cells) == 3 * 2 * 2
    for cell in cells:
        own = rows(table, norm="l2", rounds=60, **{k: cell[k] for k in ("forecaster", "stream", "dim")})
        if cell["seeds"] == 0:
            assert cell["error"] is None
            assert "expected Simplex(2)" in cell["note"]
            continue
        for measure in ("error", "brier", "resolution"):
            values = [r[measure] for r in own]
            assert cell[measure] == pytest.approx(np.mean(values))
            assert (cell[f"{measure}_min"], cell[f"{measure}_max"]) == (min(values), max(values))
            assert cell[f"{measure}_sd"] == pytest.approx(np.std(values, ddof=1))
        assert cell["microseconds"] > 0
    with pytest.raises(ParameterError, match="measure is 'skill'"):
        arena.final(table, measure="skill")
    assert "### 2 dimensions" not in arena.show(table, measure="resolution", split=False)


def test_ranks_are_worst_first_over_common_seeds(table: Any) -> None:
    ranks = arena.rank(table, "mean")
    assert len(ranks) == 4
    assert [r.ratio for r in ranks] == sorted((r.ratio for r in ranks), reverse=True)
    errors = arena.final(table)
    for r in ranks:
        rivals = {name: errors[r.dim, r.stream, name] for name in ("tree", "grid") if (r.dim, r.stream, name) in errors}
        assert r.best == min(rivals, key=rivals.__getitem__)
        assert (r.value, r.least) == (errors[r.dim, r.stream, "mean"], rivals[r.best])
        assert r.ratio == r.value / r.least
    import pyarrow.compute as pc

    fewer = table.filter(pc.invert(pc.and_(pc.equal(table["forecaster"], "tree"), pc.equal(table["seed"], 1))))
    (one,) = (r for r in arena.rank(fewer, "mean") if (r.stream, r.dim) == ("iid", 3))
    (own,) = rows(table, forecaster="mean", stream="iid", dim=3, seed=0, norm="l1", rounds=60)
    assert one.value == own["error"]
    assert arena.rank(table, "mean", measure="brier") != ranks
    with pytest.raises(ParameterError, match="forecaster is 'nobody', expected one of tree, mean, grid"):
        arena.rank(table, "nobody")
    with pytest.raises(ParameterError, match="measure is 'resolution'"):
        arena.rank(table, "mean", measure="resolution")


@pytest.mark.heavy
def test_the_script_of_the_docs(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "examples/arena.py"
    command = [sys.executable, str(script), "--quick", "--folder", str(tmp_path / "runs")]
    command += ["--forecasters", "RunningMean", "TreeCal"]
    cells = tmp_path / "cells.json"
    text = subprocess.run([*command, "--cells", str(cells)], capture_output=True, text=True, check=True).stdout
    assert "### Real streams: Brier score" in text
    assert "### 100 rounds: resolution" in text
    found = json.loads(cells.read_text())
    assert {cell["stream"] for cell in found} == {*arena.REAL, *arena.STREAMS}
    ranks = subprocess.run([*command, "--rank", "TreeCal"], capture_output=True, text=True, check=True).stdout
    assert len(ranks.splitlines()) == 4 + 2 * 8


def test_gathered_streams_are_in_two_halves() -> None:
    assert min(len(arena.CHOSEN), len(arena.HELD_OUT)) >= 50
    assert not arena.CHOSEN.keys() & arena.HELD_OUT.keys()
    for name, rounds, classes in (
        ("nottem value in 4 bins", 240, 4),
        ("auscafe value in 2 signs", 425, 2),
        ("economics psavert in 3 steps", 573, 3),
        ("challenges result in 5 names", 1136, 5),
        ("tate_text title in 12 letters", 20000, 12),
    ):
        stream = (arena.CHOSEN | arena.HELD_OUT)[name]
        assert (stream.rounds, stream.space.dim) == (rounds, classes)
        assert (stream.outcomes.sum(axis=1) == 1).all()
        assert stream.outcomes.sum(axis=0).min() > 0


def test_the_average_of_hindsight_is_one_that_can_be_played() -> None:
    outcomes = iid(tc.Simplex(3), 300, np.random.default_rng(0))
    error, brier, half_life = arena.hindsight(outcomes)
    ledger = tc.Ledger(tc.Simplex(3))
    mean = np.full(3, 1 / 3)
    for t, y in enumerate(outcomes):
        rounded = mean.round(1)
        rounded[2] += 1 - rounded.sum()
        ledger.record(rounded, y)
        mean += max(1 - 0.5 ** (1 / half_life), 1 / (t + 2)) * (y - mean)
    assert error == pytest.approx(ledger.error("l1"), abs=0.1)  # in tenths the sum need not be 1
    assert brier == pytest.approx(ledger.exact().brier(300).score, abs=0.02)


def test_standings_compare_on_the_streams_of_both() -> None:
    errors = {("a", "one"): 0.1, ("b", "one"): 0.4, ("a", "two"): 0.2, ("c", "two"): 0.2}
    briers = {("a", "one"): 0.5, ("b", "one"): 0.5, ("a", "two"): 0.4, ("c", "two"): 0.6}
    one, two = sorted(arena.standings(errors, briers, "one"), key=lambda s: s.forecaster)
    assert (one.forecaster, one.streams, one.brier, one.error_ratio, one.best) == ("one", 2, 0.5, 1.0, 2)
    assert (two.forecaster, two.streams, two.best) == ("two", 2, 1)
    assert [one.error, two.error_ratio, two.brier_ratio] == pytest.approx([0.2, 2.0, 0.8])
