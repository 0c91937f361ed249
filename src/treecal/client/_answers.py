"""What the client returns where the server's own answer is not enough."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from treecal.serve import Arrival


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
    forecast: list[float] | dict[str, float]
    """The forecast to use: a list in the order of the classes; by their names if the model's was."""
    corrected: bool
    """Whether the server answered: it is then what the server announced, which may be the model's own, as of a stream
    without a corrector or behind a gate that is shut. Otherwise it is the model's own."""
    kept: bool
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


class Receipt(Struct, frozen=True):
    """What became of an outcome: as the server says, or "spooled", to be delivered later."""

    stream: str
    id: str
    status: Arrival | Literal["spooled"]
