"""`treecal sample-size`: how many outcomes it takes to convict a model, or what a log can show."""

from __future__ import annotations

import math
from dataclasses import asdict

from treecal.cli._options import Json
from treecal.cli._terminal import Exit, emit, page
from treecal.exceptions import ParameterError
from treecal.measures import sample_size as find, smallest_effect


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
    found = find(forecast, temperature=temperature, shift=pair, alpha=alpha, power=power)
    if json:
        emit(asdict(found) | {"mean_outcomes": found.mean})
    else:
        page().print(str(found), soft_wrap=True)
    return Exit.FINE
