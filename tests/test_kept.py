"""What a version wrote is read by those that follow: snapshots, a server's books, and a client's spool, kept as files.

    python -m tests.test_kept

writes `tests/data/kept-VERSION.zip` by the treecal that is installed. Once a version is published, its file stays as it
is for as long as `docs/reference/stability.md` promises.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.serve.script import Clock, Step, send_all, steps
from treecal import state
from treecal.client._spool import Item, Spool, SpooledForecast, SpooledOutcome
from treecal.correctors import all_correctors
from treecal.forecasters import REGISTRY
from treecal.monitor import Watched
from treecal.serve import NewForecast, NewOutcome, NewStream
from treecal.serve._backup import back_up
from treecal.serve._books import Books
from treecal.serve._connections import open_store
from treecal.serve._doctor import check_books
from treecal.serve._writer import Writer

KEPT = sorted((Path(__file__).parent / "data").glob("kept-*.zip"))
CLASSES = ["rain", "Föhn", "snow, then sun"]
SPOOLED: list[Item] = [
    SpooledForecast("rain", NewForecast("a/1", [0.25, 0.75], {"city": "Öland\n"}, 7.5, used=True)),
    SpooledOutcome(NewOutcome("rain", "a/1", 1)),
    SpooledForecast("rain", NewForecast("b", [1.0, 0.0], used=True)),
]


SPACES = (tc.Simplex(classes=CLASSES), tc.Simplex(classes=CLASSES[:2]), tc.Cdf(0, 8, points=8))


def asked(thing: Any, number: int) -> list[Any]:
    """What a thing is told to predict: a corrector the model's forecast, a forecaster nothing."""
    if not isinstance(thing, tc.Corrector):
        return []
    if isinstance(thing.space, tc.Cdf):
        return [{0.25: number % 5, 0.75: number % 5 + 2}]
    weights = np.arange(thing.space.dim) + 1.0 + number % 3
    return [weights / weights.sum()]


def outcome(space: Any, number: int) -> Any:
    return number % 9 if isinstance(space, tc.Cdf) else CLASSES[number % space.dim]


def things() -> Iterator[tuple[str, Any]]:
    """Yield one of each kind that has a state, after some rounds."""
    rng = np.random.default_rng(0)
    for kind in [*REGISTRY.values(), *all_correctors()]:
        thing: Any = next(thing for space in SPACES for thing in kind.examples(space))  # type: ignore[attr-defined]
        for number in rng.integers(100, size=20).tolist():
            thing.predict(*asked(thing, number))
            thing.update(outcome(thing.space, number // 5))
        yield kind.__name__, thing
    three = SPACES[0]
    late, monitor, ledger = tc.Late(tc.Recalibrator(three)), tc.Monitor(three, alpha=0.05), tc.Ledger(three)
    for k in range(20):
        b, y = rng.dirichlet([1, 1, 1]), CLASSES[rng.integers(3)]
        ledger.record(late.predict(b, id=f"{k}"), y)
        monitor.update(b, y)
        if k % 2:
            late.update(f"{k - 1}", y)
    bank = tc.Bank(tc.AdaptiveTreeCal(three), streams=4)
    bank.update(np.arange(20) % 4, np.eye(3)[rng.integers(3, size=20)])
    yield from {"Late": late, "Monitor": monitor, "Ledger": ledger, "Bank": bank}.items()
    revised, few = tc.Late(Watched(tc.Monitor(three))), tc.Monitor(three, least_probability=0.1)
    labels = tc.Labels(CLASSES)
    advised, book = tc.Decisions(three, [[0, 1, 2], [1, 0, 3]]), tc.Codebook(tc.Tracker(three))
    for k in range(20):
        b, y = rng.dirichlet([1, 1, 1]), CLASSES[rng.integers(3)]
        (revised.revise if k % 4 else revised.predict)(id=f"{k // 4}", forecast=b, now=k)
        if k % 8 == 7:
            revised.update(f"{k // 4}", y, now=k)
        few.update(b, y, probability=rng.choice([0.1, 1]))
        labels.update(b, rng.choice([0, 1, np.nan], 3))
        advised.predict()
        book.predict()
        advised.update(y)
        book.update(y)
    yield from {"Late of revised": revised, "Monitor of few": few, "Labels": labels}.items()
    yield from {"Decisions": advised, "Codebook": book}.items()


def answer(thing: Any) -> str:
    """What a thing answers after one more round, and after another: a hash of the bits."""
    if isinstance(thing, tc.Labels):
        thing.update([0.25, 0.5, 0.75], [0, 1, np.nan])
        return hashlib.sha256(thing.predict([0.25, 0.5, 0.75]).tobytes() + str(thing.e_values).encode()).hexdigest()
    b = np.ones(thing.space.dim) / thing.space.dim
    bits = b""
    for k in (0, thing.space.dim - 1):
        y = outcome(thing.space, k)
        if isinstance(thing, tc.Ledger):
            thing.record(b, y)
            bits += np.array(thing.error("l1")).tobytes()
        elif isinstance(thing, tc.Monitor):
            thing.update(b, y)
            bits += np.array(thing.e_value).tobytes()
        elif isinstance(thing, tc.Bank):
            thing.update([1], np.eye(len(b))[[k]])
            bits += thing.predict([1])[0].points.tobytes()
        elif isinstance(thing, tc.Late):
            bits += thing.predict(b, id=f"next {k}", now=30).points.tobytes()
            thing.update(f"next {k}", y)
            bits += str(thing.leads()).encode()
        else:
            x = thing.predict(*asked(thing, k))
            bits += x.points.tobytes() + x.weights.tobytes()
            thing.update(y)
    return hashlib.sha256(bits).hexdigest()


def revisions() -> Iterator[Step]:
    """Requests to a stream whose forecasts are revised: one question is answered, and one awaits its outcome."""
    yield Step("create", lambda books: books.create(NewStream("revised", classes=["no", "yes"], revises=True)))
    for p in (0.5, 0.75, 0.25):
        news = [NewForecast(question, p=[1 - p, p]) for question in ("a", "b")]
        yield Step("revise", partial(Books.forecast, name="revised", new=news))
    yield Step("settle", lambda books: books.settle([NewOutcome("revised", "a", 1)]))


def main() -> None:
    path = Path(__file__).parent / f"data/kept-{tc.__version__}.zip"
    answers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def keep(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # dated 1980: the same bytes again

        for name, thing in things():
            content = state.dumps(thing)
            keep(f"snapshots/{name}.treecal", content)
            answers[name] = answer(state.loads(content))
        made, copy, clock = f"{folder}/made.sqlite", Path(folder) / "books.sqlite", Clock()
        with Writer(open_store(made), clock=clock) as writer:
            send_all(writer, clock, [*steps(rounds=24), *revisions()], together=3, told=lambda number: None)
        back_up(made, copy)
        spool = Spool(f"{folder}/spool")
        spool.append(SPOOLED)
        spool.close()
        for file in (copy, Path(folder) / "spool"):
            keep(file.name, file.read_bytes())
        keep("answers.json", json.dumps(answers, indent=1).encode())


def kept(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


def cases() -> list[Any]:
    return [
        pytest.param(path, name, id=f"{path.stem}-{name}")
        for path in KEPT
        for name in json.loads(kept(path, "answers.json"))
    ]


@pytest.mark.parametrize(("path", "name"), cases())
def test_snapshots_go_on_with_the_same_bits(path: Path, name: str) -> None:
    thing = state.loads(kept(path, f"snapshots/{name}.treecal"))
    assert type(thing).__name__ == name.split()[0]
    assert answer(thing) == json.loads(kept(path, "answers.json"))[name]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_books_open_and_are_sound(path: Path, tmp_path: Path) -> None:
    books = tmp_path / "books.sqlite"
    books.write_bytes(kept(path, "books.sqlite"))
    with open_store(str(books)) as store:
        found = Books(store, clock=Clock())
        assert found.names() == ["certified", "corrected", "revised", "watched"]
        assert [each.problems for each in check_books(store)] == [[], [], [], []]
        assert found.player("revised").revisions.leads()
        store.begin()
        found.forecast("corrected", [NewForecast("new", [0.5, 0.5], {"site": "s0"})])
        found.forecast("revised", [NewForecast("b", [0.125, 0.875])])
        found.settle([NewOutcome("corrected", "new", 1), NewOutcome("revised", "b", 1)])
        store.commit()
        assert [each.problems for each in check_books(store)] == [[], [], [], []]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_spools_are_delivered(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "spool"
    file.write_bytes(kept(path, "spool"))
    spool = Spool(file)
    assert [row.item for row in spool.head(10)] == SPOOLED
    assert spool.counts.damaged == 0
    spool.close()


def test_this_version_is_kept_and_nothing_is_missing() -> None:
    """A kind that is new is kept with the version that it comes with."""
    path = next(path for path in KEPT if path.stem == f"kept-{tc.__version__}")
    assert set(json.loads(kept(path, "answers.json"))) == {name for name, _ in things()}, "python -m tests.test_kept"
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        assert archive.testzip() is None
    assert path.stat().st_size < 200_000


if __name__ == "__main__":
    main()
