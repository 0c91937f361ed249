"""Counts for Prometheus, and the log: what they tell, and what they never do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.serve.http import NEW, House, fill, served
from treecal.serve import _operations

LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? ([-+0-9.e]+|NaN|\+Inf)')


def series(text: str) -> dict[str, dict[str, float]]:
    """Read the text format of Prometheus: every name is described before its values, each once."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert line.split(maxsplit=3)[3]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert kind in ("counter", "gauge", "histogram")
            assert name not in found
            found[name] = {}
        else:
            match = LINE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            owner = re.sub(r"_(bucket|sum|count)$", "", name) if name not in found else name
            key = f"{name}{{{labels or ''}}}"
            assert key not in found[owner]
            found[owner][key] = float(value)
    return found


def scraped(house: House) -> dict[str, dict[str, float]]:
    reply = house.ask("GET", "/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return series(reply.body.decode())


def test_requests_and_streams_are_counted(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        fill(house, rounds=5)
        house.ask("GET", "/v1/streams/none")
        house.ask("GET", "/nowhere")
        found = scraped(house)
        requests = found["treecal_requests_total"]
        assert requests['treecal_requests_total{route="/v1/streams/{s}",method="GET",status="404"}'] == 1
        assert requests['treecal_requests_total{route="none",method="GET",status="404"}'] == 1
        assert found["treecal_forecasts"]['treecal_forecasts{stream="a"}'] == 5
        assert found["treecal_learned"]['treecal_learned{stream="a"}'] == 4
        assert found["treecal_pending"]['treecal_pending{stream="a"}'] == 1
        assert 0 < found["treecal_evidence"]['treecal_evidence{stream="a",of="model"}'] < 1
        times = found["treecal_request_seconds"]
        route = 'route="/v1/outcomes"'
        assert times[f'treecal_request_seconds_bucket{{{route},le="+Inf"}}'] == 1
        assert times[f"treecal_request_seconds_count{{{route}}}"] == 1


def test_the_number_of_series_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_operations, "MOST_STREAMS", 2)
    with served(tmp_path) as house:
        for name in "abcd":
            house.ask("POST", "/v1/streams", {**NEW, "name": name})
        for i in range(50):
            house.ask("GET", f"/somewhere/{i}")
            house.ask(f"BREW{i}", "/v1/streams")
            house.ask("GET", f"/v1/streams/{i}")
        found = scraped(house)
        assert list(found["treecal_forecasts"]) == ['treecal_forecasts{stream="a"}', 'treecal_forecasts{stream="b"}']
        assert found["treecal_streams"] == {"treecal_streams{}": 4}
        assert found["treecal_streams_left_out"] == {"treecal_streams_left_out{}": 2}
        assert len(found["treecal_requests_total"]) == 4


def test_the_log_has_a_line_for_every_request(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        house.ask("POST", "/v1/streams", NEW)
        house.ask("GET", "/v1/streams/a/forecasts/some-id?none=1")
        house.ask("GET", "/nowhere")
    lines = [(line["method"], line["route"], line["status"]) for line in house.lines]
    assert lines == [
        ("POST", "/v1/streams", 201),
        ("GET", "/v1/streams/{s}/forecasts/{id}", 422),
        ("GET", "none", 404),
    ]
    for line in house.lines:
        assert line["ms"] > 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["at"])


def test_the_log_has_no_secrets(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        token = house.make_token("read", "forecast", "admin")
        wrong = token[:-4] + "AAAA"
        house.ask("POST", "/v1/streams", {**NEW, "name": "shy-name"}, token=token)
        for text in (token, wrong):
            house.ask("GET", "/v1/streams", token=text)
            house.ask("GET", f"/v1/streams?prefix={text}", token=text)
            house.ask("GET", f"/{text}", token=text)
            house.ask(text, "/v1/streams", token=text)
            house.ask("POST", "/v1/streams/shy-name/forecasts", {"id": "shy-id", "p": [0.1234567, 0.5]}, token=text)
            house.ask("GET", "/v1/streams", headers={"Authorization": f"Basic {text}", "X-Other": text})
    text = house.log.getvalue()
    assert token[5:13] in text  # the id tells who it was
    for secret in (token, token[13:], wrong[13:], "shy", "0.1234567", "BREW"):
        assert secret not in text
    assert len(house.lines) == 13
