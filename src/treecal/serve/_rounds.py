"""A round of the log: its row in the store, and what it means."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from treecal._typing import Array
from treecal.forecast import Forecast, uniform
from treecal.geometry import Cdf, ConvexSet
from treecal.late import Outcome
from treecal.serve._wire import NewStream

DIGEST = 32
"""Bytes of the hash before the content of a snapshot."""
START = bytes(16)
"""The hash of an empty log."""


class Round(NamedTuple):
    """A forecast as it is in the log: the columns of `rounds` but for the stream.

    `marked` is whether it was reported afterwards that the model's forecast was used as it is, since the answer was too
    late: then that is what was announced.
    """

    round: int
    id: str
    at: float
    arrivals: int
    model: bytes | None
    announced: bytes
    points: bytes | None
    inner: bytes | None
    copy: int | None
    used: int
    tags: str
    due: float | None
    state: bytes
    marked: int = 0

    def model_point(self) -> Array | None:
        """Return the model's forecast."""
        return None if self.model is None else np.frombuffer(self.model)

    def mean(self) -> Array:
        """Return the mean of what was announced."""
        return np.frombuffer(self.mean_bytes())

    def mean_bytes(self) -> bytes:
        """Return the same as bytes."""
        return self.announced if not self.marked or self.model is None else self.model

    def several(self) -> bool:
        """Return whether it is a distribution over several points."""
        return self.points is not None and not self.marked

    def waiting_copy(self) -> int | None:
        """Return the number of the copy that waits for the outcome."""
        return None if self.marked else self.copy

    def forecast(self, space: ConvexSet) -> Forecast:
        """Return what was announced."""
        if self.points is None or self.marked:
            return Forecast.trusted(self.mean()[None].copy(), uniform(1), None, space)
        both = np.frombuffer(self.points).reshape(-1, space.dim + 1)
        return Forecast.trusted(both[:, 1:].copy(), both[:, 0].copy(), None, space)

    def tag_values(self) -> dict[str, str]:
        """Return the tags."""
        return msgspec.json.decode(self.tags, type=dict[str, str]) if self.tags else {}

    def group(self, names: Sequence[str]) -> Hashable:
        """Return the group of the round by these tags: a value, or several; None without any."""
        return group_of(self.tag_values(), names) if names else None

    def chained(self) -> bytes:
        """Return the hash of the log with this round as the last."""
        numbers = struct.pack("<qdqq", self.round, self.at, self.arrivals, self.used)
        due = b"" if self.due is None else struct.pack("<d", self.due)
        parts = (numbers, self.id.encode(), self.model or b"", self.announced, self.tags.encode(), due)
        return _hash(self.state, b"round", *parts)


class LogEntry(NamedTuple):
    """What arrived: an outcome, late or not, an amendment, that a round is void, that `p` was used.

    Or what was done to the stream: monitors were `reset`, settings `changed`, rows `deleted`; the last two say in
    `point` to what, and how many.
    """

    arrival: int
    kind: str
    round: int
    at: float
    class_: int | None
    point: bytes | None

    def chained(self, state: bytes) -> bytes:
        """Return the hash of the log with this arrival as the last, given that before."""
        outcome = self.point or struct.pack("<q", -1 if self.class_ is None else self.class_)
        numbers = struct.pack("<qqd", self.arrival, self.round, self.at)
        return _hash(state, self.kind.encode(), numbers, outcome)


class SettingsChange(Struct, frozen=True):
    """The settings of a stream and what they make of it, before and after a change.

    `relearn` is whether a new corrector learns from the log, and then announces.
    """

    before: tuple[NewStream, str]
    after: tuple[NewStream, str]
    relearn: bool


def deletion(count: int, content: bytes) -> bytes:
    """Return what the log says of rows that are deleted: how many, and the hash of what had been learned by then."""
    return struct.pack("<q", count) + content[:DIGEST]


def deleted_rows(point: bytes | None) -> tuple[int, bytes]:
    """Return what `deletion` was given: how many rows, and the hash."""
    assert point is not None
    (count,) = struct.unpack_from("<q", point)
    return count, point[8:]


def _hash(state: bytes, *parts: bytes) -> bytes:
    """Return the hash of parts of any lengths, each with its own."""
    lengths = struct.pack(f"<{len(parts)}q", *map(len, parts))
    return blake2b(b"".join((state, lengths, *parts)), digest_size=16).digest()


def points_of(x: Forecast) -> bytes | None:
    """Return the weights and points of a distribution; None if it is one point."""
    return None if len(x) == 1 else np.column_stack([x.weights, x.points]).tobytes()


def tags_text(tags: dict[str, str]) -> str:
    """Return tags as one text, the same for equal ones."""
    return msgspec.json.encode(tags, order="sorted").decode() if tags else ""


def group_of(tags: dict[str, str], names: Sequence[str]) -> Hashable:
    """Return the group that some tags tell."""
    values = tuple(tags.get(name) for name in names)
    return values[0] if len(values) == 1 else values


def outcome_of(class_: int | None, point: bytes | None) -> Outcome:
    """Return an outcome in brief, from its two columns."""
    return point if point is not None else -1 if class_ is None else class_


def outcome_columns(outcome: Outcome) -> tuple[int | None, bytes | None]:
    """Return the two columns of an outcome in brief."""
    return (None, outcome) if isinstance(outcome, bytes) else (outcome, None)


def plain_outcome(space: Any, outcome: Outcome) -> Any:
    """Return an outcome as people write it: the name of a class, its index, or numbers."""
    if isinstance(outcome, bytes):
        found = np.frombuffer(outcome).tolist()
        return found[0] if isinstance(space, Cdf) else found
    names = getattr(space, "classes", None)
    return outcome if names is None else names[outcome]
