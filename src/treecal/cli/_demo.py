"""The main job: forecast real streams with several forecasters, and say how calibrated each was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from rich.table import Table

import treecal as tc
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page, say
from treecal.correctors._base import Corrector
from treecal.io import new_file
from treecal.report import Entry, Section, play, render
from treecal.report._verdict import Verdict, judge
from treecal.streams import ClassStream, ModelStream, atlantic_storms, new_york_flights_model, seattle_weather

FLIGHTS = 20_000
"""Departures that are forecast: three weeks of January."""


def demo(*, report: Path | None = None, force: bool = False, json: bool = False) -> int:
    """Forecast real streams: weather, storms, and flights whose delays a model foretells. Takes about a minute.

    Prints how calibrated each forecaster was, and what the model's own forecasts were worth before and after they
    were put right.

        treecal demo

        treecal demo --report demo.html

    Exit codes: 0 fine, 2 bad options, 130 interrupted.

    Parameters
    ----------
    report
        Write an HTML report here, with pictures; it needs `pip install "treecal[plots]"`.
    force
        Replace a report that is there.
    json
        Write one JSON document.
    """
    with nullcontext() if report is None else new_file(report, force=force) as target:
        sections = []
        for section in play_all():
            sections.append(section)
            if not json:
                page().print(table(section), "")
        if json:
            emit([{"stream": section.title, "entries": [figures(v) for v in judge(section)]} for section in sections])
        else:
            page().print(*verdict(sections), sep="\n")
        if target is not None:
            command = f"treecal demo --report {report}"
            asked = {"forecasters": "all with their defaults", "flights": f"the first {FLIGHTS:,} departures"}
            page_of_all = render(sections, title="treecal on real streams", asked=asked, command=command)
            target.write_text(page_of_all, encoding="utf-8")
    if report is not None:
        say(f"the report, with pictures, is {report}.")
    return Exit.FINE


def play_all() -> Iterator[Section]:
    """Play every stream against everybody who can forecast it."""
    weather = seattle_weather()
    yield play_stream(weather, [*usual(weather), tc.Harmonic(weather.space)])
    dry = wet_or_dry(weather)
    yield play_stream(dry, [*usual(dry), tc.Harmonic(dry.space), tc.BinaryGrid()])
    storms = atlantic_storms()
    yield play_stream(storms, usual(storms))
    yield play_model(new_york_flights_model())


def usual(stream: ClassStream) -> list[tc.Forecaster]:
    """Return those that forecast any stream of any length."""
    return [tc.RunningMean(stream.space), tc.TreeCal(stream.space), tc.AdaptiveTreeCal(stream.space)]


def wet_or_dry(weather: ClassStream) -> ClassStream:
    """Return a stream of two classes: whether anything fell from the sky."""
    wet = weather.outcomes[:, [name in ("drizzle", "rain", "snow") for name in weather.classes]].sum(axis=1)
    return ClassStream("Seattle, wet or dry", ("dry", "wet"), np.column_stack([1 - wet, wet]))


def play_stream(stream: ClassStream, forecasters: list[tc.Forecaster]) -> Section:
    """Play one stream, with a bar for each forecaster."""
    entries = []
    for forecaster in forecasters:
        with progress(f"{stream.title}: {type(forecaster).__name__}", total=len(stream)) as done:
            entries.append(play(forecaster, stream.outcomes, progress=done))
    return Section(f"{stream.title} ({len(stream):,} rounds)", entries, stream.classes)


def play_model(stream: ModelStream) -> Section:
    """Play a model's forecasts: as they are, put right, and against forecasters that know only the outcomes."""
    outcomes, said = stream.outcomes[:FLIGHTS], stream.forecasts[:FLIGHTS]
    said = said / said.sum(axis=1, keepdims=True)  # the sums are 1 up to rounding
    scaled: Corrector = tc.Chain([tc.VectorScaling(stream.space), tc.Recalibrator(stream.space)])
    with progress(f"{stream.title}: the model put right", total=FLIGHTS) as done:
        right = play(scaled, outcomes, said=said, name="the model, put right", progress=done)
    blind = play_stream(ClassStream(stream.title, stream.classes, outcomes), usual(stream)).entries
    model = Entry("the model", scaled.ledgers["before"], made="logistic regression")
    return Section(f"{stream.title} ({FLIGHTS:,} rounds)", [model, right, *blind], stream.classes)


def table(section: Section) -> Table:
    """Return one line for each forecaster: its errors, what it was certain of beforehand, and a word on it."""
    shown = Table(title=section.title, title_justify="left")
    shown.add_column("forecaster")
    for name in ("forecasts", "exact ℓ1", "judged ℓ1", "certain"):
        shown.add_column(name, justify="right")
    shown.add_column("verdict")
    for one in judge(section):
        bound = "–" if one.bound is None else f"{one.bound:.2f}"
        cells = (f"{len(one.exact):,}", f"{one.exact_error:.3f}", f"{one.error:.3f}", bound)
        shown.add_row(one.entry.name, *cells, one.level)
    return shown


def figures(verdict: Verdict) -> dict[str, object]:
    """Return the same line as data."""
    return {
        "forecaster": verdict.entry.name,
        "forecasts": len(verdict.exact),
        "exact_error": verdict.exact_error,
        "judged_error": verdict.error,
        "judged": verdict.how,
        "bound": verdict.bound,
        "verdict": verdict.level,
    }


def verdict(sections: list[Section]) -> list[str]:
    """Return what the tables mean, in a few sentences."""
    weather, flights = judge(sections[0]), judge(sections[-1])
    mean, tree = weather[0], weather[1]
    model, right = flights[0], flights[1]
    return [
        "The exact error takes each distinct forecast by itself: when p was said, how far from p was what happened, on "
        f"average? On Seattle's weather it was {tree.exact_error:.2f} for TreeCal and {mean.exact_error:.2f} for the "
        "running mean (0 is calibrated, 2 as wrong as can be), which hardly ever says the same thing twice. Where "
        "somebody's forecasts hardly repeat, all are judged in cells of 0.1, which is kinder to everybody.",
        f"The flights' model was off by {model.error:.2f} in cells; put right online, by {right.error:.2f}.",
        "'Certain' is what the error could not have exceeded, had an adversary chosen the outcomes.",
    ]
