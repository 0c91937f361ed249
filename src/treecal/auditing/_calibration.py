"""How calibrated the forecasts of some rows are: bins, errors, scores, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from treecal.auditing._exact import Exact
from treecal.measures import Bins, Estimate, Interval, Payoff, Verdict, classwise_ece

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Calibration:
    """How calibrated the forecasts of some rows are.

    Attributes
    ----------
    rounds
        Number of rows, without those of weight 0.
    weight
        Total weight of these rows; their number, if they have no weights.
    top_label
        Rows binned by the probability of their most likely class; the outcome is whether that class was right.
    classes
        Rows binned by the probability of each class, by its name.
    exact
        Errors of distinct forecasts, compared bit for bit; None if they were not computed.
    brier_interval
        Mean of `Σ_k (p_k - y_k)²`, with its interval.
    log_interval
        Mean of `−ln p_y`, with its interval; infinite if an outcome had forecast 0.
    payoff
        What acting on the forecasts cost; None if no loss was given.
    estimates
        Where few rows are labelled, what measures are over all of them: see `treecal.measures.few_labels`. All else
        then says what the labelled rows do, by their weights.
    """

    rounds: int
    weight: float
    top_label: Bins
    classes: dict[str, Bins]
    exact: Exact | None
    brier_interval: Interval
    log_interval: Interval
    payoff: Payoff | None = None
    estimates: dict[str, Estimate] = field(default_factory=dict)

    @property
    def brier(self) -> float:
        """Brier score: the mean of `Σ_k (p_k - y_k)²`."""
        return self.brier_interval.value

    @property
    def log_score(self) -> float:
        """Log score: the mean of `−ln p_y`."""
        return self.log_interval.value

    @property
    def accuracy(self) -> float:
        """Share of rows whose most likely class was the outcome."""
        return self.top_label.mean_outcome

    @cached_property
    def rates(self) -> list[float]:
        """How often each class was the outcome in these rows."""
        return [bins.mean_outcome for bins in self.classes.values()]

    @cached_property
    def uncertainty(self) -> float:
        """Brier score of climatology: of always forecasting how often each class was the outcome in these rows."""
        return 1 - math.fsum(rate**2 for rate in self.rates)

    @property
    def skill(self) -> float:
        """How much lower than climatology's the Brier score is, as a share of it; below 0 is worse than climatology."""
        return 1 - self.brier / self.uncertainty if self.uncertainty > 0 else math.nan

    @property
    def swapped_skill(self) -> float:
        """The skill, in bins, if each of two columns were of the other class; NaN for other numbers of classes."""
        if len(self.classes) != 2 or self.uncertainty <= 0:
            return math.nan
        bins = list(self.classes.values())[1]
        full = bins.weight > 0
        weight = bins.weight[full]
        other = 1 - bins.forecast[full]
        came = bins.outcome[full]
        return 1 - 2 * float(weight @ (other**2 - 2 * other * came + came) / weight.sum()) / self.uncertainty

    @property
    def resolution(self) -> float:
        """How far the mean outcomes of the bins lie from that of all rows, squared, summed over the classes."""
        return math.fsum(bins.resolution for bins in self.classes.values())

    @property
    def classwise_ece(self) -> float:
        """The mean over classes of their expected calibration errors."""
        return classwise_ece(list(self.classes.values()))

    def __float__(self) -> float:
        """Return the class-wise ECE: one number, for loggers."""
        return self.classwise_ece

    @cached_property
    def verdict(self) -> Verdict:
        """Is it chance, how much is it, and what to do: see `treecal.measures.Verdict`."""
        return Verdict(self.top_label, self.classes)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values (an infinite error is a float that JSON lacks)."""
        exact = self.exact
        each = (None,) * len(self.classes) if exact is None else exact.classes
        _, classes = self.verdict.views
        return {
            "rounds": self.rounds,
            "weight": self.weight,
            "verdict": self.verdict.to_dict(),
            "forecasts": None if exact is None else exact.forecasts,
            "errors": {} if exact is None else {name: {"exact": error} for name, error in exact.errors.items()},
            "brier": self.brier,
            "log_score": self.log_score,
            "accuracy": self.accuracy,
            "skill": None if math.isnan(self.skill) else self.skill,
            "resolution": self.resolution,
            "uncertainty": self.uncertainty,
            "intervals": {"level": self.brier_interval.level, "brier": _ends(self.brier_interval)}
            | {"log_score": _ends(self.log_interval)},
            **({} if self.payoff is None else {"payoff": self.payoff.to_dict()}),
            **_labelled(self.estimates),
            "classwise_ece": self.classwise_ece,
            "classwise": classes.to_dict(),
            "top_label": self.top_label.to_dict(),
            "classes": {
                name: {"exact": error, **bins.to_dict()}
                for (name, bins), error in zip(self.classes.items(), each, strict=True)
            },
        }

    def plot(self) -> list[Axes]:
        """Draw the reliability of the most likely class and of single classes: `plots.plot_audit`."""
        from treecal.plots import plot_audit

        return plot_audit(self)


def _labelled(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    return {"estimates": {name: each.to_dict() for name, each in estimates.items()}} if estimates else {}


def _ends(interval: Interval) -> list[float]:
    return [interval.low, interval.high]
