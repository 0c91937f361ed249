"""The OpenAPI document: it is valid, it is complete, and answers are what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.http import NEW, House, Reply, fill, served
from treecal.serve._openapi import document
from treecal.serve._operations import OPERATIONS
from treecal.serve._refusals import STATUS

jsonschema = pytest.importorskip("jsonschema_rs", reason="pip install schemathesis, which brings jsonschema_rs")
DOCUMENT = document(OPERATIONS)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with served(tmp_path_factory.mktemp("books")) as made:
        fill(made, rounds=9)
        yield made


def schema_of(path: str, method: str, status: int) -> Any:
    """Return the schema of an answer, with what it refers to; None where the answer is not JSON."""
    content = DOCUMENT["paths"][path][method.lower()]["responses"][str(status)]["content"]
    if "schema" not in content.get("application/json", {}):
        return None
    return {**content["application/json"]["schema"], "components": DOCUMENT["components"]}


def conforms(reply: Reply, path: str, method: str) -> None:
    schema = schema_of(path, method, reply.status)
    if schema is not None:
        jsonschema.validator_for(schema).validate(reply.json)


def test_it_is_served(house: House) -> None:
    reply = house.ask("GET", "/v1/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json == json.loads(json.dumps(DOCUMENT))


def test_it_is_valid() -> None:
    from schemathesis.specs.openapi.definitions import OPENAPI_31

    jsonschema.validator_for(OPENAPI_31).validate(json.loads(json.dumps(DOCUMENT)))
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})


def test_it_has_every_operation_and_no_other() -> None:
    listed = {(method.upper(), path) for path, each in DOCUMENT["paths"].items() for method in each}
    assert listed == {(each.method, re.sub(r":\w+}", "}", each.path)) for each in OPERATIONS}
    names = [each["operationId"] for path in DOCUMENT["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)


def test_every_reference_is_there() -> None:
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)):
        assert name in DOCUMENT["components"]["schemas"]


def test_patterns_are_those_of_every_language() -> None:
    assert "\\Z" not in json.dumps(DOCUMENT)


def test_every_answer_is_described() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for each in operations.values():
            assert each["summary"]
            for status, answer in each["responses"].items():
                assert answer["description"], (path, status)
                if int(status) >= 400:
                    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/Failure")
            for parameter in each["parameters"]:
                assert parameter["description"], (path, parameter["name"])


def test_every_code_has_words() -> None:
    from treecal.serve._openapi import _WORDS

    assert set(_WORDS) == set(STATUS)


@pytest.mark.parametrize(
    ("method", "path", "filled", "body"),
    [
        ("GET", "/v1/streams", "", None),
        ("POST", "/v1/streams", "", NEW),
        ("POST", "/v1/streams", "", {**NEW, "name": "b"}),
        ("POST", "/v1/streams", "", {**NEW, "name": "a", "classes": ["x", "y"]}),
        ("POST", "/v1/streams", "", {"name": "c", "set": {"name": "Box", "options": {"low": 0, "high": 1, "dim": 2}}}),
        ("GET", "/v1/streams/{s}", "/v1/streams/a", None),
        ("POST", "/v1/streams/{s}/forecasts", "/v1/streams/a/forecasts", {"id": "x", "p": {"no": 0.5, "yes": 0.5}}),
        ("POST", "/v1/streams/{s}/forecasts", "/v1/streams/a/forecasts", {"id": "x", "p": [0.5]}),
        ("GET", "/v1/streams/{s}/forecasts/{id}", "/v1/streams/a/forecasts/r1", None),
        ("GET", "/v1/streams/{s}/forecasts/{id}", "/v1/streams/a/forecasts/none", None),
        ("POST", "/v1/outcomes", "", {"outcomes": [{"stream": "a", "id": "r1", "outcome": "no", "amend": True}]}),
        ("GET", "/v1/streams/{s}/pending", "/v1/streams/a/pending?limit=1", None),
        ("GET", "/v1/streams/{s}/scores", "/v1/streams/a/scores?by=time&window=hour", None),
        ("GET", "/v1/streams/{s}/scores", "/v1/streams/b/scores?by=city", None),
        ("GET", "/v1/streams/{s}/curve", "/v1/streams/a/curve", None),
        ("POST", "/v1/streams/{s}/reset", "/v1/streams/a/reset", None),
        ("POST", "/v1/streams/{s}/archive", "/v1/streams/b/archive", None),
        ("GET", "/v1/alarms", "", None),
        ("GET", "/healthz", "", None),
        ("GET", "/readyz", "", None),
    ],
)
def test_answers_are_what_it_says(house: House, method: str, path: str, filled: str, body: Any) -> None:
    conforms(house.ask(method, filled or path, body), path, method)


def test_a_wrong_answer_would_be_seen(tmp_path: Path) -> None:
    reply = Reply(200, {}, b'{"streams": [{"name": 1}], "next": null}')
    with pytest.raises(jsonschema.ValidationError):
        conforms(reply, "/v1/streams", "GET")
