"""`treecal serve`, the server with the books, and `treecal mcp`, its tools for agents."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from cyclopts import Parameter

from treecal._optional import require
from treecal.cli._terminal import Exit, say
from treecal.exceptions import ParameterError


def serve(
    *,
    config: Path | None = None,
    data: str | None = None,
    host: str | None = None,
    port: int | None = None,
    allow_host: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    rate: float | None = None,
    body: int | None = None,
    keep: int | None = None,
    demo: bool = False,
    log_level: Literal["info", "warning", "error"] | None = None,
) -> int:
    """Take forecasts by id, announce corrected ones, learn from outcomes when they come; show it all on a page.

    The books are durable: what was acknowledged survives a crash and a loss of power. Until a token was made, the
    server is open to this machine, and listens nowhere else.

        treecal serve --data books.sqlite
        treecal token create shop --data books.sqlite --scope forecast --scope outcome
        treecal serve --data postgresql:///books --host 0.0.0.0 --allow-host forecasts.example.org
        treecal serve --config serve.toml
        treecal serve --demo

    Every option may also be given by a variable, such as TREECAL_SERVE_LOG_LEVEL, or in a file of TOML, as log_level;
    the command line comes first, then the environment, then the file. Webhooks are in the file.

    It stops at Ctrl-C or SIGTERM, with code 0, when all that was asked is answered. It ends with code 75 if the books
    cannot be opened now and may be later: the database does not answer, the disk is full, another server has them.
    Standard error is its log, a JSON object in a line.

    Parameters
    ----------
    config
        A file of TOML with settings.
    data
        Where the books are: a file of SQLite, or the address of a PostgreSQL database, without a password.
    host
        Where to listen; by default 127.0.0.1. An address that others can reach needs a token; put a proxy with TLS
        before it.
    port
        The port; by default 8000. 0 is any that is free.
    allow_host
        A name by which the server is reached, such as that of the proxy. May be given more than once.
    rate
        Requests a second of one token, or of one address where there is none; by default 5000.
    body
        Megabytes that a request may have; by default 8.
    keep
        Days for which forecasts are kept, of streams that do not say so themselves; then they are deleted.
    demo
        Replay flights, so that there is something to see. Without --data the books are in a temporary folder.
    log_level
        The least level of what is logged; by default info. Requests are of level info, failures of level error.
    """
    for package in ("starlette", "uvicorn"):
        require(package, extra="serve", what="the server")
    from treecal.serve import NotNowError, read_settings, serve as run

    options = {
        "data": data,
        "host": host,
        "port": port,
        "allow_host": list(allow_host) or None,
        "rate": rate,
        "body": body,
        "keep": keep,
        "demo": demo or None,
        "log_level": log_level,
    }
    given = {name: value for name, value in options.items() if value is not None}
    settings = read_settings(given, os.environ, config)
    if settings.data is None and not settings.demo:
        raise ParameterError("no books given.", hint="--data books.sqlite; or --demo to look around.")
    with ExitStack() as stack:
        books = settings.data or f"{stack.enter_context(TemporaryDirectory(prefix='treecal-'))}/demo.sqlite"
        try:
            run(settings, books, say=say)
        except NotNowError as error:
            say(str(error))
            return Exit.LATER
    return Exit.FINE


def mcp(*, url: str = "http://127.0.0.1:8000", spool: Path | None = None) -> int:
    """Offer a server to an agent as four tools, by the Model Context Protocol: forecast, resolve, calibration, alarms.

    An agent so records its forecasts and their outcomes, uses corrected probabilities, and sees how sure it may
    be. It starts this command itself; messages go over standard input and output. In its settings:

        {"command": "treecal", "args": ["mcp", "--url", "http://127.0.0.1:8000"], "env": {"TREECAL_TOKEN": "..."}}

    The token is what `treecal token create` printed, if the server wants one. A stream that is not there yet is made,
    if the token has the scope admin.

    Parameters
    ----------
    url
        Where `treecal serve` listens.
    spool
        A file for what cannot be delivered while the server is away.
    """
    require("httpcore", extra="client", what="treecal mcp")
    from treecal.client import Client
    from treecal.client.mcp import answers

    with Client(url, token=os.environ.get("TREECAL_TOKEN"), spool=spool) as client:
        for answer in answers(iter(sys.stdin.buffer.readline, b""), client):
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
    return Exit.FINE
