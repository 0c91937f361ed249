"""`treecal demo`: a real model corrected, then the default forecaster on real streams and against an adversary."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

import treecal as tc
from treecal.cli._options import Force, Json
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page, say, table as new_table
from treecal.io import new_file
from treecal.ledger import Brier
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
"""Number of departures to forecast: those of eleven days of January, after the first."""
DAYS = 13
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
        HTML file for a report with plots; needs the extra `plots`.
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
        # That of `make demo` need not be on the path; of `python -m treecal` it is a file of the package.
        path = f"{sys.executable} -m treecal" if sys.argv[0].endswith("__main__.py") else sys.argv[0]
        treecal = "treecal" if shutil.which("treecal") else path
        page().print(f"Next: correct your own model's forecasts: {treecal} recalibrate --help", soft_wrap=True)
    return Exit.FINE


def _compile() -> None:
    """Have compiled what 10,000 rounds of the model need."""
    tc.AutoCorrector(tc.Simplex(2), scores=None).update_many(np.full((9, 2), 0.5), np.zeros(9, int))


def play_all() -> Iterator[Section]:
    """Correct the model, then play every stream, and an adversary."""
    streams = seattle_weather(), seattle_wet_or_dry(), atlantic_storms()  # data that are missing are missed at once
    compiling = Thread(target=_compile)  # while more data are read
    compiling.start()
    flights = new_york_flights_model(days=DAYS)
    compiling.join()
    yield play_model(flights)
    for stream in streams:
        yield play_stream(stream.title, stream.space, stream.outcomes)
    yield play_stream("New York's departures", flights.space, flights.outcomes[:FLIGHTS])
    yield play_stream("An adversary who sees the forecasts", tc.Simplex(2), None)


def play_model(stream: ModelStream) -> Section:
    """Play a model's forecasts, as they are, and corrected."""
    outcomes = stream.outcomes[:FLIGHTS]
    forecasts = stream.forecasts[:FLIGHTS]
    forecasts = forecasts / forecasts.sum(axis=1, keepdims=True)  # the sums are 1 up to rounding
    corrector = tc.AutoCorrector(stream.space, scores=None)
    with progress("The model, corrected") as done:
        after = play(
            corrector, outcomes, forecasts=forecasts, name="the model, corrected", note=_CORRECTED, progress=done
        )
    assert after.before is not None
    model = replace(after.before, name="the model", made="logistic regression", note=_MODEL)
    section = Section(stream.title, [model, after])
    raw, corrected = section.verdicts
    text = f"corrected while it runs, the model's class-wise ECE falls from {raw.error:.3f} to {corrected.error:.3f}."
    text += " To correct your own: treecal recalibrate, or tc.AutoCorrector."
    return replace(section, summary=text)


def play_stream(title: str, space: tc.Simplex, outcomes: ArrayLike | None) -> Section:
    """Play outcomes, or an adversary, with the default forecaster; an adversary with its eager part alone, too."""
    stream: ArrayLike | Adversary = LedgerAdversary(space) if outcomes is None else outcomes
    rounds = ADVERSARY if outcomes is None else len(np.asarray(outcomes))
    played: list[tuple[str, tc.Forecaster, str]] = [("Guarded", tc.Guarded(space), _GUARDED)]
    if outcomes is None:
        played.append(("Codebook (eager part alone)", tc.Codebook(tc.Tracker(space)), _EAGER))
    entries = []
    for name, forecaster, note in played:
        with progress(f"{title}: {type(forecaster).__name__}") as done:
            entry = play(forecaster, stream, rounds=rounds, name=name, note=note, at_once=False, progress=done)
            entries.append(entry)
    section = Section(title, entries)
    own, *alone = section.verdicts
    held = own.entry.guard
    assert held is not None
    text = f"{own.level}. The class-wise ECE of Guarded is {own.error:.3f}; by chance it would be {own.chance:.3f}."
    if alone:
        text += f" Its eager part alone has {alone[0].error:.3f}."
    text += f" The safe part forecast {held.safe_rounds:,} of the {rounds:,} rounds."
    return replace(section, summary=text)


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
    scores = [_brier(v.entry).score for v in section.verdicts]
    return (
        f"{raw.entry.rounds:,} departures from New York: early, on time, late, very late or cancelled. Most often "
        f"the model gives a class about {100 * before.forecast[most]:.0f} %, and is right in "
        f"{100 * before.outcome[most]:.0f} %; corrected, it is right about as often as it says. Class by class, "
        f"mean outcomes differ from the forecasts by {raw.error:.3f} before and by {corrected.error:.3f} after "
        f"(class-wise ECE; 0 is calibrated). The Brier score, a mean squared error, falls from {scores[0]:.2f} to "
        f"{scores[1]:.2f}."
    )


def streams_table(sections: list[Section]) -> Table:
    """Return one line per stream: the verdict on Guarded, its error and its guarantee.

    All errors are class-wise ECE. The guarantee is about the exact ℓ1 error, the sum over classes, which is no smaller
    than that of the ECE of all classes: so the mean over classes has that bound over their number.
    """
    columns = (
        "stream",
        ">rounds",
        ">ECE of\nGuarded",
        "verdict",
        ">guaran-\nteed ≤",
    )
    shown = new_table("2. Four real streams and an adversary, forecast without a model", *columns)
    for section in sections:
        guarded = section.verdicts[0]
        vacuous = guarded.bound is None or guarded.bound >= guarded.worst
        classes = len(section.names)
        if vacuous and guarded.entry.ahead is not None:
            rounds, most = guarded.entry.ahead
            bound = f"{most / classes:.2f} in {rounds:,}"
        else:
            bound = "none" if guarded.bound is None else f"{guarded.bound / classes:.2f}"
        shown.add_row(section.title, f"{guarded.entry.rounds:,}", f"{guarded.error:.3f}", guarded.level, bound)
    return shown


def streams_conclusion(sections: list[Section]) -> str:
    """Return what the second table means."""
    scores = [_brier(each.entries[0]) for each in sections[:-1]]
    few = any(each.verdicts[0].level == "cannot tell" for each in sections)
    untold = "; where larger errors could hide in so few rounds, one cannot tell" if few else ""
    gains = [100 * (1 - score.score / score.uncertainty) for score in scores]
    alone = sections[-1].verdicts[1].error
    return (
        "ECE: class by class, by how much the mean outcomes differ from the forecasts. The verdict compares it with "
        f"chance, and then with the base rates{untold}. Guarded is the default: its eager part follows the stream, and "
        "its safe part takes over where that fails, as against the adversary, who leads the eager part alone to an "
        f"ECE of {alone:.3f}. So its guarantee holds for every sequence of outcomes; it falls with the rounds. Skill "
        "counts too: on the real streams the Brier score of Guarded is "
        f"{min(gains):.0f} to {max(gains):.0f} % below that of the best constant forecast, chosen in hindsight."
    )


def figures(verdict: Verdict) -> dict[str, object]:
    """Return the errors, the guarantee and the verdict of one entry as JSON values."""
    entry = verdict.entry
    return {
        "forecaster": entry.name,
        "rounds": entry.rounds,
        "forecasts": len(entry.exact),
        "errors": {repr(entry.norm): {"exact": verdict.exact_error}},
        "classwise_ece": verdict.error,
        "brier": _brier(entry).score,
        "bound": verdict.bound,
        "verdict": None if verdict.judged is None else verdict.judged.to_dict(),
    }


def _brier(entry: Entry) -> Brier:
    return entry.exact.brier(squares=entry.rounds)  # outcomes are classes, an adversary's, too
