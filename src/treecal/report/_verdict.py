"""The verdict on one entry, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treecal.geometry import Norm, Simplex, as_norm, l1, l2, linf
from treecal.ledger import Ledger, Reading
from treecal.report._entries import Entry

WIDTH = 0.1
"""Width of the bins for forecasts that hardly ever repeat."""
_ENOUGH = 5  # rounds per distinct forecast, on average, below which forecasts are binned
_NEARLY, _SOMEWHAT = 0.05, 0.15  # of the worst possible error
_NORMS: dict[Norm, str] = {
    l1: "the sum of the differences of all coordinates (ℓ1)",
    l2: "straight-line distance (ℓ2)",
    linf: "the largest difference of any coordinate (ℓ∞)",
}


def chance_error(reading: Reading, norm: Norm | str) -> float:
    """Return the error that a perfectly calibrated forecaster stays below with a probability of 95 %.

    The same forecasts are played again with outcomes drawn from their own probabilities, with a fixed random seed; the
    value is the mean of the errors and 1.645 standard deviations. Weight counts as independent rounds (sample weights
    scaled to a mean of 1), which overestimates chance for forecasts that are distributions, and underestimates it
    where sample weights differ much.
    """
    norm, rng = as_norm(norm), np.random.default_rng(0)
    # At least this many independent rounds make up the weight, however it is split.
    count = np.maximum(np.floor(reading.independent + 1e-6), 1).astype(np.int64)
    p = np.clip(reading.forecasts, 0, None)
    p /= p.sum(axis=1, keepdims=True)
    times = int(np.clip(2_000_000 // p.size, 20, 400))  # errors of many forecasts hardly vary
    errors = [
        reading.weights @ norm.between(rng.multinomial(count, p) / count[:, None], p) / reading.weight
        for _ in range(times)
    ]
    return float(np.mean(errors) + 1.645 * np.std(errors))


def too_few_rounds(reading: Reading) -> bool:
    """Return whether there are too few rounds per forecast to distinguish a wrong one from bad luck."""
    return reading.rounds < _ENOUGH * len(reading)


@dataclass(frozen=True, eq=False)
class Verdict:
    """How calibrated one entry was, in numbers and in words.

    Attributes
    ----------
    entry
        The entry.
    binned
        Whether its forecasts are binned, where its ledger is known.

    Examples
    --------
    >>> import treecal as tc
    >>> ledger = tc.Ledger(tc.Simplex(2))
    >>> for k in range(100):
    ...     ledger.record([0.5, 0.5], np.eye(2)[k % 2])
    >>> verdict = Verdict(Entry("fair coin", ledger), binned=False)
    >>> verdict.level, verdict.error, round(verdict.chance, 1)
    ('calibrated', 0.0, 0.2)
    """

    entry: Entry
    binned: bool

    @cached_property
    def reading(self) -> Reading:
        """The ledger as it is read for the verdict."""
        ledger = self.entry.ledger
        return ledger.binned(resolution=WIDTH) if self.binned and isinstance(ledger, Ledger) else self.entry.exact

    @property
    def grouping(self) -> str:
        """How forecasts were grouped: exact, or binned at some width."""
        width = self.reading.resolution
        return "exact" if width is None else f"binned at {width:g}"

    @cached_property
    def error(self) -> float:
        """The error of the reading."""
        return self.reading.error(self.entry.norm)

    @cached_property
    def exact_error(self) -> float:
        """The exact error, which the guarantee bounds."""
        return self.entry.exact.error(self.entry.norm)

    @cached_property
    def chance(self) -> float | None:
        """The error that chance explains; None off the simplex, where a forecast does not say how outcomes vary."""
        return chance_error(self.reading, self.entry.norm) if isinstance(self.entry.space, Simplex) else None

    @property
    def bound(self) -> float | None:
        """The certified bound on the exact error, where one is known."""
        curve = self.entry.curve
        return None if curve is None or curve.bounds is None else float(curve.bounds[-1])

    @cached_property
    def worst(self) -> float:
        """The worst possible error: the set's diameter."""
        return float(self.entry.space.diameter(self.entry.norm))

    @property
    def level(self) -> str:
        """The verdict in one word or two."""
        if too_few_rounds(self.reading):
            return "cannot tell"
        if self.error == 0 or (self.chance is not None and self.error <= self.chance):
            return "calibrated"
        share = self.error / self.worst
        return "nearly calibrated" if share <= _NEARLY else "somewhat off" if share <= _SOMEWHAT else "far off"

    @property
    def sentences(self) -> list[str]:
        """The verdict in plain words."""
        rounds, error, chance = self.reading.rounds, self.error, self.chance
        text = [
            f"On average, the mean outcome differed by {error:.3f} from the forecast ({self.grouping}; 0 is perfect, "
            f"{self.worst:.3g} the worst possible)."
        ]
        if self.entry.norm == l1 and isinstance(self.entry.space, Simplex):
            text.append(f"In other words, {percent(error / 2)} of the probability sat on the wrong classes.")
        if self.level == "cannot tell":
            text.append(
                f"But {rounds:,} rounds with {len(self.reading):,} distinct forecasts are too few to distinguish a "
                "wrong forecast from bad luck."
            )
        elif chance is not None and error <= chance:
            text.append(f"Chance alone would explain an error of up to {chance:.3f}.")
        elif chance is not None:
            text.append(f"Chance alone would explain at most {chance:.3f}, so this is not bad luck.")
        if (guard := self.entry.guard) is not None and guard.rounds:
            eager, safe = guard.eager_error / rounds, guard.safe_error / rounds
            text.append(
                f"Its guard let the eager part forecast {guard.eager_rounds:,} rounds, which add at most {eager:.3f} "
                f"to the exact error, and the safe part {guard.safe_rounds:,}, which add at most {safe:.3f}."
            )
        return text

    @property
    def guarantee(self) -> str | None:
        """The guarantee in plain words, where there is one."""
        bound, rounds = self.bound, self.reading.rounds
        if bound is None:
            return None
        if bound >= self.worst:
            return f"After {rounds:,} rounds its guarantee is still vacuous: the bound is the worst possible error."
        return (
            f"Guaranteed for every sequence of {rounds:,} outcomes, even one chosen by an adversary: an exact error of "
            f"at most {bound:.3f}. It was {self.exact_error:.3f}."
        )


def norm_in_words(norm: Norm) -> str:
    """Say what a norm measures."""
    return _NORMS.get(norm, repr(norm))


def percent(share: float) -> str:
    """Return a share in per cent, to two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
