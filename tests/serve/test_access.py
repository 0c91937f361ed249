"""Who is let in, and who is not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.support import refused, run
from tests.serve.http import NEW, House, fill, served
from tests.serve.postgres import Cluster
from treecal.exceptions import ParameterError
from treecal.serve import _tokens as tokens
from treecal.serve._access import Access, Buckets
from treecal.serve._connections import open_reader, open_store
from treecal.serve._refusals import Refusal
from treecal.serve._tokens import SCOPES
from treecal.serve._writer import Writer


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with served(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def open_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server that is open; nothing is written."""
    with served(tmp_path_factory.mktemp("open")) as made:
        yield made
        assert made.ask("GET", "/v1/streams?archived=true").json["streams"] == []


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server with streams web-a and mail, and a token for the former."""
    with served(tmp_path_factory.mktemp("web")) as made:
        for name in ("web-a", "mail"):
            made.ask("POST", "/v1/streams", {**NEW, "name": name})
        made.token = made.make_token(*SCOPES, prefix="web-")
        assert made.ask("GET", "/v1/streams/web-a").status == 200
        yield made


def test_the_first_token_closes_an_open_server(house: House) -> None:
    assert house.ask("GET", "/v1/streams").status == 200
    token = house.make_token("read")
    house.ask("GET", "/v1/streams").refused(401, "unauthorized")
    assert house.ask("GET", "/v1/streams", token=token).status == 200


def test_a_revoked_token_is_refused_and_the_server_stays_closed(house: House) -> None:
    token = house.make_token("read")
    assert house.ask("GET", "/v1/streams", token=token).status == 200
    house.revoke(token)
    house.ask("GET", "/v1/streams", token=token).refused(401, "unauthorized")
    house.ask("GET", "/v1/streams").refused(401, "unauthorized")


def test_a_token_that_has_expired_is_refused_and_told_so(house: House) -> None:
    old = house.make_token("read", days=1.0, made=0.0)
    new = house.make_token("read", days=1.0, made=time.time())
    found = house.ask("GET", "/v1/streams", token=old).refused(401, "unauthorized").error
    assert found.message == "the token expired at 1970-01-02T00:00:00Z."
    assert house.ask("GET", "/v1/streams", token=new).status == 200
    other = old[:-1] + ("a" if old[-1] != "a" else "b")
    found = house.ask("GET", "/v1/streams", token=other).refused(401, "unauthorized").error
    assert found.message == "the token is not known, or was revoked."  # nothing is told to those who guess


def test_who_listens_is_cut_off_when_the_token_expires(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    token = house.make_token("read", days=1.0, made=1000.0)
    monkeypatch.setattr(time, "time", lambda: 2000.0)
    grant = house.run(house.access.grant({b"authorization": f"Bearer {token}".encode()}, ""))
    assert house.run(house.access.holds(grant))
    monkeypatch.setattr(time, "time", lambda: 1000.0 + 86400.0)
    assert not house.run(house.access.holds(grant))


def test_when_a_token_was_used_is_written_once_a_minute_and_at_the_end(tmp_path: Path) -> None:
    def used() -> float | None:
        with closing(open_reader(str(tmp_path / "books.sqlite"))) as reader:
            (found,) = tokens.tokens_of(reader)
        return found.used

    with served(tmp_path) as house:
        token, begun = house.make_token("read"), time.time()
        for _ in range(50):
            house.now += 1.0
            assert house.ask("GET", "/v1/streams", token=token).status == 200
        assert used() is None
        house.now += 20.0
        assert house.ask("GET", "/v1/streams", token=token).status == 200
        house.writer.read(lambda books: None).result()
        first = used()
        assert first is not None
        assert first >= begun
        house.ask("GET", "/v1/streams", token=token)
    last = used()
    assert last is not None
    assert last > first


def test_tokens_are_read_once_a_second_at_most(house: House) -> None:
    house.ask("GET", "/v1/streams")
    token = house.make_token("read")
    house.now -= 1.5
    assert house.ask("GET", "/v1/streams").status == 200  # as half a second ago
    house.now += 1.5
    house.ask("GET", "/v1/streams").refused(401, "unauthorized")
    assert house.ask("GET", "/v1/streams", token=token).status == 200


def wrong(right: str) -> Iterator[str]:
    yield from (
        "",
        "Bearer",
        "Bearer ",
        "Bearer tcal_",
        right,
        f"Basic {right}",
        f"Bearer {right}x",
        f"Bearer {right[:-1]}",
    )
    yield f"Bearer {right[:-1]}{'a' if right[-1] != 'a' else 'b'}"
    yield f"Bearer {right.upper()}"
    yield f"Bearer {right}, Bearer {right}"
    yield f"Bearer {right[:13]}{'A' * 43}"  # another with the same id
    yield "Bearer tcal_\xff" + right[6:]
    yield f"Bearer {right} {right}"
    yield "Bearer " + "x" * 10_000


def test_wrong_tokens_are_refused(house: House) -> None:
    right = house.make_token("read")
    assert house.ask("GET", "/v1/streams", headers={"Authorization": f"bearer {right}"}).status == 200
    for text in wrong(right):
        house.now += 1
        reply = house.ask("GET", "/v1/streams", headers={"Authorization": text})
        reply.refused(401, "unauthorized")
        assert reply.headers["www-authenticate"].startswith("Bearer")


def test_guesses_are_limited_and_do_not_limit_others(house: House) -> None:
    right = house.make_token("read")
    found = [house.ask("GET", "/v1/streams").status for _ in range(60)]
    assert found == [401] * 40 + [429] * 20
    assert house.ask("GET", "/v1/streams", token=right).status == 200


def test_each_token_has_its_own_rate(tmp_path: Path) -> None:
    with served(tmp_path, rate=2.0) as house:
        one, two = house.make_token("read"), house.make_token("read")
        assert [house.ask("GET", "/v1/alarms", token=one).status for _ in range(5)] == [200] * 4 + [429]
        assert house.ask("GET", "/v1/alarms", token=two).status == 200
        house.now += 0.5
        assert [house.ask("GET", "/v1/alarms", token=one).status for _ in range(2)] == [200, 429]


def test_the_names_of_a_rate_are_bounded() -> None:
    buckets = Buckets(1.0, most=10, clock=lambda: 0.0)
    for i in range(1000):
        buckets.take(str(i))
    assert len(buckets._levels) == 10


def test_a_prefix_holds_everywhere(house: House) -> None:
    for name in ("web-a", "web-b", "mail"):
        house.ask("POST", "/v1/streams", {**NEW, "name": name})
    token = house.token = house.make_token(*SCOPES, prefix="web-")
    assert [each["name"] for each in house.ask("GET", "/v1/streams").json["streams"]] == ["web-a", "web-b"]
    assert house.ask("GET", "/v1/streams?prefix=mail").json["streams"] == []
    assert house.ask("GET", "/v1/streams?prefix=w").json["streams"] != []
    assert house.ask("POST", "/v1/streams", {**NEW, "name": "web-c"}).status == 201
    house.ask("POST", "/v1/streams", {**NEW, "name": "web"}).refused(403, "forbidden")
    house.ask("POST", "/v1/streams", {**NEW, "name": "Web-c"}).refused(403, "forbidden")
    house.ask("GET", "/v1/alarms?stream=mail").refused(403, "forbidden")
    house.ask("GET", "/v1/events?stream=mail").refused(403, "forbidden")
    house.ask("GET", "/metrics").refused(403, "forbidden")
    for name in ("a", "mail"):
        body = {"id": "r1", "p": [0.5, 0.5]}
        house.ask("POST", f"/v1/streams/{name}/forecasts", body).refused(403, "forbidden")
    house.ask("POST", "/v1/streams/web-a/forecasts", {"id": "r1", "p": [0.5, 0.5]})
    both = [{"stream": name, "id": "r1", "outcome": "no"} for name in ("web-a", "mail")]
    assert (
        house.ask("POST", "/v1/outcomes", {"outcomes": both}).refused(403, "forbidden").error.at == "outcomes[1].stream"
    )
    assert house.ask("GET", "/v1/streams/web-a").json["counts"]["learned"] == 0
    assert token == house.token


def test_what_one_may_not_see_does_not_tell_whether_it_is_there(house: House) -> None:
    house.ask("POST", "/v1/streams", NEW)
    token = house.make_token("read", prefix="web-")
    there, nowhere = (house.ask("GET", f"/v1/streams/{name}", token=token) for name in ("a", "b"))
    assert there.status == nowhere.status == 403
    assert there.body.replace(b"'a'", b"'b'") == nowhere.body
    assert nowhere.refused(403, "forbidden").error.message == "the token is not for stream 'b'."


def test_a_token_without_its_scheme_is_told_so(house: House) -> None:
    token = house.make_token("read")
    for text, words in ((token, "begin with Bearer"), (f"Bearer {token}x", "not known"), ("Basic eA==", "Bearer")):
        reply = house.ask("GET", "/v1/streams", headers={"Authorization": text})
        assert words in reply.refused(401, "unauthorized").error.message


@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/web-a%2F..%2Fmail",
        "/v1/streams/web-a/../mail",
        "/v1/streams/web-a/%2e%2e/mail",
        "/v1/streams/%2e%2e%2fstreams%2fmail",
        "/v1/streams/web-a%2fforecasts/../../mail",
        "/v1//streams/mail",
        "//v1/streams/mail",
        "/v1/streams//mail",
        "/v1/streams/mail%00",
        "/v1/streams/web-%00/../mail",
        "/V1/streams/mail",
        "/v1/streams/web-a;/mail",
        "/v1/streams/web-a%5c..%5cmail",
        "/v1/streams/web-%ff",
        "/v1/streams/web-a/forecasts/%2e%2e%2f%2e%2e%2fmail",
        "/healthz/../v1/streams/mail",
        "/page/%2e%2e/v1/streams/mail",
    ],
)
def test_a_path_is_read_as_it_is(web: House, path: str) -> None:
    reply = web.ask("GET", path)
    assert reply.status in (403, 404)
    reply.refused(reply.status, {403: "forbidden", 404: "not_found"}[reply.status])


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:8000", "10.1.2.3:80", "localhost."]
)
def test_an_address_is_a_known_host(open_house: House, host: str) -> None:
    assert open_house.ask("GET", "/healthz", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "a b", "[::1",
     "127.0.0.1:99999999", "localhost/", "0x7f.1", "\xff", "evil.example:8000", "localhost:8000:8000"],
)  # fmt: skip
def test_another_host_is_refused(open_house: House, host: str) -> None:
    open_house.ask("GET", "/healthz", headers={"Host": host}).refused(403, "forbidden")
    open_house.ask("POST", "/v1/streams", NEW, headers={"Host": host}).refused(403, "forbidden")


def test_a_name_that_was_allowed(tmp_path: Path) -> None:
    with served(tmp_path, hosts=["Forecasts.example.org"]) as house:
        assert house.ask("GET", "/healthz", headers={"Host": "forecasts.example.org"}).status == 200
        house.ask("GET", "/healthz", headers={"Host": "x.forecasts.example.org"}).refused(403, "forbidden")


@pytest.mark.parametrize(
    "name", ["Host", "Authorization", "Content-Type", "Origin", "Sec-Fetch-Site", "Content-Length"]
)
def test_a_header_that_is_there_twice(open_house: House, name: str) -> None:
    values = {"Host": "127.0.0.1", "Content-Type": "application/json"}
    reply = open_house.ask("POST", "/v1/streams", NEW, headers=[(name, values.get(name, "1"))] * 2)
    assert reply.refused(403, "forbidden").error.at == name.lower()


@pytest.mark.parametrize("site", ["cross-site", "same-site", "other", ""])
def test_a_page_elsewhere_cannot_write(open_house: House, site: str) -> None:
    headers = {"Sec-Fetch-Site": site}
    open_house.ask("POST", "/v1/streams", NEW, headers=headers).refused(403, "forbidden")
    open_house.ask("POST", "/v1/streams/a/archive", headers=headers).refused(403, "forbidden")
    assert open_house.ask("GET", "/healthz", headers=headers).status == 200


@pytest.mark.parametrize(
    "origin", ["null", "https://evil.example", "http://127.0.0.1:9999", "http://127.0.0.1:8000.evil"]
)
def test_another_origin_cannot_write(open_house: House, origin: str) -> None:
    open_house.ask("POST", "/v1/streams", NEW, headers={"Origin": origin}).refused(403, "forbidden")


def test_the_page_itself_can_write(house: House) -> None:
    own = {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin", "Host": "127.0.0.1:8000"}
    assert house.ask("POST", "/v1/streams", NEW, headers=own).status == 201


def test_no_answer_lets_another_site_read(house: House) -> None:
    for method in ("GET", "OPTIONS"):
        reply = house.ask(method, "/v1/streams", headers={"Origin": "https://evil.example"})
        assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_an_open_server_is_not_reached_through_a_proxy(house: House, name: str) -> None:
    house.ask("GET", "/v1/streams", headers={name: "1.2.3.4"}).refused(403, "forbidden")
    token = house.make_token("read")
    assert house.ask("GET", "/v1/streams", headers={name: "1.2.3.4"}, token=token).status == 200


def test_a_server_that_others_reach_is_never_open(tmp_path: Path) -> None:
    with served(tmp_path, loopback=False) as house:
        house.ask("GET", "/v1/streams").refused(401, "unauthorized")


def test_tokens_that_cannot_be_read_let_nobody_in() -> None:
    async def ask() -> None:
        async def fail() -> list[tokens.Token]:
            raise OSError("the store is gone")

        access = Access()
        access.read_by(fail)
        for _ in range(2):
            with pytest.raises(OSError, match="gone"):
                await access.grant({}, "peer")

    asyncio.run(ask())


def test_many_requests_wait_for_one_reading() -> None:
    async def ask() -> None:
        count, now = 0, 0.0

        async def read() -> list[tokens.Token]:
            nonlocal count
            count += 1
            await asyncio.sleep(0)
            return []

        access = Access(clock=lambda: now)
        access.read_by(read)
        await asyncio.gather(*(access.grant({}, "peer") for _ in range(50)))
        assert count == 1
        now = 1.5
        await asyncio.gather(*(access.grant({}, "peer") for _ in range(50)))
        assert count == 2

    asyncio.run(ask())


def test_a_token_is_kept_as_its_hash(house: House) -> None:
    text = house.make_token("read")
    content = b"".join(path.read_bytes() for path in Path(house.data).parent.glob("books.sqlite*"))
    assert text.encode() not in content
    assert text[13:].encode() not in content


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"scopes": []}, "scope"),
        ({"scopes": ["root"]}, "scope"),
        ({"scopes": ["read"], "prefix": "a/b"}, "prefix"),
        ({"scopes": ["read"], "prefix": "%"}, "prefix"),
        ({"scopes": ["read"], "name": "a\nb"}, "name"),
        ({"scopes": ["read"], "name": " "}, "name"),
    ],
)
def test_a_token_for_nothing_is_not_made(options: dict[str, object], word: str) -> None:
    given: dict[str, object] = {"name": "x", **options}
    with pytest.raises(ParameterError, match=word):
        tokens.make_token(given.pop("name"), now=0.0, **given)  # type: ignore[arg-type]


def test_every_token_is_another() -> None:
    some = [tokens.make_token("x", scopes=["read"], now=0.0)[0] for _ in range(1000)]
    assert len(set(some)) == 1000
    assert all(tokens.id_of(each) for each in some)


def test_the_command_makes_lists_and_revokes_tokens_beside_a_server(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        fill(house)
        data = ("--data", house.data)
        made = run("token", "create", "shop", *data, "--scope", "read", "--prefix", "a")
        token = made.out.strip()
        assert (made.code, token[:5], token not in made.err) == (0, "tcal_", True)
        house.now += 2
        assert house.ask("GET", "/v1/streams/a", token=token).status == 200
        (listed,) = json.loads(run("token", "list", *data, "--json").out)
        assert (listed["name"], listed["prefix"], listed["scopes"], listed["revoked"]) == ("shop", "a", "read", None)
        shown = run("token", "list", *data).out
        assert "shop" in shown
        assert token[13:] not in shown
        assert run("token", "revoke", "shop", *data).code == 0
        house.now += 2
        house.ask("GET", "/v1/streams/a", token=token).refused(401, "unauthorized")
        refused(run("token", "revoke", "none", *data), "no token", "token list")
        both = [json.loads(run("token", "create", "twice", *data, "--json").out)["id"] for _ in range(2)]
        refused(run("token", "revoke", "twice", *data), "2 tokens")
        assert run("token", "revoke", both[0], *data).code == 0
        refused(run("token", "create", "x", *data, "--prefix", "a/b"), "prefix")


def test_the_command_makes_new_books_for_the_first_token(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    assert run("token", "create", "first", "--data", path).code == 0
    assert path.stat().st_mode & 0o077 == 0
    refused(run("token", "create", "x", "--data", tmp_path / "nowhere" / "new.sqlite"), "folder")
    for asked in (("list",), ("revoke", "first")):
        refused(run("token", *asked, "--data", tmp_path / "typo.sqlite"), "no file")
    assert not (tmp_path / "typo.sqlite").exists()


@pytest.mark.heavy
def test_tokens_in_postgresql_are_made_beside_a_server(postgres: Cluster) -> None:
    data = postgres.database()
    with Writer(open_store(data)) as writer, House(writer, data) as house:
        assert house.ask("POST", "/v1/streams", NEW).status == 201
        token = run("token", "create", "shop", "--data", data, "--scope", "read").out.strip()
        house.now += 2
        house.ask("GET", "/v1/streams/a").refused(401, "unauthorized")
        assert house.ask("GET", "/v1/streams/a", token=token).status == 200
        assert run("token", "revoke", "shop", "--data", data).code == 0
        house.now += 2
        house.ask("GET", "/v1/streams/a", token=token).refused(401, "unauthorized")


def test_a_store_that_is_away_is_not_waited_for_by_one_after_the_other() -> None:
    async def test() -> None:
        now, asked = 0.0, 0

        async def away() -> list[tokens.Token]:
            nonlocal now, asked
            asked += 1
            await asyncio.sleep(0)
            now += 5.0
            raise Refusal("unavailable", "PostgreSQL does not answer.")

        access = Access(clock=lambda: now)
        access.read_by(away)
        found = await asyncio.gather(*(access.grant({}, "") for _ in range(10)), return_exceptions=True)
        assert {each.code for each in found if isinstance(each, Refusal)} == {"unavailable"}
        assert (len(found), asked) == (10, 1)
        now += 1.0
        with pytest.raises(Refusal):
            await access.grant({}, "")
        assert asked == 2

    asyncio.run(test())
