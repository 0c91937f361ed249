"""The result of an audit: all rows, groups, windows of time, and the rows that were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from treecal.auditing._calibration import Calibration
from treecal.auditing._groups import Key
from treecal.auditing._stated import Stated
from treecal.io import Problems
from treecal.measures import off_among

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from treecal.monitor import Alarm


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
        The rows of each group, by its values in these columns: `groups["JFK"]`, `groups["JFK", 2026]`.
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
    _parts: ClassVar = "groups"  # what the groups are, in words
    _cure: ClassVar = "ByGroup"  # what corrects some of them and not others

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
        from treecal.auditing._show import html

        return html(self)


def shown(audit: Audit, named: Callable[[str], str], values: Sequence[Stated] = ()) -> Any:
    """Return an audit as tables for a terminal, of a library that is imported for it; `named` names correctors.

    With stated values it is that of a judge: of these in place of bins, classes and scores.
    """
    from treecal.auditing._show import judged, shown as as_tables

    return judged(audit, values, named) if values else as_tables(audit, named)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
