"""A section of a report: one stream, the forecasters that played it, and the groups of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from treecal.auditing import Audit, Calibration
from treecal.exceptions import ParameterError
from treecal.geometry import Cdf, Simplex
from treecal.measures import off_among
from treecal.report._entries import Entry
from treecal.report._verdict import Verdict

_MOST_NAMES = 5  # of groups in a sentence


class GroupRow(NamedTuple):
    """A group of an audit in the table of all groups."""

    name: str
    part: Calibration


def key_in_words(key: tuple[Any, ...]) -> str:
    """Return the values that make a group."""
    return ", ".join("(missing)" if value is None else str(value) for value in key)


def groups_of(audit: Audit) -> list[GroupRow]:
    """Return all groups, in the order of the audit."""
    return [GroupRow(key_in_words(key), part) for key, part in audit.groups.items()]


def convicted(groups: Sequence[GroupRow]) -> list[GroupRow]:
    """Return the groups that are off, the largest share of their base rate first.

    As `treecal.measures.Verdict` of many at once: of those returned, at most one of twenty is there by chance.

    Examples
    --------
    >>> import numpy as np, treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> site, p = rng.integers(100, size=50_000), rng.random(50_000)
    >>> y = rng.random(50_000) < np.where(site == 7, p**2, p)
    >>> rows = groups_of(tc.audit({"p": p, "y": y, "site": site}, forecast="p", outcome="y", by="site"))
    >>> [row.name for row in convicted(rows)], sum(row.part.verdict.p_value < 0.05 for row in rows)
    (['7'], 3)
    """
    return [groups[k] for k in off_among({k: row.part.verdict for k, row in enumerate(groups)})]


def in_words(groups: Sequence[GroupRow], off: Sequence[GroupRow], by: Sequence[str]) -> str:
    """Say how many groups are off, and which most."""
    many = f"{len(groups):,} group{'s' * (len(groups) != 1)} by {', '.join(by)}"
    if off:
        named = ", ".join(row.name for row in off[:_MOST_NAMES])
        most = "" if len(off) <= _MOST_NAMES else "most of all "
        found = f"Of {many}, {len(off):,} {'is' if len(off) == 1 else 'are'} off: {most}{named}."
    else:
        found = f"Of {many}, none is off by more than chance explains."
    few = sum(row.part.verdict.level == "cannot tell" for row in groups)
    return found + (f" {few:,} {'has' if few == 1 else 'have'} too few rows to tell." if few else "")


MOST_CLASSES = 1000
"""In a report, which draws every class."""
_MOST_GROUPS = 12  # of an audit with pictures of their own


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
    groups, by
        The groups of an audit, and the columns they are made by.
    windows
        An audit of the same rows by windows of time.

    Examples
    --------
    >>> import numpy as np, treecal as tc
    >>> from treecal.report import play
    >>> space = tc.Simplex(2)
    >>> coins = np.eye(2)[np.random.default_rng(0).integers(2, size=2000)]
    >>> entries = [play(f, coins) for f in (tc.TreeCal(space), tc.BinaryGrid(), tc.RunningMean(space))]
    >>> [verdict.level for verdict in Section("Coins", entries).verdicts]
    ['far off', 'calibrated', 'calibrated']
    """

    title: str
    entries: Sequence[Entry]
    classes: Sequence[str] | None = None
    summary: str | None = None
    groups: Sequence[GroupRow] = ()
    by: Sequence[str] = ()
    windows: Audit | None = None

    def __post_init__(self) -> None:
        if not self.entries:
            raise ParameterError(f"the section {self.title!r} has no entries, expected one or more.")
        first = self.entries[0]
        names = [entry.name for entry in self.entries]
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
        if len(set(self.names)) < first.space.dim:
            raise ParameterError(f"classes are named {list(self.names)}, expected distinct names.")

    @property
    def names(self) -> Sequence[str]:
        """Names of the coordinates."""
        space = self.entries[0].space
        if isinstance(space, Cdf):
            return [f"F({z:.12g})" for z in space.thresholds]
        known, kind = (space.classes, "class") if isinstance(space, Simplex) else (None, "coordinate")
        return self.classes or known or [f"{kind} {k}" for k in range(space.dim)]

    @property
    def is_audit(self) -> bool:
        """Whether it is an audit: then the first entry is all rows, and the others are groups of them."""
        return self.entries[0].audited is not None

    @cached_property
    def off(self) -> list[GroupRow]:
        """The groups that are off, allowing for how many there are; the largest share of their base rate first."""
        return convicted(self.groups)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """How calibrated each entry was."""
        return [Verdict(entry, self.names) for entry in self.entries]


def audited(audit: Audit, *, title: str | None = None) -> Section:
    """Return an audit as a section: all rows, and the groups that are most off, up to twelve; all groups in a table.

    A group is off if chance does not explain it, even allowing for how many groups there are.

    Parameters
    ----------
    audit
        What `tc.audit` returned.
    title
        What the log is; by default its name.

    Examples
    --------
    >>> import numpy as np, treecal as tc
    >>> log = {"p": np.array([0.8, 0.8, 0.8, 0.8, 0.2]), "rain": np.array([1, 1, 1, 0, 0]), "site": np.arange(5) // 2}
    >>> section = audited(tc.audit(log, forecast="p", outcome="rain", by="site"), title="Rain")
    >>> [(entry.name, entry.rounds) for entry in section.entries], [row.name for row in section.groups]
    ([('all rows', 5)], ['0', '1', '2'])
    """
    worst = audit.off[:_MOST_GROUPS]
    entries = [Entry("all rows", audit.whole), *(Entry(key_in_words(key), audit.groups[key]) for key in worst)]
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):  # such as 1 and "1"
        entries = [replace(entry, name=f"{entry.name} ({k})") for k, entry in enumerate(entries)]
    title = audit.source if title is None else title
    return Section(title, entries, audit.classes, groups=groups_of(audit), by=audit.by, windows=audit.windows)
