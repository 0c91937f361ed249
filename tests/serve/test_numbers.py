"""Streams of numbers: forecasts as quantiles, members or mean and sd in, quantiles out, outcomes that are numbers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.serve.http import House, served
from treecal.measures import coverage

LOAD = {"name": "load", "set": {"name": "Cdf", "options": {"low": 0, "high": 500, "clip": True}}, "tags": ["city"]}
SPACE = tc.Cdf(0, 500, clip=True)


def play(house: House, rounds: int = 60) -> tuple[list[Any], list[float]]:
    rng = np.random.default_rng(0)
    forecasts: list[Any] = []
    outcomes = []
    for k in range(rounds):
        middle = float(rng.uniform(100, 300))
        forms = {"q10": middle - 13, "q50": middle, "q90": middle + 13}, {"mean": middle, "sd": 10.0}
        forecasts.append(({"members": [middle - 10, middle, middle + 10]}, *forms)[k % 3])
        outcomes.append(middle + 10 + 30 * float(rng.normal()))
        body = {"id": f"r{k}", "p": forecasts[-1], "tags": {"city": "ab"[k % 2]}}
        assert house.ask("POST", "/v1/streams/load/forecasts", body).status == 200
        sent = [{"stream": "load", "id": f"r{k}", "outcome": outcomes[-1]}]
        assert house.ask("POST", "/v1/outcomes", {"outcomes": sent}).json["counts"] == {"learned": 1}
    return forecasts, outcomes


@pytest.mark.parametrize("corrector", ["location-scale", "auto"])
def test_what_is_announced_is_what_the_library_announces(tmp_path: Path, corrector: str) -> None:
    with served(tmp_path) as house:
        assert house.ask("POST", "/v1/streams", LOAD | {"corrector": {"name": corrector}}).status == 201
        forecasts, outcomes = play(house)
        asked = house.ask("POST", "/v1/streams/load/forecasts", {"id": "last", "p": {"mean": 200, "sd": 10}}).json
    kind = {"location-scale": tc.LocationScale, "auto": tc.AutoCorrector}[corrector]
    alone = kind(SPACE, scores=None)
    for forecast, outcome in zip(forecasts, outcomes, strict=True):
        alone.predict(forecast)
        alone.update(outcome)
    expected = alone.predict({"mean": 200, "sd": 10})
    assert asked["forecast"] == expected.mean.tolist()
    assert asked["quantiles"] == {f"q{100 * q:g}": expected.quantile(q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}


def test_scores_the_fan_the_round_and_the_export_have_the_numbers(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        house.ask("POST", "/v1/streams", LOAD | {"corrector": {"name": "location-scale"}})
        _, outcomes = play(house)
        found = house.ask("GET", "/v1/streams/load/scores?by=city").json
        assert found["announced"]["crps"] < 0.95 * found["model"]["crps"]
        assert found["change"]["value"] == pytest.approx(found["announced"]["crps"] - found["model"]["crps"])
        assert found["fan"]["outcomes"] == outcomes
        assert [group["by"] for group in found["groups"]] == ["a", "b"]
        table = pytest.importorskip("pyarrow.parquet").read_table(
            io.BytesIO(house.ask("GET", "/v1/streams/load/export").body)
        )
        assert table["outcome"].to_pylist() == outcomes
        fan = {name: table[name].to_numpy() for name in ("q5", "q95")}
        held = coverage(fan, np.array(outcomes))
        assert found["announced"]["coverage"]["0.9"] == pytest.approx(held[0.95].value - held[0.05].value)
        assert house.ask("GET", "/v1/streams/load/forecasts/r3").json["outcome"] == outcomes[3]
        curve = house.ask("GET", "/v1/streams/load/curve").json
        assert curve["norm"] == "crps"
        assert 0 < curve["marks"][-1]["announced"] < 0.1
        house.ask("POST", "/v1/streams/load/forecasts", {"id": "waits", "p": {"mean": 200, "sd": 10}})
        (waiting,) = house.ask("GET", "/v1/streams/load/pending").json["pending"]
        assert waiting["quantiles"]["q5"] < 200 < waiting["quantiles"]["q95"]
        assert house.ask("GET", "/v1/streams/load").json["monitors"]["model"]["alarm"]["direction"] == "too narrow"


def test_a_stream_without_a_model_is_guarded(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        assert house.ask("POST", "/v1/streams", LOAD | {"forecaster": {"name": "guarded"}, "tags": []}).status == 201
        for k in range(30):
            assert "q50" in house.ask("POST", "/v1/streams/load/forecasts", {"id": str(k)}).json["quantiles"]
            house.ask("POST", "/v1/outcomes", {"outcomes": [{"stream": "load", "id": str(k), "outcome": 100 + k % 3}]})
        mark = house.ask("GET", "/v1/streams/load/curve").json["marks"][-1]
    bound = tc.Guarded(SPACE).certificate("crps", rounds=30)
    assert bound is not None
    assert mark["announced"] <= mark["guarantee"] <= bound.bound / 500**0.5


@pytest.mark.parametrize(
    ("p", "outcome", "words"),
    [
        ({"q10": "a", "q90": 200}, 1, "no numbers in 'q10'"),
        ({"10": 3, "90": 5}, 1, "level is 10.0, expected a number between 0 and 1"),
        ({"mean": 3, "sd": -1}, 1, "the sd -1"),
        ({"q10": 10**400, "q90": 200}, 1, "out of range"),
        ({"mean": 3, "sd": 1, "family": "cauchy"}, 1, "family is 'cauchy'"),
        ({"q10": 100, "q90": 200}, "high", "'high', expected a number"),
        ({"q10": 100, "q90": 200}, 10**400, "0000, expected a number"),
        ({"q10": 100, "q90": 200}, [1.0, 2.0], "expected a number"),
    ],
)
def test_what_is_no_forecast_or_outcome_is_refused(tmp_path: Path, p: Any, outcome: Any, words: str) -> None:
    with served(tmp_path) as house:
        house.ask("POST", "/v1/streams", LOAD)
        found = house.ask("POST", "/v1/streams/load/forecasts", {"id": "a", "p": p})
        if found.status == 200:
            found = house.ask("POST", "/v1/outcomes", {"outcomes": [{"stream": "load", "id": "a", "outcome": outcome}]})
        assert words in found.refused(422, "invalid").error.message
        assert house.ask("GET", "/v1/streams/load").json["counts"]["learned"] == 0


def test_it_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        house.ask("POST", "/v1/streams", LOAD | {"corrector": {"name": "location-scale"}})
        play(house, 20)
        before = house.ask("GET", "/v1/streams/load").json["state"]
    with served(tmp_path) as house:
        assert house.ask("GET", "/v1/streams/load").json["state"] == before
        body = {"id": "r0", "outcome": 200.0}
        again = house.ask("POST", "/v1/outcomes", {"outcomes": [{"stream": "load", **body}]}).json
        assert again["counts"] == {"conflict": 1}
