"""`treecal plan`: the error a tree guarantees, and the tree or the rounds that an error takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from treecal.cli._options import Json, NormName, Outcomes, as_norm
from treecal.cli._terminal import Exit, emit, page, table
from treecal.exceptions import ParameterError
from treecal.theory import certificate, plan as find

if TYPE_CHECKING:
    from rich.table import Table

    from treecal.theory import TreeCertificate


def plan(
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    norm: NormName = "l1",
    rounds: int | None = None,
    error: float | None = None,
    arity: int | None = None,
    depth: int | None = None,
    json: Json = False,
) -> int:
    """Compute the error that TreeCal guarantees after a number of rounds, or the rounds that an error takes.

    The bound holds for every sequence of outcomes, even an adversary's. On ordinary streams errors are many times
    smaller. `treecal recommend` compares trees with every other forecaster.

        treecal plan --dim 3 --rounds 1000000
        treecal plan --dim 10 --norm l2 --error 0.2
        treecal plan --dim 3 --rounds 4096 --arity 8

    Exit codes: 0 success, 2 invalid options.

    Parameters
    ----------
    rounds
        Number of rounds.
    error
        Calibration error per round to guarantee; instead of --rounds.
    arity
        Certify a tree of this arity instead of the best one.
    depth
        Depth of that tree; by default it grows with the rounds.
    """
    space = outcomes.space()
    measure = as_norm(norm)
    asked = {"space": repr(space), "norm": repr(measure)}
    sentence = None
    if arity is None:
        if depth is not None:
            raise ParameterError("--depth needs --arity.", hint="--arity 8 --depth 4 is one tree.")
        best = find(space, measure, rounds=rounds, error=error)
        arity = best.arity
        depth = best.depth
        sentence = best.sentence
        if rounds is None:
            if json:
                emit(asked | asdict(best))
            else:
                page().print(sentence, soft_wrap=True)
            return Exit.FINE
    elif rounds is None or error is not None:
        raise ParameterError("--arity needs --rounds, and excludes --error.", hint="without it, the best is found.")
    c = certificate(space, measure, rounds=rounds, arity=arity, depth=depth)
    if sentence is None:
        shape = f"arity {arity}" + (", growing" if depth is None else f" and depth {depth}")
        sentence = f"With {shape}, TreeCal guarantees an {norm} error of at most {c.bound:.3g} after {rounds:,} rounds."
    if json:
        numbers = {key: value for key, value in vars(c).items() if key not in ("gap", "hedge", "why")}
        emit(asked | numbers | {"jensen_gap": c.gap.value, "sentence": sentence})
    else:
        page().print(f"{sentence}\n", soft_wrap=True)
        page().print(_terms(c, norm))
    return Exit.FINE


def _terms(c: TreeCertificate, norm: str) -> Table:
    first = c.radius * c.mu0
    terms = [
        ("bound", c.bound, f"guaranteed {norm} error per round"),
        ("  first", first, "its part from first children, which have seen nothing: less in a wider tree"),
        ("  later", c.bound - first, "its part from later children: less in a deeper tree"),
        ("squared", c.squared, "bound on the squared error"),
        ("simple", c.minkowski, "bound by a simpler argument"),
        *([] if c.paper is None else [("paper", c.paper, "the paper's bound, with its constants corrected")]),
        ("radius", c.radius, "error that always forecasting the centre guarantees"),
        ("diameter", c.diameter, "the largest possible error"),
    ]
    shown = table("Terms of the bound", "term", ">value", "meaning")
    for name, value, meaning in terms:
        shown.add_row(name, f"{value:.3f}", meaning)
    return shown
