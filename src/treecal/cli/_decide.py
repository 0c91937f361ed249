"""`treecal decide`: what to do, row by row, given what each action costs; and what that would have cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.cli._options import Decimal, Force, Json, OnInvalid, read_losses, split
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page, say, table
from treecal.correctors import AutoCorrector, Gated, GuardedCorrector
from treecal.exceptions import ParameterError
from treecal.forecast import DecisionForecast
from treecal.forecasters import BUDGET
from treecal.geometry import Simplex, renormalised
from treecal.io import find_probabilities, new_file, open_source, read_outcomes, write_csv
from treecal.measures import Losses


def decide(
    path: str,
    /,
    *,
    loss: str,
    forecast: str | None = None,
    outcome: str = "outcome",
    classes: str | None = None,
    raw: bool = False,
    budget: float = BUDGET,
    decimal: Decimal = ".",
    on_error: OnInvalid = "stop",
    output: Path | None = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Decide row by row, each before its outcome is read, by a model's probabilities and what each action costs.

    The probabilities are corrected as by `treecal recalibrate`, once that has proved to be better, and the advice is
    guarded: what it would have saved to take other actions in place of those advised is bounded on every sequence of
    outcomes. Prints what the advice would have cost, beside acting on the probabilities as they are and always doing
    the same.

        treecal decide log.csv --loss costs.csv
        treecal decide log.csv --forecast p --outcome fraud --loss "0,20; 1,5; 5,0" --output advice.csv

    Exit codes: 0 success, 1 invalid rows were left out, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    path
        The log, in the order of time, as for `treecal audit`.
    loss
        What each action costs under each class: a CSV file with a column of the actions' names and one for each class;
        or a row per action, separated by semicolons, its costs by commas.
    forecast
        Columns of the probabilities, in the order of the classes, separated by commas; or, for two classes, the column
        of the second one. By default as for `treecal audit`.
    outcome
        Column of the outcome's class.
    classes
        The classes, in the order of the probabilities; by default those found in the log.
    raw
        Act on the probabilities themselves under guard, without correcting them.
    budget
        How much room wrong advice has before it is replaced.
    output
        CSV file for the advice: the row's number, what the probabilities as they are call for, the action advised, and
        the weight of each action, where it is to be drawn at random.
    """
    with ExitStack() as stack:
        target = None if output is None else stack.enter_context(new_file(output, force=force))
        log = open_source(path, decimal=decimal)
        names = split("--classes", classes) or None
        came = split("--outcome", outcome)
        columns = split("--forecast", forecast) if forecast else find_probabilities(log, came[0], names)
        rows = read_outcomes(
            log, outcome=came, forecast=columns, classes=names, one_hot=True, on_error=on_error, tolerance=None
        )
        space = Simplex(classes=[str(name) for name in rows.classes or rows.labels])
        losses = Losses(space, read_losses(loss))
        corrector = None if raw else Gated(AutoCorrector(space))
        guarded = GuardedCorrector(space, corrector=corrector, losses=losses, scores=None, budget=budget)
        costs = losses.tables[0].costs
        paid = np.zeros(2)  # as it is, and as advised
        always = np.zeros(len(costs))
        lines: list[list[Any]] = []
        with progress("rows") as done:
            for number, p, k in _rounds(rows):
                x = guarded.predict(p)
                assert isinstance(x, DecisionForecast)
                plain = losses.tables[0].best(p)
                paid += costs[plain, k], x.shares[0] @ costs[:, k]
                always += costs[:, k]
                guarded.update(k)
                if target is not None:
                    lines.append([number, losses.actions[plain], x.action, *x.shares[0].tolist()])
                done(guarded.rounds)
        if not guarded.rounds:
            raise ParameterError(f"there is no valid row in {path}.")
        if target is not None:
            header = ["row", "as_it_is", "action", *(f"weight_{name}" for name in losses.actions)]
            write_csv(target, [header, *lines])
    _report(guarded, losses, paid / guarded.rounds, always / guarded.rounds, json=json)
    if rows.problems.count:
        say(str(rows.problems))
    return Exit.FLAWED if rows.problems.count else Exit.FINE


def _rounds(rows: Any) -> Iterator[tuple[int, Array, int]]:
    """Yield the number of each row, its probabilities, which sum to 1, and the class of its outcome."""
    for chunk in rows:
        points = renormalised(np.asarray(chunk.forecasts, np.float64))
        yield from zip(chunk.rows.tolist(), points, chunk.outcomes.tolist(), strict=True)


def _report(guarded: GuardedCorrector, losses: Losses, paid: Array, always: Array, *, json: bool) -> None:
    """Print what was paid, and who advised."""
    rounds = guarded.rounds
    found = guarded.certificate(rounds=rounds)
    assert found is not None
    reports = guarded.guards()
    fixed = dict(zip(losses.actions, always.tolist(), strict=True))
    if json:
        actions = {
            str(name): {"rows": each.rounds, "replaced": each.safe_rounds, "always": fixed[name]}
            for name, each in reports.items()
        }
        costs = {"as_it_is": float(paid[0]), "advised": float(paid[1])}
        emit({"rows": rounds, "cost": costs, "guaranteed": found.bound, "actions": actions})
        return
    shown = table(f"What {rounds:,} rows cost", "", ">a row")
    shown.add_row("the probabilities as they are", f"{paid[0]:.4f}")
    shown.add_row("the advice", f"{paid[1]:.4f}")
    for name, cost in fixed.items():
        shown.add_row(f"always {name}", f"{cost:.4f}")
    page().print(shown)
    for name, each in reports.items():
        page().print(
            f"{name}: the forecasts called for it in {each.rounds:,} row{'s' * (each.rounds != 1)}; in "
            f"{each.safe_rounds:,} of them the guard advised, by what followed.",
            soft_wrap=True,
        )
    page().print(
        f"Guaranteed on every sequence: other actions in place of those advised would have saved at most "
        f"{found.bound:.4f} a row.",
        soft_wrap=True,
    )
