"""The tests' PostgreSQL itself: what was committed outlives its kill, and it listens on no port."""

from __future__ import annotations

import psycopg
import pytest

from tests.serve.postgres import Cluster

pytestmark = pytest.mark.heavy


def test_what_was_committed_outlives_a_kill(postgres: Cluster) -> None:
    url = postgres.database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    connection = psycopg.connect(url)
    connection.execute("INSERT INTO kept VALUES (2)")
    postgres.kill()
    connection.close()
    postgres.start()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_it_is_on_a_socket_only_and_syncs(postgres: Cluster) -> None:
    with psycopg.connect(postgres.database()) as connection:
        for name, value in [("listen_addresses", ""), ("fsync", "on"), ("synchronous_commit", "on")]:
            assert connection.execute(f"SHOW {name}").fetchone() == (value,)
