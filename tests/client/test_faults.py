"""Whatever fails, and whenever: what was kept arrives, once in effect and in order, and is recorded as it was used."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.client.test_client import Awaited
from tests.client.world import Server
from treecal.client import Answer, Client

P = [0.25, 0.75]
STREAMS = ("rain", "snow")
FAULTS = ("drop", "deaf", "half", "unavailable", "limited", "internal", "proxy", "hang")
HAPPEN = st.one_of(
    st.sampled_from(FAULTS),
    st.sampled_from(["stop", "start", "forecast", "forecast", "many", "outcome", "outcome", "flush", "close", "crash"]),
)


class Course:
    """A client and a server to which things happen, and what has to hold in the end."""

    def __init__(self, make: Any, folder: Path) -> None:
        self.make, self.path, self.copies = make, folder / "spool", 0
        self.server = Server()
        self.server.books.streams = {name: {"name": name, "classes": ["no", "yes"]} for name in STREAMS}
        self.kept: list[tuple[str, Answer]] = []
        self.settled: list[tuple[str, str]] = []
        self.open()

    def open(self) -> None:
        self.client = self.make(self.server.url, spool=self.path, timeout=0.15)

    def close(self) -> None:
        self.client.__exit__(None, None, None)

    def happen(self, what: str, place: int) -> None:
        stream = STREAMS[place % 2]
        match what:
            case "stop":
                self.server.stop()
            case "start" if self.server.stopping.is_set():
                self.server.start()
            case "forecast":
                answer = self.client.forecast(stream, P, id=f"{len(self.kept)}", timeout=0.05)
                self.kept.append((stream, answer))
            case "many":
                ids = [f"{len(self.kept) + k}" for k in range(3)]
                self.kept += [
                    (stream, each) for each in self.client.forecast_many(stream, [P] * 3, ids=ids, timeout=0.05)
                ]
            case "outcome" if len(self.settled) < len(self.kept):
                stream, answer = self.kept[len(self.settled)]
                receipt = self.client.outcome(stream, answer.id, 1, timeout=0.05)
                assert receipt.status in ("learned", "replayed", "spooled")
                self.settled.append((stream, answer.id))
            case "flush":
                self.client.flush(0.02)
            case "close":
                self.close()
                self.open()
            case "crash":  # the files as they are now are what a kill leaves: the next client has a copy of them
                self.copies += 1
                copy = self.path.with_name(f"spool-{self.copies}")
                with self.client._session.spool._lock:  # no commit and no checkpoint between the two
                    for ending in ("", "-wal"):
                        Path(f"{copy}{ending}").write_bytes(Path(f"{self.path}{ending}").read_bytes())
                self.close()
                self.path = copy
                self.open()
            case _ if what in FAULTS:
                self.server.faults.append(what)

    def end(self) -> None:
        """All is well again; check the books."""
        self.server.faults.clear()
        if self.server.stopping.is_set():
            self.server.start()
        try:
            assert self.client.flush(30) == 0
            assert self.client.spooled.refused == self.client.spooled.dropped == self.client.spooled.damaged == 0
        finally:
            self.close()
            self.server.stop()
        books = self.server.books
        assert len(books.log) == len(set(books.log))  # once
        assert {(stream, answer.id) for stream, answer in self.kept} == set(books.forecasts)
        assert set(self.settled) == set(books.outcomes)
        for stream, answer in self.kept:
            assert answer.kept
            assert books.forecasts[stream, answer.id]["used"] is not answer.corrected
            assert answer.forecast == (P[::-1] if answer.corrected else P)
        where = {entry: place for place, entry in enumerate(books.log)}
        assert all(where["forecast", *each] < where["outcome", *each] for each in self.settled)
        for stream in STREAMS:
            assert [i for what, s, i in books.log if (what, s) == ("outcome", stream)] == [
                i for s, i in self.settled if s == stream
            ]


@pytest.mark.parametrize("make", [Client, Awaited])
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(course=st.lists(st.tuples(HAPPEN, st.integers(0, 1)), min_size=5, max_size=30))
def test_any_course_of_failures(
    make: Any, course: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treecal.client._line.FIRST", 0.002)
        patch.setattr("treecal.client._line.LONGEST", 0.01)
        world = Course(make, tmp_path_factory.mktemp("course"))
        try:
            for what, place in course:
                world.happen(what, place)
        finally:
            world.end()


CHILD = """
import sys, json
from treecal.client import Client, _line
_line.LONGEST = 0.05
url, spool, first = sys.argv[1:]
client = Client(url, spool=spool)
k = int(first)
while True:
    answer = client.forecast("rain", [0.25, 0.75], id=str(k), timeout=0.05)
    print(json.dumps([answer.id, answer.corrected, answer.kept]), flush=True)
    if k % 3 == 0:
        client.outcome("rain", answer.id, 1, timeout=0.05)
        print(json.dumps(answer.id), flush=True)
    k += 1
"""


def killed(server: Server, folder: Path, rounds: int, seed: int) -> None:
    """Kill a client again and again, while the server fails and restarts; nothing that it kept is lost."""
    server.books.streams["rain"] = {"name": "rain", "classes": ["no", "yes"]}
    rng, first, answers, settled = random.Random(seed), 0, dict[str, bool](), set[str]()
    for _ in range(rounds):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, server.url, folder / "spool", str(first)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        threading.Timer(rng.uniform(0.0, 0.3), child.send_signal, [signal.SIGKILL]).start()
        while child.poll() is None:
            match rng.choice(["stop", "start", "fault", "fault", "wait"]):
                case "stop":
                    server.stop()
                case "start" if server.stopping.is_set():
                    server.start()
                case "fault":
                    server.faults.append(rng.choice(FAULTS))
            time.sleep(0.01)
        rest, _ = child.communicate()
        for line in [*lines, *rest.splitlines(keepends=True)]:
            if line.endswith("\n"):
                match json.loads(line):
                    case [name, corrected, kept]:
                        assert kept
                        answers[name], first = corrected, int(name) + 2  # the next may have been sent, and not told
                    case name:
                        settled.add(name)
    server.faults.clear()
    if server.stopping.is_set():
        server.start()
    with Client(server.url, spool=folder / "spool") as client:
        assert client.flush(60) == 0
    books = server.books
    assert len(books.log) == len(set(books.log))
    for name, corrected in answers.items():
        assert books.forecasts["rain", name]["used"] is not corrected
    assert settled <= {name for _, name in books.outcomes}
    assert len(answers) > rounds


def test_a_client_that_is_killed(tmp_path: Path) -> None:
    with Server() as server:
        killed(server, tmp_path, 3, 0)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_client_that_is_killed_very_often(seed: int, tmp_path: Path) -> None:
    with Server() as server:
        killed(server, tmp_path, 50, seed)


def test_threads_and_a_server_that_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.client._line.LONGEST", 0.05)
    answers: list[Answer] = []
    with Server() as server, Client(server.url, spool=tmp_path / "spool") as client:
        server.books.streams["rain"] = {"name": "rain", "classes": ["no", "yes"]}

        def work(k: int) -> None:
            for i in range(60):
                answer = client.forecast("rain", P, id=f"{k}-{i}", timeout=0.05)
                answers.append(answer)
                client.outcome("rain", answer.id, 1, timeout=0.05)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            server.stop()
            time.sleep(0.01)
            server.start()
            time.sleep(0.02)
        assert client.flush(30) == 0
        assert client.spooled.refused == client.spooled.dropped == 0
    assert len(answers) == 240
    assert set(server.books.outcomes) == set(server.books.forecasts) == {("rain", answer.id) for answer in answers}
    assert len(server.books.log) == 480
    for answer in answers:
        assert server.books.forecasts["rain", answer.id]["used"] is not answer.corrected
    assert os.listdir(tmp_path) == ["spool"]
