"""Audits of logs of which few rows are labelled: those by their weights, and estimates for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers
from treecal.auditing._memory import ArrayLog, open_arrays
from treecal.auditing._result import Audit
from treecal.exceptions import ParameterError
from treecal.io import OnError, arrays_of, as_columns, open_source, read_arrays
from treecal.measures import Estimate, Labels, few_measures, read_labels, read_proxy

WEIGHT = "weight 1/probability"
LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class FewLog:
    """A log of which few rows are labelled.

    Attributes
    ----------
    labelled
        The columns of the labelled rows, with a column of weights; None of those if all rows are labelled.
    weighted
        Whether there are weights: if every row is sure to be labelled, there are none.
    forecasts, outcomes, proxies, labels
        All valid rows.
    groups
        The columns to group these rows by.
    log
        The same rows, as they were read.
    """

    labelled: dict[str, NDArray[Any]]
    weighted: bool
    forecasts: Array
    outcomes: Integers
    proxies: Array | None
    labels: Labels
    groups: dict[str, NDArray[Any]]
    log: ArrayLog

    def add(self, found: Audit) -> Audit:
        """Return an audit of the labelled rows with estimates for all, and for each group."""
        whole = replace(found.whole, estimates=self._estimates(np.arange(len(self.forecasts))))
        groups = type(found.groups)(found.groups)
        if self.groups:
            cells = list(zip(*(column.tolist() for column in self.groups.values()), strict=True))
            home: dict[Any, list[int]] = {}
            for row, key in enumerate(cells):
                home.setdefault(key, []).append(row)
            for key, part in found.groups.items():
                groups[key] = replace(part, estimates=self._estimates(np.array(home[key])))
        return replace(found, whole=whole, groups=groups, problems=self.log.problems)

    def _estimates(self, rows: Integers) -> dict[str, Estimate]:
        """Return the estimates over some rows; none where there are not two labels."""
        place = np.full(len(self.forecasts), -1)
        place[rows] = np.arange(len(rows))
        at = place[self.labels.at]
        if (at >= 0).sum() < 2:
            return {}
        labels = Labels(at[at >= 0], self.labels.weight[at >= 0], len(rows))
        proxies = None if self.proxies is None else self.proxies[rows]
        return few_measures(self.forecasts[rows], self.outcomes[rows], proxies, labels, LEVEL)


def check_known(probability: Any, proxy: Any) -> None:
    """Raise unless it is known with which probability rows were labelled."""
    if probability is None:
        raise ParameterError(
            f"there is a proxy, {proxy if isinstance(proxy, str) else 'an array'}, and no probability with which rows "
            "were drawn to be labelled; without it nothing can be estimated for the other rows.",
            hint="labels that people chose may be the easy rows, or the doubtful ones. Draw rows by tc.sample_labels, "
            "label all of these, and give the probability of each; or audit the labelled rows alone, which then stand "
            "for themselves.",
        )


def read_few(
    source: Any,
    name: str | None,
    *,
    forecast: str | Sequence[str],
    outcome: str | Sequence[str],
    by: Sequence[str],
    probability: str | float,
    proxy: str | Sequence[str] | None,
    classes: Sequence[str | int] | None,
    on_error: OnError,
    tolerance: float | None,
) -> FewLog:
    """Read a log of which few rows have an outcome."""
    (*more, label) = as_columns("outcome", outcome)
    if more:
        raise ParameterError("with probability= the outcome is one column of labels, empty where there is none.")
    asked = as_columns("forecast", forecast)
    proxies = [] if proxy is None else list(as_columns("proxy", proxy))
    drawn = [probability] if isinstance(probability, str) else []
    names = list(dict.fromkeys([*asked, label, *by, *proxies, *drawn]))
    if arrays_of(source) is None:
        source = open_source(source)
        name = name or source.name
    columns = read_arrays(source, names, plain=[*by])
    given = columns[label]
    known = np.array([value is not None and value == value and value != "" for value in given.tolist()])  # NaN
    if not known.any():
        raise ParameterError(f"no row has an outcome in {label!r}.")
    filled = given.copy()
    filled[~known] = given[known][0]
    if filled.dtype.kind == "f" and (filled == np.trunc(filled)).all():
        filled = filled.astype(np.int64)
    log = open_arrays(
        {**columns, label: filled},
        name,
        forecast=asked,
        outcome=label,
        by=by,
        classes=classes,
        on_error=on_error,
        tolerance=tolerance,
    )
    if log is None:
        raise ParameterError(f"the columns {', '.join(names)} are not numbers, classes and groups.")
    chunks = list(log)
    rows = np.concatenate([chunk.rows for chunk in chunks]) - 1
    forecasts = np.concatenate([chunk.forecasts for chunk in chunks if chunk.forecasts is not None])
    outcomes = np.concatenate([chunk.outcomes for chunk in chunks]).astype(np.int64)
    pi = np.asarray(columns[probability] if isinstance(probability, str) else probability)
    labels = read_labels(known[rows], pi if pi.ndim == 0 else pi[rows])
    weighted = bool((labels.weight > 1).any())
    at = rows[labels.at]
    labelled = {name: column[at] for name, column in {**columns, label: filled}.items()}
    return FewLog(
        labelled | ({WEIGHT: labels.weight} if weighted else {}),
        weighted,
        forecasts,
        outcomes,
        _proxies([columns[name][rows] for name in proxies], proxies, log) if proxies else None,
        labels,
        {name: columns[name][rows] for name in by},
        log,
    )


def _proxies(columns: list[NDArray[Any]], names: Sequence[str], log: ArrayLog) -> Array:
    """Return the proxies as probabilities of each class."""
    classes = log.classes
    if len(columns) > 1:
        return read_proxy(np.column_stack(columns), len(columns[0]), len(classes))
    (column,) = columns
    if column.ndim == 1:
        index = {name: k for k, name in enumerate(classes)}
        values = _cells(column, names[0])
        cells = [str(int(cell)) if isinstance(cell, float) and cell == int(cell) else str(cell) for cell in values]
        if all(cell in index for cell in cells):
            return np.eye(len(classes))[[index[cell] for cell in cells]]
        if column.dtype.kind not in "biuf":
            odd = next(cell for cell in cells if cell not in index)
            raise ParameterError.expected("proxy", odd, f"one of {', '.join(classes)}, or the probability of each")
    return read_proxy(column, len(column), len(classes))


def _cells(column: NDArray[Any], name: str) -> list[Any]:
    cells: list[Any] = column.tolist()
    for row, cell in enumerate(cells):
        if cell is None or cell != cell:  # NaN
            raise ParameterError(
                f"the proxy, {name!r}, is missing in row {row + 1}, and every row needs one.",
                hint="leave out rows without a proxy, of all and not only of the labelled ones.",
            )
    return cells
