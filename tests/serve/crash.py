"""Kill -9 under load: a real server, several clients, killed at random moments, started again, resumed.

    python -m tests.serve.crash --data sqlite --kills 2000 --counts counts.json
    python -m tests.serve.crash --data postgres --kills 2000 --counts counts.json

After each kill the books are audited: every acknowledged forecast and outcome is there once, as it was answered; a
request without an answer is there whole or not at all; nothing else is there; what was deleted is gone, settings are
those that were acknowledged last; and a replay of the log gives every forecast and the snapshots, bit for bit. Then
clients send again what was not answered, and some of what was.

It can be stopped at any time: counts are added to the file after every ten kills, and the next run adds to them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from tests.serve.forks import Forks, forks
from tests.serve.postgres import MISSING, Cluster, programs, running
from treecal.serve._connections import Reader, open_store
from treecal.serve._doctor import check_books
from treecal.serve._wire import NewStream, Part, StreamChange, Watch

TARGET = 10_000
KILLS_OF_BOOKS = 10
"""After so many kills the books are begun anew, so that the audits stay quick."""
CLIENTS = 4
STREAMS = [
    NewStream("corrected", classes=["no", "yes"], corrector=Part("vector"), tags=["site"], monitor=Watch(alpha=0.5)),
    NewStream("certified", classes=["a", "b", "c"], forecaster=Part("guarded"), limit=10_000),
    NewStream("watched", classes=["no", "yes"]),
]
CHANGES = [
    StreamChange(corrector=Part("isotonic")),
    StreamChange(corrector=Part("vector"), monitor=Watch(alpha=0.1)),
    StreamChange(corrector=Part("vector-then-guarded"), limit=10_000),
    StreamChange(gate=True, corrector=Part("temperature"), limit=None),
    StreamChange(gate=False, corrector=None, tags=["site", "more"]),
    StreamChange(keep=400),
]
"""Of the first stream, by the first client."""
What = Literal["server", "database"]


@dataclass
class Request:
    """What was sent, and the answer when it came."""

    path: str
    body: bytes
    stream: str = ""
    ids: list[str] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    answer: bytes | None = None
    method: Literal["POST", "PATCH", "DELETE"] = "POST"
    change: StreamChange | None = None


class Client:
    """Sends requests one after the other, each until it is answered; ids are its own."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.rng = name, random.Random(seed)
        self.sent: list[Request] = []
        self.waiting: list[tuple[str, str]] = []
        self.settled: list[tuple[str, str, int]] = []
        self.deleted: dict[str, Request] = {}
        self.counts: Counter[str] = Counter()
        self.problem: BaseException | None = None
        self._connection: HTTPConnection | None = None

    def run(self, address: tuple[str, int], stop: threading.Event) -> None:
        """Send requests until told to stop, or the server is gone."""
        connection = HTTPConnection(*address, timeout=30)
        try:
            for each in self.sent:
                if each.answer is None:
                    self._send(connection, each, stop)
            for each in self.rng.sample(self.sent, min(3, len(self.sent))):
                self._again(connection, each, stop)
            while not stop.is_set():
                if self.sent and self.rng.random() < 0.1:
                    self._again(connection, self.rng.choice(self.sent), stop)
                else:
                    self.sent.append(self._next())
                    self._send(connection, self.sent[-1], stop)
        except (OSError, HTTPException):
            pass  # it was killed
        except BaseException as problem:
            self.problem = problem
        finally:
            connection.close()

    def _next(self) -> Request:
        chance = self.rng.random()
        if chance < 0.6 or not self.waiting:
            new = self.rng.choice(STREAMS)
            size = self.rng.randrange(2, 30) if chance < 0.15 else 1
            ids = [f"{self.name}-{len(self.sent)}-{i}" for i in range(size)]
            forecasts = [self._forecast(new, each) for each in ids]
            if size == 1:
                return Request(f"/v1/streams/{new.name}/forecasts", _json(forecasts[0]), new.name, ids)
            return Request(f"/v1/streams/{new.name}/forecasts/batch", _json({"forecasts": forecasts}), new.name, ids)
        if chance < 0.64 and self.name == "c0":
            change = self.rng.choice(CHANGES)
            return Request("/v1/streams/corrected", msgspec.json.encode(change), method="PATCH", change=change)
        if chance < 0.66 and self.settled:
            if chance < 0.65:
                stream, each = self.waiting.pop(self.rng.randrange(len(self.waiting)))
            else:
                stream, each, _ = self.settled.pop(self.rng.randrange(len(self.settled)))
            self.deleted[each] = Request(f"/v1/streams/{stream}/forecasts/{each}", b"", method="DELETE")
            return self.deleted[each]
        if chance < 0.7 and self.settled:
            stream, each, was = self.rng.choice(self.settled)
            self.settled.remove((stream, each, was))
            outcome = {"stream": stream, "id": each, "outcome": 1 - was, "amend": True}
            return Request("/v1/outcomes", _json({"outcomes": [outcome]}), "", [each], [1 - was])
        some = [self.waiting.pop(self.rng.randrange(len(self.waiting))) for _ in range(min(20, len(self.waiting)))]
        classes = [int(self.rng.random() < 0.4) for _ in some]
        outcomes = [{"stream": s, "id": i, "outcome": c} for (s, i), c in zip(some, classes, strict=True)]
        return Request("/v1/outcomes", _json({"outcomes": outcomes}), "", [i for _, i in some], classes)

    def _forecast(self, new: NewStream, name: str) -> dict[str, Any]:
        body: dict[str, Any] = {"id": name}
        if new.forecaster is None:
            p = self.rng.random()
            body["p"] = [p, 1 - p]
        if new.tags:
            body["tags"] = {"site": self.rng.choice("xyz")}
        return body

    def _send(self, connection: HTTPConnection, request: Request, stop: threading.Event) -> None:
        answer = self._posted(connection, request, stop)
        request.answer = answer
        if request.stream:
            self.waiting += [(request.stream, each) for each in request.ids]
            self.counts["forecasts"] += len(request.ids)
        elif request.method == "PATCH":
            self.counts["changes"] += 1
        elif request.method == "DELETE":
            self.counts["deletions"] += 1
        else:
            found = json.loads(answer)["outcomes"]
            self.settled += [
                (each["stream"], each["id"], c)
                for each, c in zip(found, request.classes, strict=True)
                if each["status"] == "learned"
            ]
            self.counts["outcomes"] += len(found)

    def _again(self, connection: HTTPConnection, request: Request, stop: threading.Event) -> None:
        """Send a request that was answered once more: nothing changes, and a forecast is the same to the byte."""
        if request.answer is None or request.method != "POST" or self.deleted.keys() & set(request.ids):
            return
        answer = self._posted(connection, request, stop)
        self.counts["sent again"] += 1
        if request.stream:
            assert answer == request.answer, (request, answer)
        else:
            found = {each["status"] for each in json.loads(answer)["outcomes"]}
            assert found == {"replayed"}, (request, answer)

    def _posted(self, connection: HTTPConnection, request: Request, stop: threading.Event) -> bytes:
        while True:
            self.counts["requests"] += 1
            connection.request(request.method, request.path, request.body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status == 200 or (response.status == 404 and request.method == "DELETE"):  # it was done before
                return answer
            if response.status != 503:
                raise AssertionError(f"{response.status} {answer!r} to {request}")
            self.counts["unavailable"] += 1
            if stop.is_set():
                raise ConnectionError("nobody will answer")
            time.sleep(0.05)


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


class Books:
    """Books that are served, killed, and audited."""

    def __init__(self, servers: Forks, data: str, cluster: Cluster | None, seed: int) -> None:
        self.servers, self.data, self.cluster = servers, data, cluster
        self.rng = random.Random(seed)
        self.clients = [Client(f"c{k}", seed * CLIENTS + k) for k in range(CLIENTS)]
        self.counts: Counter[str] = Counter()
        self.address = servers.start(data)
        connection = HTTPConnection(*self.address, timeout=30)
        for new in STREAMS:
            connection.request("POST", "/v1/streams", msgspec.json.encode(new), {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert response.status == 201, response.read()
            response.read()
        connection.close()

    def kill(self) -> None:
        """Let clients send, kill something at a random moment, audit, and start it again."""
        what: What = "server" if self.cluster is None or self.rng.random() < 0.6 else "database"
        stop = threading.Event()
        threads = [threading.Thread(target=each.run, args=(self.address, stop)) for each in self.clients]
        for each in threads:
            each.start()
        answered, some = self._answered(), self.rng.randrange(40)
        while self._answered() < answered + some and any(each.is_alive() for each in threads):
            time.sleep(0.001)
        time.sleep(self.rng.uniform(0.0, 0.01))
        if what == "server":
            self.servers.kill()
            stop.set()
        else:
            assert self.cluster is not None
            self.cluster.kill()
            time.sleep(self.rng.uniform(0.0, 0.1))  # the server goes on, and refuses
            self.cluster.start()
            time.sleep(self.rng.uniform(0.0, 0.1))  # it goes on, and answers
            stop.set()
        for each in threads:
            each.join()
        for client in self.clients:
            if client.problem is not None:
                raise client.problem
        self.counts[f"kills of the {what}"] += 1
        if what == "server":
            with open_store(self.data) as store:  # as soon as the session of the killed server has ended
                self.audit(store)
            self.address = self.servers.start(self.data)
        else:
            reader = open_store(self.data).reader()
            self.audit(reader)
            reader.close()

    def _answered(self) -> int:
        return sum(client.counts["requests"] for client in self.clients)

    def audit(self, reader: Reader) -> None:
        """Compare the books with what clients were told."""
        names = {row[0]: row[1] for row in reader.query("streams")}
        rounds: dict[str, tuple[str, tuple[Any, ...], list[tuple[str, int]]]] = {}
        arrivals = 0
        for stream, name in names.items():
            rows = reader.query("rounds_after", stream, 0, 10**9)
            assert [row[0] for row in rows] == sorted({row[0] for row in rows})
            came: dict[int, list[tuple[str, int]]] = {row[0]: [] for row in rows}
            for row in reader.query("arrivals_after", stream, 0, 10**9):
                if row[1] not in ("changed", "deleted"):
                    came[row[5]].append((row[1], row[3]))
                    arrivals += 1
            for row in rows:
                assert row[1] not in rounds, f"{row[1]} is there twice"
                rounds[row[1]] = (name, row, came[row[0]])
        known = 0
        for client in self.clients:
            for named, request in client.deleted.items():
                assert request.answer is None or named not in rounds, f"{named} was deleted, and is there"
            for each in client.sent:
                known += sum(self._audited(each, rounds)) if each.stream else 0
        assert known == len(rounds), "there are forecasts that nobody sent"
        assert sum(self._arrivals(rounds)) == arrivals, "there are outcomes that nobody sent"
        problems = [each for each in check_books(reader) if each.problems]
        assert problems == []
        self._audit_settings(next(row[2] for row in reader.query("streams") if row[1] == "corrected"))

    def _audit_settings(self, config: str) -> None:
        """Settings are those of the last change that was acknowledged, or of the one after it."""
        expected = [STREAMS[0]]
        for each in self.clients[0].sent:
            if each.change is not None:
                expected = [*expected[-1:], each.change.of(expected[-1])]
                if each.answer is not None:
                    expected = expected[-1:]
        assert msgspec.json.decode(config, type=NewStream) in expected

    def _audited(self, request: Request, rounds: dict[str, Any]) -> Iterator[int]:
        """Yield 1 for each forecast of a request that is there."""
        there = [each for each in request.ids if each in rounds]
        if deleted := {each for client in self.clients for each in client.deleted if each in request.ids}:
            assert set(there) | deleted == set(request.ids)
        elif request.answer is None:
            assert there in ([], request.ids), f"a part of {request} is there"
            self.counts["unanswered, there" if there else "unanswered, not there"] += 1
        else:
            answer = json.loads(request.answer)
            for told in answer.get("forecasts", [answer]):
                assert told["id"] in rounds, f"{told} was acknowledged, and is lost"
                name, row, _ = rounds[told["id"]]
                assert (name, row[0], row[12].hex()) == (request.stream, told["round"], told["state"])
                assert np.frombuffer(row[5]).tolist() == told["forecast"]
        yield from (1 for _ in there)

    def _arrivals(self, rounds: dict[str, Any]) -> Iterator[int]:
        """Yield 1 for each outcome that is there, of all that clients sent."""
        for client in self.clients:
            for each in client.sent:
                if each.stream or each.method != "POST":
                    continue
                assert set(each.ids) - rounds.keys() <= client.deleted.keys(), f"{each} is of rounds that are lost"
                found = json.loads(each.answer)["outcomes"] if each.answer is not None else None
                kinds = {"amended"} if b'"amend"' in each.body else {"outcome"}
                there = [
                    sum(kind in kinds and was == c for kind, was in rounds[name][2])
                    for name, c in zip(each.ids, each.classes, strict=True)
                    if name in rounds
                ]
                if not there:
                    continue
                if found is None:
                    assert len(set(there)) == 1, f"a part of {each} is there"
                    self.counts["unanswered, there" if there[0] else "unanswered, not there"] += 1
                else:
                    assert {one["status"] for one in found} <= {"learned", "amended", "replayed"}, each
                    assert set(there) == {1}, f"{each} is not there once"
                assert max(there) <= 1, f"{each} is there twice"
                yield from there


@contextmanager
def servers(kind: str, folder: Path) -> Iterator[tuple[Forks, Cluster | None, Path]]:
    """A process to fork servers from, a PostgreSQL if that is asked for, and a folder."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running()) if kind == "postgres" else None
        yield stack.enter_context(forks(folder / "log")), cluster, folder


def crash(kind: str, kills: int, seed: int, found: tuple[Forks, Cluster | None, Path]) -> Iterator[Counter[str]]:
    """Kill so many times; yield counts after every ten."""
    forked, cluster, folder = found
    for start in range(0, kills, KILLS_OF_BOOKS):
        data = str(folder / f"books{start}.sqlite") if cluster is None else cluster.database()
        books = Books(forked, data, cluster, seed + start)
        try:
            for _ in range(min(KILLS_OF_BOOKS, kills - start)):
                books.kill()
        finally:
            forked.end()
        for client in books.clients:
            books.counts += client.counts
        yield books.counts
        for each in folder.glob(f"books{start}.sqlite*"):
            each.unlink()
        if cluster is not None:
            cluster.drop(data)  # it syncs every file when it recovers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--counts", type=Path, required=True, help="a file of JSON, which is added to")
    given = parser.parse_args()
    if given.data == "postgres" and programs() is None:
        raise SystemExit(MISSING)
    for each in (signal.SIGINT, signal.SIGTERM):  # also where it was started in the background
        signal.signal(each, signal.default_int_handler)
    given.counts.parent.mkdir(parents=True, exist_ok=True)
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="treecal-crash-"))
    try:
        with servers(given.data, folder) as found:
            for counts in crash(given.data, given.kills, seed, found):
                kills = _add(given.counts, given.data, counts)
                print(f"{given.data}: {kills:,} kills of {TARGET:,}, nothing lost, nothing double", flush=True)
    except KeyboardInterrupt:
        print("stopped; the next run goes on")
    shutil.rmtree(folder)  # if something failed, the books are there to be looked at


def _add(file: Path, kind: str, counts: Counter[str]) -> int:
    """Add counts to those in a file; return how many kills it has now."""
    total = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    total[kind] = dict(Counter(total.get(kind, {})) + counts)
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(total, indent=1, sort_keys=True) + "\n")
    os.replace(beside, file)
    return sum(n for name, n in total[kind].items() if name.startswith("kills"))


if __name__ == "__main__":
    main()
