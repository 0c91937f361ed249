"""`treecal sample-size`: what the library says."""

from __future__ import annotations

import json

import pytest

import treecal as tc
from tests.cli.support import refused, run
from treecal.measures import smallest_effect

BASE = ("--base", "0.7,0.2,0.1")


def test_outcomes_until_conviction() -> None:
    best = tc.sample_size([0.7, 0.2, 0.1], temperature=2, alpha=0.01, power=0.9)
    arguments = ("sample-size", *BASE, "--temperature", 2, "--alpha", 0.01, "--power", 0.9)
    assert run(*arguments).out == f"{best}\n"
    document = json.loads(run(*arguments, "--json").out)
    assert (document["outcomes"], document["mean_outcomes"]) == (best.outcomes, best.mean)
    shifted = tc.sample_size([0.7, 0.2, 0.1], shift=(2, -0.5))
    assert run("sample-size", *BASE, "--of", 2, "--shift", -0.5).out == f"{shifted}\n"


def test_what_a_log_shows() -> None:
    for options, key, of in ((), "temperature", None), (("--of", 1), "shift", 1):
        effect = smallest_effect([0.7, 0.2, 0.1], outcomes=500, of=of)
        arguments = ("sample-size", *BASE, "--outcomes", 500, *options)
        assert json.loads(run(*arguments, "--json").out)[key] == effect
        assert f"{effect:.3g}" in run(*arguments).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*BASE], "give one of a temperature, a shift, a stretch and an offset"),
        ([*BASE, "--shift", 1], "--shift and --of go together"),
        ([*BASE, "--outcomes", 9, "--temperature", 2], "--outcomes excludes --temperature and --shift"),
        ([*BASE, "--outcomes", 9, "--of", 3], "of is 3, expected at most 2"),
        (["--base", "a,b", "--temperature", 2], "--base is 'a,b', expected probabilities"),
        (["--base", "0.5,0.4", "--temperature", 2], "sum 0.9"),
    ],
)
def test_bad_options(arguments: list[object], words: str) -> None:
    refused(run("sample-size", *arguments), words)
