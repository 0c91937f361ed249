"""The settings of `treecal serve`: from the command line, from the environment, and from a file of TOML, in this order.

One class has them all. A setting `log_level` is `--log-level`, `TREECAL_SERVE_LOG_LEVEL`, and the key `log_level`;
webhooks are tables in the file, and have no options, since their addresses and secrets would be seen in `ps`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from treecal.exceptions import FileError, ParameterError
from treecal.serve._refusals import invalid
from treecal.serve._wire import Days

PREFIX = "TREECAL_SERVE_"
"""Of the names of variables."""
_FILE = "CONFIG"  # the variable that names the file
_TABLE = "webhooks"
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&](ssl)?password=")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")  # of a webhook


class Hook(Struct, frozen=True, forbid_unknown_fields=True):
    """A receiver of alarms."""

    url: str = ""
    """Where to post them."""
    secret: str | tuple[str, ...] = ()
    """`whsec_` and 24 to 64 bytes in base64, or several of these: messages are signed with each."""
    streams: tuple[str, ...] = ("*",)
    """The streams whose alarms it gets, by name; `*` stands for any letters."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to serve."""

    data: str | None = None
    """Where the books are: a file of SQLite, or the address of a PostgreSQL database."""
    host: str = "127.0.0.1"
    """Where to listen. An address that others can reach needs a token; put a proxy with TLS before it."""
    port: Annotated[int, Meta(ge=0, le=2**16 - 1)] = 8000
    """The port; 0 is any that is free."""
    allow_host: list[str] = []
    """Names by which the server is reached, such as that of the proxy."""
    rate: Annotated[float, Meta(gt=0)] = 5000.0
    """Requests a second of one token, or of one address where there is none."""
    body: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Megabytes that a request may have."""
    keep: Days | None = None
    """Days for which forecasts are kept, of streams that do not say so themselves; then they are deleted."""
    demo: bool = False
    """Replay flights, so that there is something to see. Without `data` the books are in a temporary folder."""
    log_level: Literal["info", "warning", "error"] = "info"
    """The least level of what is logged. Requests are of level info, failures of level error."""
    webhooks: dict[str, Hook] = {}
    """Receivers of alarms, by name."""


_KINDS = {field.name: field.type for field in msgspec.structs.fields(Settings)}


def read_settings(
    options: Mapping[str, Any], environment: Mapping[str, str], file: str | Path | None = None
) -> Settings:
    """Return the settings, or raise with the name of the one that is wrong, and of where it is.

    Parameters
    ----------
    options
        What the command line gives, by the names of `Settings`; a password is not taken from there.
    environment
        Variables; those that do not begin with `TREECAL_SERVE_` are none of ours.
    file
        The file; by default the one that `TREECAL_SERVE_CONFIG` names, if any.

    Examples
    --------
    >>> found = read_settings({"port": 80}, {"TREECAL_SERVE_PORT": "81", "TREECAL_SERVE_ALLOW_HOST": "a.org,b.org"})
    >>> found.port, found.allow_host
    (80, ['a.org', 'b.org'])
    >>> read_settings({}, {"TREECAL_SERVE_PROT": "80"})
    Traceback (most recent call last):
    treecal.exceptions.ParameterError: there is no setting for the variable TREECAL_SERVE_PROT.
    <BLANKLINE>
    Hint: TREECAL_SERVE_PORT?
    """
    if _PASSWORD.search(options.get("data", "")):
        raise ParameterError(
            "a password on the command line is seen by everybody who asks for the list of processes.",
            hint=f"PGPASSWORD, ~/.pgpass, or the whole address in {PREFIX}DATA or the file of --config.",
        )
    variables = _variables(environment)
    where = variables.pop(_FILE.lower(), None) if file is None else file
    written = {} if where is None else _written(Path(where))
    named = {name: f"{PREFIX}{name.upper()}" for name in variables}
    for source, names, strict in (
        (written, {name: f"{name} in {where}" for name in written}, True),
        (variables, named, False),
        (options, {name: f"--{name.replace('_', '-')}" for name in options}, True),
    ):
        for name, value in source.items():
            _check(names[name], value, _KINDS[name], strict=strict)
    given = msgspec.convert(_merged(written, variables, options), Settings, strict=False)
    for name, hook in given.webhooks.items():
        for key in ("url", "secret"):
            if not getattr(hook, key):
                variable = f"{PREFIX}WEBHOOKS_{name.upper().replace('-', '_')}_{key.upper()}"
                hint = f"give {key} in [webhooks.{name}], or {variable}."
                raise ParameterError(f"webhook {name} has no {key}.", hint=hint)
    return given


def _variables(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that variables give, by name; lists have commas between their parts."""
    found: dict[str, Any] = {}
    known = {name.upper(): name for name in _KINDS if name != _TABLE} | {_FILE: _FILE.lower()}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or not text:  # an empty one is none, as usual
            continue
        key = variable.removeprefix(PREFIX)
        table = re.fullmatch(r"WEBHOOKS_([A-Z0-9_]+)_(URL|SECRET|STREAMS)", key)
        if table is not None:
            name, field = table[1].lower().replace("_", "-"), table[2].lower()
            found.setdefault(_TABLE, {}).setdefault(name, {})[field] = text if field == "url" else _parts(text)
        elif key in known:
            found[known[key]] = _parts(text) if known[key] == "allow_host" else text
        else:
            near = [PREFIX + each for each in get_close_matches(key, known, 1)]
            raise ParameterError(
                f"there is no setting for the variable {variable}.",
                hint=f"{near[0]}?" if near else f"there are {', '.join(PREFIX + each for each in known)}.",
            )
    return found


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _written(file: Path) -> dict[str, Any]:
    """Return the settings in a file, by name."""
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise FileError(f"there is no file {file}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(f"{file} is not TOML: {error}.") from None
    for name in found:
        if name not in _KINDS:
            near = get_close_matches(name, _KINDS, 1)
            hint = f"{near[0]}?" if near else f"there are {', '.join(_KINDS)}."
            raise ParameterError(f"{file} has {name!r}, which is no setting.", hint=hint)
    return found


def _check(where: str, value: Any, kind: Any, *, strict: bool) -> None:
    """Raise unless a value is of a kind, with the name of where it is; secrets are not shown."""
    try:
        tables = msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        found = invalid(error, kind)
        shown = "" if isinstance(value, dict) else f" is {value!r}"
        at = "" if found.at is None else f", {found.at}"
        raise ParameterError(f"{where}{shown}{at}: {found.message}", hint=found.hint) from None
    for name in tables if isinstance(value, dict) else ():
        if not _NAME.match(name):
            hint = "begin with a letter; small letters, digits and hyphens."
            raise ParameterError(f"{where}: {name!r} is no name of a webhook.", hint=hint)


def _merged(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return what sources say, a later one before those before it; webhooks key by key."""
    found: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for source in sources:
        found |= source
        for name, table in source.get(_TABLE, {}).items():
            tables[name] = tables.get(name, {}) | table
    return found | {_TABLE: tables}
