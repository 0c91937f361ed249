"""A request that was let in, and what is sent back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, json

from treecal.serve._refusals import Refusal
from treecal.serve._tokens import Grant

JSON = b"application/json"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no value of JSON")


encode = json.Encoder(enc_hook=_plain).encode
"""Return a value as JSON."""


class Response(NamedTuple):
    """What is sent back: all of it, or in parts."""

    body: bytes | AsyncGenerator[bytes, None]
    status: int = 200
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """These replace the server's own of the same names."""


class Request(Struct, frozen=True):
    """A request that was let in, and what it holds."""

    grant: Grant
    path: dict[str, str]
    query: Any
    body: Any
    headers: dict[bytes, bytes]

    @property
    def stream(self) -> str:
        """The stream in the path."""
        return self.path["s"]

    def need(self, scope: str, stream: str, *, at: str) -> None:
        """Refuse unless this may be done with a stream."""
        if not self.grant.allows(scope, stream):
            raise forbidden(self.grant, scope, stream, at=at)


def forbidden(grant: Grant, scope: str, stream: str, *, at: str) -> Refusal:
    """Return the refusal of what a token does not allow.

    Examples
    --------
    >>> print(forbidden(Grant("k3v9x2m1", "shop-", frozenset({"read"})), "read", "bank-1", at="path"))
    the token is not for stream 'bank-1'.
    <BLANKLINE>
    Hint: it is for streams whose names start with 'shop-'.
    """
    if scope in grant.scopes:
        hint = f"it is for streams whose names start with {grant.prefix!r}."
        return Refusal("forbidden", f"the token is not for stream {stream!r}.", hint=hint, at=at)
    may = ", ".join(sorted(grant.scopes))
    return Refusal("forbidden", f"this needs the scope {scope}; the token has {may}.", at=at)


class NoQuery(Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing in the query."""


Does = Callable[[Any, Request], Awaitable[Any]]
"""Takes the context, which has all that operations need, and the call; gives what is sent as JSON, or a `Response`."""


class Operation(Struct, frozen=True, kw_only=True):
    """What a route does with a method: a row of the table from which the application and its description are made."""

    method: str
    path: str
    does: Does
    scope: str | None = None
    """What a token must allow; None where everybody may."""
    body: Any = None
    query: type[Struct] = NoQuery
    gives: Any = Any
    """The type of its answers: a class of `_wire`, or a media type."""
    statuses: tuple[int, ...] = (200,)
    """Of its answers."""
    codes: tuple[str, ...] = ()
    """Of refusals, besides those of all operations."""

    @property
    def about(self) -> str:
        """What it does, in words."""
        return (self.does.__doc__ or "").removesuffix(".")
