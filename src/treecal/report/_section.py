"""A section of a report: one stream, and the forecasters that played it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from treecal.exceptions import ParameterError
from treecal.geometry import Simplex
from treecal.ledger import Reading
from treecal.report._entries import Entry
from treecal.report._verdict import Verdict, too_few_rounds

if TYPE_CHECKING:
    from treecal.auditing import Calibration

MOST_CLASSES = 1000
"""In a report: it simulates and draws outcomes of every class."""


@dataclass(frozen=True, eq=False)
class Section:
    """One stream, and the forecasters that played it.

    Attributes
    ----------
    title
        What the stream is.
    entries
        The forecasters, all on the same set and in the same norm.
    classes
        Names of the coordinates; by default those that the set knows.
    summary
        What it shows, in a sentence or two; by default the entries with the least and the largest error.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.report import play
    >>> space = tc.Simplex(2)
    >>> coins = np.eye(2)[np.random.default_rng(0).integers(2, size=2000)]
    >>> entries = [play(f, coins) for f in (tc.TreeCal(space), tc.BinaryGrid(), tc.RunningMean(space))]
    >>> [verdict.level for verdict in Section("Coins", entries).verdicts]
    ['somewhat off', 'calibrated', 'calibrated']
    """

    title: str
    entries: Sequence[Entry]
    classes: Sequence[str] | None = None
    summary: str | None = None

    def __post_init__(self) -> None:
        if not self.entries:
            raise ParameterError(f"the section {self.title!r} has no entries, expected one or more.")
        first, names = self.entries[0], [entry.name for entry in self.entries]
        if len(set(names)) < len(names):
            raise ParameterError(f"entries are named {names}, expected distinct names.")
        for entry in self.entries:
            if (entry.space, entry.norm) != (first.space, first.norm):
                raise ParameterError(
                    f"{entry.name!r} is measured on {entry.space!r} in {entry.norm!r}, and {first.name!r} on "
                    f"{first.space!r} in {first.norm!r}.",
                    hint="one section, one set, one norm.",
                )
        if first.space.dim > MOST_CLASSES:
            raise ParameterError(
                f"the section {self.title!r} has {first.space.dim:,} coordinates, and a report has room for "
                f"{MOST_CLASSES:,}.",
                hint="group rare classes into one; errors and tables without a report have no such limit.",
            )
        if self.classes is not None and len(self.classes) != first.space.dim:
            raise ParameterError(f"{len(self.classes)} classes were named, expected {first.space.dim}.")

    @property
    def names(self) -> Sequence[str]:
        """Names of the coordinates."""
        space = self.entries[0].space
        known, kind = (space.classes, "class") if isinstance(space, Simplex) else (None, "coordinate")
        return self.classes or known or [f"{kind} {k + 1}" for k in range(space.dim)]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """How calibrated each entry was: all binned, if the exact forecasts of any have too few rounds."""
        binned = any(too_few_rounds(entry.exact) for entry in self.entries)
        return [Verdict(entry, binned=binned) for entry in self.entries]


def audited(found: Calibration, *, title: str) -> Section:
    """Return the result of `treecal.auditing.audit` as a section: one entry per class, against all others.

    The error of a class is twice its expected calibration error, since what it has too much the others have too little.
    Of more than eight classes, the eight most frequent are shown.

    Parameters
    ----------
    found
        The whole of an audit, or one of its groups.
    title
        What the log is.

    Examples
    --------
    >>> from treecal.auditing import audit
    >>> log = {"p": np.array([0.8, 0.8, 0.8, 0.8, 0.2]), "rain": np.array([1, 1, 1, 0, 0])}
    >>> section = audited(audit(log, forecast="p", outcome="rain").whole, title="Rain")
    >>> [(entry.name, entry.ledger.rounds) for entry in section.entries]
    [('1', 5), ('0', 5)]
    """
    most = sorted(found.classes, key=lambda name: -found.classes[name].mean_outcome)[:8]
    if len(most) < len(found.classes):
        title = f"{title} (the {len(most)} most frequent of {len(found.classes)} classes)"
    entries = []
    for name in most:
        bins, full = found.classes[name], found.classes[name].weight > 0
        forecasts, outcomes = (np.column_stack([1 - p, p])[full] for p in (bins.forecast, bins.outcome))
        weights, width = bins.weight[full].astype(np.float64), 1 / len(bins.weight)
        reading = Reading(forecasts, weights, outcomes, found.rounds, width, weight=found.weight)
        entries.append(Entry(name, reading))
    return Section(title, entries, ("any other", "this class"))
