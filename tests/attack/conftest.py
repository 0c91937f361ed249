"""Options of the attacks: what they draw, and how long each may take."""

from __future__ import annotations

import secrets

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attack")
    group.addoption("--attack-seed", default="0", help="the seed of every attack, a whole number or 'random'")
    group.addoption("--attack-seconds", default=600.0, type=float, help="after which an attack stops, whatever is left")


@pytest.fixture(scope="session")
def attack_seed(pytestconfig: pytest.Config) -> int:
    given = pytestconfig.getoption("--attack-seed", default="0")
    return secrets.randbelow(2**32) if given == "random" else int(given)


@pytest.fixture
def attack_seconds(pytestconfig: pytest.Config) -> float:
    return float(pytestconfig.getoption("--attack-seconds", default=600.0))
