"""Who is let in: tokens, the rate of requests, and where a browser's request comes from."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache

from treecal.serve._refusals import Refusal
from treecal.serve._tokens import ALL, Grant, Token, id_of, utc

FRESH = 1.0
"""Seconds after which the tokens are read again: so soon a revoked one is refused."""
USE = 60.0
"""Seconds after which it is written when tokens were used: not with every request."""
_GUESSES = 20.0
"""Wrong tokens a second, from one address."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?\Z", re.ASCII)
_PROXIED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
_ONCE = frozenset(
    {b"host", b"authorization", b"content-type", b"content-length", b"content-encoding", b"origin", b"sec-fetch-site"}
)
SAFE = frozenset({"GET", "HEAD"})

Headers = Mapping[bytes, bytes]


def headers_of(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by name, or refuse one that is there twice, of which others might read the other.

    Examples
    --------
    >>> headers_of([(b"host", b"a"), (b"accept", b"b"), (b"accept", b"c")])
    {b'host': b'a', b'accept': b'c'}
    """
    pairs = list(pairs)
    headers = dict(pairs)
    if len(headers) < len(pairs):
        names = [name for name, _ in pairs]
        for name in _ONCE & headers.keys():
            if names.count(name) > 1:
                raise Refusal("forbidden", "a header is there twice.", hint="send it once.", at=name.decode())
    return headers


class Buckets:
    """So many requests a second for each name, and for a short while twice as many.

    The names that were seen last are remembered; one that is forgotten has its full share again.

    Examples
    --------
    >>> now = 0.0
    >>> buckets = Buckets(2.0, clock=lambda: now)
    >>> [buckets.take("a") for _ in range(5)], buckets.take("b")
    ([0.0, 0.0, 0.0, 0.0, 0.5], 0.0)
    >>> now = 0.5
    >>> buckets.take("a"), buckets.take("a")
    (0.0, 0.5)
    """

    def __init__(self, rate: float, *, most: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._most, self._clock = rate, most, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Return 0 and count a request, or the seconds until there is room for one."""
        now, full = self._clock(), max(2 * self._rate, 1.0)
        level, at = self._levels.get(name, (full, now))
        level = min(level + (now - at) * self._rate, full)
        wait = 0.0 if level >= 1.0 else (1.0 - level) / self._rate
        self._levels[name] = (level - 1.0 if not wait else level, now)
        self._levels.move_to_end(name)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return wait


class Access:
    """The door of the server.

    Parameters
    ----------
    loopback
        Whether the server listens to this machine only: if no token was ever made, it is then open.
    hosts
        Names by which the server is reached, besides addresses and `localhost`. Any other is refused: a page elsewhere
        whose name was made to point to this machine would otherwise be taken for the server's own (DNS rebinding).
    rate
        Requests a second of one token, or of one address where there is none.
    """

    def __init__(
        self,
        *,
        loopback: bool = True,
        hosts: Iterable[str] = (),
        rate: float = 5000.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loopback = loopback
        self._clock = clock
        self._read: Callable[[], Awaitable[list[Token]]] | None = None
        self._used: dict[str, float] = {}  # tokens, and when they were used last: what is not written yet
        self._write: Callable[[list[tuple[float, str]]], object] = lambda rows: None
        self._written_at = clock()
        self._hosts = {"localhost", *(name.lower().rstrip(".") for name in hosts)}
        self._tokens: dict[str, Token] = {}
        self._read_at = self._failed_at = float("-inf")
        self._reading = asyncio.Lock()
        self._requests = Buckets(rate, clock=clock)
        self._guesses = Buckets(_GUESSES, clock=clock)
        self._knows = lru_cache(maxsize=256)(self._is_known)

    def read_by(
        self,
        tokens: Callable[[], Awaitable[list[Token]]],
        write: Callable[[list[tuple[float, str]]], object] = lambda rows: None,
    ) -> None:
        """Read the tokens by a function, at most once a second; write by another when they were used, once a minute."""
        self._read = tokens
        self._write = write
        self._read_at = float("-inf")

    def write_use(self) -> None:
        """Write when tokens were used."""
        self._written_at = self._clock()
        if self._used:
            self._write([(at, token) for token, at in self._used.items()])
            self._used = {}

    def check_source(self, method: str, headers: Headers) -> None:
        """Refuse a request to another host, and what a page from elsewhere makes a browser send."""
        host = headers.get(b"host", b"")
        if not self._knows(host):
            raise Refusal(
                "forbidden",
                "the server is not known by the name in the header Host.",
                hint="use its address, or start it with --allow-host NAME.",
                at="host",
            )
        if method in SAFE:
            return
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Refusal("forbidden", "a page of another site sent this request.", at="sec-fetch-site")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2].lower() != host.lower():
            raise Refusal("forbidden", "a page of another site sent this request.", at="origin")

    def _is_known(self, host: bytes) -> bool:
        found = _HOST.match(host.decode("latin-1"))
        if found is None:
            return False
        name = found[1].lower().rstrip(".")
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name in self._hosts
        return True

    async def grant(self, headers: Headers, peer: str) -> Grant:
        """Return what a request may do, or refuse it: for its token, or for coming too often."""
        await self._refresh()
        text = headers.get(b"authorization")
        if self._is_open:
            if _PROXIED & headers.keys():
                raise Refusal(
                    "forbidden",
                    "the request arrived through a proxy, and the server is open to this machine only.",
                    hint="make a token: treecal token create NAME --data ...",
                )
            self._count(self._requests, peer)
            return ALL
        token = self._token(text)
        now = time.time()
        if token is None or _has_expired(token, now):
            self._count(self._guesses, peer)
            problem = "expected a token."
            if token is not None and token.expires is not None:
                problem = f"the token expired at {utc(token.expires)}."
            elif text is not None:
                problem = "the token is not known, or was revoked."
                if not text.lower().startswith(b"bearer "):
                    problem = "the header Authorization does not begin with Bearer."
            raise Refusal(
                "unauthorized",
                problem,
                hint="send Authorization: Bearer tcal_...; `treecal token create` makes one.",
                at="authorization",
            )
        self._count(self._requests, token.id)
        self._used[token.id] = now
        return token.grant

    async def holds(self, grant: Grant) -> bool:
        """Return whether what was granted before would still be."""
        await self._refresh()
        if grant.id is None:
            return self._is_open
        token = self._tokens.get(grant.id)
        return token is not None and token.revoked is None and not _has_expired(token, time.time())

    @property
    def _is_open(self) -> bool:
        return self._loopback and not self._tokens

    def _token(self, text: bytes | None) -> Token | None:
        scheme, _, word = (text or b"").decode("latin-1").partition(" ")
        word = word.strip()
        name = id_of(word) if scheme.lower() == "bearer" else None
        token = self._tokens.get(name) if name is not None else None
        return token if token is not None and token.is_of(word) and token.revoked is None else None

    def _count(self, buckets: Buckets, name: str) -> None:
        if wait := buckets.take(name):
            raise Limited(wait)

    async def _refresh(self) -> None:
        age = self._clock() - self._read_at
        if age < FRESH or (age < 2 * FRESH and self._reading.locked()):
            return
        async with self._reading:
            now = self._clock()
            if now - self._read_at >= FRESH:
                assert self._read is not None
                if now - self._failed_at < FRESH:  # those who waited do not each wait for the store again
                    raise Refusal("unavailable", "the tokens cannot be read.", hint="send it again later.")
                try:
                    found = await self._read()
                except Refusal:
                    self._failed_at = self._clock()
                    raise
                self._tokens = {token.id: token for token in found}
                self._read_at = now
        if self._clock() - self._written_at >= USE:
            self.write_use()


def _has_expired(token: Token, now: float) -> bool:
    return token.expires is not None and now >= token.expires


class Limited(Refusal):
    """Too many requests, and after how many seconds there is room for the next."""

    def __init__(self, wait: float) -> None:
        super().__init__("limited", "too many requests.", hint="wait as long as the header Retry-After says.")
        self.wait = wait
