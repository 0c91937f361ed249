"""The clients and the real server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.client.real import Process
from treecal.client import AsyncClient, Client, SpoolCounts
from treecal.exceptions import ServerError
from treecal.serve import Part

LONG = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("books") / "books.sqlite")
    yield process
    process.stop()


def test_a_stream_of_numbers(server: Process) -> None:
    space = tc.Cdf(0, 500)
    with Client(server.url, timeout=LONG) as client:
        client.create("load", set={"name": "Cdf", "options": {"low": 0, "high": 500}}, corrector="location-scale")
        corrector = tc.LocationScale(space)
        told: list[dict[str, Any]] = [
            {"q10": 80, "q90": 120},
            {"members": np.array([90.0, 110.0])},
            {"mean": 100, "sd": 8, "family": "lognormal"},
        ]
        for k, p in enumerate(told):
            answer = client.forecast("load", p, id=str(k), timeout=LONG)
            expected = corrector.predict(p)
            np.testing.assert_array_equal(answer.forecast, expected.mean)
            assert answer.quantiles is not None
            assert answer.quantiles["q50"] == expected.quantile(0.5)
            assert client.outcome("load", str(k), np.float64(120.5)).status == "learned"
            corrector.update(120.5)
        assert client.record("load", "0").outcome == 120.5
        fan = client.scores("load").fan
        assert fan is not None
        assert fan.outcomes == [120.5] * 3


def test_rounds_and_what_the_books_say_of_them(server: Process, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet([1, 1, 1], 300)
    y = [int(k) for k in (P.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)]
    with Client(server.url, timeout=LONG) as client:
        made = client.create("weather", classes=["rain", "snow", "sun"], corrector="vector", tags=["city"])
        assert client.create("weather", classes=["rain", "snow", "sun"], corrector="vector", tags=["city"])
        corrector = tc.VectorScaling(tc.Simplex(3))
        assert made.config.corrector is not None
        for k in range(3):
            answer = client.forecast("weather", P[k], id=str(k), tags={"city": "Oslo"}, timeout=LONG)
            assert answer.corrected
            assert answer.round == k + 1
            np.testing.assert_array_equal(answer.forecast, corrector.predict(P[k]).mean)
            assert client.outcome("weather", str(k), y[k]).status == "learned"
            corrector.update(y[k])
        named = dict(zip(["sun", "rain", "snow"], P[3][[2, 0, 1]], strict=True))
        by_name = client.forecast("weather", named, id="3", timeout=LONG).forecast
        assert isinstance(by_name, dict)
        np.testing.assert_array_equal(list(by_name.values()), corrector.predict(P[3]).mean)
        assert list(by_name) == ["rain", "snow", "sun"]
        answers = client.forecast_many("weather", P[4:], ids=[str(k) for k in range(4, 300)], timeout=LONG)
        assert all(each.corrected for each in answers)
        assert client.pending("weather", limit=2).pending[0].id == "3"
        receipts = client.outcomes([("weather", str(k), ["rain", "snow", "sun"][y[k]]) for k in range(3, 300)])
        assert {each.status for each in receipts} == {"learned"}
        assert not client.pending("weather").pending
        assert client.scores("weather").rounds == 300
        assert [group["by"] for group in client.scores("weather", by="city").groups]
        assert client.curve("weather").marks
        assert [alarm for alarm in client.alarms() if alarm.stream == "weather"] == client.alarms("weather")
        assert client.record("weather", "0").outcome is not None
        assert [each.name for each in client.streams(prefix="wea")] == ["weather"]
        client.export("weather", tmp_path / "weather.parquet")
        assert client.reset("weather").counts.learned == 300
        assert client.change("weather", corrector="isotonic", keep=400).config.keep == 400
        assert client.change("weather", keep=None).config.corrector == Part("isotonic")
        assert client.delete_forecast("weather", "7") == 1
        city = client.record("weather", "0").tags["city"]
        gone = client.delete_forecasts("weather", tag="city", value=city)
        assert 1 < gone < 299
        assert client.stream("weather").counts.deleted == gone + 1
        with pytest.raises(ServerError):
            client.record("weather", "0")
        client.create("gone", classes=["no", "yes"])
        assert client.delete("gone") == 0
        client.create("asked", classes=["no", "yes"], revises=True)
        said = [client.forecast("asked", p, id="q", timeout=LONG).forecast for p in ([0.5, 0.5], [0.25, 0.75])]
        assert said == [[0.5, 0.5], [0.25, 0.75]]
        assert client.outcome("asked", "q", "yes").status == "learned"
        assert [lead.forecasts for lead in client.stream("asked").leads] == [2]
        client.archive("weather")
        answer = client.forecast("weather", P[0], timeout=LONG)
        assert (answer.corrected, "archived" in str(answer.why)) == (False, True)
        with pytest.raises(ServerError) as caught:
            client.export("fog", tmp_path / "fog.parquet")
        assert caught.value.code == "not_found"
    names = [f"p_{name}" for name in ("rain", "snow", "sun")]
    assert tc.audit(tmp_path / "weather.parquet", forecast=names, outcome="outcome").whole.rounds == 300
    assert [path.name for path in tmp_path.iterdir()] == ["weather.parquet"]


def test_what_was_used_is_what_was_announced(server: Process, tmp_path: Path) -> None:
    """Answers that come too late are recorded by the server first, and then as used."""
    with Client(server.url, timeout=LONG, spool=tmp_path / "spool") as client:
        client.create("late", classes=["no", "yes"], corrector="platt")
        for k in range(50):
            client.forecast("late", [0.1, 0.9], id=f"before {k}", timeout=LONG)
            client.outcome("late", f"before {k}", k % 2)
        client.flush()
        assert client.forecast("late", [0.1, 0.9], timeout=LONG).forecast != [0.1, 0.9]
        server.signal(signal.SIGSTOP)
        try:
            late = client.forecast("late", [0.1, 0.9], id="late", timeout=0.1)  # in the server's socket, unread
            away = client.forecast("late", [0.2, 0.8], id="away", timeout=0.1)
            assert client.outcome("late", "late", 1).status == "spooled"
        finally:
            server.signal(signal.SIGCONT)
        for answer, p in ((late, [0.1, 0.9]), (away, [0.2, 0.8])):
            assert (answer.forecast, answer.corrected, answer.kept) == (p, False, True)
        assert client.flush(LONG) == 0
        assert client.spooled.refused == 0
        for answer in (late, away):
            record = client.record("late", answer.id)
            assert record.forecast == answer.forecast
            assert record.used
        assert client.record("late", "late").outcome == "yes"
        assert not client.record("late", "before 0").used


def test_the_same_in_a_loop(server: Process, tmp_path: Path) -> None:
    async def main() -> SpoolCounts:
        async with AsyncClient(server.url, timeout=LONG, spool=tmp_path / "spool") as client:
            await client.create("loop", classes=["no", "yes"])
            server.signal(signal.SIGSTOP)
            try:
                answers = [await client.forecast("loop", [0.1, 0.9], timeout=0.05) for _ in range(5)]
                await client.outcomes([("loop", answer.id, 1) for answer in answers], timeout=0.05)
            finally:
                server.signal(signal.SIGCONT)
            assert await client.flush(LONG) == 0
            assert (await client.stream("loop")).counts.learned == 5
            await client.export("loop", tmp_path / "loop.parquet")
            return client.spooled

    assert asyncio.run(main()) == SpoolCounts(delivered=10)
    assert tc.audit(tmp_path / "loop.parquet", forecast=["p_no", "p_yes"], outcome="outcome").whole.rounds == 5


def test_a_server_that_is_killed_and_comes_back(server: Process, tmp_path: Path) -> None:
    with Client(server.url, timeout=LONG, spool=tmp_path / "spool") as client:
        client.create("killed", classes=["no", "yes"])
        before = client.forecast("killed", [0.1, 0.9], timeout=LONG)
        server.kill()
        away = [client.forecast("killed", [0.1, 0.9]) for _ in range(100)]
        assert client.outcome("killed", before.id, 1).status == "spooled"
        server.start()
        assert client.flush(LONG) == 0
        counts = client.stream("killed").counts
        assert (counts.forecasts, counts.learned, counts.pending) == (101, 1, 100)
        assert [each.id for each in client.pending("killed", limit=200).pending] == [each.id for each in away]
