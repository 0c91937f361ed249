"""Tokens: who may do what with which streams.

A token is shown once, when it is made. The store has its SHA-256, and the first letters, its id, by which it is listed,
revoked and named in logs. A token that is revoked stays in the list: a server that ever had one is never open again.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from treecal.exceptions import ParameterError

if TYPE_CHECKING:
    from treecal.serve._connections import Reader, Store

Scope = Literal["forecast", "outcome", "read", "admin", "delete"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_MARK = "tcal_"
_ID = 8  # letters
_DAYS = 36_500
_FORM = re.compile(r"tcal_[A-Za-z0-9_-]{51}\Z", re.ASCII)
_PREFIX = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})?\Z", re.ASCII)


class Grant(NamedTuple):
    """What a request may do: the scopes, with streams whose names start with the prefix.

    Examples
    --------
    >>> grant = Grant("k3v9x2m1", "web-", frozenset({"read"}))
    >>> grant.allows("read", "web-clicks"), grant.allows("read", "mail"), grant.allows("admin", "web-clicks")
    (True, False, False)
    """

    id: str | None
    """Of the token; None on a server that is open."""
    prefix: str
    scopes: frozenset[str]

    def allows(self, scope: str, stream: str) -> bool:
        """Return whether it may do this with a stream."""
        return scope in self.scopes and stream.startswith(self.prefix)


ALL = Grant(None, "", frozenset(SCOPES))
"""What everybody may do on a server that is open."""


class Token(NamedTuple):
    """A token as the store has it."""

    id: str
    name: str
    hash: str
    prefix: str
    scopes: str
    """Separated by spaces."""
    created: float
    revoked: float | None = None
    expires: float | None = None
    used: float | None = None
    """When it was used last, to the minute."""

    @property
    def grant(self) -> Grant:
        """What it allows."""
        return Grant(self.id, self.prefix, frozenset(self.scopes.split()))

    def is_of(self, text: str) -> bool:
        """Return whether this is the text of the token, in a time that does not tell how much of it is right."""
        return hmac.compare_digest(self.hash, _digest(text))


def make_token(
    name: str, *, prefix: str = "", scopes: Iterable[str], now: float, days: float | None = None
) -> tuple[str, Token]:
    """Return the text of a new token, which nobody can find out later, and what the store keeps of it.

    It expires after so many days; never, where none are given.

    Examples
    --------
    >>> text, token = make_token("the web shop", prefix="web-", scopes=["forecast"], now=0.0)
    >>> token.is_of(text), token.is_of(text[:-1] + "?"), text in repr(token), id_of(text) == token.id
    (True, False, False, True)
    """
    chosen = list(dict.fromkeys(scopes))
    if not chosen or not set(chosen) <= set(SCOPES):
        raise ParameterError.expected("scope", " ".join(chosen), f"one or more of {', '.join(SCOPES)}")
    if not _PREFIX.match(prefix):
        raise ParameterError.expected("prefix", prefix, "the first letters of names of streams")
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise ParameterError.expected("name", name, "a line of 1 to 200 letters that says what the token is for")
    if days is not None and not 0 < days <= _DAYS:
        raise ParameterError.expected("days", days, f"a number above 0, and {_DAYS:,} at most")
    text = _MARK + secrets.token_hex(_ID // 2) + secrets.token_urlsafe(32)
    expires = None if days is None else now + 86400 * days
    return text, Token(_id(text), name, _digest(text), prefix, " ".join(chosen), now, expires=expires)


def tokens_of(reader: Reader) -> list[Token]:
    """Return all tokens of a store, revoked ones too."""
    return [Token(*row) for row in reader.query("tokens")]


def add_token(store: Store, token: Token) -> None:
    """Keep a token."""
    store.begin()
    store.run("add_token", [(*token[:6], token.expires)])
    store.commit()


def revoke_token(store: Store, which: str, *, now: float) -> Token:
    """Revoke a token, by its id or its name; again changes nothing."""
    found = [each for each in tokens_of(store) if which in (each.id, each.name)]
    if len(found) != 1:
        many = "there is no token" if not found else f"there are {len(found)} tokens"
        raise ParameterError(f"{many} {which!r}.", hint="treecal token list shows their ids.")
    (token,) = found
    if token.revoked is None:
        store.begin()
        store.run("revoke_token", [(now, token.id)])
        store.commit()
        token = token._replace(revoked=now)
    return token


def utc(at: float) -> str:
    """Return a moment as it is printed.

    Examples
    --------
    >>> utc(1e9)
    '2001-09-09T01:46:40Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def id_of(text: str) -> str | None:
    """Return the id in the text of a token; None if no token looks like that.

    Examples
    --------
    >>> id_of("tcal_short") is None
    True
    """
    return _id(text) if _FORM.match(text) else None


def _id(text: str) -> str:
    return text[len(_MARK) : len(_MARK) + _ID]


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
