"""What a reply means: an answer, a refusal for good, or that the server is away; and what the client makes of it."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from treecal.client._line import AwayError, Reply
from treecal.exceptions import ServerError
from treecal.serve import Arrival, Failure

T = TypeVar("T")
_LATER = {408, 429}
_decoders: dict[type, msgspec.json.Decoder[object]] = {}


class Answer(Struct, frozen=True):
    """A forecast to use now.

    Examples
    --------
    >>> from treecal.client import Client
    >>> with Client("http://127.0.0.1:9") as client:  # nobody listens there
    ...     answer = client.forecast("rain", [0.3, 0.7])
    >>> answer.forecast, answer.corrected, answer.kept
    ([0.3, 0.7], False, False)
    """

    id: str
    """The id for the outcome."""
    forecast: list[float] | dict[str, Any]
    """The forecast to use: a list in the order of the classes; by their names if the model's was."""
    corrected: bool = True
    """Whether the server answered: it is then what the server announced, which may be the model's own, as of a stream
    without a corrector or behind a gate that is shut. Otherwise it is the model's own."""
    kept: bool = True
    """Whether it is recorded by the server, or waits for that in the spool."""
    why: str | None = None
    """Why it is the model's own."""
    round: int | None = None
    """The number of the forecast in its stream, from 1."""
    state: str | None = None
    """A hash of all that the stream had recorded before."""
    points: list[list[float]] | None = None
    """Where the forecast is a distribution over several points: these. `forecast` is their mean."""
    weights: list[float] | None = None
    """The weights of the points."""
    quantiles: dict[str, float] | None = None
    """Of a forecast of a number, by level, from q5 to q95; `forecast` is then its values at the thresholds."""
    action: Any = None
    """Where the stream has losses: the action to take, of several decisions by their names."""
    actions: dict[str, Any] | None = None
    """The weight of each action, where several are advised."""


class Receipt(Struct, frozen=True):
    """What became of an outcome: as the server says, or "spooled", to be delivered later."""

    stream: str
    id: str
    status: Arrival | Literal["spooled"]


class Answers(Struct, frozen=True):
    """What is read of the answer to a batch of forecasts."""

    forecasts: list[Answer]


class Receipts(Struct, frozen=True):
    """What is read of the answer to outcomes."""

    outcomes: list[Receipt]


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
