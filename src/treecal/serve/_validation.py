"""What is asked, as the books take it: valid numbers, tags, groups and outcomes; or a refusal that says where."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.correctors import Corrector
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry import Cdf, Simplex, read_forecast, read_numbers, read_outcome
from treecal.late import Outcome, briefs
from treecal.serve._player import Player
from treecal.serve._refusals import Refusal
from treecal.serve._rounds import tags_text
from treecal.serve._wire import FAR, NewForecast, NewOutcome, NewStream

MOST_GROUPS = 10_000
"""Groups of a stream."""


def model_of(player: Player, each: NewForecast, at: str) -> Array | None:
    """Return the forecast to correct; None if the stream makes its own."""
    if isinstance(player.thing, Corrector) or player.thing is None:
        if each.p is None:
            raise Refusal("invalid", "there is no forecast to correct.", hint='"p": [0.2, 0.8].', at=f"{at}p")
        try:
            return read_forecast(player.space, each.p, player.rounds + 1)
        except ForecastError as error:
            # A tolerance is for those who call the library.
            hint = error.hint if error.tolerance is None else "divide by the sum first."
            raise Refusal("invalid", error.of(each.id).message, hint=hint, at=f"{at}p") from None
        except ParameterError as error:  # of a law
            raise Refusal("invalid", error.message, hint=error.hint, at=f"{at}p") from None
    if each.p is not None or each.used:
        raise Refusal("invalid", "the stream makes its own forecasts.", hint="leave p out.", at=f"{at}p")
    return None


def tags_of(config: NewStream, each: NewForecast, at: str) -> str:
    """Return the tags of a forecast, as one text."""
    if stray := sorted(set(each.tags) - set(config.tags)):
        hint = f"its tags are {', '.join(config.tags)}." if config.tags else "it was made without tags."
        raise Refusal("invalid", f"the stream has no tag {stray[0]!r}.", hint=hint, at=f"{at}tags")
    if lacking := [name for name in config.group if name not in each.tags]:
        problem = f"the tag {lacking[0]!r} is missing, and the stream is grouped by it."
        raise Refusal("invalid", problem, hint=f'"tags": {{"{lacking[0]}": "..."}}.', at=f"{at}tags")
    return tags_text(each.tags)


def due_of(each: NewForecast, at: str) -> float | None:
    """Return the last moment at which the outcome of a forecast counts."""
    if each.due is not None and not abs(each.due) <= FAR:
        hint = "it is in seconds since 1970, not in milliseconds."
        raise Refusal("invalid", f"due is {each.due}, expected a time.", hint=hint, at=f"{at}due")
    return each.due


def _number_of(space: Cdf, given: Any) -> Array:
    """Return a number within the set, as it is kept."""
    if isinstance(given, bool) or not isinstance(given, int | float) or abs(given) > sys.float_info.max:
        raise OutcomeError.at(1, f"is {given!r:.40}, expected a number.")
    return read_numbers(space, np.array([given], np.float64)) + 0.0


def check_groups(player: Player, asked: dict[Hashable, str]) -> None:
    """Refuse a group too many: each has a state of its own, and what differs from round to round is no group."""
    more = [group for group in asked if group not in player.groups]
    if player.config.group and len(player.groups) + len(more) > MOST_GROUPS:
        names = ", ".join(player.config.group)
        problem = f"the stream has {len(player.groups):,} groups by {names}, expected {MOST_GROUPS:,} at most."
        hint = "group by tags with fewer values; a tag that is no group may have any number."
        raise Refusal("invalid", problem, hint=hint, at=f"{asked[more[-1]]}tags")


def outcomes_of(player: Player, new: Sequence[NewOutcome], places: list[int]) -> list[Outcome]:
    """Return outcomes in brief, or refuse the request."""
    space = player.space
    found = list[Outcome]()
    names = space.classes or () if isinstance(space, Simplex) else ()
    index: dict[Any, int] = {name: k for k, name in enumerate(names)}
    if isinstance(space, Simplex):
        index |= {k: k for k in range(space.dim)}
    numbers = any(name.removeprefix("-").isdecimal() for name in names)
    for i in places:
        given = new[i].outcome
        if numbers and isinstance(given, int) and not (0 <= given < len(names) and names[given] == str(given)):
            problem = f"outcome of id {new[i].id!r} is {given}, and classes have numbers as names: which is meant?"
            hint = f'send the name as text, such as "{names[0]}".'
            raise Refusal("invalid", problem, hint=hint, at=f"outcomes[{i}].outcome")
        if not isinstance(given, list | bool | float) and given in index:
            found.append(index[given])
            continue
        try:
            if isinstance(space, Cdf):
                found.append(_number_of(space, given).tobytes())
                continue
            found += briefs(read_outcome(space, given, 1)[None])
        except OutcomeError as error:
            message = error.of(new[i].id).message
            raise Refusal("invalid", message, hint=error.hint, at=f"outcomes[{i}].outcome") from None
    return found
