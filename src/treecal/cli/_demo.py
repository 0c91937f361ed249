"""`treecal demo`: forecast real streams with several forecasters, and compare how calibrated they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from rich.table import Table

import treecal as tc
from treecal.cli._options import Force, Json
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page, say
from treecal.cli._terminal import table as new_table
from treecal.io import new_file
from treecal.report import Entry, Section, Verdict, play, render
from treecal.streams import (
    ClassStream,
    ModelStream,
    atlantic_storms,
    new_york_flights_model,
    seattle_weather,
    seattle_wet_or_dry,
)

FLIGHTS = 20_000
"""Number of departures to forecast: three weeks of January."""


def demo(*, report: Path | None = None, force: Force = False, json: Json = False) -> int:
    """Forecast real streams: weather, storms, and flight delays that a model predicts. Takes about a minute.

    Prints how calibrated each forecaster is, and how good the model's forecasts are before and after recalibration.

        treecal demo
        treecal demo --report demo.html

    Exit codes: 0 success, 2 invalid options, 130 interrupted.

    Parameters
    ----------
    report
        HTML file for a report with plots; needs `pip install "treecal[plots]"`.
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
            command = f"treecal demo --report {report}"
            details = {"forecasters": "all with their defaults", "flights": f"the first {FLIGHTS:,} departures"}
            html = render(sections, title="treecal on real streams", details=details, command=command)
            target.write_text(html, encoding="utf-8")
    if report is not None:
        say(f"report written to {report}.")
    return Exit.FINE


def play_all() -> Iterator[Section]:
    """Play every stream against every forecaster that suits it."""
    weather = seattle_weather()
    yield play_stream(weather, [*usual(weather), tc.Harmonic(weather.space)])
    dry = seattle_wet_or_dry()
    yield play_stream(dry, [*usual(dry), tc.Harmonic(dry.space), tc.BinaryGrid(dry.space)])
    storms = atlantic_storms()
    yield play_stream(storms, usual(storms))
    yield play_model(new_york_flights_model())


def usual(stream: ClassStream) -> list[tc.Forecaster]:
    """Return the forecasters that suit any stream of any length."""
    return [tc.RunningMean(stream.space), tc.TreeCal(stream.space), tc.AdaptiveTreeCal(stream.space)]


def play_stream(stream: ClassStream, forecasters: list[tc.Forecaster]) -> Section:
    """Play one stream, with a bar for each forecaster."""
    entries = []
    for forecaster in forecasters:
        with progress(f"{stream.title}: {type(forecaster).__name__}") as done:
            entries.append(play(forecaster, stream.outcomes, progress=done))
    return Section(f"{stream.title} ({len(stream):,} rounds)", entries)


def play_model(stream: ModelStream) -> Section:
    """Play a model's forecasts, raw and recalibrated, and forecasters that see only the outcomes."""
    outcomes, forecasts = stream.outcomes[:FLIGHTS], stream.forecasts[:FLIGHTS]
    forecasts = forecasts / forecasts.sum(axis=1, keepdims=True)  # the sums are 1 up to rounding
    corrector = tc.Chain([tc.VectorScaling(stream.space), tc.Recalibrator(stream.space)])
    with progress(f"{stream.title}: the model, recalibrated") as done:
        after = play(corrector, outcomes, forecasts=forecasts, name="the model, recalibrated", progress=done)
    others = play_stream(ClassStream(stream.title, stream.classes, outcomes), usual(stream))
    model = Entry("the model", corrector.ledgers["before"], made="logistic regression")
    return Section(others.title, [model, after, *others.entries])


def table(section: Section) -> Table:
    """Return one line per forecaster: its errors, its guarantee and a verdict."""
    columns = ("forecaster", ">forecasts", ">exact ℓ1", ">binned ℓ1", ">guaranteed ≤", "verdict")
    shown = new_table(section.title, *columns)
    for v in section.verdicts:
        binned = "–" if v.reading.resolution is None else f"{v.error:.3f}"
        bound = "–" if v.bound is None else f"{v.bound:.2f}"
        shown.add_row(v.entry.name, f"{len(v.entry.exact):,}", f"{v.exact_error:.3f}", binned, bound, v.level)
    return shown


def figures(verdict: Verdict) -> dict[str, object]:
    """Return the same line as JSON values."""
    errors = {"exact": verdict.exact_error}
    if verdict.reading.resolution is not None:
        errors["binned"] = verdict.error
    return {
        "forecaster": verdict.entry.name,
        "rounds": verdict.reading.rounds,
        "forecasts": len(verdict.entry.exact),
        "errors": {repr(verdict.entry.norm): errors},
        "bound": verdict.bound,
        "verdict": verdict.level,
    }


def conclusions(sections: list[Section]) -> list[str]:
    """Return what the tables mean, in a few sentences."""
    mean, tree, *_ = sections[0].verdicts
    model, corrected, *_ = sections[-1].verdicts
    return [
        "The exact error compares each distinct forecast with its mean outcome; 0 is calibrated, 2 the worst possible. "
        f"On Seattle's weather it is {tree.exact_error:.2f} for TreeCal and {mean.exact_error:.2f} for the running "
        "mean, whose forecasts hardly ever repeat. Where the forecasts of any forecaster hardly repeat, all are binned "
        "in cells of 0.1 for the verdict.",
        f"The flight model's binned error is {model.error:.2f}; recalibrated online, {corrected.error:.2f}.",
        "The guarantee holds for every sequence of outcomes, even an adversary's.",
    ]
