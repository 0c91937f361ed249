"""Groups of rows with equal values in some columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treecal._typing import Integers

Key = tuple[Any, ...]


class Groups:
    """Numbers the groups of rows with equal values in the columns `by`, in the order of first appearance."""

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self.index: dict[Key, int] = {} if self.by else {(): 0}
        """The number of each group, by its values in these columns."""

    def of(self, columns: Sequence[Any], rows: int) -> Integers:
        """Return the number of each row's group, given the columns as Arrow arrays."""
        if not self.by:
            return np.zeros(rows, np.int64)
        code = np.zeros(rows, np.int64)
        for column in columns:  # numbered again after each column, so that codes stay below the number of rows
            place = column.dictionary_encode().indices.fill_null(-1).to_numpy() + 1
            _, first, code = np.unique(code * (rows + 1) + place, return_index=True, return_inverse=True)
        keys = zip(*(map(_present, column.take(first).to_pylist()) for column in columns), strict=True)
        numbers = np.array([self.index.setdefault(key, len(self.index)) for key in keys], np.int64)
        return numbers[code]


def _present(value: Any) -> Any:
    return value if value == value else None  # NaN is missing
