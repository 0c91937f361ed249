"""The tools for agents: by hand, with a server and a process of their own, and with the protocol's own client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.real import Process
from treecal.client import Client
from treecal.client.mcp import PROTOCOLS, answers


def asked(client: Client, *messages: Any) -> list[Any]:
    """Return the answers to messages, which are JSON or lines as they are."""
    lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
    return [json.loads(line) for line in answers(lines, client)]


def request(method: str, number: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", name=name, arguments=arguments)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("books") / "books.sqlite")
    yield process
    process.stop()


@pytest.fixture
def away() -> Iterator[Client]:
    with Client("http://127.0.0.1:9", timeout=0.1) as client:  # nobody listens there
        yield client


@pytest.mark.parametrize("version", [*PROTOCOLS, "2099-01-01", None])
def test_versions_are_agreed_upon(version: str | None, away: Client) -> None:
    (found,) = asked(away, request("initialize", protocolVersion=version, capabilities={}))
    assert found["result"]["protocolVersion"] == (version if version in PROTOCOLS else PROTOCOLS[0])
    assert found["result"]["capabilities"] == {"tools": {}}


def test_tools_are_listed_with_their_schemas(away: Client) -> None:
    (found,) = asked(away, request("tools/list"))
    tools = {tool["name"]: tool for tool in found["result"]["tools"]}
    assert {name: tool["inputSchema"]["required"] for name, tool in tools.items()} == {
        "forecast": ["stream", "p"],
        "resolve": ["stream", "id", "outcome"],
        "calibration": ["stream"],
        "alarms": [],
    }
    for tool in tools.values():
        assert tool["description"]
        assert tool["inputSchema"]["type"] == "object"
        assert "$ref" not in json.dumps(tool)


@pytest.mark.parametrize(
    ("message", "number", "code"),
    [
        (b"{", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[" * 100_000, None, -32700),
        ([1], None, -32600),
        ({"jsonrpc": "2.0", "id": 1}, None, -32600),
        (request("resources/list", 7), 7, -32601),
        (request("tools/call", "a", name="guess"), "a", -32602),
        (request("tools/call", "a", name=["forecast"]), "a", -32602),
        ({"jsonrpc": "2.0", "id": 2, "method": "ping", "params": [1]}, 2, -32602),
    ],
)
def test_what_is_no_request_is_refused_and_the_next_one_answered(
    message: Any, number: Any, code: int, away: Client
) -> None:
    refused, pong = asked(away, message, request("ping", "next"))
    assert (refused["id"], refused["error"]["code"]) == (number, code)
    assert pong == {"jsonrpc": "2.0", "id": "next", "result": {}}


def test_notifications_and_answers_have_no_answer(away: Client) -> None:
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert asked(away, told, b"", {"jsonrpc": "2.0", "id": 3, "result": {}}) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing required field `stream`"),
        ({"stream": "s", "p": {"yes": 0.7, "no": 0.3}, "odds": 2}, "unknown field `odds`"),
        ({"stream": "s", "p": "high"}, "Expected `object | array`"),
    ],
)
def test_an_agent_reads_what_was_wrong(arguments: Any, words: str, away: Client) -> None:
    (found,) = asked(away, call("forecast", **arguments))
    assert found["result"]["isError"]
    assert words in found["result"]["content"][0]["text"]


def test_without_a_server_the_agent_has_its_own_forecast(away: Client) -> None:
    (found,) = asked(away, call("forecast", stream="s", p={"yes": 0.7, "no": 0.3}))
    answer = found["result"]["structuredContent"]
    assert (answer["forecast"], answer["corrected"], answer["kept"]) == ({"yes": 0.7, "no": 0.3}, False, False)
    assert json.loads(found["result"]["content"][0]["text"]) == answer


def test_an_agent_keeps_its_books(server: Process) -> None:
    rng = np.random.default_rng(0)
    messages: list[Any] = []
    for k in range(120):  # it says 90 %, and is right in half of the cases
        messages.append(call("forecast", stream="tests-pass", p={"yes": 0.9, "no": 0.1}, id=f"q{k}"))
        messages.append(call("resolve", stream="tests-pass", id=f"q{k}", outcome="yes" if rng.random() < 0.5 else "no"))
    with Client(server.url) as client:
        *replies, calibration, alarms, none = asked(
            client,
            *messages,
            call("calibration", stream="tests-pass"),
            call("alarms"),
            call("calibration", stream="elsewhere"),
        )
    assert not [reply for reply in replies if reply["result"]["isError"]]
    first, last = (replies[k]["result"]["structuredContent"] for k in (0, -2))
    assert (first["id"], first["round"], first["forecast"]) == ("q0", 1, pytest.approx({"yes": 0.9, "no": 0.1}))
    assert last["corrected"]
    assert abs(last["forecast"]["yes"] - 0.5) < 0.1
    assert replies[-1]["result"]["structuredContent"] == {"stream": "tests-pass", "id": "q119", "status": "learned"}
    books = calibration["result"]["structuredContent"]
    assert books["rounds"] == 120
    assert books["yours"]["verdict"]["level"] == "far off"
    assert books["corrected"]["brier"] < books["yours"]["brier"]
    assert "model" in {each["of"] for each in alarms["result"]["structuredContent"]["alarms"]}
    assert none["result"]["isError"]
    assert "elsewhere" in none["result"]["content"][0]["text"]


def test_the_command_speaks_over_its_pipes(server: Process) -> None:
    messages = [
        request("initialize", 0, protocolVersion=PROTOCOLS[0]),
        call("forecast", stream="new", p={"a": 1, "b": 0}),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "treecal", "mcp", "--url", server.url],
        input="".join(json.dumps(each) + "\n" for each in messages),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    assert done.stderr == ""


@pytest.mark.heavy
def test_the_protocol_s_own_client_takes_it(server: Process, tmp_path: Path) -> None:
    protocol = pytest.importorskip("mcp", reason="install the dependency group `others`")
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    arguments = ["-m", "treecal", "mcp", "--url", server.url, "--spool", str(tmp_path / "spool")]
    start = protocol.StdioServerParameters(command=sys.executable, args=arguments, env=env)

    async def talk() -> tuple[list[str], Any, Any]:
        async with protocol.stdio_client(start) as (read, write), protocol.ClientSession(read, write) as session:
            await session.initialize()
            tools = await session.list_tools()
            given = {"stream": "official", "p": {"yes": 0.6, "no": 0.4}, "id": "one"}
            forecast = await session.call_tool("forecast", given)
            wrong = await session.call_tool("resolve", {"stream": "official", "id": "one", "outcome": "perhaps"})
            return [tool.name for tool in tools.tools], forecast, wrong

    names, forecast, wrong = asyncio.run(talk())
    assert names == ["forecast", "resolve", "calibration", "alarms"]
    assert json.loads(forecast.content[0].text)["forecast"] == pytest.approx({"yes": 0.6, "no": 0.4})
    assert "perhaps" in wrong.content[0].text
