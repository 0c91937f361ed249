"""`treecal plan`: the error a tree guarantees, and the tree or the rounds that an error takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from treecal.cli._options import Outcomes, as_norm
from treecal.cli._terminal import Exit, emit, page
from treecal.exceptions import ParameterError
from treecal.theory import certificate
from treecal.theory import plan as find

if TYPE_CHECKING:
    from treecal.theory import TreeCertificate


def plan(
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    norm: str = "l1",
    rounds: int | None = None,
    error: float | None = None,
    arity: int | None = None,
    depth: int | None = None,
    json: bool = False,
) -> int:
    """Say which error TreeCal guarantees after so many rounds, or how many rounds an error takes.

    The bound holds for every sequence of outcomes, even one made to defeat the forecaster. On ordinary streams errors
    are many times smaller. `treecal recommend` compares trees with every other forecaster.

        treecal plan --dim 3 --rounds 1000000

        treecal plan --dim 10 --norm l2 --error 0.2

        treecal plan --dim 3 --rounds 4096 --arity 8

    Exit codes: 0 fine, 2 bad options.

    Parameters
    ----------
    norm
        What the error is counted in: l1, l2, linf, or l and a number, as l1.5.
    rounds
        Rounds to be played.
    error
        Calibration error per round to guarantee, in place of rounds.
    arity
        Certify this tree, in place of the best one.
    depth
        Its heights; without them it grows.
    json
        Write one JSON document.
    """
    space, measure = outcomes.space(), as_norm(norm)
    asked = {"space": repr(space), "norm": norm}
    if arity is None:
        if depth is not None:
            raise ParameterError("--depth came without --arity.", hint="--arity 8 --depth 4 is one tree.")
        best = find(space, measure, rounds=rounds, error=error)
        arity, depth, sentence = best.arity, best.depth, best.sentence
        if rounds is None:
            if json:
                emit(asked | asdict(best))
            else:
                page().print(sentence, soft_wrap=True)
            return Exit.FINE
    elif rounds is None or error is not None:
        raise ParameterError("--arity takes --rounds, and no --error.", hint="leave --arity out to find the best tree.")
    else:
        sentence = ""
    c = certificate(space, measure, rounds=rounds, arity=arity, depth=depth)
    if json:
        numbers = {key: value for key, value in vars(c).items() if key not in ("gap", "hedge", "why")}
        emit(asked | numbers | {"jensen_gap": c.gap.value, "sentence": sentence or _sentence(c, norm)})
    else:
        page().print((sentence or _sentence(c, norm)) + "\n", soft_wrap=True)
        page().print(_terms(c, norm))
    return Exit.FINE


def _sentence(c: TreeCertificate, norm: str) -> str:
    shape = f"arity {c.arity}" + (", growing" if c.depth is None else f" and depth {c.depth}")
    return f"With {shape}, TreeCal's {norm} error is at most {c.bound:.3g} after {c.rounds:,} rounds, whatever happens."


def _terms(c: TreeCertificate, norm: str) -> Table:
    table = Table(title="What the bound is made of", title_justify="left")
    table.add_column("term")
    table.add_column("value", justify="right")
    table.add_column("what it means")
    first = c.radius * c.mu0
    lines = [
        ("bound", c.bound, f"the {norm} error per round that no sequence can exceed"),
        ("  first", first, "of it from intervals that know nothing yet: less in a wider tree"),
        ("  later", c.bound - first, "of it from intervals that say what came before: less in a deeper tree"),
        ("squared", c.squared, "the bound on the squared error"),
        ("simple", c.minkowski, "the bound by a simpler argument"),
        *([] if c.paper is None else [("paper", c.paper, "the paper's own, with its constants put right")]),
        ("radius", c.radius, "always saying the centre is never off by more"),
        ("diameter", c.diameter, "no error is larger: a bound above it says nothing"),
    ]
    for name, value, meaning in lines:
        table.add_row(name, f"{value:.3f}", meaning)
    return table
