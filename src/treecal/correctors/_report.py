"""What a correction changed: scores of the model's forecasts, and of those announced instead."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treecal.geometry import Simplex, l2
from treecal.ledger import Ledger

FLOOR = 1e-9
"""The least probability in a log score: an outcome of probability 0 costs 20.7, not infinity."""
ROLES = ("before", "after", "mean")


@dataclass(frozen=True)
class Scores:
    """Scores of one sequence of forecasts, per round; lower is better in all four.

    Attributes
    ----------
    brier
        `Σ_p x(p)·‖y − p‖₂²`: for a distribution, the expected score of a draw from it.
    calibration
        The squared ℓ2 calibration error of the ledger: what renaming the same forecasts could have saved.
    refinement
        The rest of the Brier score: how much outcomes vary within a bin (Murphy's decomposition).
    log
        `Σ_p x(p)·Σ_i −y_i ln p_i`, with probabilities below 1e-9 read as 1e-9; None off the simplex.
    """

    brier: float
    calibration: float
    refinement: float
    log: float | None


@dataclass(frozen=True)
class Correction:
    """Before and after, side by side. Printed, it is a table.

    Attributes
    ----------
    rounds
        Rounds played.
    resolution
        Width of the cells in which forecasts are binned; None when they are compared exactly.
    before
        Scores of the model's forecasts.
    after
        Scores of the distributions announced.
    mean
        Scores of the means of these distributions, each read as one point: sharper, and not what is calibrated.
    groups
        Number of groups met, where there are groups.
    group_refinement
        The Brier score of the best constant forecast for each group, chosen with hindsight.
    shift_refinement
        The Brier score of the model's forecasts, each group's moved by the best constant, chosen with hindsight.
    """

    rounds: int
    resolution: float | None
    before: Scores
    after: Scores
    mean: Scores
    groups: int | None = None
    group_refinement: float | None = None
    shift_refinement: float | None = None

    def __str__(self) -> str:
        how = "compared exactly" if self.resolution is None else f"binned in cells of {self.resolution:g}"
        lines = [f"{self.rounds:,} rounds, forecasts {how}", f"{'':8}   Brier = calibration + refinement   log score"]
        for role in ROLES:
            s: Scores = getattr(self, role)
            log = "" if s.log is None else f"{s.log:.4f}"
            lines.append(f"{role:8}{s.brier:8.4f}{s.calibration:14.4f}{s.refinement:13.4f}{log:>12}".rstrip())
        if self.group_refinement is not None:
            best = f"constants {self.group_refinement:.4f}, shifts {self.shift_refinement:.4f}"
            lines.append(f"Brier scores of the best in {self.groups} groups: {best}")
        return "\n".join(lines)


def scores(ledger: Ledger, squares: float, resolution: float | None) -> Scores:
    """Return the scores of a ledger's forecasts, per round, given the sum of all `‖y‖²`."""
    exact = ledger.exact()
    reading = exact if resolution is None else ledger.binned(resolution=resolution)
    calibration = reading.error(l2.squared)
    # The mean outcomes ν_p make the Brier score Σ m_p‖ν_p − p‖² + (Σ‖y‖² − Σ m_p‖ν_p‖²); the log score is linear in y.
    scatter = squares - math.fsum(exact.weights * l2.square(exact.outcomes))
    brier = exact.error(l2.squared) + max(scatter, 0.0) / ledger.rounds
    log = None
    if isinstance(ledger.space, Simplex):
        costs = -np.log(np.maximum(exact.forecasts, FLOOR))
        log = math.fsum(exact.weights * (exact.outcomes * costs).sum(axis=1)) / ledger.rounds
    return Scores(brier, calibration, brier - calibration, log)
