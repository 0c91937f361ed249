"""`treecal recommend`: the forecaster with the least certified error."""

from __future__ import annotations

import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from treecal.cli._options import Outcomes, as_norm
from treecal.cli._terminal import Exit, emit, page
from treecal.forecasters import recommend as ask


def recommend(
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    norm: str = "l1",
    rounds: int,
    json: bool = False,
) -> int:
    """Say which forecaster has the least certified error for a set, a norm and a number of rounds.

        treecal recommend --dim 2 --rounds 1000

        treecal recommend --dim 3 --box 0 1 --norm linf --rounds 500

    Between 1,000 and 100,000 rounds this takes seconds, up to a minute: harmonic averaging is certified numerically.

    Exit codes: 0 fine, 2 bad options.

    Parameters
    ----------
    norm
        What the error is counted in: l1, l2, linf, or l and a number, as l1.5.
    rounds
        Rounds to be played.
    json
        Write one JSON document.
    """
    space, measure = outcomes.space(), as_norm(norm)
    errors = Console(stderr=True, quiet=not sys.stderr.isatty())
    with errors.status("certifying every forecaster …"):
        found = ask(space, measure, rounds=rounds)
    promises = found.best.bound is not None and found.best.bound < found.trivial
    if json:
        document = {"space": repr(space), "norm": norm, "rounds": rounds, "trivial": found.trivial}
        emit(document | {"promises": promises, "table": [asdict(choice) for choice in found.table]})
        return Exit.FINE
    table = Table(title=f"Certified {norm} error after {rounds:,} rounds", title_justify="left")
    table.add_column("at most", justify="right")
    table.add_column("forecaster")
    table.add_column("why")
    for choice in found.table:
        table.add_row("" if choice.bound is None else f"{choice.bound:.3f}", choice.forecaster, choice.why)
    paper = page()
    paper.print(table)
    if promises:
        paper.print(
            f"On every sequence {found.best.forecaster} errs by at most {found.best.bound:.3f} per round; always "
            f"forecasting the centre may err by {found.trivial:.3f}.",
            soft_wrap=True,
        )
    else:
        paper.print(
            f"No certificate beats always forecasting the centre ({found.trivial:.3f}). Compare forecasters "
            "empirically: treecal arena.",
            soft_wrap=True,
        )
    return Exit.FINE
