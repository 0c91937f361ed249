"""What is known by name: a dictionary that is shared by the states before and after a round."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Store(Generic[T]):
    """Entries by name, of which a round replaces a few: there may be very many.

    `after` returns a store with these entries new, and shares all others with this one. Whoever commits a round puts
    the new store in place of the old one, by one assignment; the entries are written when the new store is first read.
    So a round that fails leaves the old store as it was, and once the new one was read the old one is of no more use.

    Examples
    --------
    >>> store = Store({"a": 1})
    >>> after = store.after({"b": 2})
    >>> dict(store.read()), after.read()
    ({'a': 1}, {'a': 1, 'b': 2})
    """

    def __init__(self, entries: dict[Hashable, T] | None = None) -> None:
        self._entries: dict[Hashable, T] = {} if entries is None else entries
        self._new: dict[Hashable, T] = {}

    def read(self) -> dict[Hashable, T]:
        """Return all entries, which are not to be changed."""
        if self._new:
            self._entries.update(self._new)
            self._new = {}  # once: stores after this one share the entries
        return self._entries

    def after(self, entries: dict[Hashable, T]) -> Store[T]:
        """Return the store after a round that gives some names these values."""
        store = Store(self.read())
        store._new = entries
        return store
