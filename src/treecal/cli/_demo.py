"""The main job: forecast real streams with several forecasters, and report how calibrated each was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from rich.table import Table

import treecal as tc
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page, say
from treecal.io import new_file
from treecal.report import Entry, Section, Verdict, play, render
from treecal.streams import ClassStream, ModelStream, atlantic_storms, new_york_flights_model, seattle_weather

FLIGHTS = 20_000
"""Departures to forecast: three weeks of January."""


def demo(*, report: Path | None = None, force: bool = False, json: bool = False) -> int:
    """Forecast real streams: weather, storms, and flights with a model of their delays. Takes about a minute.

    Prints how calibrated each forecaster was, and how calibrated the model was before and after recalibration.

        treecal demo

        treecal demo --report demo.html

    Exit codes: 0 fine, 2 bad options, 130 interrupted.

    Parameters
    ----------
    report
        Write an HTML report with pictures to this file; it needs `pip install "treecal[plots]"`.
    force
        Overwrite an existing report.
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
            emit([{"stream": each.title, "entries": [figures(v) for v in each.verdicts]} for each in sections])
        else:
            page().print(*conclusions(sections), sep="\n")
        if target is not None:
            details = {"forecasters": "all with their defaults", "flights": f"the first {FLIGHTS:,} departures"}
            command = f"treecal demo --report {report}"
            html = render(sections, title="treecal on real streams", details=details, command=command)
            target.write_text(html, encoding="utf-8")
    if report is not None:
        say(f"the report, with pictures, is {report}.")
    return Exit.FINE


def play_all() -> Iterator[Section]:
    """Play every stream with every forecaster that suits it."""
    weather = seattle_weather()
    yield play_stream(weather, [*usual(weather), tc.Harmonic(weather.space)])
    dry = wet_or_dry(weather)
    yield play_stream(dry, [*usual(dry), tc.Harmonic(dry.space), tc.BinaryGrid(dry.space)])
    storms = atlantic_storms()
    yield play_stream(storms, usual(storms))
    yield play_model(new_york_flights_model())


def usual(stream: ClassStream) -> list[tc.Forecaster]:
    """Return forecasters for any stream of any length."""
    return [tc.RunningMean(stream.space), tc.TreeCal(stream.space), tc.AdaptiveTreeCal(stream.space)]


def wet_or_dry(weather: ClassStream) -> ClassStream:
    """Return a stream of two classes: wet and dry days."""
    wet = weather.outcomes[:, [name in ("drizzle", "rain", "snow") for name in weather.classes]].sum(axis=1)
    return ClassStream("Seattle, wet or dry", ("dry", "wet"), np.column_stack([1 - wet, wet]))


def play_stream(stream: ClassStream, forecasters: list[tc.Forecaster]) -> Section:
    """Play one stream, with a progress bar for each forecaster."""
    entries = []
    for forecaster in forecasters:
        with progress(f"{stream.title}: {type(forecaster).__name__}") as done:
            entries.append(play(forecaster, stream.outcomes, progress=done))
    return Section(f"{stream.title} ({len(stream):,} rounds)", entries)


def play_model(stream: ModelStream) -> Section:
    """Play a model's forecasts, as they are and recalibrated, and forecasters that know only the outcomes."""
    outcomes, forecasts = stream.outcomes[:FLIGHTS], stream.forecasts[:FLIGHTS]
    forecasts = forecasts / forecasts.sum(axis=1, keepdims=True)  # the sums are 1 up to rounding
    chain = tc.Chain([tc.VectorScaling(stream.space), tc.Recalibrator(stream.space)])
    with progress(f"{stream.title}: the model, recalibrated") as done:
        after = play(chain, outcomes, forecasts=forecasts, name="the model, recalibrated", progress=done)
    without = play_stream(ClassStream(stream.title, stream.classes, outcomes), usual(stream))
    model = Entry("the model", chain.ledgers["before"], made="logistic regression")
    return Section(without.title, [model, after, *without.entries])


def table(section: Section) -> Table:
    """Return one line for each forecaster: its errors, its guarantee, and the verdict."""
    shown = Table(title=section.title, title_justify="left")
    shown.add_column("forecaster")
    for name in ("forecasts", "exact ℓ1", "binned ℓ1", "guaranteed ≤"):
        shown.add_column(name, justify="right")
    shown.add_column("verdict")
    for v in section.verdicts:
        binned = "–" if v.reading.resolution is None else f"{v.error:.3f}"
        bound = "–" if v.bound is None else f"{v.bound:.2f}"
        shown.add_row(v.entry.name, f"{len(v.entry.exact):,}", f"{v.exact_error:.3f}", binned, bound, v.level)
    return shown


def figures(verdict: Verdict) -> dict[str, object]:
    """Return the same line as data."""
    return {
        "forecaster": verdict.entry.name,
        "forecasts": len(verdict.entry.exact),
        "exact_error": verdict.exact_error,
        "error": verdict.error,
        "grouping": verdict.grouping,
        "bound": verdict.bound,
        "verdict": verdict.level,
    }


def conclusions(sections: list[Section]) -> list[str]:
    """Return what the tables mean, in a few sentences."""
    mean, tree, *_ = sections[0].verdicts
    model, after, *_ = sections[-1].verdicts
    return [
        "The exact error compares each distinct forecast with the mean outcome of its rounds. On Seattle's weather it "
        f"was {tree.exact_error:.2f} for TreeCal and {mean.exact_error:.2f} for the running mean, whose forecasts "
        "hardly ever repeat (0 is calibrated, 2 the worst possible). If the forecasts of one forecaster hardly repeat, "
        "those of all are binned at 0.1 for the verdict.",
        f"The flights' model had a binned error of {model.error:.2f}; recalibrated online, {after.error:.2f}.",
        "'Guaranteed' bounds the exact error on every sequence, even if an adversary chooses the outcomes.",
    ]
