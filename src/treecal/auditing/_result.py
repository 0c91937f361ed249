"""What an audit found: reliability bins, errors, and the words and tables to show them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._exact import Exact
from treecal.auditing._groups import Key
from treecal.io import Problems


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows in bins of equal width by a probability: what a reliability diagram shows.

    A bin holds its lower edge; the last one holds 1 as well.

    Attributes
    ----------
    edges
        Edges of the bins, from 0 to 1.
    rows
        Rows in each bin.
    forecasts
        Mean probability in each bin; NaN in an empty one.
    outcomes
        How often it happened in each bin; NaN in an empty one.
    """

    edges: Array
    rows: Integers
    forecasts: Array
    outcomes: Array

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean over rows of the gap of their bin."""
        gaps = (self.rows * np.abs(self.outcomes - self.forecasts))[self.rows > 0]
        return math.fsum(gaps) / int(self.rows.sum())

    @property
    def mce(self) -> float:
        """Maximum calibration error: the largest gap of a bin."""
        return float(np.nanmax(np.abs(self.outcomes - self.forecasts)))

    @property
    def forecast(self) -> float:
        """Mean probability of all rows."""
        return _mean(self.rows, self.forecasts)

    @property
    def outcome(self) -> float:
        """How often it happened in all rows."""
        return _mean(self.rows, self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """Return errors and bins as JSON values; empty bins are left out."""
        bins = [
            {"low": low, "high": high, "rows": rows, "forecast": forecast, "outcome": outcome}
            for low, high, rows, forecast, outcome in self.filled()
        ]
        return {"ece": self.ece, "mce": self.mce, "forecast": self.forecast, "outcome": self.outcome, "bins": bins}

    def filled(self) -> Iterator[tuple[float, float, int, float, float]]:
        """Yield low edge, high edge, rows, mean probability and frequency of each bin that is not empty."""
        columns = (self.edges[:-1], self.edges[1:], self.rows, self.forecasts, self.outcomes)
        for bin_ in zip(*(column.tolist() for column in columns), strict=True):
            if bin_[2]:
                yield bin_


@dataclass(frozen=True, eq=False)
class Calibration:
    """How calibrated the forecasts of some rows are.

    Attributes
    ----------
    rows
        Number of rows.
    brier
        Mean of `Σ_k (p_k - y_k)²`.
    top_label
        Rows binned by the probability of their likeliest class, and how often that class happened.
    classes
        Rows binned by the probability of each class, by its name.
    exact
        Errors with forecasts told apart by all their digits; None if that was not asked for.
    """

    rows: int
    brier: float
    top_label: Bins
    classes: dict[str, Bins]
    exact: Exact | None

    @property
    def classwise_ece(self) -> float:
        """The mean over classes of their expected calibration errors."""
        return math.fsum(bins.ece for bins in self.classes.values()) / len(self.classes)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values (an infinite error is a float that JSON lacks)."""
        exact = None
        if self.exact is not None:
            classes = dict(zip(self.classes, self.exact.classes, strict=True))
            exact = {"forecasts": self.exact.forecasts, "errors": self.exact.errors, "classes": classes}
        return {
            "rows": self.rows,
            "brier": self.brier,
            "exact": exact,
            "classwise_ece": self.classwise_ece,
            "top_label": self.top_label.to_dict(),
            "classes": {name: bins.to_dict() for name, bins in self.classes.items()},
        }


@dataclass(frozen=True, eq=False)
class Audit:
    """How calibrated the forecasts of a log are, in all and by group. Made by `tc.audit`; `print` shows it.

    Attributes
    ----------
    source
        What was audited.
    classes
        Names of the classes.
    columns
        What their probabilities are called in the log.
    by
        The columns that make the groups.
    whole
        All rows.
    groups
        The rows of each group, by its values in these columns.
    problems
        The bad rows that were left out.
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
            "bad_rows": self.problems.count,
            "problems": [problem._asdict() for problem in self.problems],
            "whole": self.whole.to_dict(),
            "groups": [
                {"by": dict(zip(self.by, map(_plain, key), strict=True)), **group.to_dict()}
                for key, group in self.groups.items()
            ],
        }

    def bins(self) -> Iterator[dict[str, Any]]:
        """Yield every bin that is not empty as a row of one table: of all rows first, then of each group."""
        parts = [((None,) * len(self.by), self.whole), *self.groups.items()]
        for key, part in parts:
            for name, bins in [("top label", part.top_label), *part.classes.items()]:
                kind = "top label" if bins is part.top_label else "class"
                for low, high, rows, forecast, outcome in bins.filled():
                    yield {
                        **dict(zip(self.by, map(_plain, key), strict=True)),
                        "kind": kind,
                        "class": None if kind == "top label" else name,
                        "low": low,
                        "high": high,
                        "rows": rows,
                        "forecast": forecast,
                        "outcome": outcome,
                    }

    def __str__(self) -> str:
        from treecal.auditing._show import text

        return text(self)


def _mean(rows: Integers, values: Array) -> float:
    return math.fsum((rows * values)[rows > 0]) / int(rows.sum())


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
