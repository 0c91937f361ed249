"""The server with the books: forecasts by id, outcomes when they arrive, alarms, and a page that shows it live.

Here is what other rooms use: the bodies of requests and answers, for the client; and what the command line runs, which
is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treecal._optional import require

require("msgspec", extra="serve", what="the server")
# isort: off
from treecal.serve._wire import (
    FAR,
    MOST_ROWS,
    Alarm,
    Alarms,
    Announced,
    Announcements,
    Arrival,
    Curve,
    Deleted,
    Failure,
    NewForecast,
    NewForecasts,
    NewOutcome,
    NewOutcomes,
    NewStream,
    Part,
    Pending,
    Problem,
    Record,
    Scores,
    Settled,
    Settlements,
    Shape,
    Stream,
    StreamChange,
    Streams,
    Watch,
)

if TYPE_CHECKING:
    from treecal.serve._backup import back_up, move_books
    from treecal.serve._connections import open_reader, open_store
    from treecal.serve._doctor import check_books
    from treecal.serve._run import serve
    from treecal.serve._settings import Settings, read_settings
    from treecal.serve._store import NotNowError
    from treecal.serve._tokens import (
        Token,
        add_token,
        make_token,
        revoke_token,
        tokens_of,
        utc,
    )
# isort: on

_MODULES = {
    "NotNowError": "_store",
    "Settings": "_settings",
    "Token": "_tokens",
    "add_token": "_tokens",
    "back_up": "_backup",
    "check_books": "_doctor",
    "make_token": "_tokens",
    "move_books": "_backup",
    "open_reader": "_connections",
    "open_store": "_connections",
    "read_settings": "_settings",
    "revoke_token": "_tokens",
    "serve": "_run",
    "tokens_of": "_tokens",
    "utc": "_tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
