"""The OpenAPI document, made from the table of operations and the classes of what goes over the wire."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from treecal import __version__
from treecal.serve._answers import Operation
from treecal.serve._refusals import STATUS
from treecal.serve._wire import Failure, Id, Name

_REF = "#/components/schemas/{name}"
_WORDS = {
    "bad_json": "The body is not JSON.",
    "bad_request": "This is no request of HTTP.",
    "unauthorized": "There is no token, or it is not known.",
    "forbidden": "The token does not allow it, or the request is from another site.",
    "not_found": "There is no such stream, id or path.",
    "method": "The path has no such method.",
    "timeout": "The body arrived too slowly.",
    "conflict": "It exists, and is another one.",
    "archived": "The stream takes no new forecasts.",
    "too_large": "The body is too large.",
    "media_type": "The body is not declared to be JSON.",
    "invalid": "The body or the query is invalid: `at` says where.",
    "limited": "Too many requests; `Retry-After` says when the next may come.",
    "internal": "The server failed.",
    "unavailable": "The books cannot be written, or the server stops; it may be sent again.",
}
_PATH = {
    "s": ("The name of a stream.", Name),
    "id": ("The id of a forecast; a slash in it is written %2F.", Id),
    "file": ("A file of the page.", str),
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of operations.

    Examples
    --------
    >>> document([])["openapi"]
    '3.1.0'
    """
    operations = list(operations)
    given = [kind for each in operations for kind in (each.body, each.gives)]
    kinds = dict.fromkeys([Failure, *(kind for kind in given if kind is not None and not isinstance(kind, str))])
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    named = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(re.sub(r":\w+}", "}", each.path), {})[each.method.lower()] = _operation(each, named)
    made: dict[str, Any] = _portable(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "treecal",
                "version": __version__,
                "summary": "Forecasts go in by id, corrected ones come out; outcomes follow when they are there.",
                "description": "Every error of every path is a `Failure`. Times are seconds since 1970.",
                "license": {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"},
            },
            "servers": [{"url": "/"}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "token": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "`treecal token create` makes one. A server on loopback without tokens is open.",
                    }
                },
            },
        }
    )
    return made


def _operation(each: Operation, named: dict[Any, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    kind = each.gives
    content = {kind: {}} if isinstance(kind, str) else {"application/json": {"schema": named[kind]}}
    words = inspect.cleandoc(kind.__doc__ or "") if isinstance(kind, type) else "The content."
    for status in each.statuses:
        answers[str(status)] = {"description": words.partition("\n")[0], "content": content}
    for code in _codes(each):
        answer = answers.setdefault(
            str(STATUS[code]), {"description": "", "content": {"application/json": {"schema": named[Failure]}}}
        )
        answer["description"] = f"{answer['description']} `{code}`: {_WORDS[code]}".strip()
    found: dict[str, Any] = {
        "operationId": each.does.__name__,
        "summary": each.about,
        "parameters": [*_in_path(each.path), *_in_query(each)],
        "responses": dict(sorted(answers.items())),
        "security": [] if each.scope is None else [{"token": []}, {}],
    }
    if each.scope is not None:
        found["description"] = f"The token must allow `{each.scope}`."
    if each.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": named[each.body]}}}
    return found


def _codes(each: Operation) -> list[str]:
    """Return the codes with which an operation may be refused, in the order of their statuses."""
    codes = {"forbidden", "invalid", "internal", "unavailable", *each.codes}
    if each.scope is not None:
        codes |= {"unauthorized", "limited"}
    if "{" in each.path:
        codes.add("not_found")
    if each.body is not None:
        codes |= {"bad_json", "timeout", "too_large", "media_type"}
    return sorted(codes, key=lambda code: (STATUS[code], code))


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": _PATH[name][0], "schema": _schema(_PATH[name][1])}
        for name in re.findall(r"{(\w+)", path)
    ]


def _in_query(each: Operation) -> list[dict[str, Any]]:
    properties = _schema(each.query)["properties"]
    # Its docstring has lines of `name: words`.
    described = dict(re.findall(r"^(\w+): (.+)$", inspect.cleandoc(each.query.__doc__ or ""), re.M))
    return [
        {"name": name, "in": "query", "required": False, "description": described[name], "schema": schema}
        for name, schema in properties.items()
    ]


def _schema(kind: Any) -> dict[str, Any]:
    schema = msgspec.json.schema(kind)
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def _portable(value: Any) -> Any:
    r"""Return a schema with patterns as other languages read them: `$` is the end there, and there is no `\Z`."""
    if isinstance(value, dict):
        return {
            key: each.replace("\\Z", "$") if key == "pattern" and isinstance(each, str) else _portable(each)
            for key, each in value.items()
        }
    return [_portable(each) for each in value] if isinstance(value, list) else value
