"""Audits of many labels at once: independent yes-or-no outcomes over one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import known_numbers, whole_number
from treecal.auditing._cells import AuditRows
from treecal.auditing._counts import AuditCounts
from treecal.auditing._groups import Groups, Key
from treecal.auditing._result import Audit
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.io import Problems
from treecal.measures import MOST_BINS, bin_of, off_among

_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class LabelsAudit(Audit):
    """How calibrated the forecasts of many labels are: an audit whose groups are the labels. `whole` is all of them.

    Attributes
    ----------
    joint
        The joint error in the maximum norm: of a row, the largest gap of the bins that its probabilities are in, over
        all labels; and of that the mean over rows. Noise counts as error.
    joint_by_chance
        What it would be if the forecasts were right, in one draw.
    """

    joint: float = 0.0
    joint_by_chance: float = 0.0
    _parts: ClassVar = "labels"
    _cure: ClassVar = "Labels"

    @property
    def off(self) -> list[Key]:
        """The labels that chance does not explain, even among so many, however they depend on each other.

        Of those returned, at most one of twenty is there by chance, on average (Benjamini and Yekutieli 2001).
        """
        return off_among({key: part.verdict for key, part in self.groups.items()}, dependent=True)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return super().to_dict() | {"joint": self.joint, "joint_by_chance": self.joint_by_chance}


def audit_labels(P: ArrayLike, Y: ArrayLike, names: Sequence[str] | None = None, *, bins: int = 10) -> LabelsAudit:
    """Audit the probabilities of many labels over one row each: every label by itself, all together, and jointly.

    Each label costs what an audit of its column does; the joint error costs two passes more.

    Parameters
    ----------
    P
        The probability of each label, `(n, labels)`.
    Y
        1 or 0 for each; NaN, or masked, where it is not known, which leaves it out of that label alone.
    names
        The names of the labels; by default "0", "1", …
    bins
        Number of bins of equal width.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> P = rng.random((4000, 3))
    >>> Y = rng.random((4000, 3)) < np.column_stack([P[:, 0], P[:, 1] ** 2, P[:, 2]])
    >>> found = audit_labels(P, Y, ["cat", "dog", "owl"])
    >>> found.off, round(found.groups["dog"].classes["1"].ece, 2)
    ([('dog',)], 0.16)
    >>> round(found.joint, 2), round(found.joint_by_chance, 2)
    (0.16, 0.03)
    """
    p = known_numbers("P", P, ForecastError)
    y = known_numbers("Y", Y, OutcomeError)
    if p.ndim != 2 or 0 in p.shape:
        raise ForecastError(f"P has shape {p.shape}, expected (n, labels).")
    if y.shape != p.shape:
        raise OutcomeError(f"Y has shape {y.shape}, expected {p.shape}.")
    size = p.shape[1]
    titles = [str(k) for k in range(size)] if names is None else [str(name) for name in names]
    if len(set(titles)) < len(titles) or len(titles) != size:
        raise ParameterError(f"there are {size} labels and {len(set(titles))} distinct names, expected one each.")
    count = whole_number("bins", bins, least=1, most=MOST_BINS)
    groups = Groups(("label",))
    groups.index = {(name,): k for k, name in enumerate(titles)}
    counts = AuditCounts.empty(groups, classes=2, bins=count)
    known = np.empty(size, np.int64)
    for k in range(size):
        own, came = _column(p[:, k], y[:, k], titles[k])
        known[k] = len(own)
        both = np.stack([1 - own, own])
        counts.add(AuditRows(both, came, np.full(len(own), k), np.zeros(0, np.int64)))
    if not known.all():
        raise OutcomeError(f"label {titles[int(known.argmin())]!r} has no outcome.", hint="leave it out.")
    found = counts.audit("the labels", ("0", "1"), ("no", "yes"), Problems("", "stop"))
    cells = counts.cells
    hits, weight, ones, rest = (table[:, 1, :] for table in (cells.hits, cells.weight, cells.ones, cells.rest))
    full = np.maximum(weight, 1)
    mean = (ones + rest / 2.0**51) / full
    drawn = np.random.default_rng(0).binomial(weight, np.clip(mean, 0, 1))
    joint, chance = _joint(p, np.abs(hits / full - mean), np.abs(drawn / full - mean))
    parts = {name: getattr(found, name) for name in ("source", "classes", "columns", "by", "whole", "groups")}
    return LabelsAudit(**parts, problems=found.problems, joint=joint, joint_by_chance=chance)


def _column(p: Array, y: Array, name: str) -> tuple[Array, Integers]:
    """Return the probabilities and outcomes of the rows of a label whose outcome is known."""
    known = ~np.isnan(y)
    if not (valid := (p >= 0) & (p <= 1)).all():  # NaN, too
        row = int(np.argmin(valid))
        raise ForecastError.at(row, f"has the probability {p[row]:g} of {name!r}.", where="in row")
    if not (valid := ~known | (y == 0) | (y == 1)).all():
        row = int(np.argmin(valid))
        raise OutcomeError.at(row, f"has {y[row]:g} for {name!r}, expected 1, 0, or NaN.", where="in row")
    return p[known], y[known].astype(np.int64)


def _joint(p: Any, *tables: Array) -> list[float]:
    """Return, for each table of gaps, `(labels, bins)`, the mean over rows of the largest gap of their bins."""
    n, size = p.shape
    bins = tables[0].shape[1]
    totals = [0.0] * len(tables)
    for begin in range(0, n, _ROWS):
        rows = p[begin : begin + _ROWS]
        most = np.zeros((len(tables), len(rows)))
        for k in range(size):
            at = bin_of(rows[:, k].astype(np.float64), bins).astype(np.int64)
            for i, table in enumerate(tables):
                np.maximum(most[i], table[k, at], out=most[i])
        totals = [total + float(each.sum()) for total, each in zip(totals, most, strict=True)]
    return [total / n for total in totals]
