"""Streams whose state is columns: what all such kinds have in common."""

from __future__ import annotations

from typing import Any, Self

from treecal._typing import Array, Integers
from treecal.columns import Columns, Schema, pack, unpack
from treecal.engine._streams import Streams, Thing


class ColumnStreams(Streams):
    """Streams kept in the columns of a schema. A kind adds how they announce and learn.

    Parameters
    ----------
    thing
        What new streams are copies of.
    schema
        What is kept of each.

    Examples
    --------
    A class of your own gets a fast bank in `docs/howto/own-forecaster.md`; those of the package have theirs:

    >>> import treecal as tc
    >>> isinstance(tc.Bank(tc.TreeCal(tc.Simplex(2)), streams=3)._streams, ColumnStreams)
    True
    """

    def __init__(self, thing: Thing, schema: Schema) -> None:
        super().__init__(thing)
        self.schema = schema
        self.columns = Columns(schema)

    @property
    def rounds(self) -> Integers:
        return self.columns["rounds"]  # type: ignore[no-any-return]

    def reserve(self, rows: int) -> None:
        self.columns.reserve(rows)

    def clear(self, rows: Integers) -> None:
        self.columns.clear(rows)

    def rows(self, rows: Integers) -> dict[str, Any]:
        """Return the columns of these rows, as the schema has them."""
        return self.columns.state(rows)

    def with_rows(self, columns: Any) -> Self:
        """Return streams with such columns, or raise a `SnapshotError`; this one does not change."""
        twin = type(self)(self.thing)  # type: ignore[call-arg] # a kind says its schema itself
        twin.columns = Columns.read(self.schema, columns)
        return twin

    def state(self, rows: Integers) -> dict[str, Any]:
        return self.rows(rows)

    def resumed(self, state: dict[str, Any]) -> Self:
        return self.with_rows(state)

    def records(self, rows: Integers) -> tuple[Array, Integers]:
        """Return these streams but their rounds as numbers, one after another, and where each ends, 0 first."""
        return pack(self.schema, self.rows(rows))

    def recorded(self, rounds: Integers, numbers: Array, ends: Integers) -> Self:
        """Return streams of so many rounds with such records, or raise a `SnapshotError`; this one does not change."""
        return self.with_rows(unpack(self.schema, rounds, numbers, ends))
