"""`treecal serve`: the server with the books."""

from __future__ import annotations

from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from cyclopts import Parameter

from treecal._optional import require
from treecal.cli._terminal import Exit, say
from treecal.exceptions import ParameterError

Data = Annotated[
    str | None, Parameter(help="Where the books are: a file of SQLite, or the address of a PostgreSQL database.")
]


def serve(
    *,
    data: Data = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_host: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    rate: float = 5000.0,
    body: int = 8,
    keep: int | None = None,
    demo: bool = False,
    log_level: Literal["info", "warning", "error"] = "info",
) -> int:
    """Take forecasts by id, announce corrected ones, learn from outcomes when they come; show it all on a page.

    The books are durable: what was acknowledged survives a crash and a loss of power. Until a token was made, the
    server is open to this machine, and listens nowhere else.

        treecal serve --data books.sqlite
        treecal token create shop --data books.sqlite --scope forecast --scope outcome
        treecal serve --data postgresql:///books --host 0.0.0.0 --allow-host forecasts.example.org
        treecal serve --demo

    It stops at Ctrl-C or SIGTERM, with code 0, when all that was asked is answered. It ends with code 75 if the books
    cannot be opened now and may be later: the database does not answer, the disk is full, another server has them.
    Standard error is its log, a JSON object in a line.

    Parameters
    ----------
    host
        Where to listen. An address that others can reach needs a token; put a proxy with TLS before it.
    port
        The port; 0 is any that is free.
    allow_host
        A name by which the server is reached, such as that of the proxy. May be given more than once.
    rate
        Requests a second of one token, or of one address where there is none.
    body
        Megabytes that a request may have.
    keep
        Days for which forecasts are kept, of streams that do not say so themselves; then they are deleted.
    demo
        Replay flights, so that there is something to see. Without --data the books are in a temporary folder.
    log_level
        The least level of what is logged. Requests are of level info, failures of level error.
    """
    if not 0 <= port < 2**16:
        raise ParameterError.expected("--port", port, "a number from 0 to 65535")
    if not rate > 0:
        raise ParameterError.expected("--rate", rate, "a number above 0")
    if not 1 <= body <= 1024:
        raise ParameterError.expected("--body", body, "a number from 1 to 1024")
    if keep is not None and not 1 <= keep <= 100_000:
        raise ParameterError.expected("--keep", keep, "a number of days from 1 to 100,000")
    for package in ("starlette", "uvicorn"):
        require(package, extra="serve", what="the server")
    from treecal.serve import NotNowError
    from treecal.serve import serve as run

    if data is None and not demo:
        raise ParameterError("no books given.", hint="--data books.sqlite; or --demo to look around.")
    with ExitStack() as stack:
        if data is None:
            data = f"{stack.enter_context(TemporaryDirectory(prefix='treecal-'))}/demo.sqlite"
        try:
            run(
                data,
                host=host,
                port=port,
                hosts=allow_host,
                rate=rate,
                most_bytes=body * 2**20,
                keep=keep,
                demo=demo,
                log_level=log_level,
                say=say,
            )
        except NotNowError as error:
            say(str(error))
            return Exit.LATER
    return Exit.FINE
