"""`treecal arena`: forecasters × streams, one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table
from rich.text import Text

from treecal.cli._options import Json, NormName, Outcomes, Rounds, as_norm, split
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page
from treecal.exceptions import ParameterError
from treecal.forecasters import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treecal.arena import Standing

_AVERAGE = "average in tenths, best half-life in hindsight"
_BESIDE = "guarded"


def arena(
    *,
    outcomes: Outcomes = Outcomes(dim=3),  # noqa: B008 # frozen
    rounds: Rounds = 1000,
    norm: NormName = "l1",
    forecasters: str | None = None,
    streams: str | None = None,
    real: bool = False,
    measure: Literal["error", "brier", "resolution"] = "error",
    seeds: int = 1,
    limit: float | None = None,
    workers: int | None = None,
    folder: Path | None = None,
    json: Json = False,
) -> int:
    """Run every forecaster on every stream, random, hard, adversarial or real, and compare their errors.

    With --folder, finished runs are kept: the same command resumes where it was stopped.

        treecal arena --dim 3 --rounds 2000
        treecal arena --real
        treecal arena --real --streams Seattle,storms --measure brier
        treecal arena --dim 2 --forecasters treecal,harmonic --streams drift

    Exit codes: 0 success, 2 invalid options, 130 interrupted.

    Parameters
    ----------
    forecasters
        Names of forecasters, separated by commas; by default all (see `treecal forecast --help`).
    streams
        Names of streams, separated by commas; by default all.
    real
        Run on real streams, whole (20,000 rounds at most), instead of those of the outcome set: without --streams on
        the 54 by which nothing in this package was chosen, and compare the forecasters on all of them together, and
        with a moving average in tenths that knows its best half-life. A forecaster then has 20 seconds for each, if
        --limit does not say otherwise. --rounds and the set do not matter. Needs the extra `data`.
    measure
        What to show: the calibration error, the Brier score (of a distribution, the expected score of a draw from it),
        or the resolution: how far the mean outcomes of the forecasts lie from the mean of all outcomes.
    seeds
        Number of random seeds to average over. Where neither stream nor forecaster is random, one is played.
    limit
        Seconds of processor time for one forecaster on one stream; slower ones are left out, with a note.
    workers
        Number of processes; by default one per core.
    folder
        Folder to keep finished runs in, and to resume from.
    """
    from treecal.arena import HELD_OUT, REAL, STREAMS, final, hindsight, race, standings

    norm_of_errors = as_norm(norm)
    for option, given in (("--seeds", seeds), ("--workers", workers)):
        if given is not None and given < 1:
            raise ParameterError.expected(option, given, "an integer of 1 or more")
    racers = _chosen("--forecasters", forecasters, REGISTRY)
    together = real and streams is None
    chosen = dict(HELD_OUT) if together else _chosen("--streams", streams, REAL | HELD_OUT if real else STREAMS)
    limit = 20.0 if together and limit is None else limit
    if real:
        races = [({name: each}, each.space, each.rounds) for name, each in chosen.items()]
    else:
        races = [(chosen, outcomes.space(), rounds)]
    how: dict[str, Any] = {"norms": [norm_of_errors], "seeds": range(seeds), "limit": limit}
    how |= {"workers": workers, "folder": folder}
    rows: list[dict[str, Any]] = []
    values: dict[tuple[str, str], float] = {}
    briers: dict[tuple[str, str], float] = {}
    if together:
        how["at"] = []
    for sources, space, length in races:
        with progress("runs" if len(races) == 1 else f"{next(iter(sources))}: runs") as done:
            table = race(racers, sources, [space], rounds=length, progress=done, **how)
        rows += table.to_pylist()
        found = final(table, norm=norm_of_errors, measure=measure)
        values |= {(stream, name): value for (_, stream, name), value in found.items()}
        if together:
            found = final(table, norm=norm_of_errors, measure="brier")
            briers |= {(stream, name): value for (_, stream, name), value in found.items()}
            for stream, source in sources.items():
                values[stream, _AVERAGE], briers[stream, _AVERAGE], _ = hindsight(source.outcomes)
    if json:
        where = {} if real else {"space": repr(races[0][1]), "rounds": rounds}
        emit({**where, "norm": repr(norm_of_errors), "runs": [_with_errors(**row) for row in rows]})
        return Exit.FINE
    paper = page()
    if together:
        paper.print(Text(f"{len(chosen)} real streams that were held out, beside {_BESIDE}"), soft_wrap=True)
        paper.print(_standings(standings(values, briers, _BESIDE), norm))
        return Exit.FINE
    what = {"error": f"{norm} error", "brier": "Brier score", "resolution": "resolution"}[measure]
    title = f"{what} per round " + ("on real streams" if real else f"after {rounds:,} rounds on {races[0][1]!r}")
    paper.print(Text(title), soft_wrap=True)
    shown = list(dict.fromkeys(stream for stream, _ in values))
    fit = max(1, (paper.width - 28) // 14)  # streams beside the names of the forecasters
    for first in range(0, len(shown), fit):
        paper.print(_table(values, shown[first : first + fit], bold=measure != "resolution"))
    for note in _notes(rows, values):
        paper.print(Text(note), soft_wrap=True)
    return Exit.FINE


def _standings(found: list[Standing], norm: str) -> Table:
    """Return forecasters down; means over all streams, and multiples of the other's on the streams of both, across."""
    table = Table()
    table.add_column("forecaster", no_wrap=True)
    for title in ("streams", f"{norm} error", "Brier", "× error", "× Brier", "least on"):
        table.add_column(title, justify="right")
    for own in found:
        figures = (f"{x:.3f}" for x in (own.error, own.brier, own.error_ratio, own.brier_ratio))
        table.add_row(own.forecaster, str(own.streams), *figures, str(own.best))
    return table


def _notes(rows: list[dict[str, Any]], values: Mapping[tuple[str, str], float]) -> list[str]:
    """Return why forecasters did not take part, or not with all seeds; and on which streams, if not on all."""
    where: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in rows:
        if row["note"]:
            what = "had fewer seeds" if (row["stream"], row["forecaster"]) in values else "did not take part"
            where.setdefault((row["forecaster"], what, row["note"].splitlines()[0]), {})[row["stream"]] = None
    everywhere = {row["stream"] for row in rows}
    return [
        f"{name} {what}{'' if set(streams) == everywhere else ' in ' + ', '.join(streams)}: {note}"
        for (name, what, note), streams in where.items()
    ]


def _chosen(option: str, given: str | None, known: Mapping[str, Any]) -> dict[str, Any]:
    names = split(option, given) or tuple(known)
    for name in names:
        if name not in known:
            raise ParameterError.expected(option, name, "one of " + ", ".join(known))
    return {name: known[name] for name in names}


def _with_errors(norm: str, error: float | None, per_node: float | None, **row: Any) -> dict[str, Any]:
    """Return a run with its errors by norm, as in every JSON document."""
    return row | {"errors": {norm: {"exact": error, "per_node": per_node}}}


def _table(values: dict[tuple[str, str], float], streams: list[str], *, bold: bool) -> Table:
    """Return forecasters down, streams across, the least value of each stream in bold."""
    table = Table()
    table.add_column("forecaster", no_wrap=True)
    for stream in streams:
        table.add_column(stream, justify="right", min_width=max(map(len, stream.split())))
    least = {stream: min(value for (s, _), value in values.items() if s == stream) for stream in streams}
    for name in dict.fromkeys(name for s, name in values if s in streams):
        cells = []
        for stream in streams:
            value = values.get((stream, name))
            text = "" if value is None else f"{value:.3f}"
            cells.append(Text(text, "bold" * (bold and value == least[stream])))
        table.add_row(name, *cells)
    return table
