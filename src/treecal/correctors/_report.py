"""What a correction changed: scores of the model's forecasts, and of those announced instead."""

from __future__ import annotations

from dataclasses import dataclass

ROLES = ("before", "after", "mean")


@dataclass(frozen=True)
class Scores:
    """Scores of one sequence of forecasts, per round; lower is better in all four.

    Attributes
    ----------
    brier
        `Σ_p x(p)·‖y − p‖₂²`: for a distribution, the expected score of a draw from it.
    calibration
        Of each class by itself, in bins of a tenth: the squared distance of the mean forecast of a bin from its mean
        outcome, summed over the classes. It is what renaming the forecasts of each class could have saved.
    refinement
        The rest of the Brier score: how much outcomes vary within a bin (Murphy's decomposition, class by class).
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
        Rounds scored.
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
    before: Scores
    after: Scores
    mean: Scores
    groups: int | None = None
    group_refinement: float | None = None
    shift_refinement: float | None = None

    def __str__(self) -> str:
        classes = self.before.log is not None
        what, score, last = ("class", "Brier", "   log score") if classes else ("coordinate", "square", "")
        lines = [
            f"{self.rounds:,} round{'s' * (self.rounds != 1)}, each {what} in bins of a tenth",
            f"{'':8}{score:>8} = calibration + refinement{last}",
        ]
        for role in ROLES:
            s: Scores = getattr(self, role)
            log = "" if s.log is None else f"{s.log:.4f}"
            lines.append(f"{role:8}{s.brier:8.4f}{s.calibration:14.4f}{s.refinement:13.4f}{log:>12}".rstrip())
        if self.group_refinement is not None:
            best = f"constants {self.group_refinement:.4f}, shifts {self.shift_refinement:.4f}"
            lines.append(f"{score.capitalize()} scores of the best in {self.groups} groups: {best}")
        return "\n".join(lines)
