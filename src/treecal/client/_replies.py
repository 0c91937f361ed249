"""What a reply means: an answer, a refusal for good, or that the server is away."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from treecal.client._line import AwayError, Reply
from treecal.exceptions import ServerError
from treecal.serve import Failure

T = TypeVar("T")
_LATER = {408, 429}
_decoders: dict[type, msgspec.json.Decoder[object]] = {}


def read(reply: Reply, kind: type[T]) -> T:
    """Return the answer; raise `ServerError` if the server refuses, and `AwayError` if it may answer later.

    What is not in the server's words does not come from it, but from something before it, such as a proxy: it counts as
    away.
    """
    if reply.status < 300:
        try:
            return decoder(kind).decode(reply.body)
        except msgspec.DecodeError as error:
            raise AwayError(f"status {reply.status} and an answer that is not treecal's: {error}") from None
    try:
        problem = decoder(Failure).decode(reply.body).error
    except msgspec.DecodeError:
        raise AwayError(f"status {reply.status}, and no error of treecal's", after=_after(reply)) from None
    if reply.status in _LATER or reply.status >= 500:
        raise AwayError(f"{problem.code}: {problem.message}", after=_after(reply))
    raise ServerError.of(problem.code, reply.status, problem.message, hint=problem.hint, at=problem.at)


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a kind, which takes time to make."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind)
    return found  # type: ignore[return-value]


def _after(reply: Reply) -> float | None:
    for name, value in reply.headers:
        if name.lower() == b"retry-after":
            try:
                seconds = float(value)
            except ValueError:  # a date
                return None
            return seconds if seconds >= 0 else None
    return None
