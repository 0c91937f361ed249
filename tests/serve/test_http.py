"""What every route does."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.serve.http import NEW, House, fill, served


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with served(tmp_path) as made:
        yield made


def test_a_stream_is_created_once(house: House) -> None:
    made = house.ask("POST", "/v1/streams", NEW)
    assert (made.status, made.json["name"], made.json["counts"]["forecasts"]) == (201, "a", 0)
    assert house.ask("POST", "/v1/streams", NEW).status == 200
    other = house.ask("POST", "/v1/streams", {**NEW, "classes": ["no", "maybe"]})
    assert other.refused(409, "conflict").error.at == "name"
    assert house.ask("GET", "/v1/streams/a").json == made.json


def test_streams_are_listed_in_pages(house: House) -> None:
    for name in ("b", "a1", "a2"):
        house.ask("POST", "/v1/streams", {**NEW, "name": name})
    house.ask("POST", "/v1/streams/b/archive")

    def names(query: str) -> list[str]:
        return [each["name"] for each in house.ask("GET", f"/v1/streams{query}").json["streams"]]

    assert names("") == ["a1", "a2"]
    assert names("?archived=true") == ["a1", "a2", "b"]
    assert names("?after=a1") == ["a2"]
    assert names("?prefix=a2") == ["a2"]
    first = house.ask("GET", "/v1/streams?limit=1").json
    assert (first["next"], names(f"?limit=1&after={first['next']}")) == ("a1", ["a2"])
    assert house.ask("GET", "/v1/streams?after=a1&limit=1").json["next"] is None


def test_the_same_forecast_again_has_the_same_answer(house: House) -> None:
    house.ask("POST", "/v1/streams", NEW)
    body = {"id": "r1", "p": [0.3, 0.7]}
    first = house.ask("POST", "/v1/streams/a/forecasts", body)
    assert (first.status, first.json["round"], first.json["forecast"]) == (200, 1, [0.3, 0.7])
    assert house.ask("POST", "/v1/streams/a/forecasts", body).body == first.body
    assert house.ask("POST", "/v1/streams/a/forecasts", {**body, "p": [0.4, 0.6]}).refused(409, "conflict")
    assert house.ask("GET", "/v1/streams/a").json["counts"]["forecasts"] == 1


def test_a_batch_is_announced_whole_or_not_at_all(house: House) -> None:
    house.ask("POST", "/v1/streams", NEW)
    good, bad = {"id": "r1", "p": [0.3, 0.7]}, {"id": "r2", "p": [0.3, 0.8]}
    refused = house.ask("POST", "/v1/streams/a/forecasts/batch", {"forecasts": [good, bad]})
    assert refused.refused(422, "invalid").error.at == "forecasts[1].p"
    assert house.ask("GET", "/v1/streams/a").json["counts"]["forecasts"] == 0


def test_outcomes_are_told_apart(house: House) -> None:
    fill(house)
    some = [("r0", "yes"), ("r1", "no"), ("r2", "no"), ("r9", "no")]
    sent = {"outcomes": [{"stream": "a", "id": name, "outcome": outcome} for name, outcome in some]}
    found = house.ask("POST", "/v1/outcomes", sent).json
    assert [each["status"] for each in found["outcomes"]] == ["replayed", "conflict", "learned", "unknown"]
    assert found["counts"] == {"replayed": 1, "conflict": 1, "learned": 1, "unknown": 1}


@pytest.mark.parametrize("name", ["2026/01/31", "../a", "é✓", "50%", "batch", "a b?c#d"])
def test_a_round_is_found_by_any_id(house: House, name: str) -> None:
    from urllib.parse import quote

    house.ask("POST", "/v1/streams", NEW)
    house.ask("POST", "/v1/streams/a/forecasts", {"id": name, "p": [0.3, 0.7]})
    found = house.ask("GET", f"/v1/streams/a/forecasts/{quote(name, safe='')}")
    assert (found.status, found.json["id"], found.json["status"]) == (200, name, "pending")


def test_what_waits_is_listed(house: House) -> None:
    fill(house, rounds=5)
    for i in range(3):
        due = 1.0 if i else None
        house.ask("POST", "/v1/streams/a/forecasts", {"id": f"w{i}", "p": [0.5, 0.5], "due": due})

    def ids(query: str) -> list[str]:
        return [each["id"] for each in house.ask("GET", f"/v1/streams/a/pending{query}").json["pending"]]

    assert ids("") == ["r4", "w0", "w1", "w2"]
    assert ids("?overdue=true") == ["w1", "w2"]
    first = house.ask("GET", "/v1/streams/a/pending?limit=2").json
    assert ids(f"?after={first['next']}") == ["w1", "w2"]


def test_scores_the_curve_and_the_export(house: House) -> None:
    import pyarrow.parquet as pq

    fill(house, rounds=9)
    scores = house.ask("GET", "/v1/streams/a/scores?by=city").json
    assert (scores["rounds"], [each["by"] for each in scores["groups"]]) == (8, ["Oslo"])
    assert house.ask("GET", "/v1/streams/a/scores?by=country").refused(422, "invalid").error.at == "by"
    assert house.ask("GET", "/v1/streams/a/scores?until=5").json["rounds"] == 0
    assert house.ask("GET", "/v1/streams/a/curve").json["marks"][-1]["rounds"] == 8
    exported = house.ask("GET", "/v1/streams/a/export")
    assert exported.headers["content-disposition"] == 'attachment; filename="a.parquet"'
    table = pq.read_table(io.BytesIO(exported.body)).to_pydict()
    assert (table["id"], table["outcome"]) == ([f"r{i}" for i in range(8)], ["yes"] * 8)


def test_an_alarm_is_raised_and_the_monitors_begin_anew(house: House) -> None:
    house.ask("POST", "/v1/streams", NEW)
    some = [{"id": f"r{i}", "p": [0.95, 0.05]} for i in range(200)]
    house.ask("POST", "/v1/streams/a/forecasts/batch", {"forecasts": some})
    house.ask("POST", "/v1/outcomes", {"outcomes": [{"stream": "a", "id": f"r{i}", "outcome": 1} for i in range(200)]})
    alarms = house.ask("GET", "/v1/alarms").json["alarms"]
    assert [each["stream"] for each in alarms] == ["a"]
    assert house.ask("GET", "/v1/alarms?stream=a").json["alarms"] == alarms
    house.ask("GET", "/v1/alarms?stream=b").refused(404, "not_found")
    assert house.ask("GET", "/v1/streams/a").json["monitors"]["model"]["alarm"] is not None
    assert house.ask("POST", "/v1/streams/a/reset").json["monitors"]["model"]["alarm"] is None


def test_an_archived_stream_takes_outcomes_and_no_forecasts(house: House) -> None:
    fill(house)
    assert house.ask("POST", "/v1/streams/a/archive").json["archived"] is not None
    house.ask("POST", "/v1/streams/a/forecasts", {"id": "new", "p": [0.5, 0.5]}).refused(409, "archived")
    late = {"outcomes": [{"stream": "a", "id": "r2", "outcome": "no"}]}
    assert house.ask("POST", "/v1/outcomes", late).json["counts"] == {"learned": 1}


def test_head_is_get_without_its_body(house: House) -> None:
    fill(house)
    for path in ("/healthz", "/v1/streams/a", "/v1/streams/a/export", "/v1/events", "/metrics"):
        found = house.ask("HEAD", path)
        assert (found.status, found.body) == (200, b""), path
    assert house.context.hub.clients == 0


def test_the_server_says_whether_it_can_write(house: House) -> None:
    assert house.ask("GET", "/healthz").json == {"ok": True}
    assert house.ask("GET", "/readyz").json == {"ok": True}
    house.writer.failure = "the disk is gone"
    house.ask("GET", "/readyz").refused(503, "unavailable")
    house.ask("POST", "/v1/streams", NEW).refused(503, "unavailable")
    assert house.ask("GET", "/healthz").status == 200
    house.writer.failure = None


def test_files_of_the_page_are_served_with_their_types(tmp_path: Path) -> None:
    from treecal.serve._page import Page

    folder = tmp_path / "page"
    (folder / "vendor").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "vendor" / "plot.mjs").write_text("export {}")
    (tmp_path / "secret.txt").write_text("not of the page")
    with served(tmp_path) as house:
        house.context.page = Page(folder)
        index = house.ask("GET", "/")
        assert (index.status, index.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'self'" in index.headers["content-security-policy"]
        assert "'unsafe" not in index.headers["content-security-policy"]
        assert index.headers["cache-control"] == "no-cache"
        assert house.ask("GET", "/streams/a").body == index.body
        assert house.ask("GET", "/page/vendor/plot.mjs").headers["content-type"] == "text/javascript; charset=utf-8"
        again = house.ask("GET", "/", headers={"If-None-Match": index.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        for path in (
            "/page/../secret.txt",
            "/page/%2e%2e/secret.txt",
            "/page/..%2fsecret.txt",
            "/page//etc/passwd",
            "/page/vendor",
            "/page/",
            "/page/vendor/..%5c..%5csecret.txt",
            "/page/index.html%00.js",
        ):
            house.ask("GET", path).refused(404, "not_found")


def test_the_package_has_its_sql() -> None:
    assert (resources.files("treecal.serve") / "sql" / "0002_tokens.sql").is_file()


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with served(tmp_path) as house:
        house.ask("GET", "/v1/streams")
    assert not [each for each in set(threading.enumerate()) - before if "treecal" in each.name]
