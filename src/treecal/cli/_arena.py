"""`treecal arena`: forecasters × streams, one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from treecal.cli._options import Json, NormName, Outcomes, Rounds, as_norm, split
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page
from treecal.exceptions import ParameterError
from treecal.forecasters import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Mapping


def arena(
    *,
    outcomes: Outcomes = Outcomes(dim=3),  # noqa: B008 # frozen
    rounds: Rounds = 1000,
    norm: NormName = "l1",
    forecasters: str | None = None,
    streams: str | None = None,
    seeds: int = 1,
    workers: int | None = None,
    folder: Path | None = None,
    json: Json = False,
) -> int:
    """Run every forecaster on every stream, random, hard and adversarial, and compare their errors.

    With --folder, finished runs are kept: the same command resumes where it was stopped.

        treecal arena --dim 3 --rounds 2000
        treecal arena --dim 2 --forecasters treecal,harmonic --streams drift

    Exit codes: 0 success, 2 invalid options, 130 interrupted.

    Parameters
    ----------
    forecasters
        Names of forecasters, separated by commas; by default all (see `treecal forecast --help`).
    streams
        Names of streams, separated by commas; by default all.
    seeds
        Number of random seeds to average over.
    workers
        Number of processes; by default one per core.
    folder
        Folder to keep finished runs in, and to resume from.
    """
    from treecal.arena import STREAMS, final, race

    space, measure = outcomes.space(), as_norm(norm)
    for option, given in (("--seeds", seeds), ("--workers", workers)):
        if given is not None and given < 1:
            raise ParameterError.expected(option, given, "an integer of 1 or more")
    with progress("runs") as done:
        result = race(
            _chosen("--forecasters", forecasters, REGISTRY),
            _chosen("--streams", streams, STREAMS),
            [space],
            rounds=rounds,
            norms=[measure],
            seeds=range(seeds),
            workers=workers,
            folder=folder,
            progress=done,
        )
    if json:
        runs = [_with_errors(**row) for row in result.to_pylist()]
        emit({"space": repr(space), "norm": repr(measure), "rounds": rounds, "runs": runs})
        return Exit.FINE
    errors = {(stream, name): error for (_, stream, name), error in final(result, norm=measure).items()}
    refused = {row["forecaster"]: row["note"] for row in result.to_pylist() if row["note"]}
    paper = page()
    paper.print(Text(f"{norm} error per round after {rounds:,} rounds on {space!r}"), soft_wrap=True)
    shown = list(dict.fromkeys(stream for stream, _ in errors))
    fit = max(1, (paper.width - 28) // 14)  # streams beside the names of the forecasters
    for first in range(0, len(shown), fit):
        paper.print(_table(errors, shown[first : first + fit]))
    for name, note in refused.items():
        paper.print(Text(f"{name} did not take part: {note.splitlines()[0]}"), soft_wrap=True)
    return Exit.FINE


def _chosen(option: str, given: str | None, known: Mapping[str, Any]) -> dict[str, Any]:
    names = tuple(known) if given is None else split(option, given)
    for name in names:
        if name not in known:
            raise ParameterError.expected(option, name, "one of " + ", ".join(known))
    return {name: known[name] for name in names}


def _with_errors(norm: str, error: float | None, per_node: float | None, **row: Any) -> dict[str, Any]:
    """Return a run with its errors by norm, as in every JSON document."""
    return row | {"errors": {norm: {"exact": error, "per_node": per_node}}}


def _table(errors: dict[tuple[str, str], float], streams: list[str]) -> Table:
    """Return forecasters down, streams across, the least error of each stream in bold."""
    table = Table()
    table.add_column("forecaster", no_wrap=True)
    for stream in streams:
        table.add_column(stream, justify="right", min_width=max(map(len, stream.split())))
    least = {stream: min(error for (s, _), error in errors.items() if s == stream) for stream in streams}
    for name in dict.fromkeys(name for _, name in errors):
        cells = (Text(f"{errors[s, name]:.3f}", "bold" * (errors[s, name] == least[s])) for s in streams)
        table.add_row(name, *cells)
    return table
