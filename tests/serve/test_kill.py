"""Kill -9 under load, a few times; `python -m tests.serve.crash` does it by the thousand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.serve.crash import crash, servers


def killed(kind: str, kills: int, seed: int, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    with servers(kind, folder) as found:
        for each in crash(kind, kills, seed, found):
            counts += each
    assert sum(n for name, n in counts.items() if name.startswith("kills")) == kills
    assert min(counts["forecasts"], counts["outcomes"], counts["sent again"]) > kills
    return counts


def test_nothing_is_lost_or_double_when_the_server_is_killed(tmp_path: Path) -> None:
    killed("sqlite", kills=5, seed=0, folder=tmp_path)


@pytest.mark.heavy
def test_nothing_is_lost_or_double_when_the_server_or_its_database_is_killed(tmp_path: Path) -> None:
    counts = killed("postgres", kills=40, seed=0, folder=tmp_path)
    assert min(counts["kills of the server"], counts["kills of the database"]) > 5
