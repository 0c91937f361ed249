"""Four tools for agents, by the Model Context Protocol: an agent records its forecasts and their outcomes.

The protocol is JSON-RPC, a message a line, over standard input and output; of it this is what tools need, without a
further package. The arguments of each tool are a class, of which its schema is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from treecal import __version__
from treecal.client._client import Client
from treecal.exceptions import ServerError, TreeCalError

PROTOCOLS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions that are spoken, the newest first: what tools need is the same in all."""
_PARSE, _REQUEST, _METHOD, _PARAMETERS = -32700, -32600, -32601, -32602
_SECONDS = 10.0  # an agent can wait for a correction, unlike a model in production

_Stream = Annotated[
    str, Meta(description="The name of the stream: one for each kind of question, such as `tests-pass`.")
]


class _Tool(Struct, forbid_unknown_fields=True, frozen=True):
    """A call of a tool: its arguments."""

    def run(self, client: Client) -> dict[str, Any]:
        """Return the answer."""
        raise NotImplementedError


class _Forecast(_Tool, frozen=True):
    """Record a forecast before its outcome is known; returns corrected probabilities to use, and its id.

    A stream that is not there yet is made, with the classes that are named in `p`.
    """

    stream: _Stream
    p: Annotated[
        dict[str, float] | list[float],
        Meta(description='Your probability of each outcome, by name, such as {"yes": 0.7, "no": 0.3}. They sum to 1.'),
    ]
    id: Annotated[str, Meta(description="A name for this question; by default a random one.")] | None = None

    def run(self, client: Client) -> dict[str, Any]:
        try:
            answer = client.forecast(self.stream, self.p, id=self.id, timeout=_SECONDS)
        except ServerError as error:
            if error.code != "not_found" or not isinstance(self.p, dict):
                raise
            client.create(self.stream, classes=list(self.p), corrector="auto")
            answer = client.forecast(self.stream, self.p, id=self.id, timeout=_SECONDS)
        found: dict[str, Any] = msgspec.to_builtins(answer)
        return {name: found[name] for name in ("id", "forecast", "corrected", "kept", "why", "round")}


class _Resolve(_Tool, frozen=True):
    """Record the outcome of a forecast; the correction and the alarms learn from it."""

    stream: _Stream
    id: Annotated[str, Meta(description="The id of the forecast.")]
    outcome: Annotated[str | int, Meta(description="The outcome: a class, by its name or index.")]

    def run(self, client: Client) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(client.outcome(self.stream, self.id, self.outcome))
        return found


class _Calibration(_Tool, frozen=True):
    """How calibrated the forecasts of a stream were, yours and the corrected ones: verdict, scores, and what to do."""

    stream: _Stream

    def run(self, client: Client) -> dict[str, Any]:
        scores = client.scores(self.stream)
        views = {"yours": scores.model, "corrected": scores.announced}
        return {"rounds": scores.rounds} | {
            name: {"brier": view["brier"], "log_score": view["log_score"], "verdict": view["verdict"]}
            for name, view in views.items()
            if view is not None and view.get("verdict")
        }


class _Alarms(_Tool, frozen=True):
    """The alarms of a stream, or of all, the latest first: forecasts that were provably off, since when and how."""

    stream: _Stream | None = None

    def run(self, client: Client) -> dict[str, Any]:
        return {"alarms": msgspec.to_builtins(client.alarms(self.stream))}


TOOLS: dict[str, type[_Tool]] = {
    "forecast": _Forecast,
    "resolve": _Resolve,
    "calibration": _Calibration,
    "alarms": _Alarms,
}
"""The tools, by name."""
_INSTRUCTIONS = """State a probability with `forecast` before you know an outcome, and use the corrected one. Record the
outcome with `resolve`. Look at `calibration` and `alarms` now and then: they say whether you are too sure."""
_READ_ONLY = (_Calibration, _Alarms)


class _RefusedError(Exception):
    """A message that is refused, with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def answers(lines: Iterable[bytes], client: Client) -> Iterator[bytes]:
    """Yield the answer to each message, a line each; notifications have none.

    Parameters
    ----------
    lines
        Messages, a line each.
    client
        What the tools call.

    Examples
    --------
    >>> import json
    >>> from treecal.client import Client
    >>> with Client("http://127.0.0.1:9") as client:  # nobody listens there
    ...     (line,) = answers([b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'], client)
    >>> [tool["name"] for tool in json.loads(line)["result"]["tools"]]
    ['forecast', 'resolve', 'calibration', 'alarms']
    """
    for line in lines:
        if not line.strip():
            continue
        number = None
        try:
            try:
                message = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise _RefusedError(_PARSE, f"this is no JSON: {error}") from None
            if not isinstance(message, dict) or not isinstance(message.get("method"), str):
                if isinstance(message, dict) and ("result" in message or "error" in message):
                    continue  # an answer, and nothing was asked
                raise _RefusedError(_REQUEST, "expected a request: an object with a method.")
            if "id" not in message:
                continue
            number = message["id"]
            parameters = message.get("params") or {}
            if not isinstance(parameters, dict):
                raise _RefusedError(_PARAMETERS, "params: expected an object.")
            answer = {"result": _result(message["method"], parameters, client)}
        except _RefusedError as refused:
            answer = {"error": {"code": refused.code, "message": str(refused)}}
        yield msgspec.json.encode({"jsonrpc": "2.0", "id": number, **answer}) + b"\n"


def _result(method: str, parameters: dict[str, Any], client: Client) -> dict[str, Any]:
    if method == "initialize":
        asked = parameters.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in PROTOCOLS else PROTOCOLS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "treecal", "version": __version__},
            "instructions": _INSTRUCTIONS,
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [_described(name, kind) for name, kind in TOOLS.items()]}
    if method == "tools/call":
        return _called(parameters, client)
    raise _RefusedError(_METHOD, f"there is no method {method!r}.")


def _described(name: str, kind: type[_Tool]) -> dict[str, Any]:
    """Return a tool as it is listed."""
    schema = msgspec.json.schema(kind)["$defs"][kind.__name__]
    about = " ".join(schema.pop("description").split())
    del schema["title"]
    hints = {"readOnlyHint": kind in _READ_ONLY, "destructiveHint": False, "openWorldHint": False}
    return {"name": name, "description": about, "inputSchema": schema, "annotations": hints}


def _called(parameters: dict[str, Any], client: Client) -> dict[str, Any]:
    """Return what a tool answers; what it refuses is an answer too, for the agent to read."""
    name = parameters.get("name")
    if not isinstance(name, str) or name not in TOOLS:
        raise _RefusedError(_PARAMETERS, f"there is no tool {name!r}; there are {', '.join(TOOLS)}.")
    try:
        call = msgspec.convert(parameters.get("arguments") or {}, TOOLS[name])
        found = msgspec.json.encode(call.run(client))  # numbers that JSON lacks are null
    except (TreeCalError, msgspec.ValidationError) as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    content = [{"type": "text", "text": found.decode()}]
    return {"content": content, "structuredContent": msgspec.Raw(found), "isError": False}
