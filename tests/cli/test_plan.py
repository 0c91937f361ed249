"""`treecal plan` and `treecal recommend`: what the library says, in tables."""

from __future__ import annotations

import json

import pytest

import treecal as tc
from tests.cli.support import refused, run


def test_the_best_tree() -> None:
    best = tc.plan(tc.Simplex(3), "l1", rounds=4096)
    done = run("plan", "--dim", 3, "--rounds", 4096, "--json")
    document = json.loads(done.out)
    assert (document["arity"], document["depth"], document["bound"]) == (best.arity, best.depth, best.bound)
    assert document["sentence"] == best.sentence
    shown = run("plan", "--dim", 3, "--rounds", 4096).out
    assert shown.startswith(best.sentence)
    assert f"{best.bound:.3f}" in shown


def test_a_chosen_tree() -> None:
    c = tc.certificate(tc.Ball(3, radius=2), "l2", rounds=512, arity=8, depth=3)
    arguments = ["plan", "--dim", 3, "--ball", 2, "--norm", "l2", "--rounds", 512, "--arity", 8, "--depth", 3]
    document = json.loads(run(*arguments, "--json").out)
    for name in ("bound", "squared", "minkowski", "paper", "kappa", "mu0", "mu1", "radius", "diameter"):
        assert document[name] == getattr(c, name)
    shown = run(*arguments).out
    for value in (c.bound, c.paper, c.radius * c.mu0, c.bound - c.radius * c.mu0):
        assert f"{value:.3f}" in shown


def test_the_rounds_an_error_takes() -> None:
    best = tc.plan(tc.Simplex(3), "l2", error=0.3)
    arguments = ["plan", "--classes", "a,b,c", "--norm", "l2", "--error", 0.3]
    assert run(*arguments).out == best.sentence + "\n"
    assert json.loads(run(*arguments, "--json").out)["log10_rounds"] == best.log10_rounds


def test_the_best_certificate() -> None:
    found = tc.recommend(tc.Simplex(2), "l1", rounds=200)
    document = json.loads(run("recommend", "--dim", 2, "--rounds", 200, "--json").out)
    assert [(c["forecaster"], c["bound"]) for c in document["forecasters"]] == [
        (c.forecaster, c.bound) for c in found.table
    ]
    assert document["radius"] == found.trivial
    shown = run("recommend", "--dim", 2, "--rounds", 200).out
    for choice in found.table:
        assert choice.forecaster in shown
        assert choice.bound is None or f"{choice.bound:.3f}" in shown


def test_without_a_useful_certificate_it_says_so() -> None:
    done = run("recommend", "--dim", 5, "--rounds", 2)
    assert "No certificate beats" in done.out
    document = json.loads(run("recommend", "--dim", 5, "--rounds", 2, "--json").out)
    assert all(c["bound"] is None or c["bound"] >= document["radius"] for c in document["forecasters"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--dim", 3], "not both or neither"),
        (["plan", "--dim", 3, "--rounds", 10, "--error", 0.1], "not both or neither"),
        (["plan", "--dim", 3, "--rounds", 0], "rounds is 0"),
        (["plan", "--dim", 3, "--error", -1], "error is -1"),
        (["plan", "--dim", 3, "--rounds", 10, "--norm", "l0.5"], "--norm is 'l0.5'"),
        (["plan", "--dim", 3, "--rounds", 10, "--norm", "max"], "--norm is 'max'"),
        (["plan", "--dim", 3, "--rounds", 10, "--depth", 3], "--depth needs --arity"),
        (["plan", "--dim", 3, "--error", 0.1, "--arity", 3], "--arity needs --rounds"),
        (["plan", "--dim", 3, "--rounds", 10, "--arity", 2, "--depth", 2], "4 rounds"),
        (["plan", "--rounds", 10], "no outcome set given"),
        (["recommend", "--dim", 3], "--rounds"),
        (["recommend", "--dim", 3, "--rounds", "x"], "--rounds"),
    ],
)
def test_bad_options(arguments: list[object], words: str) -> None:
    refused(run(*arguments), words)
