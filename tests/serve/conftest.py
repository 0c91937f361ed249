from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.postgres import Cluster, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster
