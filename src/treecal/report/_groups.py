"""The groups of an audit: those that are off, allowing for how many were looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treecal.auditing import Audit, Calibration
from treecal.measures import off_among

_MOST_NAMES = 5  # of groups in a sentence


class GroupRow(NamedTuple):
    """A group of an audit in the table of all groups."""

    name: str
    part: Calibration


def groups_of(audit: Audit) -> list[GroupRow]:
    """Return all groups, in the order of the audit."""
    return [
        GroupRow(", ".join("(missing)" if value is None else str(value) for value in key), part)
        for key, part in audit.groups.items()
    ]


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
        found = f"Of {many}, none is off by more than chance."
    few = sum(row.part.verdict.level == "cannot tell" for row in groups)
    return found + (f" {few:,} {'has' if few == 1 else 'have'} too few rows to tell." if few else "")
