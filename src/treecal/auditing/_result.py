"""The result of an audit: reliability bins and errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._bins import bin_edges
from treecal._typing import Array, Integers
from treecal.auditing._exact import Exact
from treecal.auditing._groups import Key
from treecal.io import Problems


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows in bins of equal width by a probability: a reliability diagram. A bin holds its lower edge, the last also 1.

    Attributes
    ----------
    forecast
        Mean probability in each bin; NaN in an empty one.
    weight
        Rows in each bin, as integers; or their total weight, if they have weights.
    outcome
        Mean outcome in each bin, the share of rows whose outcome is the class; NaN in an empty one.
    """

    forecast: Array
    weight: Integers | Array
    outcome: Array

    @property
    def edges(self) -> Array:
        """Edges of the bins, from 0 to 1."""
        return bin_edges(len(self.weight))

    @property
    def gap(self) -> Array:
        """Distance between mean outcome and mean probability in each bin."""
        return np.abs(self.outcome - self.forecast)

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean over rows of the gap of their bin."""
        return self._mean(self.gap)

    @property
    def mce(self) -> float:
        """Maximum calibration error: the largest gap of a bin."""
        return float(np.nanmax(self.gap))

    @property
    def mean_forecast(self) -> float:
        """Mean probability of all rows."""
        return self._mean(self.forecast)

    @property
    def mean_outcome(self) -> float:
        """Mean outcome of all rows."""
        return self._mean(self.outcome)

    def _mean(self, values: Array) -> float:
        return math.fsum((self.weight * values)[self.weight > 0]) / math.fsum(self.weight)

    def to_dict(self) -> dict[str, Any]:
        """Return errors and bins as JSON values; empty bins are left out."""
        means = {"mean_forecast": self.mean_forecast, "mean_outcome": self.mean_outcome}
        return {"ece": self.ece, "mce": self.mce, **means, "bins": list(self.filled())}

    def filled(self) -> Iterator[dict[str, Any]]:
        """Yield `low` and `high` edge, `forecast`, `weight`, `outcome` and `gap` of each bin that is not empty."""
        names = ("low", "high", "forecast", "weight", "outcome", "gap")
        columns = (self.edges[:-1], self.edges[1:], self.forecast, self.weight, self.outcome, self.gap)
        for values in zip(*(column[self.weight > 0].tolist() for column in columns), strict=True):
            yield dict(zip(names, values, strict=True))


@dataclass(frozen=True, eq=False)
class Calibration:
    """How calibrated the forecasts of some rows are.

    Attributes
    ----------
    rounds
        Number of rows, without those of weight 0.
    brier
        Mean of `Σ_k (p_k - y_k)²`.
    top_label
        Rows binned by the probability of their most likely class; the outcome is whether that class was right.
    classes
        Rows binned by the probability of each class, by its name.
    exact
        Errors of distinct forecasts, compared bit for bit; None if they were not computed.
    weight
        Total weight of these rows; their number, if they have no weights.
    """

    rounds: int
    brier: float
    top_label: Bins
    classes: dict[str, Bins]
    exact: Exact | None
    weight: float

    @property
    def classwise_ece(self) -> float:
        """The mean over classes of their expected calibration errors."""
        return math.fsum(bins.ece for bins in self.classes.values()) / len(self.classes)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values (an infinite error is a float that JSON lacks)."""
        exact = self.exact
        each = (None,) * len(self.classes) if exact is None else exact.classes
        return {
            "rounds": self.rounds,
            "weight": self.weight,
            "forecasts": None if exact is None else exact.forecasts,
            "errors": {} if exact is None else {name: {"exact": error} for name, error in exact.errors.items()},
            "brier": self.brier,
            "classwise_ece": self.classwise_ece,
            "top_label": self.top_label.to_dict(),
            "classes": {
                name: {"exact": error, **bins.to_dict()}
                for (name, bins), error in zip(self.classes.items(), each, strict=True)
            },
        }


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
    """

    source: str
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    by: tuple[str, ...]
    whole: Calibration
    groups: dict[Key, Calibration]
    problems: Problems

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
        }

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

    def __str__(self) -> str:
        from treecal.auditing._show import text

        return text(self)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
