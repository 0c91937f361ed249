from __future__ import annotations

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
