"""Generated requests, of the OpenAPI document and against it: no failure of the server, one shape of error.

The long run counts what it did, and prints it: `pytest -m heavy tests/serve/test_contract.py -n 0 -s`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from tests.serve.http import House, Reply, fill, served
from treecal.serve._openapi import document
from treecal.serve._operations import OPERATIONS

schemathesis = pytest.importorskip("schemathesis", reason="pip install schemathesis")
jsonschema = pytest.importorskip("jsonschema_rs", reason="pip install schemathesis, which brings jsonschema_rs")

DOCUMENT = document(OPERATIONS)
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
STREAMS = ("a", "box", "own")


def operations() -> Iterator[Any]:
    for found in schemathesis.openapi.from_dict(json.loads(json.dumps(DOCUMENT))).get_all_operations():
        yield found.ok()


VALIDATORS: dict[str, Any] = {}


def valid(reply: Reply, path: str, method: str) -> None:
    """Assert that an answer is one of those that the document has for the operation."""
    answers = DOCUMENT["paths"][path][method.lower()]["responses"]
    assert str(reply.status) in answers, (method, path, reply)
    assert reply.status < 500, (method, path, reply)
    assert b"Traceback" not in reply.body
    content = answers[str(reply.status)]["content"]
    kind = reply.headers["content-type"]
    assert kind in content or "*/*" in content, (kind, content)
    schema = content.get(kind, {}).get("schema")
    if schema is not None:
        key = json.dumps(schema)
        if key not in VALIDATORS:
            VALIDATORS[key] = jsonschema.validator_for({**schema, "components": DOCUMENT["components"]})
        VALIDATORS[key].validate(reply.json)
    if reply.status >= 400:
        reply.refused(reply.status, reply.json["error"]["code"])


def furnish(house: House) -> None:
    """Make streams of each kind, so that requests that name one go further than its name."""
    fill(house)
    box = {"name": "box", "set": {"name": "Box", "options": {"low": 0, "high": 1, "dim": 2}}, "limit": 50}
    own = {"name": "own", "classes": ["x", "y", "z"], "forecaster": {"name": "treecal"}}
    for new in (box, own):
        assert house.ask("POST", "/v1/streams", new).status == 201


def aimed(case: Any, draw: Any) -> None:
    """Name streams that are there, most of the time, and ask for parts that are."""
    if "s" in (case.path_parameters or {}) and draw(st.integers(0, 3)):
        case.path_parameters["s"] = draw(st.sampled_from(STREAMS))
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("outcomes"), list) and draw(st.booleans()):
        for each in body["outcomes"]:
            if isinstance(each, dict):
                each["stream"], each["id"] = draw(st.sampled_from(STREAMS)), draw(st.sampled_from(["r0", "r2", "n"]))
    if isinstance(body, dict) and "name" in body and draw(st.booleans()):
        for name in ("set", "corrector", "forecaster", "group", "gate", "tags"):
            body.pop(name, None)
        body["classes"] = ["x", "y", "z"]
        body |= draw(st.sampled_from([{}, {"corrector": {"name": "vector"}}, {"forecaster": {"name": "treecal"}}]))
    if isinstance(body, dict) and "p" in body and draw(st.booleans()):
        body["p"] = draw(st.sampled_from([[0.5, 0.5], [1, 0], {"no": 0.1, "yes": 0.9}, None]))


def send(house: House, case: Any) -> Reply:
    import requests

    ready = requests.Request(**case.as_transport_kwargs(base_url="http://127.0.0.1:8000")).prepare()
    parts = urlsplit(ready.url or "")
    path = str(parts.path) + (f"?{parts.query}" if parts.query else "")
    body = ready.body or b""
    content = body.encode() if isinstance(body, str) else body
    headers = [(name, value) for name, value in ready.headers.items() if name.lower() != "content-length"]
    house.now += 1.0
    return house.ask(
        str(ready.method), path, parts=[content], headers=[(str(k), str(v)) for k, v in headers], leave="events" in path
    )


def play(folder: Path, *, each: int, number: int = 0) -> Counter[str]:
    """Send so many generated requests of every operation, some that fit it and some that do not; count answers."""
    counts: Counter[str] = Counter()
    with served(folder, rate=1e6) as house:
        furnish(house)
        # What changes and deletes the streams comes last, so that the others find them.
        for operation in sorted(operations(), key=lambda each: ("patch", "delete").count(each.method.lower())):
            for mode in MODES:
                described = DOCUMENT["paths"][operation.path][operation.method.lower()]
                asked = [each["in"] for each in described["parameters"]]
                if mode is MODES[1] and "query" not in asked and "requestBody" not in described:
                    continue  # there is nothing that could be wrong: every text may be a path

                @seed(number)
                @settings(
                    max_examples=each,
                    database=None,
                    deadline=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(operation.as_strategy(generation_mode=mode), st.data())
                def ask(case: Any, data: Any) -> None:
                    aimed(case, data.draw)
                    reply = send(house, case)
                    counts[str(reply.status)] += 1
                    valid(reply, operation.path, case.method)  # noqa: B023

                ask()
        failures = [line for line in house.lines if line["event"] == "failure"]
        assert not failures, failures[:3]
    return counts


BODIES = [
    ("/v1/streams", "", b'{"name":"new","classes":["x","y"],"corrector":{"name":"vector","options":{}},"tags":["t"]}'),
    ("/v1/streams", "", b'{"name":"c","set":{"name":"Box","options":{"low":0,"high":1,"dim":2}},"monitor":{"arl":99}}'),
    ("/v1/streams/{s}/forecasts", "/v1/streams/a/forecasts", b'{"id":"i","p":[0.25,0.75],"tags":{"city":"Oslo"}}'),
    ("/v1/streams/{s}/forecasts", "/v1/streams/box/forecasts", b'{"id":"i","p":[0.25,1],"due":1900000000.5}'),
    ("/v1/streams/{s}/forecasts/batch", "/v1/streams/own/forecasts/batch", b'{"forecasts":[{"id":"1"},{"id":"2"}]}'),
    (
        "/v1/outcomes",
        "",
        b'{"outcomes":[{"stream":"a","id":"r2","outcome":"yes"},{"stream":"a","id":"r0","outcome":1}]}',
    ),
    ("/v1/outcomes", "", b'{"outcomes":[{"stream":"box","id":"i","outcome":[0.5,1e-3],"amend":true}]}'),
]
SCRAPS = [
    b"",
    b"0",
    b"-",
    b"1e400",
    b"1e308",
    b"null",
    b"true",
    b"[",
    b"]",
    b"{}",
    b'"',
    b"\\",
    b"\\ud800",
    b"\\u0000",
    b"\xff",
]
SCRAPS += [
    b",",
    b":",
    b"9" * 30,
    b"1e-400",
    b"\x00",
    b"NaN",
    b'"x":1,',
    b"\xf0\x9f\x98\x80",
    b"[" * 200,
    b'"' + b"a" * 300 + b'"',
]


def mutated(body: bytes, rng: Random) -> bytes:
    """Return a body with some of it cut out, doubled or replaced by scraps, or with another letter or digit."""
    if rng.random() < 0.4:
        at = rng.choice([i for i, each in enumerate(body) if chr(each).isalnum()])
        return body[:at] + rng.choice([b"0", b"9", b"x", b"Z", b""]) + body[at + 1 :]
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(body) + 1)
        end = min(start + rng.choice([0, 1, 1, 3, 8]), len(body))
        body = body[:start] + rng.choice([*SCRAPS, body[start:end] * 2]) + body[end:]
    return body


def mutate(folder: Path, times: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    rng = Random(0)
    with served(folder, rate=1e6) as house:
        furnish(house)
        for i in range(times):
            path, filled, body = BODIES[i % len(BODIES)]
            house.now += 1.0
            reply = house.ask("POST", filled or path, mutated(body, rng))
            counts[str(reply.status)] += 1
            valid(reply, path, "POST")
        assert not [line for line in house.lines if line["event"] == "failure"]
    return counts


def test_mutated_bodies(tmp_path: Path) -> None:
    counts = mutate(tmp_path, 700)
    assert min(counts["200"], counts["400"], counts["422"]) > 20


@pytest.mark.heavy
def test_many_mutated_bodies(tmp_path: Path) -> None:
    print(mutate(tmp_path, 50_000))


def test_generated_requests(tmp_path: Path) -> None:
    counts = play(tmp_path, each=6)
    assert counts.total() > 150
    assert counts["200"] > 40
    assert counts["422"] > 40


@pytest.mark.heavy
def test_fifty_thousand_generated_requests(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for number in count():
        folder = tmp_path / str(number)
        folder.mkdir()
        counts += play(folder, each=100, number=number)
        print(f"{counts.total():,} requests: {dict(counts)}", flush=True)
        if counts.total() >= 50_000:
            break
