"""The books in PostgreSQL, by psycopg 3: one server at a time holds them, and every commit is flushed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from treecal._optional import require
from treecal.exceptions import FileError
from treecal.serve._store import (
    SOME,
    Broken,
    NotNowError,
    Row,
    Unavailable,
    held_by_older,
    pending_migrations,
    queries,
)

psycopg = require("psycopg", extra="postgres", what="books in PostgreSQL")

_HOLD = 0x74726563  # "trec": the advisory lock of the server that writes, one in each database
_ONE = "let it end first: one server writes the books."
_PATIENCE = "5s"  # for the session of a server that was killed to end
_PATIENT = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 30_000}
"""So that a network that is gone is noticed in half a minute; what the address says comes first."""
_INSERT = re.compile(r"INSERT INTO (\w+ \([\w, ]+\)) VALUES \([%s, ]+\)$")
_MANY = 50  # rows from which on COPY is quicker
_VERSION = "CREATE TABLE IF NOT EXISTS books (version BIGINT NOT NULL)"


class PostgresReader:
    """A connection that reads. One that was lost is replaced for the next query.

    Parameters
    ----------
    address
        `postgresql://user@host/database`, or any other that libpq takes.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._given = _read(address)
        self._queries = {name: text.replace("%", "%%").replace("?", "%s") for name, text in queries().items()}
        self._connection: Any = None

    @property
    def where(self) -> str:
        """The address without what is secret in it."""
        host = self._given.get("host", "localhost")
        database = self._given.get("dbname", "")
        return f"postgresql://{host}/{database}"

    def query(self, name: str, *arguments: Any) -> list[Row]:
        """Return the rows of a query."""
        with self._connected() as connection, connection.cursor(binary=True) as cursor:
            rows: list[Row] = cursor.execute(self._queries[name], arguments).fetchall()
            return rows

    def each(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of a query asked for each of the arguments."""
        if len(rows) == 1:  # a pipeline of one costs more
            return self.query(name, *rows[0])
        if not rows:
            return []
        with self._connected() as connection, connection.cursor(binary=True) as cursor:
            cursor.executemany(self._queries[name], rows, returning=True)
            found: list[Row] = cursor.fetchall()
            while cursor.nextset():
                found.extend(cursor.fetchall())
            return found

    def rows(self, table: str) -> Iterator[list[Row]]:
        """Yield all rows of a table, some at a time."""
        with (
            self._connected() as connection,
            connection.transaction(),
            connection.cursor("rows", binary=True) as cursor,
        ):
            cursor.execute(f"SELECT * FROM {table}")
            while some := cursor.fetchmany(SOME):
                yield some

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Let all queries in a block see the same."""
        with self._connected() as connection, connection.transaction(force_rollback=True):
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield

    def damage(self) -> list[str]:
        """Return nothing: PostgreSQL checks its pages as it reads them, and `pg_amcheck` its indexes."""
        return []

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        with _failures(self._connection):
            yield self._connection

    def _connect(self) -> Any:
        connection = _connected(self._given)
        try:
            with _failures(connection):
                connection.execute("SET default_transaction_read_only = on")
                found = connection.execute("SELECT version FROM books").fetchone()
            if found is None or pending_migrations(found[0], self.where):
                raise FileError(f"{self.where} has an older format.", hint="treecal serve brings it up to date.")
        except psycopg.errors.UndefinedTable:
            connection.close()
            raise FileError(f"there are no books in {self.where}.", hint="treecal serve makes them.") from None
        except BaseException:
            connection.close()
            raise
        return connection


class Postgres(PostgresReader):
    """The books in a database, held by this session: another server that wants to write them is refused.

    The lock and the transactions are of one session. So when it is lost, so is what it had not committed, and this
    server writes on only once it has the lock again. Whoever calls must forget all that it knew then: the last commit
    may be done or not, and others may have written meanwhile.

    One that is opened `beside` a process that may hold the books leaves the log alone.
    """

    def __init__(self, address: str, *, beside: bool = False) -> None:
        super().__init__(address)
        self._beside = beside
        self._in_transaction = False

    def __enter__(self) -> Self:
        try:
            with self._connected() as connection:
                self._prepare(connection)
        except Unavailable as refusal:
            raise NotNowError(f"{refusal.problem}.", hint=refusal.remedy) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise FileError(f"{self.where} cannot be written: {_brief(error)}.") from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _connect(self) -> Any:
        connection = _connected(self._given)
        try:
            connection.execute("SET synchronous_commit = on")
            if self._beside:
                return connection
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
                connection.execute("SELECT pg_advisory_lock(%s)", (_HOLD,))
        except psycopg.errors.LockNotAvailable:
            connection.close()
            raise Unavailable(f"another treecal serve holds {self.where}", _ONE) from None
        except psycopg.OperationalError as error:
            connection.close()
            raise _silent(error) from None
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Any) -> None:
        (encoding,) = connection.execute("SHOW server_encoding").fetchone()
        if encoding != "UTF8":  # in which not every id can be written
            hint = "CREATE DATABASE books ENCODING 'UTF8' TEMPLATE template0 makes one."
            raise FileError(f"{self.where} has the encoding {encoding}, expected UTF8.", hint=hint)
        with connection.transaction():  # all of it or none
            connection.execute(_VERSION)
            found = connection.execute("SELECT version FROM books").fetchone()
            version = 0 if found is None else found[0]
            scripts = pending_migrations(version, self.where)
            if scripts and self._beside:
                (free,) = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_HOLD,)).fetchone()
                if not free:
                    raise held_by_older(self.where)
            try:
                for script in scripts:
                    connection.execute(script, prepare=False)
            except psycopg.errors.DuplicateTable as error:
                problem = f"{self.where} has tables of another program: {_brief(error)}."
                raise FileError(problem, hint="choose a database of its own.") from None
            if found is None:
                connection.execute("INSERT INTO books (version) VALUES (%s)", (len(scripts),))
            elif scripts:
                connection.execute("UPDATE books SET version = %s", (version + len(scripts),))

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self._in_transaction:  # a new connection would know nothing of it
            with _failures(self._connection):
                yield self._connection
        else:
            with super()._connected() as connection:
                yield connection

    def begin(self) -> None:
        """Begin a transaction."""
        with self._connected() as connection:
            connection.execute("BEGIN")
            self._in_transaction = True

    def run(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement for each of the arguments."""
        adds = _INSERT.match(self._queries[name])
        with self._connected() as connection, connection.cursor() as cursor:
            if len(rows) == 1:
                cursor.execute(self._queries[name], rows[0])
                return
            if adds is None or len(rows) < _MANY:
                cursor.executemany(self._queries[name], rows)
                return
            _copy(cursor, adds[1], rows)

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Add whole rows to a table."""
        with self._connected() as connection, connection.cursor() as cursor:
            _copy(cursor, table, rows)

    def commit(self) -> None:
        """End the transaction, flushed."""
        with self._connected() as connection:
            self._in_transaction = False
            done = connection.execute("COMMIT").statusmessage
        if done != "COMMIT":  # of a transaction in which something failed, it undoes all
            raise Unavailable(f"PostgreSQL answered {done}")

    def rollback(self) -> None:
        """Undo the transaction."""
        self._in_transaction = False
        if self._connection is not None and not self._connection.closed:
            try:
                self._connection.rollback()
            except psycopg.Error:
                self._connection.close()  # which undoes it too

    def purge(self) -> None:
        """Do nothing: PostgreSQL overwrites what was deleted when it vacuums its tables, and keeps it in its log."""

    def reader(self) -> PostgresReader:
        """Return a connection to read by."""
        return PostgresReader(self._address)


def _copy(cursor: Any, into: str, rows: Sequence[Row]) -> None:
    with cursor.copy(f"COPY {into} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _read(address: str) -> dict[str, Any]:
    try:
        given: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:  # whose message may have the password
        hint = "postgresql://user@host/database."
        raise FileError("this is no address of a PostgreSQL database.", hint=hint) from None
    return _PATIENT | {"application_name": "treecal"} | given


def _connected(given: dict[str, Any]) -> Any:
    try:
        connection = psycopg.connect(**given, autocommit=True, prepare_threshold=0)
    except psycopg.OperationalError as error:
        raise _silent(error) from None
    # One type for all whole numbers, so that a query is prepared once and not for each size of its arguments.
    connection.adapters.register_dumper(int, psycopg.types.numeric.Int8BinaryDumper)
    connection.adapters.register_dumper(float, psycopg.types.numeric.FloatBinaryDumper)
    connection.adapters.register_dumper(bytes, psycopg.types.string.BytesBinaryDumper)
    return connection


@contextmanager
def _failures(connection: Any) -> Iterator[None]:
    """Turn what a database may do into what the server does about it."""
    try:
        yield
    except psycopg.errors.DiskFull:
        raise Unavailable("the disk of PostgreSQL is full", "make room there.") from None
    except psycopg.errors.ReadOnlySqlTransaction:
        raise Unavailable("PostgreSQL is read-only", "connect to the primary, not to a standby.") from None
    except (psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted) as error:
        raise Broken(f"PostgreSQL failed: {_brief(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        connection.close()  # whatever it was, start again
        raise _silent(error) from None


def _silent(error: Exception) -> Unavailable:
    """Return the refusal when there is no connection."""
    brief = _brief(error)
    lacks = ("does not exist", "authentication failed", "no password supplied", "no pg_hba.conf entry")
    if any(words in str(error) for words in lacks):
        remedy = "check the user, the password and the name of the database in --data; createdb makes a database."
        return Unavailable(f"PostgreSQL refuses the connection ({brief})", remedy)
    return Unavailable(f"PostgreSQL does not answer ({brief})", "check that it runs, and host and port in --data.")


def _brief(error: Exception) -> str:
    """The first line of what PostgreSQL says: it is about the server, and never has the password."""
    return (str(error).splitlines() or [type(error).__name__])[0].removesuffix(".")
