"""What guarantees and logs are worth before there is any: `treecal plan`, `recommend` and `sample-size`."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from treecal.cli._options import Json, NormName, Outcomes, Rounds, as_norm
from treecal.cli._terminal import Exit, emit, page, table
from treecal.exceptions import ParameterError
from treecal.forecasters import ORDINARY, recommend as compare
from treecal.measures import sample_size as size_of, smallest_effect
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


def sample_size(
    *,
    base: str,
    temperature: float | None = None,
    shift: float | None = None,
    of: int | None = None,
    outcomes: int | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    json: Json = False,
) -> int:
    """Compute how many outcomes it takes to convict a model that is off, or the smallest effect that a log shows.

    The model may be looked at after every outcome: a right one is convicted with probability alpha at most.

        treecal sample-size --base 0.7,0.2,0.1 --temperature 1.5
        treecal sample-size --base 0.7,0.2,0.1 --of 2 --shift 0.5
        treecal sample-size --base 0.7,0.2,0.1 --outcomes 1000

    Exit codes: 0 success, 2 invalid options.

    Parameters
    ----------
    base
        A typical forecast of the model: probabilities, separated by commas.
    temperature
        Temperature that would correct the model; above 1 it is overconfident.
    shift
        How far the logit of the class --of is too low.
    of
        Number of a class, from 0.
    outcomes
        Rows of a log: compute the smallest temperature that it shows, or with --of the smallest shift of that class.
    alpha
        Rate of false alarms.
    power
        Probability of conviction.
    """
    try:
        forecast = [float(word) for word in base.split(",")]
    except ValueError:
        raise ParameterError(f"--base is {base!r}, expected probabilities separated by commas.") from None
    if outcomes is not None:
        if temperature is not None or shift is not None:
            raise ParameterError("--outcomes excludes --temperature and --shift: it finds the smallest of them.")
        effect = smallest_effect(forecast, outcomes=outcomes, of=of, alpha=alpha, power=power)
        if json:
            shown = None if math.isinf(effect) else effect
            emit(
                {"outcomes": outcomes, "temperature" if of is None else "shift": shown, "alpha": alpha, "power": power}
            )
        else:
            kind = "a temperature" if of is None else f"a shift of class {of}, in logits,"
            sentence = f"{outcomes:,} outcomes show {kind} of {effect:.3g} or more with a probability of {power:g}."
            if math.isinf(effect):
                sentence = f"{outcomes:,} outcomes are too few to show any effect with a probability of {power:g}."
            page().print(sentence, soft_wrap=True)
        return Exit.FINE
    if (shift is None) != (of is None):
        raise ParameterError("--shift and --of go together: by how much, and which class.")
    pair = None if shift is None or of is None else (of, shift)
    found = size_of(forecast, temperature=temperature, shift=pair, alpha=alpha, power=power)
    if json:
        emit(asdict(found) | {"mean_outcomes": found.mean})
    else:
        page().print(str(found), soft_wrap=True)
    return Exit.FINE
