"""The verdict, in words for people who have never heard of swap regret."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treecal.geometry import Norm, Simplex, as_norm, l1, l2, linf
from treecal.ledger import Ledger, Reading
from treecal.report._entries import Entry, Section

CELL = 0.1
"""Width of the cells in which forecasts that hardly ever come back are taken together."""
_ENOUGH = 5  # rounds for each distinct forecast, on average, below which it is judged by cells
_NEARLY, _SOMEWHAT = 0.05, 0.15  # of the worst possible error


def chance_error(reading: Reading, norm: Norm | str) -> float:
    """Return the error that a perfectly calibrated forecaster stays below by chance, nineteen times out of twenty.

    Even who is exactly right misses by chance: said once, a fair coin's ½ is off by ½. The same forecasts are
    played again with outcomes drawn by their own probabilities, from a fixed seed; the value is the mean of the errors
    and 1.645 standard deviations. Weight counts as so many independent rounds, which for forecasts that are
    distributions is more than chance really does: the value is on the large side.

    Examples
    --------
    >>> import treecal as tc
    >>> ledger = tc.Ledger(tc.Simplex(2))
    >>> for k in range(100):
    ...     ledger.record([0.5, 0.5], np.eye(2)[k % 2])
    >>> round(chance_error(ledger.exact(), "l1"), 1)
    0.2
    """
    norm, rng = as_norm(norm), np.random.default_rng(0)
    # No fewer independent rounds than this stand behind the weight, however it was given in parts.
    count = np.maximum(np.floor(reading.weights + 1e-6), 1).astype(np.int64)
    p = np.clip(reading.forecasts, 0, None)
    p /= p.sum(axis=1, keepdims=True)
    times = int(np.clip(2_000_000 // p.size, 20, 400))  # where there are many forecasts the errors hardly vary
    errors = [
        reading.weights @ norm.between(rng.multinomial(count, p) / count[:, None], p) / reading.rounds
        for _ in range(times)
    ]
    return float(np.mean(errors) + 1.645 * np.std(errors))


def exact_reading(entry: Entry) -> Reading:
    """Return the ledger with forecasts told apart as they came."""
    return entry.ledger.exact() if isinstance(entry.ledger, Ledger) else entry.ledger


def hardly_repeats(reading: Reading) -> bool:
    """Return whether there are too few rounds for each forecast to tell a wrong one from bad luck."""
    return reading.rounds < _ENOUGH * len(reading)


@dataclass(frozen=True, eq=False)
class Verdict:
    """How calibrated one entry was, in numbers and in words.

    Attributes
    ----------
    entry
        Who is judged.
    exact
        Its ledger with forecasts told apart as they came.
    cells
        Judge forecasts in cells of 0.1 together, where the ledger is known.
    """

    entry: Entry
    exact: Reading
    cells: bool

    @cached_property
    def reading(self) -> Reading:
        """What is judged."""
        ledger = self.entry.ledger
        return ledger.binned(resolution=CELL) if self.cells and isinstance(ledger, Ledger) else self.exact

    @property
    def how(self) -> str:
        """How forecasts were taken together."""
        width = self.reading.resolution
        return "each distinct forecast by itself" if width is None else f"forecasts in cells of {width:g} together"

    @cached_property
    def error(self) -> float:
        """The error of the reading that is judged."""
        return self.reading.error(self.entry.norm)

    @cached_property
    def exact_error(self) -> float:
        """The error with forecasts told apart as they came: what the guarantee is about."""
        return self.exact.error(self.entry.norm)

    @cached_property
    def chance(self) -> float | None:
        """What chance explains; None off the simplex, where a forecast does not say how outcomes vary."""
        return chance_error(self.reading, self.entry.norm) if isinstance(self.entry.space, Simplex) else None

    @property
    def bound(self) -> float | None:
        """What the exact error could not have exceeded, where that is known."""
        curve = self.entry.curve
        return None if curve is None or curve.bounds is None else float(curve.bounds[-1])

    @cached_property
    def worst(self) -> float:
        """The worst error there is: the set's diameter."""
        return float(self.entry.space.diameter(self.entry.norm))

    @property
    def level(self) -> str:
        """One word or two."""
        if hardly_repeats(self.reading):
            return "cannot tell"
        if self.error == 0 or (self.chance is not None and self.error <= self.chance):
            return "calibrated"
        share = self.error / self.worst
        return "nearly calibrated" if share <= _NEARLY else "somewhat off" if share <= _SOMEWHAT else "far off"

    @property
    def sentences(self) -> list[str]:
        """What it means, for people."""
        rounds, error, chance = self.exact.rounds, self.error, self.chance
        said = [
            f"On average, what happened differed by {error:.3f} from what was said (0 is perfect, {self.worst:.3g} is "
            f"the worst possible), counting {self.how}."
        ]
        if self.entry.norm == l1 and isinstance(self.entry.space, Simplex):
            said.append(f"In other words, {percent(error / 2)} of the probability sat on the wrong classes.")
        if self.level == "cannot tell":
            said.append(
                f"But the {rounds:,} rounds brought {len(self.reading):,} different forecasts, too few rounds for each "
                "to tell a wrong forecast from bad luck."
            )
        elif chance is not None and error <= chance:
            said.append(
                f"Chance alone would explain an error of up to {chance:.3f}: there is no sign of anything worse."
            )
        elif chance is not None:
            said.append(f"Chance alone would explain at most {chance:.3f}, so this is not bad luck.")
        return said

    @property
    def guarantee(self) -> str | None:
        """What was certain beforehand, for people."""
        bound, rounds = self.bound, self.exact.rounds
        if bound is None:
            return None
        if bound >= self.worst:
            return f"After {rounds:,} rounds its guarantee promises nothing yet: the bound is the worst possible error."
        return (
            f"Guaranteed beforehand: whatever had happened in these {rounds:,} rounds, even if somebody had chosen the "
            f"outcomes to spite it, its error could not have exceeded {bound:.3f}. It was {self.exact_error:.3f}."
        )


def judge(section: Section) -> list[Verdict]:
    """Judge all entries alike: in cells, if the forecasts of any of them hardly ever come back.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.report import Section, play
    >>> space = tc.Simplex(2)
    >>> coins = np.eye(2)[np.random.default_rng(0).integers(2, size=2000)]
    >>> entries = [play(f, coins) for f in (tc.TreeCal(space), tc.BinaryGrid(), tc.RunningMean(space))]
    >>> [verdict.level for verdict in judge(Section("Coins", entries))]
    ['somewhat off', 'calibrated', 'calibrated']
    """
    readings = [exact_reading(entry) for entry in section.entries]
    cells = any(hardly_repeats(reading) for reading in readings)
    return [Verdict(entry, reading, cells) for entry, reading in zip(section.entries, readings, strict=True)]


def norm_in_words(norm: Norm | str) -> str:
    """Say what a norm measures.

    Examples
    --------
    >>> norm_in_words("linf")
    'the largest difference of any coordinate (ℓ∞)'
    """
    words: dict[Norm, str] = {
        l1: "the differences of all coordinates added up (ℓ1)",
        l2: "straight-line distance (ℓ2)",
        linf: "the largest difference of any coordinate (ℓ∞)",
    }
    norm = as_norm(norm)
    return words.get(norm, repr(norm))


def percent(share: float) -> str:
    """Return a share for people.

    Examples
    --------
    >>> percent(0.1234), percent(0.0004)
    ('12 %', '0.04 %')
    """
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
