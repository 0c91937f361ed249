"""`treecal recommend`: the forecaster with the least certified error."""

from __future__ import annotations

from treecal.cli._options import Json, NormName, Outcomes, Rounds, as_norm
from treecal.cli._terminal import Exit, emit, page, table
from treecal.forecasters import ORDINARY, recommend as compare


def recommend(
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    norm: NormName = "l1",
    rounds: Rounds,
    json: Json = False,
) -> int:
    """Find the forecaster with the least certified error for a set, a norm and a number of rounds.

    A certificate holds for every sequence of outcomes; on ordinary ones errors are many times smaller.

        treecal recommend --dim 2 --rounds 1000
        treecal recommend --dim 3 --box 0 1 --norm linf --rounds 500

    Exit codes: 0 success, 2 invalid options.
    """
    space = outcomes.space()
    measure = as_norm(norm)
    found = compare(space, measure, rounds=rounds)
    best = found.best
    centre = found.trivial
    if json:
        asked = {"space": repr(space), "norm": repr(measure), "rounds": rounds}
        emit(asked | {"radius": centre, "forecasters": found.table})
        return Exit.FINE
    shown = table(f"Certified {norm} error after {rounds:,} rounds", ">guaranteed ≤", "forecaster", "why")
    for choice in found.table:
        shown.add_row("" if choice.bound is None else f"{choice.bound:.3f}", choice.forecaster, choice.why)
    page().print(shown)
    if best.bound is not None and best.bound < centre:
        verdict = f"{best.forecaster} guarantees an error of at most {best.bound:.3f} per round on every sequence; "
        verdict += f"always forecasting the centre guarantees {centre:.3f}."
    else:
        verdict = f"No certificate beats always forecasting the centre ({centre:.3f}). Compare forecasters "
        verdict += "empirically: treecal arena."
    page().print(verdict, soft_wrap=True)
    page().print(ORDINARY, soft_wrap=True)
    return Exit.FINE
