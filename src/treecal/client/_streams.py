"""A stream to create, from arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from treecal.exceptions import ParameterError
from treecal.serve import NewStream, Part, Shape, Watch

Given = str | Mapping[str, Any]
"""A name, or `{"name": ..., "options": {...}}`."""
T = TypeVar("T")


def new_stream(
    name: str,
    classes: Iterable[object] | None,
    set: Mapping[str, Any] | None,  # noqa: A002
    corrector: Given | None,
    gate: bool,
    forecaster: Given | None,
    monitor: bool | Mapping[str, Any],
    tags: Iterable[str],
    group: Iterable[str],
    limit: int | None,
) -> NewStream:
    """Return the stream; the server says whether it is one."""
    watch = _part("monitor", {} if monitor is True else monitor or None, Watch)
    new = {
        "name": name,
        "classes": None if classes is None else [str(label) for label in classes],
        "set": _part("set", set, Shape),
        "corrector": _part("corrector", corrector, Part),
        "gate": gate,
        "forecaster": _part("forecaster", forecaster, Part),
        "monitor": watch,
        "tags": list(tags),
        "group": list(group),
        "limit": limit,
    }
    try:
        return msgspec.convert(new, NewStream, from_attributes=True)
    except msgspec.ValidationError as error:
        raise ParameterError(f"this is not a stream: {error}.") from None


def _part(what: str, given: Given | None, kind: type[T]) -> T | None:
    if given is None:
        return None
    try:
        return msgspec.convert({"name": given} if isinstance(given, str) else dict(given), kind)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ParameterError(f"{what} is {given!r}: {error}.") from None
