"""The result of an audit: all rows, groups, windows of time, and the rows that were left out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from treecal.auditing._calibration import Calibration
from treecal.auditing._groups import Key, printable
from treecal.auditing._stated import Stated, advice
from treecal.geometry import pairing
from treecal.io import Problems
from treecal.measures import Estimate, off_among

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from treecal.monitor import Alarm

Part = TypeVar("Part", bound=Any)
_FAR_BELOW = -0.25
Named = Callable[[str], str]
"""How a corrector is called, by the name of its class, where the audit is read."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Grouped(Generic[Part]):
    """What an audit found of all rows of a log, of groups of them, and of windows of time; and how it is shown."""

    source: str
    columns: tuple[str, ...]
    by: tuple[str, ...]
    whole: Part
    groups: dict[Key, Part]
    problems: Problems
    windows: Self | None = None
    _parts: ClassVar = "groups"  # what the groups are, in words

    @property
    def off(self) -> list[Key]:
        """The groups that chance does not explain, even among so many; the largest error first."""
        return off_among({key: part.verdict for key, part in self.groups.items()})

    @property
    def _off_in_words(self) -> str:
        off = self.off
        first = ", ".join(", ".join(map(printable, key)) for key in off[:3])
        first += f" and {len(off) - 3:,} more" if len(off) > 3 else ""
        are = "is" if len(off) == 1 else "are"
        return f"{len(off):,} of {len(self.groups):,} {self._parts} {are} off by more than chance: {first}."

    def _values_of(self, key: Key) -> dict[str, Any]:
        """Return the values that make a group, by column, as JSON values."""
        plain = (cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell) for cell in key)
        return dict(zip(self.by, plain, strict=True))

    def _listed(self) -> list[dict[str, Any]]:
        return [{"by": self._values_of(key), **part.to_dict()} for key, part in self.groups.items()]

    def _each(self) -> Iterator[tuple[dict[str, Any], Part]]:
        """Yield all rows, then each group, with the values that make it."""
        yield dict.fromkeys(self.by), self.whole
        yield from ((self._values_of(key), part) for key, part in self.groups.items())

    @abstractmethod
    def pieces(self) -> list[Any]:
        """Return it as sentences and tables, in the order in which they are read."""

    @abstractmethod
    def _picture(self) -> str:
        """Return its diagrams as SVG; nothing without matplotlib."""

    def __rich__(self) -> Any:
        """Return it as tables for a terminal, of a library that is imported for it."""
        from treecal.auditing._show import as_group

        return as_group(self.pieces())

    def __str__(self) -> str:
        from treecal.auditing._show import as_text

        return as_text(self.pieces())

    def _repr_html_(self) -> str:
        from treecal.auditing._show import as_html

        return as_html(self.pieces(), self._picture())


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(Grouped[Calibration]):
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

    classes: tuple[str, ...]
    alarm: Alarm | None = None
    in_order: bool = True
    _cure: ClassVar = "ByGroup"  # what corrects some of them and not others

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "source": self.source,
            "classes": dict(zip(self.classes, self.columns, strict=True)),
            **self.problems.to_dict(),
            "whole": self.whole.to_dict(),
            "groups": self._listed(),
            **({} if self.windows is None else {"windows": self.windows._over_time()}),
        }

    def _over_time(self) -> dict[str, Any]:
        alarm = None if self.alarm is None else asdict(self.alarm) | {"words": str(self.alarm)}
        groups = [self._values_of(key) | group.to_dict() for key, group in self.groups.items()]
        return {"by": self.by[0], "in_order": self.in_order, "alarm": alarm, "groups": groups}

    def bins(self) -> Iterator[dict[str, Any]]:
        """Yield every bin that is not empty as a row of one table: first of all rows, then of each group."""
        for group, part in self._each():
            for row in part.top_label.filled():
                yield {**group, "kind": "top label", "class": None, **row}
            for name, bins in part.classes.items():
                for row in bins.filled():
                    yield {**group, "kind": "class", "class": name, **row}

    def plot(self) -> list[Axes]:
        """Draw the reliability of the most likely class and of single classes, over all rows: `plots.plot_audit`."""
        return self.whole.plot()

    def words(self, named: Named) -> tuple[str, str]:
        """Return the result in a few sentences, and what to do."""
        whole = self.whole
        found = whole.verdict
        words = found.sentences
        if whole.weight != whole.rounds:
            words.append(f"The {whole.rounds:,} rows have a total weight of {whole.weight:,.6g}.")
        if whole.skill <= 0:
            words.append(f"The forecasts are no better than the base rates alone: their skill is {whole.skill:.3f}.")
        if whole.skill < _FAR_BELOW and whole.swapped_skill > 0:
            pairs = pairing(self.columns, list(whole.classes))
            words.insert(
                0,
                f"The columns seem to be of the other class each: the skill is {whole.skill:.3f}, and would be about "
                f"{whole.swapped_skill:.3f} in the other order. They were read as {pairs}.",
            )
        advised = found.advised.text(named)
        if off := self.off:
            words.append(self._off_in_words)
            if len(off) < len(self.groups):
                advised = f"Some {self._parts} are off and others are not: use {named(self._cure)}."
        if self.windows is not None and (alarm := self.windows.alarm) is not None:
            words.append(f"A monitor raised an alarm after round {alarm.round:,}.")
            if found.level == "calibrated":
                advised = "Right on the whole, wrong at times: look at the windows; correctors follow such changes."
        return "\n".join(words), f"What to do: {advised}"

    @property
    def watched(self) -> str:
        """Of windows: what a monitor of the rows found, in words."""
        if (none := self.groups.get((None,))) is not None:
            have = "row has" if none.rounds == 1 else "rows have"
            return f"{none.rounds:,} {have} no {self.by[0]}, so no monitor watched the log."
        if not self.in_order:
            return f"The rows are not in the order of {self.by[0]}, so no monitor watched them."
        if self.alarm is None:
            return "A monitor that looked after every row has raised no alarm."
        said = str(self.alarm)
        return f"{said[0].upper()}{said[1:]}."

    def pieces(self, named: Named = "tc.{}".format, values: Sequence[Stated] = ()) -> list[Any]:
        """Return it as sentences and tables; `named` names correctors.

        With stated values it is that of a judge: of these in place of bins, classes and scores.
        """
        from treecal.auditing import _show as show

        whole = self.whole
        words, advised = self.words(named)
        if values:
            found = [words, show.confidences(values), f"What to do: {advice(values)}"]
        else:
            found = [f"{words}\n{advised}", show.errors(whole), show.scores(whole), show.classes(whole, self.columns)]
            if whole.payoff is not None:
                found += [whole.payoff.sentence, show.acting(whole.payoff)]
        if whole.estimates:
            found += [show.estimates(whole), _labelled(whole.estimates)]
        if self.groups:
            found.append(show.groups(self.by, self.groups))
        if (windows := self.windows) is not None:
            title = f"Windows of time, by {windows.by[0]}"
            found += [show.groups(windows.by, windows.groups, title), windows.watched]
        if self.problems.count:
            found.append(str(self.problems))
        return found

    def _picture(self) -> str:
        from treecal.auditing._show import picture
        from treecal.plots import draw_audit

        whole = self.whole
        return picture(3 * min(len(whole.classes), 3), 3.9, lambda figure: draw_audit(whole, figure, most=2))


def _labelled(estimates: Mapping[str, Estimate]) -> str:
    """Say what the estimates prove, of how many rows the outcome is known, and what further labels are worth."""
    each = estimates["accuracy"]
    more = each.labels
    sure = estimates["too_sure"].interval
    proved = ""
    if not sure.low <= 0 <= sure.high:
        ends = " to ".join(f"{abs(end):.3f}" for end in sorted((sure.low, sure.high), key=abs))
        proved = f"Over all rows, forecasts are too {'sure' if sure.low > 0 else 'unsure'} by {ends}. "
    return (
        f"{proved}{each.labels:,} of {each.rows:,} rows are labelled: all but estimates and stated confidences is "
        f"about these, by their weights. As many labels again, {more:,}, would narrow the accuracy's interval from "
        f"± {each.half:.4f} to ± {each.after(more):.4f}."
    )


def shown(audit: Audit, named: Named, values: Sequence[Stated] = ()) -> Any:
    """Return an audit as tables for a terminal, with the arguments of `Audit.pieces`."""
    from treecal.auditing._show import as_group

    return as_group(audit.pieces(named, values))
