"""Rows that SQL can query as the table `LOG`, wherever they are; and the errors of DuckDB and Arrow in our words."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import islice
from typing import Any

from treecal.exceptions import FileError, Reason, TreeCalError
from treecal.io._decoder import Decoder, check_columns
from treecal.io._duckdb import identifier, library
from treecal.io._text import Place, Row, not_csv, not_gzip

LOG = "treecal_log"
"""The name of the table in SQL."""
ROWS = 4096
"""Rows in a batch where they are read one by one."""

_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f")
_TICK = 0.1
_AHEAD = 3  # batches fetched in advance


class Source:
    """Rows that SQL can query.

    Attributes
    ----------
    name
        Its name in messages.
    types
        The columns and their DuckDB types, in order.
    watch
        Called every now and then while an answer is awaited.
    decimal
        The decimal mark of numbers in text: a point or a comma.
    day_first
        A column of dates in text that begin with the day.
    """

    watch: Callable[[], None] | None = None
    decimal: str = "."
    day_first: str | None = None

    def __init__(
        self, name: str, query: Callable[[str], Any], connection: Any = None, *, scan: str = "", table: Any = None
    ) -> None:
        self.name = name
        self._query = query
        self._connection = connection
        with self.plain_errors():
            if scan:
                connection.execute(f"CREATE VIEW {LOG} AS SELECT * FROM {scan}")
            if table is not None:
                connection.register(LOG, table)
            described = query(f"SELECT * FROM {LOG} LIMIT 0")
            self.types: dict[str, str] = dict(zip(described.columns, map(str, described.types), strict=True))

    def batches(self, sql: str, *, rows: int, columns: Mapping[str, str] | None = None) -> Generator[Any]:
        """Yield the answer as Arrow batches of up to `rows` rows, in order; one query at a time.

        Where the query only renames columns, `columns` maps the new names to the old ones.
        """
        fetcher = ThreadPoolExecutor(1)
        with self.plain_errors():
            try:
                reader = fetcher.submit(self._reader, sql, rows, columns)
                batches = self._wait(reader)
                coming = deque(fetcher.submit(next, batches, None) for _ in range(_AHEAD))
                while (batch := self._wait(coming.popleft())) is not None:
                    coming.append(fetcher.submit(next, batches, None))
                    yield batch
            except BaseException:  # Ctrl-C, or the generator is closed
                fetcher.shutdown(wait=False, cancel_futures=True)
                if self._connection is not None:
                    with suppress(*_damage()):  # it may be closed, if an abandoned generator is collected
                        self._connection.interrupt()
                raise
            finally:
                with suppress(RuntimeError):  # it may be collected in the thread itself, which cannot wait for its end
                    fetcher.shutdown()

    def _reader(self, sql: str, rows: int, columns: Mapping[str, str] | None) -> Iterator[Any]:
        return iter(self._query(sql).to_arrow_reader(rows))

    def _wait(self, coming: Future[Any]) -> Any:
        # Fetched in another thread, so that a long wait can be watched, and interrupted by Ctrl-C.
        while True:
            try:
                return coming.result(timeout=_TICK)
            except TimeoutError:
                if self.watch is not None:
                    self.watch()

    def one(self, sql: str) -> tuple[Any, ...] | None:
        """Return the only row of an answer, or None."""
        with self.plain_errors():
            rows = self._query(sql).fetchall()
        return rows[0] if rows else None

    def done(self) -> float | None:
        """Return how much of the running query is done, from 0 to 1, if that is known."""
        percent = -1.0 if self._connection is None else self._connection.query_progress()
        return None if percent < 0 else min(percent / 100, 1.0)

    def cell(self, name: str) -> str:
        """Return SQL for the cells of a column, NULL where they are empty."""
        return identifier(name)

    def key(self, name: str) -> str:
        """Return SQL for the cells of a column to group rows by: NaN is missing, and -0.0 is 0.0."""
        cell = self.cell(name)
        if self.types[name] not in ("FLOAT", "DOUBLE"):
            return cell
        return f"CASE WHEN isnan({cell}) THEN NULL WHEN {cell} = 0 THEN 0 ELSE {cell} END"

    def moment(self, name: str) -> str:
        """Return SQL for the cells of a column to pass through: those of `key`, with days that come first put last."""
        cell = self.key(name)
        if name != self.day_first or self.types[name] not in ("VARCHAR", "JSON"):
            return cell
        forms = [f"{day}{time}" for day in ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y") for time in _TIMES]
        return f"COALESCE(CAST(TRY_STRPTIME({cell}, {forms}) AS VARCHAR), {cell})"

    def check(self, names: Sequence[str], *, remedy: str | None = None) -> None:
        """Raise an error if there is no such column; if none is named like it, the hint is the remedy."""
        check_columns(self.name, list(self.types), names, remedy=remedy)

    def parts(self) -> Iterable[Source]:
        """Return the files that it consists of, in order, each a source of its own; or itself."""
        return [self]

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows one by one, with these columns; by default all."""
        row = 0
        chosen = ", ".join(map(identifier, columns)) or "*"
        for batch in self.batches(f"SELECT {chosen} FROM {LOG}", rows=ROWS):
            with self.plain_errors():
                values = batch.to_pylist()
            for value in values:
                row += 1
                yield Row(Place(row, None), value)

    def objects(self, columns: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """Yield the rows as objects, with these columns; one that is none raises."""
        for row in self.rows(columns):
            if row.problem is not None or not isinstance(row.value, dict):
                raise FileError.at(self.name, *row.place, row.problem or "it is not a JSON object.")
            yield row.value

    def moments(self, name: str, rows: int) -> Iterator[Any]:
        """Yield the cells of a column of times, up to so many at a time."""
        for part in self.parts():
            with closing(part.batches(f"SELECT {part.moment(name)} AS t FROM {LOG}", rows=rows)) as batches:
                for batch in batches:
                    yield batch["t"]

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        """Raise an error unless these many rows are all that the source holds.

        Asked once these columns of all rows were read, of which so many were `valid`. It also looks for damage to them
        that readers overlook.
        """

    def invalid(self, records: Sequence[int], decoder: Decoder | None = None) -> Iterator[tuple[Place, Reason]]:
        """Read the invalid rows with these numbers again, and yield the place of each and what is wrong with it.

        Malformed text, which has no such number, is reported as well: all of it once the last row has been read, and
        before that only what precedes the last of these rows.
        """
        if records and decoder is not None:
            wanted = set(records)
            for row in islice(self.rows(decoder.columns), records[-1]):
                if row.place.row in wanted and (why := row.problem or decoder.complaint(row.value)):
                    yield row.place, why

    @contextmanager
    def plain_errors(self) -> Iterator[None]:
        """Turn errors of DuckDB and Arrow into ours."""
        try:
            yield
        except TreeCalError:
            raise
        except _damage() as error:
            if "Interrupted" in str(error):
                raise KeyboardInterrupt from None
            raise _plain(self.name, error) from None


@cache
def _damage() -> tuple[type[BaseException], ...]:
    """Return what DuckDB and Arrow raise."""
    # Arrow passes DuckDB's errors on as OSError; both raise the others where names or values are damaged.
    others = (OSError, RuntimeError, UnicodeError, OverflowError, MemoryError)
    return (library("duckdb").Error, library("pyarrow").ArrowException, *others)


def sentence(error: BaseException) -> str:
    """Return the first line of a library's message, without its class name."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    plain = re.sub(r"^[\w ]+ Error: ", "", lines[0])
    return re.sub(r"^reading the stream registered as \S+ failed: [\w ]+: ", "", plain).rstrip(".") + "."


def _plain(name: str, error: BaseException) -> FileError:
    """Return our error for one of DuckDB or Arrow."""
    text = str(error)
    hint = None
    if "state machine reached an invalid state" in text:
        return not_csv(name)
    if "gzip" in text.lower():
        return not_gzip(name)
    if "magic bytes" in text or "corrupt" in text.lower() or "smaller than the minimum file footer" in text:
        hint = "it is not a Parquet file, or it is truncated or damaged."
    if "Out of Memory" in text:
        hint = (
            "raise memory_limit, in the shell --memory, for example to '4GB'; or choose a temp_directory, in the shell "
            "TMPDIR, with more room."
        )
    return FileError(f"{name} cannot be read: {sentence(error)}", hint=hint)
