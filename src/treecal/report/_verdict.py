"""The verdict on one entry, in numbers and in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treecal._sums import group_rows
from treecal.geometry import Norm, Simplex, l1, l2, linf
from treecal.ledger import Reading
from treecal.measures import NEARLY, SOMEWHAT, Verdict as Judged
from treecal.report._entries import Entry

WIDTH = 0.1
"""Width of the bins for forecasts that hardly ever repeat."""
_ENOUGH = 5  # rounds per distinct forecast, on average, below which forecasts are binned
_NORMS: dict[Norm, str] = {
    l1: "the sum of the differences of all coordinates (ℓ1)",
    l2: "straight-line distance (ℓ2)",
    linf: "the largest difference of any coordinate (ℓ∞)",
}


def too_few_rounds(reading: Reading) -> bool:
    """Return whether there are too few rounds per forecast to distinguish a wrong one from bad luck."""
    return reading.rounds < _ENOUGH * len(reading)


def _binned(reading: Reading) -> Reading:
    """Return the reading in cells of a grid, as `Ledger.binned` does."""
    dim = reading.forecasts.shape[1]
    weights = reading.weights[:, None]
    first, cell = group_rows((np.rint(reading.forecasts / WIDTH) + 0.0).view(np.int64))
    totals = np.zeros((len(first), 1 + 2 * dim))
    np.add.at(totals, cell, np.hstack([weights, weights * reading.forecasts, weights * reading.outcomes]))
    weight = totals[:, 0]
    means = totals[:, 1:] / totals[:, :1]
    return Reading(means[:, :dim], weight, means[:, dim:], reading.rounds, WIDTH, weight=reading.weight)


@dataclass(frozen=True, eq=False)
class Verdict:
    """How calibrated one entry was, in numbers and in words.

    Forecasts of classes are judged by `treecal.measures.Verdict`, class by class. On other sets a forecast does not say
    how outcomes vary, so chance is not mentioned, and the error is compared with the worst possible one.

    Attributes
    ----------
    entry
        The entry.
    names
        Names of the coordinates.

    Examples
    --------
    >>> import numpy as np, treecal as tc
    >>> ledger = tc.Ledger(tc.Simplex(2))
    >>> for k in range(1000):
    ...     ledger.record([0.5, 0.5], np.eye(2)[k % 2])
    >>> verdict = Verdict(Entry("fair coin", ledger), ["heads", "tails"])
    >>> verdict.level, verdict.error, round(verdict.chance, 3), verdict.advice
    ('calibrated', 0.0, 0.013, 'No correction needed.')
    """

    entry: Entry
    names: Sequence[str]

    @cached_property
    def judged(self) -> Judged | None:
        """The verdict on forecasts of classes; None on other sets, and of a ledger whose rounds have weights."""
        entry = self.entry
        if entry.audited is not None:
            return entry.audited.verdict
        weighted = entry.exact.weight != entry.exact.rounds
        return entry.exact.verdict(self.names) if isinstance(entry.space, Simplex) and not weighted else None

    @cached_property
    def reading(self) -> Reading:
        """The ledger as its gaps are shown: binned, if forecasts have too few rounds each."""
        exact = self.entry.exact
        return _binned(exact) if too_few_rounds(exact) and exact.resolution is None else exact

    @cached_property
    def error(self) -> float:
        """The error of the verdict: class-wise ECE; on other sets the error in the entry's norm."""
        return self.reading.error(self.entry.norm) if self.judged is None else self.judged.views[1].luck.value

    @property
    def chance(self) -> float | None:
        """What chance alone would show on average; None where a forecast does not say how outcomes vary."""
        return None if self.judged is None else self.judged.views[1].luck.mean

    @cached_property
    def exact_error(self) -> float | None:
        """The exact error, which the guarantee bounds; None of an audit without it."""
        if (audited := self.entry.audited) is None:
            return self.entry.exact.error(self.entry.norm)
        return None if audited.exact is None else audited.exact.errors.get(repr(self.entry.norm))

    @property
    def bound(self) -> float | None:
        """The certified bound on the exact error, where one is known."""
        curve = self.entry.curve
        return None if curve is None or curve.bounds is None else float(curve.bounds[-1])

    @cached_property
    def worst(self) -> float:
        """The worst possible exact error: the set's diameter."""
        return float(self.entry.space.diameter(self.entry.norm))

    @property
    def level(self) -> str:
        """The verdict in one word or two."""
        if self.judged is not None:
            return self.judged.level
        if too_few_rounds(self.reading):
            return "cannot tell"
        share = self.error / self.worst
        if share <= 1e-9:
            return "calibrated"
        return "nearly calibrated" if share <= NEARLY / 2 else "somewhat off" if share <= SOMEWHAT / 2 else "far off"

    @property
    def advice(self) -> str | None:
        """What to do, in a line; None on sets without classes."""
        if self.judged is None:
            return None
        known = self.entry.advice
        if known is None or self.level in ("calibrated", "cannot tell"):
            return self.judged.advice
        return f"Small enough for most uses. {known}" if self.level == "nearly calibrated" else known

    @property
    def sentences(self) -> list[str]:
        """The verdict in plain words."""
        rounds = self.entry.rounds
        if self.judged is not None:
            text = self.judged.sentences
        else:
            text = [
                f"On average, the mean outcome differed by {self.error:.3f} from the forecast (0 is perfect, "
                f"{self.worst:.3g} the worst possible)."
            ]
            if self.level == "cannot tell":
                text.append(
                    f"But {rounds:,} rounds with {len(self.reading):,} distinct forecasts are too few to distinguish a "
                    "wrong forecast from bad luck."
                )
        if (guard := self.entry.guard) is not None and guard.rounds:
            eager = guard.eager_error / rounds
            safe = guard.safe_bound / rounds
            text.append(
                f"Its guard let the eager part forecast {guard.eager_rounds:,} rounds, which add at most {eager:.3f} "
                f"to the exact error, and the safe part {guard.safe_rounds:,}, which add at most {safe:.3f}."
            )
        if self.entry.audited is not None and self.entry.audited.payoff is not None:
            text.append(self.entry.audited.payoff.sentence)
        return text

    @property
    def guarantee(self) -> str | None:
        """The guarantee in plain words, where there is one."""
        bound = self.bound
        rounds = self.entry.rounds
        if bound is None:
            return None
        if bound >= self.worst:
            text = f"After {rounds:,} rounds its guarantee is still vacuous: the bound is the worst possible error."
        else:
            text = (
                f"Guaranteed for every sequence of {rounds:,} outcomes, even one chosen by an adversary: an exact "
                f"error of at most {bound:.3f}. It was {self.exact_error:.3f}."
            )
        if self.entry.ahead is not None:
            more, most = self.entry.ahead
            text += f" After {more:,} outcomes more, whatever they are, it is at most {most:.3f}."
        return text


def norm_in_words(norm: Norm) -> str:
    """Say what a norm measures."""
    return _NORMS.get(norm, repr(norm))
