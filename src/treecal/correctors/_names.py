"""Names of groups: what can be told apart for ever, and written to a snapshot."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from treecal.exceptions import ParameterError, SnapshotError


def read_name(name: Any) -> Hashable:
    """Return the name of a group with NumPy's scalars as Python's, or raise unless it is text, a number or a tuple."""
    if isinstance(name, np.generic):
        name = name.item()
    if isinstance(name, tuple):
        return tuple(map(read_name, name))
    if name is None or isinstance(name, str | int) or (isinstance(name, float) and math.isfinite(name)):
        return name
    hint = "use tuple(...) of it." if isinstance(name, list) else "use its text, str(...)."
    raise ParameterError.expected("group", name, "text, finite numbers, None, or tuples of them", hint=hint)


def saved_names(names: Any) -> list[Hashable]:
    """Return the names in a state, tuples where a file has lists, or raise unless they are all different."""
    if not isinstance(names, list):
        raise SnapshotError("the groups' names are not a list.")
    try:
        found = [read_name(_as_tuple(name)) for name in names]
    except ParameterError as error:
        raise SnapshotError(f"the names of groups cannot be: {error.args[0]}") from None
    if len(set(found)) < len(found):
        raise SnapshotError("the groups' names are not all different.")
    return found


def _as_tuple(name: Any) -> Any:
    return tuple(map(_as_tuple, name)) if isinstance(name, list | tuple) else name
