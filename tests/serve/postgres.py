"""A PostgreSQL of the tests' own: on a Unix socket in a temporary folder, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

MISSING = "PostgreSQL is not installed: on Debian, `apt install postgresql`"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "16MB",
    "recovery_init_sync_method": "syncfs",  # one call, and not one for each of a thousand files
}


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`: the newest of Debian's, or one on the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
    on_path = [Path(found).parent for found in [shutil.which("initdb")] if found is not None]
    for folder in [*debian, *on_path]:
        if all((folder / name).exists() for name in ("initdb", "postgres")):
            return folder
    return None


class Cluster:
    """A PostgreSQL that can be started, stopped, killed, and started again on what is left."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._server: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
            self._user = known.get("postgres", known["nobody"])
            os.chown(folder, self._user, -1)
        # The kill of a process loses nothing that initdb wrote, synced or not.
        self._run("initdb", "--pgdata=data", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            user=self._user,
            extra_groups=[] if self._user is not None else None,
            check=True,
            capture_output=True,
        )

    def start(self) -> None:
        """Start it, and wait until it has recovered and answers."""
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        for _ in range(20):  # what is left of one that was killed may hold its memory for a moment
            with open(self.folder / "log", "ab") as log:
                self._server = subprocess.Popen(
                    [self._programs / "postgres", "-D", "data", "-k", str(self.folder), *settings],
                    cwd=self.folder,
                    user=self._user,
                    extra_groups=[] if self._user is not None else None,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the tests
                )
            while self._server.poll() is None:
                try:
                    psycopg.connect(self.url("postgres")).close()
                    return
                except psycopg.OperationalError:
                    time.sleep(0.02)
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Stop it: fast shutdown, which breaks the connections and keeps what was committed."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait()
            self._server = None

    def kill(self) -> None:
        """Kill -9, the postmaster and every process of its."""
        assert self._server is not None
        children = _children(self._server.pid)
        self._server.kill()
        self._server.wait()
        self._server = None
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def url(self, database: str) -> str:
        """Where a database is."""
        return f"postgresql:///{database}?host={self.folder}&user=postgres"

    def database(self) -> str:
        """Where a new, empty database is."""
        self._databases += 1
        name = f"books{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database that nobody uses any more."""
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _children(parent: int) -> list[int]:
    """Processes whose parent is this one. It is in /proc/PID/stat after the name, which may have spaces."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """A PostgreSQL that is stopped and removed afterwards; the test is skipped where there is none.

    Its folder is not below pytest's, which only its owner may enter, while PostgreSQL runs as another user than root;
    and a socket's path has a hundred characters at most.
    """
    where = programs()
    if where is None:
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="treecal-postgres-"))
    try:
        cluster = Cluster(folder, where)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder)
