"""Why a request is refused: a code for programs, a sentence for people, and where in the request; of bodies, too."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from treecal.exceptions import TreeCalError

STATUS = {
    "bad_json": 400,
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method": 405,
    "timeout": 408,
    "conflict": 409,
    "archived": 409,
    "too_large": 413,
    "media_type": 415,
    "invalid": 422,
    "limited": 429,
    "internal": 500,
    "unavailable": 503,
}
"""The status of HTTP for each code."""
_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "text",
}
_STEPS = re.compile(r"\.(\w+)|\[(?:\d+|\.\.\.)\]")
_TYPES = re.compile(r"`([a-z |]+)`")
_NO_NUMBER = re.compile(rb"-?(?:NaN|Infinity)\b")
_BYTE = re.compile(r"\(byte (\d+)\)")


class Refusal(TreeCalError):  # noqa: N818 # what is refused is no mistake of ours
    """A request that is refused; nothing has changed.

    Parameters
    ----------
    code
        One of `STATUS`.
    message, hint
        As for every error of the package.
    at
        Where in the request, such as `outcomes[3].id`.

    Examples
    --------
    >>> Refusal("conflict", "id 'a' has another forecast.", at="id").status
    409
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None, at: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.at = at

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return STATUS[self.code]


def invalid(error: msgspec.ValidationError, kind: Any) -> Refusal:
    """Return the refusal of what is JSON, and is not of a kind.

    Examples
    --------
    >>> from treecal.serve._wire import NewOutcomes
    >>> try:
    ...     msgspec.json.decode(b'{"stream": "rain"}', type=NewOutcomes)
    ... except msgspec.ValidationError as error:
    ...     print(invalid(error, NewOutcomes))
    there is no field 'stream'.
    <BLANKLINE>
    Hint: the rows are in a list: {"outcomes": [{"stream": ..., "id": ..., "outcome": ...}]}.
    """
    message, _, where = str(error).partition(" - at `$")
    where = where.rstrip("`")
    node = _node(_described(kind), where)
    wrapped = _wrapped(node) if not where else None
    at = where.removesuffix("[...]").removeprefix(".") or None
    hint = None
    if found := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.S):
        message = f"there is no field {found[1]!r}"
        fields = [field.encode_name for field in getattr(node, "fields", ())]
        hint = f"there are {', '.join(fields)}." if fields else "none is expected."
        if wrapped is not None and found[1] in wrapped[1]:
            hint = wrapped[0]
    elif found := re.fullmatch(r"Object missing required field `(.*)`", message):
        message = f"the field {found[1]!r} is missing"
    elif found := re.fullmatch(r"Invalid enum value (.*)", message, re.S):
        message = f"expected another value than {found[1]}"
        hint = f"one of {', '.join(map(str, getattr(node, 'values', ())))}."
    elif "matching regex" in message:
        message = "the text has characters that it cannot have"
        hint = _description(node)
    else:
        message = _TYPES.sub(
            lambda found: " or ".join(_KINDS.get(name, name) for name in found[1].split(" | ")), message
        )
        message = message[:1].lower() + message[1:]
        if wrapped is not None and "got a list" in message:
            hint = wrapped[0]
    return Refusal("invalid", f"{message}.", hint=hint, at=at)


def bad_json(error: Exception, raw: bytes) -> Refusal:
    """Return the refusal of what is no JSON.

    Examples
    --------
    >>> try:
    ...     msgspec.json.decode(b'{"p": [NaN, 1]}')
    ... except msgspec.DecodeError as error:
    ...     print(bad_json(error, b'{"p": [NaN, 1]}'))
    the body is not JSON: it has NaN at byte 7.
    <BLANKLINE>
    Hint: JSON has finite numbers only.
    """
    if not raw.strip():
        return Refusal("bad_json", "the body is empty.", hint="send one object, in UTF-8.")
    place = _BYTE.search(str(error))
    if place and (found := _NO_NUMBER.match(raw, int(place[1]))):
        problem = f"the body is not JSON: it has {found[0].decode()} at byte {place[1]}."
        return Refusal("bad_json", problem, hint="JSON has finite numbers only.")
    return Refusal("bad_json", f"the body is not JSON: {error}.", hint="send one object, in UTF-8.")


@cache
def _described(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _node(node: inspect.Type, where: str) -> inspect.Type | None:
    """Return what is expected at a place; of several kinds, the first that has parts, or choices."""
    found: inspect.Type | None = node
    for step in _STEPS.finditer(where):
        found = _chosen(found)
        if step[1] is not None:
            fields = {field.encode_name: field.type for field in getattr(found, "fields", ())}
            found = fields.get(step[1])
        else:
            found = getattr(found, "item_type", None) or getattr(found, "value_type", None)
    return found if isinstance(found, inspect.Metadata) else _chosen(found)


def _chosen(node: inspect.Type | None) -> inspect.Type | None:
    while isinstance(node, inspect.Metadata | inspect.UnionType):
        if isinstance(node, inspect.Metadata):
            node = node.type
        else:
            some = (inspect.StructType, inspect.ListType, inspect.DictType, inspect.LiteralType, inspect.Metadata)
            node = next((each for each in node.types if isinstance(each, some)), None)
    return node


def _description(node: inspect.Type | None) -> str | None:
    about = node.extra_json_schema if isinstance(node, inspect.Metadata) else None
    return None if about is None else about.get("description")


def _wrapped(node: inspect.Type | None) -> tuple[str, set[str]] | None:
    """Return how rows are sent where the body is a list of them under a name, and the fields of a row."""
    if not isinstance(node, inspect.StructType) or len(node.fields) != 1:
        return None
    (field,) = node.fields
    rows = _chosen(field.type)
    row = _chosen(rows.item_type) if isinstance(rows, inspect.ListType) else None
    if not isinstance(row, inspect.StructType):
        return None
    needed = ", ".join(f'"{each.encode_name}": ...' for each in row.fields if each.required)
    hint = f'the rows are in a list: {{"{field.encode_name}": [{{{needed}}}]}}.'
    return hint, {each.encode_name for each in row.fields}
