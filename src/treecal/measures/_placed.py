"""Where outcomes lay in the forecasts of a number, counted: coverage by level, and one verdict by the rule for classes.

The counts are those of the probability integral transform (PIT) in cells between levels. If the forecasts are right
they are multinomial, whatever the stream: given the past each PIT is uniform.

1. *Is it chance?* Three views are tested: the cells (χ²), the mean of the PIT (too low or too high), and its spread
   (too narrow or too wide). If none is as odd as in one of twenty such logs (Bonferroni), the forecasts are
   **calibrated** as far as the log can tell; one **cannot tell** if the interval of the error ends above a quarter.
2. *Is it much?* The error is the root mean square gap between level and coverage, without its noise, beside the
   standard deviation of what is up to a level: `√(Σ w_τ (G(τ) − τ)² / Σ w_τ τ(1 − τ))`. Up to a tenth is **nearly
   calibrated**, up to three tenths **somewhat off**, more **far off**. Medians that miss by a tenth of the spread of
   the outcomes about them have 0.07, intervals too narrow by a third 0.17.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.measures._levels import Interval, mean_interval
from treecal.measures._verdict import ALPHA, NEARLY, SOMEWHAT, TELL, Advice, Level

_DRAWS = 500
_LEAST = 5.0  # rows expected in a cell of the χ²
_VIEWS = 3
_SURE = 2.0  # standard deviations from which a direction is named


@dataclass(frozen=True, eq=False)
class Placed:
    """How often outcomes lay in each cell between levels of their forecasts.

    Attributes
    ----------
    levels
        The levels between the cells, increasing.
    cells
        The number of rows whose PIT lay in each cell, one more than levels; where it is an interval, in part.

    Examples
    --------
    >>> placed = Placed((0.25, 0.5, 0.75), np.array([300.0, 200, 200, 300]))
    >>> placed.coverage[0.25].value, placed.verdict.level, placed.verdict.advised.found
    (0.3, 'nearly calibrated', 'Too narrow: the 50 % interval held 40 % of the outcomes.')
    """

    levels: tuple[float, ...]
    cells: Array

    @property
    def rows(self) -> float:
        """Number of rows."""
        return float(self.cells.sum())

    @cached_property
    def coverage(self) -> dict[float, Interval]:
        """How often outcomes were up to the quantile of each level, with 90 % intervals."""
        shares = np.cumsum(self.cells)[:-1] / self.rows
        return {
            tau: mean_interval(share, share, self.rows, most=1.0)
            for tau, share in zip(self.levels, shares.tolist(), strict=True)
        }

    @cached_property
    def intervals(self) -> dict[float, float]:
        """How often the central interval of each probability held the outcome, by that probability."""
        up_to = {tau: found.value for tau, found in self.coverage.items()}
        pairs = {round(1 - 2 * tau, 9): tau for tau in self.levels if tau < 0.5}
        ends = {share: (tau, _level(1 - tau, self.levels)) for share, tau in pairs.items()}
        return {share: up_to[high] - up_to[low] for share, (low, high) in ends.items() if high is not None}

    @property
    def expected(self) -> Array:
        """The share of rows that right forecasts have in each cell."""
        return np.diff(np.array([0.0, *self.levels, 1.0]))

    @cached_property
    def verdict(self) -> NumberVerdict:
        """Whether the forecasts are right, how far they are off, and which way."""
        return _judge(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, the coverage and the verdict as JSON values."""
        return {
            "pit": {"levels": list(self.levels), "rows": self.cells.tolist()},
            "coverage": [
                {"level": tau, "value": found.value, "interval": [found.low, found.high]}
                for tau, found in self.coverage.items()
            ],
            "intervals": [{"coverage": share, "held": held} for share, held in self.intervals.items()],
            "verdict": self.verdict.to_dict(),
        }


@dataclass(frozen=True)
class NumberVerdict:
    """Whether forecasts of a number are right, as far as a log can tell.

    Attributes
    ----------
    level
        "calibrated", "nearly calibrated", "somewhat off", "far off" or "cannot tell".
    p_value
        How often chance alone shows as much, in the oddest of three views.
    error
        The root mean square gap between level and coverage, without its noise, as a share of the standard deviation of
        what is up to a level; with its 90 % interval.
    advised
        Which way the forecasts are off, in sentences.
    """

    level: Level
    p_value: float
    error: Interval
    advised: Advice

    @property
    def share(self) -> float:
        """The error, which already is a share."""
        return self.error.value

    @property
    def sentences(self) -> list[str]:
        """The verdict in a few sentences."""
        odd = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.2g}"
        size = f"coverage misses its levels by {self.error.value:.2f} of their spread, 90 % interval "
        size += f"{self.error.low:.2f} to {self.error.high:.2f}"
        words = f"{self.level[0].upper()}{self.level[1:]}"
        if self.level == "calibrated":
            return [f"{words}, as far as these rows tell ({odd}; {size})."]
        if self.level == "cannot tell":
            return [f"{words}: chance explains what is seen ({odd}), but {size}: more rows are needed."]
        return [f"{words}, and not by chance ({odd}): {size}.", self.advised.found]

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        error = {"value": self.error.value, "interval": [self.error.low, self.error.high]}
        return {"level": self.level, "p_value": self.p_value, "error": error, "found": self.advised.found}


def _level(tau: float, levels: tuple[float, ...]) -> float | None:
    return next((level for level in levels if abs(level - tau) < 1e-9), None)


def _judge(placed: Placed) -> NumberVerdict:
    n = placed.rows
    pi = placed.expected
    share = placed.cells / n
    shift, spread = _deviations(pi, share, n)
    p_value = min(1.0, _VIEWS * min(_chi_square(placed.cells, n * pi), *map(_two_sided, (shift, spread))))
    far = math.sqrt(float(_square(pi, share, n)))
    low, high = _ends(pi, share, n)
    level: Level
    if p_value >= ALPHA:
        level = "calibrated" if high <= TELL else "cannot tell"
    elif far <= NEARLY and high <= TELL:
        level = "nearly calibrated"
    else:
        level = "somewhat off" if far <= SOMEWHAT else "far off"
    interval = Interval(far, min(low, far), max(high, far), 0.9)
    return NumberVerdict(level, p_value, interval, Advice(_found(placed, shift, spread)))


def _deviations(pi: Array, share: Array, n: float) -> tuple[float, float]:
    """Return by how many standard deviations the mean of the PIT, and its spread about ½, are too large."""
    middle = np.cumsum(pi) - pi / 2
    found = []
    for score in (middle, (middle - 0.5) ** 2):
        mean = float(score @ pi)
        variance = float(score**2 @ pi) - mean**2
        found.append(float(score @ share - mean) / math.sqrt(variance / n) if variance > 1e-18 else 0.0)
    return found[0], found[1]


def _two_sided(deviations: float) -> float:
    return math.erfc(abs(deviations) / math.sqrt(2))


def _chi_square(cells: Array, expected: Array) -> float:
    """Return how often chance shows counts as odd; neighbours with few expected rows are one cell."""
    from scipy.special import gammaincc

    met: list[list[float]] = [[0.0, 0.0]]
    for count, due in zip(cells.tolist(), expected.tolist(), strict=True):
        met[-1][0] += count
        met[-1][1] += due
        if met[-1][1] >= _LEAST:
            met.append([0.0, 0.0])
    count, due = met.pop()
    if met:
        met[-1][0] += count
        met[-1][1] += due
    if len(met) < 2:
        return 1.0
    square = math.fsum((count - due) ** 2 / due for count, due in met)
    return float(gammaincc((len(met) - 1) / 2, square / 2))


def _square(pi: Array, share: Array, n: float) -> Array:
    """Return the squared error without its noise: of shares in cells, `(..., cells)`."""
    tau = np.cumsum(pi)[:-1]
    weight = (pi[:-1] + pi[1:]) / 2
    gaps = np.cumsum(share, axis=-1)[..., :-1] - tau
    base = float(weight @ (tau * (1 - tau)))
    return np.asarray(np.maximum(gaps**2 @ weight / base - 1 / n, 0.0))


def _ends(pi: Array, share: Array, n: float) -> tuple[float, float]:
    """Return the ends of a 90 % interval of the error, by drawing the rows again."""
    rows = max(round(n), 1)
    drawn = np.random.default_rng(0).multinomial(rows, share / share.sum(), size=_DRAWS) / rows
    squares = _square(pi, drawn, n) - 1 / n  # draws have the noise of the rows, and their own
    low, high = np.quantile(np.sqrt(np.maximum(squares, 0.0)), [0.05, 0.95])
    return float(low), float(high)


def _found(placed: Placed, shift: float, spread: float) -> str:
    """Say which way the forecasts are off: the more conspicuous first, and what may follow from it not at all."""
    found = []
    if abs(spread) > max(_SURE, abs(shift) / 2) and (held := placed.intervals):
        share = min(held, key=lambda each: abs(each - 0.8))
        way = "narrow" if spread > 0 else "wide"
        words = f"Too {way}: the {100 * share:.3g} % interval held {100 * held[share]:.0f} % of the outcomes."
        found.append((abs(spread), words))
    if abs(shift) > max(_SURE, abs(spread) / 2):
        middle = _level(0.5, placed.levels)
        above = math.nan if middle is None else 100 * (1 - placed.coverage[middle].value)
        words = "." if middle is None else f": {above:.0f} % of the outcomes were above the median."
        found.append((abs(shift), f"Too {'low' if shift > 0 else 'high'}{words}"))
    said = [words for _, words in sorted(found, reverse=True)]
    return " ".join(said) or "Neither too low nor too high, too narrow nor too wide on the whole: some levels are off."
