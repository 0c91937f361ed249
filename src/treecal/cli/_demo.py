"""`treecal demo`: a real model corrected, then the default forecaster on real streams and against an adversary."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

import treecal as tc
from treecal.cli._options import Force, Json
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page, say
from treecal.cli._terminal import table as new_table
from treecal.io import new_file
from treecal.plots import likeliest, reliability
from treecal.report import Entry, Section, Verdict, play, render
from treecal.streams import (
    Adversary,
    LedgerAdversary,
    ModelStream,
    atlantic_storms,
    new_york_flights_model,
    seattle_weather,
    seattle_wet_or_dry,
)

FLIGHTS = 10_000
"""Number of departures to forecast: the first eleven days of January."""
ADVERSARY = 5_000
"""Number of rounds against the adversary."""
_FEW = 0.01  # of all rounds: bins with less are left out of the table
_CORRECTED = "The same forecasts, corrected while they come. In the first rounds there is little to correct them by."
_MODEL = "A logistic regression, as it is: what there is to correct."
_GUARDED = (
    "treecal's default. Its eager part follows the stream; its safe part takes over where that fails, so that the "
    "calibration error is within a bound on every sequence."
)
_EAGER = "Guarded's eager part without the guard: it follows the stream, and an adversary leads it astray."
_SAFE = (
    "Guarded's safe part on its own, here to show what the guarantee alone would cost. It is built for the worst "
    "sequence, and gives up accuracy on ordinary ones; so in Guarded it forecasts only while the eager part is not "
    "trusted."
)


def demo(*, report: Path | None = None, force: Force = False, json: Json = False) -> int:
    """Correct a real model, then forecast real streams: weather, storms and flights. Takes less than a minute.

    Prints how often the model was right before and after the correction, and how calibrated Guarded, the default
    forecaster, is on each stream, with its guarantee.

        treecal demo
        treecal demo --report demo.html

    Exit codes: 0 success, 2 invalid options, 130 interrupted.

    Parameters
    ----------
    report
        HTML file for a report with plots; needs `pip install "treecal[plots]"`.
    """
    with nullcontext() if report is None else new_file(report, force=force) as target:
        sections: list[Section] = []
        for section in play_all():
            if not (json or sections):
                page().print(model_table(section), model_conclusion(section), sep="\n", end="\n\n")
            sections.append(section)
        if json:
            emit([{"stream": each.title, "entries": [figures(v) for v in each.verdicts]} for each in sections])
        else:
            page().print(streams_table(sections[1:]), streams_conclusion(sections[1:]), sep="\n", end="\n\n")
        if target is not None:
            command = f"treecal demo --report {report}"
            details = {"forecasters": "all with their defaults", "flights": f"the first {FLIGHTS:,} departures"}
            html = render(sections, title="treecal on real streams", details=details, command=command)
            target.write_text(html, encoding="utf-8")
    if report is not None:
        say(f"report written to {report}.")
    if not json:
        treecal = "treecal" if shutil.which("treecal") else sys.argv[0]  # that of `make demo` need not be on the path
        page().print(f"Next: correct your own model's forecasts: {treecal} recalibrate --help", soft_wrap=True)
    return Exit.FINE


def play_all() -> Iterator[Section]:
    """Correct the model, then play every stream, and an adversary."""
    streams = seattle_weather(), seattle_wet_or_dry(), atlantic_storms()  # data that are missing are missed at once
    flights = new_york_flights_model()
    yield play_model(flights)
    for stream in streams:
        yield play_stream(stream.title, stream.space, stream.outcomes)
    yield play_stream("New York's departures", flights.space, flights.outcomes[:FLIGHTS])
    yield play_stream("An adversary who sees the forecasts", tc.Simplex(2), None)


def play_model(stream: ModelStream) -> Section:
    """Play a model's forecasts, as they are, and corrected and guarded."""
    outcomes, forecasts = stream.outcomes[:FLIGHTS], stream.forecasts[:FLIGHTS]
    forecasts = forecasts / forecasts.sum(axis=1, keepdims=True)  # the sums are 1 up to rounding
    corrector = tc.GuardedCorrector(stream.space, corrector=tc.VectorScaling(stream.space), scores=None)
    with progress("The model, corrected") as done:
        after = play(
            corrector, outcomes, forecasts=forecasts, name="the model, corrected", note=_CORRECTED, progress=done
        )
    model = Entry("the model", after.before or after.ledger, made="logistic regression", note=_MODEL)
    section = Section(stream.title, [model, after])
    raw, corrected = section.verdicts
    text = f"corrected while it runs, the model's error falls from {raw.error:.3f} to {corrected.error:.3f}."
    return Section(section.title, section.entries, summary=text)


def play_stream(title: str, space: tc.Simplex, outcomes: ArrayLike | None) -> Section:
    """Play outcomes, or an adversary, with the default forecaster and each of its two parts alone."""
    guarded = tc.Guarded(space)
    safe = type(guarded.safe)
    rounds = ADVERSARY if outcomes is None else len(np.asarray(outcomes))
    entries = []
    for name, forecaster, note in (
        ("Guarded", guarded, _GUARDED),
        ("Codebook (eager part alone)", tc.Codebook(tc.Tracker(space)), _EAGER),
        (f"{safe.__name__} (safe part alone)", safe(space), _SAFE),
    ):
        stream: ArrayLike | Adversary = LedgerAdversary(space) if outcomes is None else outcomes
        with progress(f"{title}: {type(forecaster).__name__}") as done:
            entries.append(play(forecaster, stream, rounds=rounds, name=name, note=note, progress=done))
    errors = [entry.exact.error(entry.norm) for entry in entries]
    held = guarded.report()
    text = (
        f"Guarded has an error of {errors[0]:.3f}, its eager part alone {errors[1]:.3f}, its safe part alone "
        f"{errors[2]:.3f}. The safe part forecast {held.safe_rounds:,} of the {rounds:,} rounds."
    )
    return Section(title, entries, summary=text)


def model_table(section: Section) -> Table:
    """Return how often the likeliest class was right, by its probability, before and after the correction."""
    before, after = (reliability(likeliest(entry.exact), 1) for entry in section.entries)
    rounds = section.entries[0].exact.rounds
    columns = (
        "probability of the\nlikeliest class",
        ">the model:\nflights",
        ">\nright",
        ">corrected:\nflights",
        ">\nright",
    )
    shown = new_table("1. A real model, corrected while it runs", *columns)
    for k in range(10):
        cells = []
        for found in (before, after):
            at = np.flatnonzero((found.bin == k) & (found.weight >= _FEW * rounds))
            cells += [f"{found.weight[at[0]]:,.0f}", f"{100 * found.outcome[at[0]]:.0f} %"] if len(at) else ["", ""]
        if any(cells):
            shown.add_row(f"{10 * k} to {10 * k + 10} %", *cells)
    return shown


def model_conclusion(section: Section) -> str:
    """Return what the first table means."""
    raw, corrected = section.verdicts
    before = reliability(likeliest(raw.entry.exact), 1)
    most = int(before.weight.argmax())
    scores = [v.entry.exact.brier(v.entry.exact.rounds).score for v in section.verdicts]
    return (
        f"{raw.reading.rounds:,} departures from New York: early, on time, late, very late or cancelled. Most often "
        f"the model gives a class about {100 * before.forecast[most]:.0f} %, and is right in "
        f"{100 * before.outcome[most]:.0f} %; corrected, it is right about as often as it says. The calibration error "
        f"falls from {raw.error:.2f} to {corrected.error:.2f} (0 is calibrated, 2 the worst possible), the Brier "
        f"score, a mean squared error, from {scores[0]:.2f} to {scores[1]:.2f}."
    )


def streams_table(sections: list[Section]) -> Table:
    """Return one line per stream: the errors of Guarded and of its parts alone, its guarantee and a verdict."""
    columns = (
        "stream",
        ">rounds",
        ">error of\nGuarded",
        "verdict",
        ">guaran-\nteed ≤",
        ">eager\nalone",
        ">safe\nalone",
    )
    shown = new_table("2. Four real streams and an adversary, forecast without a model", *columns)
    for section in sections:
        guarded, *parts = section.verdicts
        bound = "none yet" if guarded.bound is None or guarded.bound >= guarded.worst else f"{guarded.bound:.2f}"
        own, *others = [f"{v.exact_error:.3f}" for v in (guarded, *parts)]
        shown.add_row(section.title, f"{guarded.reading.rounds:,}", own, guarded.level, bound, *others)
    return shown


def streams_conclusion(sections: list[Section]) -> str:
    """Return what the second table means."""
    scores = [each.entries[0].exact.brier(each.entries[0].exact.rounds) for each in sections[:-1]]
    gains = [100 * (1 - score.score / score.uncertainty) for score in scores]
    return (
        "Guarded is the default: its eager part follows the stream, and its safe part takes over where that fails, as "
        "against the adversary. So its guarantee holds for every sequence of outcomes; it falls with the rounds, and "
        "with many classes says nothing at first. The safe part alone is built for the worst sequence, and is shown "
        "for what that costs on ordinary ones. Skill counts too: on the real streams the Brier score of Guarded is "
        f"{min(gains):.0f} to {max(gains):.0f} % below that of the best constant forecast, chosen in hindsight."
    )


def figures(verdict: Verdict) -> dict[str, object]:
    """Return the errors, the guarantee and the verdict of one entry as JSON values."""
    errors = {"exact": verdict.exact_error}
    if verdict.reading.resolution is not None:
        errors["binned"] = verdict.error
    return {
        "forecaster": verdict.entry.name,
        "rounds": verdict.reading.rounds,
        "forecasts": len(verdict.entry.exact),
        "errors": {repr(verdict.entry.norm): errors},
        "brier": verdict.entry.exact.brier(verdict.entry.exact.rounds).score,
        "bound": verdict.bound,
        "verdict": verdict.level,
    }
