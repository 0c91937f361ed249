"""What a correction changed: scores of the model's forecasts, and of those that were announced instead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.correctors._state import nested, unnested
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.geometry import ConvexSet, Simplex, l2
from treecal.ledger import Ledger

FLOOR = 1e-9
"""The least probability in a log score: an outcome that was ruled out costs 20.7, not infinity."""
_ROLES = ("before", "after", "mean")


@dataclass(frozen=True)
class Scores:
    """How good one sequence of forecasts was, per round; less is better in all four.

    Attributes
    ----------
    brier
        `Σ_p x(p)·‖y − p‖₂²`: of a distribution, the score that a draw from it has in expectation.
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
        for role in _ROLES:
            s: Scores = getattr(self, role)
            log = "" if s.log is None else f"{s.log:.4f}"
            lines.append(f"{role:8}{s.brier:8.4f}{s.calibration:14.4f}{s.refinement:13.4f}{log:>12}".rstrip())
        if self.group_refinement is not None:
            best = f"constants {self.group_refinement:.4f}, shifts {self.shift_refinement:.4f}"
            lines.append(f"Brier scores of the best in {self.groups} groups: {best}")
        return "\n".join(lines)


class ScoreKeeper:
    """Keeps what a report is read from: three ledgers, and the sums of two scores for each.

    Costs three ledger records a round, and memory for every distinct forecast.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    """

    def __init__(self, space: ConvexSet) -> None:
        self.space = space
        self.ledgers = {role: Ledger(space) for role in _ROLES}
        self._sums = np.zeros((len(_ROLES), 2))  # Brier and log score
        self._squares = 0.0

    def record(self, before: Array, after: Forecast, outcome: Array) -> None:
        """Record one round; everything comes checked."""
        model = Forecast.trusted(before[None], uniform(1), None, self.space)
        mean = Forecast.trusted(after.mean[None], uniform(1), None, self.space)
        for row, (role, x) in enumerate(zip(_ROLES, (model, after, mean), strict=True)):
            self.ledgers[role].record(x, outcome)
            self._sums[row, 0] += x.weights @ l2.square(outcome - x.points)
            if isinstance(self.space, Simplex):
                self._sums[row, 1] -= x.weights @ (np.log(np.maximum(x.points, FLOOR)) @ outcome)
        self._squares += float(outcome @ outcome)

    def report(self, *, resolution: float | None) -> Correction:
        """Return all scores, per round."""
        rounds = self.ledgers["before"].rounds
        if not rounds:
            raise ParameterError("no round is recorded, so there is nothing to report.")
        scores = []
        for ledger, (brier, log) in zip(self.ledgers.values(), self._sums / rounds, strict=True):
            reading = ledger.exact() if resolution is None else ledger.binned(resolution=resolution)
            error = reading.error(l2.squared)
            known = float(log) if isinstance(self.space, Simplex) else None
            scores.append(Scores(float(brier), error, float(brier) - error, known))
        before, after, mean = scores
        return Correction(rounds, resolution, before, after, mean)

    def scatter(self, counts: Array, sums: Array) -> float:
        """Return how far outcomes lie from the mean of their group, squared, per round."""
        used = counts > 0
        means = math.fsum(l2.square(sums[used]) / counts[used])
        return max(0.0, self._squares - means) / self.ledgers["before"].rounds

    def get_state(self) -> dict[str, Any]:
        """Return the sums, and the rows of the ledgers."""
        state: dict[str, Any] = {"sums": self._sums, "squares": self._squares}
        for role, ledger in self.ledgers.items():
            state |= nested(role, ledger.get_state())
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self._sums, self._squares = state["sums"], state["squares"]
        for role, ledger in self.ledgers.items():
            ledger.set_state(unnested(role, state))
