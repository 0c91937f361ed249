"""Groups of rows: which rows have the same values in some columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treecal._typing import Integers

Key = tuple[Any, ...]


class Groups:
    """Numbers groups in the order in which they are first seen.

    Parameters
    ----------
    by
        Names of the columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> groups = Groups(["model"])
    >>> groups.of([pa.array(["new", "old", "new"])], 3), groups.index
    (array([0, 1, 0]), {('new',): 0, ('old',): 1})
    """

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self.index: dict[Key, int] = {} if self.by else {(): 0}
        """The number of each group, by the values that it has in these columns."""

    def of(self, columns: Sequence[Any], rows: int) -> Integers:
        """Return the number of each row's group, given the columns as Arrow arrays."""
        if not self.by:
            return np.zeros(rows, np.int64)
        code, values = np.zeros(rows, np.int64), []
        for column in columns:
            coded = column.dictionary_encode()
            entries = [None if entry != entry else entry for entry in coded.dictionary.to_pylist()]  # NaN is missing
            values.append([*entries, None])
            code = code * len(values[-1]) + coded.indices.fill_null(len(entries)).to_numpy()
        distinct, home = np.unique(code, return_inverse=True)
        numbers = np.array([self.index.setdefault(_decoded(int(c), values), len(self.index)) for c in distinct])
        return np.asarray(numbers[home], np.int64)


def _decoded(code: int, values: list[list[Any]]) -> Key:
    key = []
    for entries in reversed(values):
        code, at = divmod(code, len(entries))
        key.append(entries[at])
    return tuple(reversed(key))
