"""The audit of forecasts of a number: a pass over the log, in memory that does not grow with it, and what it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._groups import ByKey, Groups, Key, in_order
from treecal.auditing._number_rows import Columns, NumberRows, Repairs
from treecal.auditing._number_sums import FIXED, LastRows, NumberSums, OutcomeSample
from treecal.auditing._result import Grouped
from treecal.auditing._windows import Calendar
from treecal.exceptions import FileError
from treecal.io import OnError
from treecal.measures import Interval, NumberVerdict, Placed, mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Progress = Callable[[str, int, float | None], None]


@dataclass(frozen=True, eq=False)
class NumberCalibration:
    """Forecasts of a number beside their outcomes: how often these lay where, and how good the forecasts were.

    Attributes
    ----------
    rounds
        Number of rows.
    placed
        Where outcomes lay in the forecasts: coverage by level, and the verdict.
    crps
        The mean continuous ranked probability score, with its interval.
    climatology
        That of the distribution of all outcomes of the log; NaN of groups.
    pinball
        The mean pinball loss by level.
    quantile
        The mean quantile by level: differences are the sharpness of intervals.
    gap
        The mean of outcome less median; NaN where the median is not known.
    outcome, spread
        Mean and standard deviation of the outcomes.
    """

    rounds: int
    placed: Placed
    crps: Interval
    climatology: float
    pinball: dict[float, float]
    quantile: dict[float, float]
    gap: float
    outcome: float
    spread: float

    @property
    def verdict(self) -> NumberVerdict:
        """Whether the forecasts are right, how far they are off, and which way."""
        return self.placed.verdict

    @property
    def skill(self) -> float:
        """`1 − CRPS/CRPS of the climatology`: 1 at best, 0 for what knows the climatology only; NaN of groups."""
        return 1 - self.crps.value / self.climatology if self.climatology > 0 else math.nan

    @cached_property
    def sharpness(self) -> dict[float, float]:
        """The mean width of the central interval of each probability."""
        found = {}
        for low, value in self.quantile.items():
            high = next((level for level in self.quantile if low < 0.5 and abs(level + low - 1) < 1e-9), None)
            if high is not None:
                found[round(1 - 2 * low, 9)] = self.quantile[high] - value
        return found

    @property
    def sentences(self) -> list[str]:
        """The verdict in sentences, in the units of the outcomes where these are known."""
        words = self.verdict.sentences
        if not math.isnan(self.gap) and self.verdict.level not in ("calibrated", "cannot tell"):
            way = "above" if self.gap > 0 else "below"
            words.append(
                f"Outcomes were {abs(self.gap):.4g} {way} the median on average; their standard deviation is "
                f"{self.spread:.4g}."
            )
        if self.skill <= 0:
            words.append(f"The forecasts are no better than the climatology alone: their skill is {self.skill:.3f}.")
        return words

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        known = {} if math.isnan(self.climatology) else {"climatology": self.climatology, "skill": self.skill}
        return {
            "rounds": self.rounds,
            **self.placed.to_dict(),
            "crps": {"value": self.crps.value, "interval": [self.crps.low, self.crps.high], **known},
            "pinball": [{"level": tau, "value": value} for tau, value in self.pinball.items()],
            "sharpness": [{"coverage": share, "width": width} for share, width in self.sharpness.items()],
            "gap": None if math.isnan(self.gap) else self.gap,
            "outcome": {"mean": self.outcome, "sd": self.spread},
        }


_ADVICE = {
    "calibrated": "nothing, as far as these rows tell.",
    "cannot tell": "wait for more outcomes.",
    "nearly calibrated": "little: what is left is small.",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class NumberAudit(Grouped[NumberCalibration]):
    """How right the forecasts of a number in a log are, overall and by group. Returned by `tc.audit`; `print` shows it.

    Attributes
    ----------
    source
        Name of the log.
    outcome, columns
        Names of the columns of the outcome and of the forecasts.
    by
        The columns that rows are grouped by.
    whole
        All rows.
    groups
        The rows of each group, by its values in these columns.
    problems, repairs
        The invalid rows that were left out, and those that were repaired.
    windows
        The same rows by windows of time, as its groups; None if no column of times was given.
    last
        The outcomes of the last rows, and their forecasts' quantiles at `levels`, for `plot`.
    """

    outcome: str
    repairs: Repairs
    last: LastRows | None = field(default=None, repr=False)

    @property
    def sentences(self) -> list[str]:
        """The result in a few sentences; the last says what to do."""
        words = [*self.whole.sentences, *([str(self.repairs)] if str(self.repairs) else [])]
        advice = _ADVICE.get(self.whole.verdict.level, "correct the forecasts as outcomes come.")
        if off := self.off:
            words.append(self._off_in_words)
            if len(off) < len(self.groups):
                advice = "some groups are off and others are not: correct each by itself."
        return [*words, f"What to do: {advice}"]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        repaired = {"crossing": self.repairs.crossing, "missing_members": self.repairs.missing}
        found = {
            "source": self.source,
            "outcome": self.outcome,
            "forecast": list(self.columns),
            **self.problems.to_dict(),
            "repaired": repaired,
            "whole": self.whole.to_dict(),
            "groups": self._listed(),
        }
        if self.windows is not None:
            found["windows"] = {"by": self.windows.by[0], "groups": self.windows._listed()}
        return found

    def bins(self) -> Iterator[dict[str, Any]]:
        """Yield the cells of all rows, then of each group, as rows of one table."""
        for group, part in self._each():
            edges = [0.0, *part.placed.levels, 1.0]
            for low, high, rows in zip(edges[:-1], edges[1:], part.placed.cells.tolist(), strict=True):
                yield {**group, "from": low, "to": high, "rows": rows, "expected": (high - low) * part.rounds}

    def plot(self) -> list[Axes]:
        """Draw the PIT, the coverage by level, and the last forecasts: `treecal.plots.plot_numbers`."""
        from treecal.plots import plot_numbers

        return plot_numbers(self)

    def pieces(self) -> list[Any]:
        """Return it as sentences and tables, in the order in which they are read."""
        from treecal.auditing import _show as show

        found = ["\n".join(self.sentences), show.number_scores(self.whole), show.number_coverage(self.whole)]
        if self.groups:
            found.append(show.number_groups(self.by, self.groups))
        if (windows := self.windows) is not None:
            found.append(show.number_groups(windows.by, windows.groups, f"Windows of time, by {windows.by[0]}"))
        if self.problems.count:
            found.append(str(self.problems))
        return found

    def _picture(self) -> str:
        from treecal.auditing._show import picture
        from treecal.plots import plot_numbers

        return picture(9.0, 6.0, lambda figure: plot_numbers(self, figure=figure))


def audit_numbers(
    source: Any,
    columns: Columns,
    *,
    by: Sequence[str],
    time: str | None,
    window: str | None,
    on_error: OnError,
    progress: Progress | None,
) -> NumberAudit:
    """Audit a log of forecasts of a number, arrays or an open one, for `tc.audit`, which has the arguments."""
    rows = NumberRows(source, columns, [*by, *([] if time is None else [time])], on_error)
    groups = Groups(by)
    sums = NumberSums(columns)
    calendar = None
    over_time = NumberSums(columns)
    if time is not None:
        calendar = Calendar(time, rows.column(time), unit=window)
    sample = OutcomeSample()
    last = LastRows(columns)
    seen = 0
    for chunk in rows:
        laws = columns.laws(chunk.forecasts)
        home = groups.of([chunk.kept[name] for name in groups.by], len(chunk.outcomes))
        sums.add(laws, chunk.outcomes, home, len(groups.index))
        if calendar is not None:
            window_of = calendar.home(calendar.read(chunk.kept[calendar.name]))
            over_time.add(laws, chunk.outcomes, window_of, len(calendar.groups.index))
        sample.add(chunk.outcomes)
        last.add(chunk.forecasts, chunk.outcomes)
        seen += len(chunk.outcomes)
        if progress is not None:
            progress("rows", seen, None)
    if not len(sample.outcomes):
        left_out = f" {rows.problems}" if rows.problems.count else ""
        raise FileError(f"there is no valid row in {rows.name}.{left_out}")
    whole = _part(sums, np.arange(len(sums.cells)), sample.climatology(columns.levels))
    what: Mapping[str, Any] = {
        "source": rows.name,
        "outcome": columns.outcome,
        "columns": columns.forecast,
        "whole": whole,
        "problems": rows.problems,
        "repairs": rows.repairs,
    }
    windows = None
    if calendar is not None:
        windows = NumberAudit(by=(calendar.name,), groups=_parts(over_time, calendar.groups), **what)
    return NumberAudit(by=tuple(by), groups=_parts(sums, groups) if by else {}, windows=windows, last=last, **what)


def _parts(sums: NumberSums, groups: Groups) -> dict[Key, NumberCalibration]:
    """Return each group that has rows, in the order of their keys where these have one."""
    found = {key: _part(sums, np.array([k])) for key, k in groups.index.items() if sums.cells[k].any()}
    return ByKey((key, found[key]) for key in in_order(found))


def _part(sums: NumberSums, rows: Integers, climatology: float = math.nan) -> NumberCalibration:
    cells = sums.cells[rows].sum(axis=0)
    totals: Array = sums.totals[rows].sum(axis=0)
    n, score, square, away, square_away, gap = (totals[: len(FIXED)] / max(totals[0], 1.0)).tolist()
    n = float(totals[0])
    count = len(sums.shown)
    middle = len(FIXED) + count
    pinball = dict(zip(sums.shown, (totals[len(FIXED) : middle] / n).tolist(), strict=True))
    quantile = dict(zip(sums.shown, (totals[middle:] / n).tolist(), strict=True))
    return NumberCalibration(
        rounds=round(n),
        placed=Placed(sums.levels, cells),
        crps=mean_interval(score, square, n),
        climatology=climatology,
        pinball=pinball,
        quantile=quantile,
        gap=gap if 0.5 in sums.shown else math.nan,
        outcome=(sums.origin or 0.0) + away,
        spread=math.sqrt(max(square_away - away * away, 0.0)),
    )
