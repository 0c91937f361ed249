"""`treecal game`: learners reach an equilibrium."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.cli.support import refused, run
from treecal import games, swap


def test_chicken_is_what_the_library_plays() -> None:
    players, rng = [swap.TreeSwap(partial(swap.RegretMatching, 2), arity=4) for _ in range(2)], np.random.default_rng(3)
    for player in players:
        player.act()
        player.observe(rng.random(2))
    result = games.play(games.chicken(), players, rounds=300)
    document = json.loads(
        run("game", "chicken", "--learner", "treeswap", "--arity", 4, "--rounds", 300, "--seed", 3, "--json").out
    )
    assert document["correlated_gap"] == result.correlated_gap
    assert document["joint"] == result.joint.tolist()
    assert [point["correlated_gap"] for point in document["over_time"]] == result.gaps.tolist()
    assert sum(document["best_payoffs"]) == pytest.approx(10.5)
    done = run("game", "chicken", "--learner", "treeswap", "--arity", 4, "--rounds", 300, "--seed", 3)
    assert done.err == ""
    assert f"no player of chicken would gain more than {result.correlated_gap:.4f} per round" in done.out
    assert f"{result.joint.max():.3f}" in done.out


@pytest.mark.parametrize(
    "learner", ["treeswap", "blum-mansour", "internal-regret-matching", "hedge", "regret-matching"]
)
def test_every_learner_plays_every_classic(learner: str) -> None:
    for name in ("chicken", "matching-pennies", "prisoners-dilemma", "rock-paper-scissors", "shapley"):
        document = json.loads(run("game", name, "--learner", learner, "--rounds", 20, "--json").out)
        assert document["rounds"] == 20
        assert np.sum(document["joint"]) == pytest.approx(1)


def test_swap_regret_settles_where_external_regret_need_not() -> None:
    gaps = {}
    for learner in ("treeswap", "hedge"):
        document = json.loads(run("game", "shapley", "--learner", learner, "--rounds", 2000, "--json").out)
        gaps[learner] = document["correlated_gap"]
    assert 5 * gaps["treeswap"] < gaps["hedge"]


def test_names_of_a_file_are_shown_and_near_names_suggested(tmp_path: Path) -> None:
    path = tmp_path / "bos.nfg"
    actions = '{ { "opera" "[red]fight" } { "opera" "[red]fight" } } ""'
    payoffs = '{ { "" 3, 2 } { "" 0, 0 } { "" 0, 0 } { "" 2, 3 } } 1 2 3 4'
    path.write_text(f'NFG 1 R "bos" {{ "Ann" "Bob" }} {actions} {payoffs}')
    shown = run("game", path, "--rounds", 20).out
    assert all(word in shown for word in ("Ann", "Bob", "opera", "[red]fight"))
    refused(run("game", "chiken"), "did you mean chicken?")


def test_a_file_of_payoffs(tmp_path: Path) -> None:
    chicken = games.chicken()
    path = tmp_path / "chicken.json"
    path.write_text(json.dumps([a.tolist() for a in chicken.payoffs]))
    (tmp_path / "chicken.nfg").write_text(chicken.to_gambit().to_nfg())
    expected = run("game", "chicken", "--rounds", 50, "--json").out
    assert run("game", path, "--rounds", 50, "--json").out == expected
    assert run("game", tmp_path / "chicken.nfg", "--rounds", 50, "--json").out == expected


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "payoffs.json"
    for content, words in {
        "[[1, 2]": "not JSON",
        "5": "holds no list",
        "[[[1, 2], [3, 4]]]": "two or more players",
        "[[[1, 2], [3, 4]], [[1, 2]]]": "shape",
        '[[["x", 2], [3, 4]], [[1, 2], [3, 4]]]': "payoffs[0]",
        "[[[1, NaN], [3, 4]], [[1, 2], [3, 4]]]": "nan",
        "[" * 100_000: "not JSON",
    }.items():
        path.write_text(content)
        refused(run("game", path), words)
    (tmp_path / "payoffs.nfg").write_text("hello")
    refused(run("game", tmp_path / "payoffs.nfg"), "nfg")
    refused(run("game", tmp_path / "nowhere.json"), "No such file")
    refused(run("game", "poker"), "chicken, matching-pennies")
    refused(run("game", "chicken", "--rounds", 0), "--rounds is 0")
    refused(run("game", "chicken", "--learner", "treeswap", "--arity", 1), "arity is 1")
    refused(run("game"), "NAME")
