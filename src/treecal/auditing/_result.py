"""The result of an audit: bins, errors and scores, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from treecal.auditing._exact import Exact
from treecal.auditing._groups import Key
from treecal.io import Problems
from treecal.measures import Bins, Interval, Payoff, Verdict
from treecal.measures._reliability import classwise_ece
from treecal.measures._verdict import off_among

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from treecal.monitor import Alarm


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
    """

    rounds: int
    weight: float
    top_label: Bins
    classes: dict[str, Bins]
    exact: Exact | None
    brier_interval: Interval
    log_interval: Interval
    payoff: Payoff | None = None

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

    @property
    def uncertainty(self) -> float:
        """Brier score of climatology: of always forecasting how often each class came in these rows."""
        return 1 - math.fsum(bins.mean_outcome**2 for bins in self.classes.values())

    @property
    def skill(self) -> float:
        """How much lower than climatology's the Brier score is, as a share of it; below 0 is worse than climatology."""
        return 1 - self.brier / self.uncertainty if self.uncertainty > 0 else math.nan

    @property
    def resolution(self) -> float:
        """How far the mean outcomes of the bins lie from that of all rows, squared, summed over the classes."""
        return math.fsum(bins.resolution for bins in self.classes.values())

    @property
    def classwise_ece(self) -> float:
        """The mean over classes of their expected calibration errors."""
        return classwise_ece(list(self.classes.values()))

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


@dataclass(frozen=True, eq=False)
class Audit:
    """How calibrated the forecasts of a log are, overall and by group. Returned by `tc.audit`; `print` shows it.

    Attributes
    ----------
    source
        Name of the log.
    classes
        Names of the classes.
    columns
        Names of the columns of their probabilities.
    by
        The columns that rows are grouped by.
    whole
        All rows.
    groups
        The rows of each group, by its values in these columns.
    problems
        The invalid rows that were left out.
    windows
        The same rows by windows of time, as its groups; None if no column of times was given.
    alarm
        Of windows: the alarm of a `tc.Monitor` that watched the rows; None without one.
    in_order
        Of windows: whether rows are in the order of time, as an alarm needs.
    """

    source: str
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    by: tuple[str, ...]
    whole: Calibration
    groups: dict[Key, Calibration]
    problems: Problems
    windows: Audit | None = None
    alarm: Alarm | None = None
    in_order: bool = True

    @property
    def off(self) -> list[Key]:
        """The groups that chance does not explain, even among so many; the largest share of the base rate first."""
        return off_among({key: part.verdict for key, part in self.groups.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "source": self.source,
            "classes": dict(zip(self.classes, self.columns, strict=True)),
            **self.problems.to_dict(),
            "whole": self.whole.to_dict(),
            "groups": [
                {"by": dict(zip(self.by, map(_plain, key), strict=True)), **group.to_dict()}
                for key, group in self.groups.items()
            ],
            **({} if self.windows is None else {"windows": self.windows._over_time()}),
        }

    def _over_time(self) -> dict[str, Any]:
        alarm = None if self.alarm is None else asdict(self.alarm) | {"words": str(self.alarm)}
        groups = [{self.by[0]: _plain(key[0]), **group.to_dict()} for key, group in self.groups.items()]
        return {"by": self.by[0], "in_order": self.in_order, "alarm": alarm, "groups": groups}

    def bins(self) -> Iterator[dict[str, Any]]:
        """Yield every bin that is not empty as a row of one table: first of all rows, then of each group."""
        parts = [((None,) * len(self.by), self.whole), *self.groups.items()]
        for key, part in parts:
            group = dict(zip(self.by, map(_plain, key), strict=True))
            for row in part.top_label.filled():
                yield {**group, "kind": "top label", "class": None, **row}
            for name, bins in part.classes.items():
                for row in bins.filled():
                    yield {**group, "kind": "class", "class": name, **row}

    def plot(self) -> list[Axes]:
        """Draw the reliability of the most likely class and of single classes, over all rows: `plots.plot_audit`."""
        return self.whole.plot()

    def __str__(self) -> str:
        from treecal.auditing._show import text

        return text(self)

    def _repr_html_(self) -> str:
        from treecal.auditing._html import html

        return html(self)


def _ends(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
