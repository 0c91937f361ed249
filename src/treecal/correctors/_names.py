"""Names of groups: what can be told apart for ever, and written to a snapshot."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from treecal.exceptions import ParameterError, SnapshotError
from treecal.geometry import columns

_TIMES = (np.datetime64, np.timedelta64)


def read_name(name: Any) -> Hashable:
    """Return the name of a group with NumPy's scalars as Python's, or raise unless it is text, a number or a tuple."""
    name = plain_name(name)
    if isinstance(name, tuple):
        return tuple(map(read_name, name))
    if name is None or isinstance(name, str | int) or (isinstance(name, float) and math.isfinite(name)):
        return name
    hint = "use tuple(...) of it." if isinstance(name, list) else "use its text, str(...)."
    raise ParameterError.expected("group", name, "text, finite numbers, None, or tuples of them", hint=hint)


def plain_name(name: Any) -> Any:
    """Return a name with NumPy's scalars as Python's; anything else as it is."""
    if isinstance(name, tuple):
        return tuple(map(plain_name, name))
    # A time would be an integer or not, by its unit.
    return name.item() if isinstance(name, np.generic) and not isinstance(name, _TIMES) else name


def plain_names(names: Any) -> list[Any]:
    """Return the names of rows, from a list, an array or a series; the rows of a table are tuples of names.

    Examples
    --------
    >>> plain_names(np.array(["JFK", "LGA"]))
    ['JFK', 'LGA']
    >>> plain_names(np.array([["JFK", "winter"], ["LGA", "winter"]]))
    [('JFK', 'winter'), ('LGA', 'winter')]
    """
    if columns(names) is not None:
        names = np.asarray(names)  # by rows, where iteration may be by columns
    if isinstance(names, np.ndarray) and names.ndim == 2:
        names = map(tuple, names)
    return [plain_name(name) for name in names]


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
