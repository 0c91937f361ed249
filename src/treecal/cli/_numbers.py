"""Forecasts of a number in `treecal recalibrate` and `monitor`: columns of quantiles, members, or mean and sd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from treecal.auditing import Columns, NumberRows
from treecal.cli._options import Following, split
from treecal.cli._rows import end
from treecal.cli._terminal import Exit, emit, page
from treecal.exceptions import ParameterError
from treecal.geometry import Cdf
from treecal.io import new_file, open_source, write_csv

if TYPE_CHECKING:
    from treecal._typing import Array
    from treecal.correctors import Corrector
    from treecal.monitor import Monitor

_SPREAD = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels that are written where no quantiles were read."""
_CELLS = 25
"""Thresholds between the outer quantiles of a forecast, on average."""


@Parameter(name="*")
@dataclass(frozen=True)
class NumberColumns:
    """The columns of forecasts of a number."""

    quantiles: str | None = None
    """Of forecasts of a number: columns of quantiles, separated by commas, whose names tell their levels (q10, p90,
    0.5); or columns with their levels, as low=0.1,high=0.9."""
    members: str | None = None
    """Of forecasts of a number: columns of the members of an ensemble, separated by commas."""
    mean: str | None = None
    """Of normal forecasts of a number: column of the mean."""
    sd: str | None = None
    """Of normal forecasts of a number: column of the standard deviation."""

    @property
    def given(self) -> bool:
        """Whether forecasts are of a number."""
        return any(each is not None for each in (self.quantiles, self.members, self.mean, self.sd))

    def named(self) -> dict[str, Any]:
        """Return the columns as `tc.audit` takes them."""
        quantiles: Any = split("--quantiles", self.quantiles) or None
        if quantiles and "=" in str(self.quantiles):
            try:
                quantiles = {name: float(level) for name, level in (each.split("=") for each in quantiles)}
            except ValueError:
                expected = "columns such as q10,q90, or with levels, as low=0.1,high=0.9"
                raise ParameterError.expected("--quantiles", self.quantiles, expected) from None
        members = split("--members", self.members) or None
        return {"quantiles": quantiles, "members": members, "mean": self.mean, "sd": self.sd}


@Parameter(name="*")
@dataclass(frozen=True)
class Numbers(NumberColumns):
    """The columns of forecasts of a number, and where the number lies."""

    low: Annotated[float | None, Parameter(allow_leading_hyphen=True)] = None
    """The least that the number can be; by default the file is read for it first."""
    high: Annotated[float | None, Parameter(allow_leading_hyphen=True)] = None
    """The greatest that the number can be."""


class NumberLog:
    """A file of forecasts of a number, and the set that they are on."""

    def __init__(
        self, path: str, numbers: Numbers, outcome: str, by: tuple[str, ...], options: Following, **opening: Any
    ) -> None:
        if path == "-" or options.snapshot is not None or options.id is not None:
            hint = "in Python, tc.Late takes outcomes by id, tc.save saves, and update(y) follows a stream."
            raise ParameterError("forecasts of a number are read from a file, without --id and --snapshot.", hint=hint)
        self.columns = Columns.named(outcome, **numbers.named())
        self.by = by
        self._source = open_source(path, kind=options.kind, **opening)
        self._on_error = options.on_error
        self.rows = self._open()
        low, high, width = self._reach()
        low = low if numbers.low is None else numbers.low
        high = high if numbers.high is None else numbers.high
        points = int(np.clip(_CELLS * (high - low) / width, 100, 1000)) if width > 0 else 1000
        self.space = Cdf(low, high, points=points, clip=True)

    def _open(self) -> NumberRows:
        return NumberRows(self._source, self.columns, self.by, self._on_error)

    def _reach(self) -> tuple[float, float, float]:
        """Return an interval with room beside all numbers of the file, and the mean width of the forecasts."""
        low = np.inf
        high = -np.inf
        width = 0.0
        count = 0
        for chunk in self._open():
            ends = chunk.forecasts
            if self.columns.form == "normal":
                ends = np.column_stack([ends[:, 0] - 3 * ends[:, 1], ends[:, 0] + 3 * ends[:, 1]])
            low = min(low, float(np.nanmin(ends)), float(chunk.outcomes.min()))
            high = max(high, float(np.nanmax(ends)), float(chunk.outcomes.max()))
            width += float((np.nanmax(ends, axis=1) - np.nanmin(ends, axis=1)).sum())
            count += len(ends)
        if not low < high:
            raise ParameterError("the file has no two different numbers.", hint="--low and --high name the interval.")
        edge = (high - low) / 10
        return low - edge, high + edge, width / max(count, 1)

    def __iter__(self) -> Iterator[tuple[dict[Any, Array], Array, list[Any] | None, Any]]:
        """Yield forecasts as a corrector takes them, outcomes, groups, and the chunk that they came in."""
        for chunk in self.rows:
            if not len(chunk.outcomes):
                continue
            table: dict[Any, Array] = dict(zip(self.columns.levels, chunk.forecasts.T, strict=False))
            if self.columns.form == "members":
                table = {"members": chunk.forecasts}
            elif self.columns.form == "normal":
                table = dict(zip(("mean", "sd"), chunk.forecasts.T, strict=True))
            kept = [_listed(chunk.kept[name]) for name in self.by]
            groups = None if not kept else kept[0] if len(kept) == 1 else list(zip(*kept, strict=True))
            yield table, chunk.outcomes, groups, chunk


def _listed(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
    return found


def recalibrate_numbers(log: NumberLog, corrector: Corrector, output: Path | None, *, force: bool, json: bool) -> Exit:
    """Correct a file of forecasts of a number, row by row, each before its outcome is read; write and score them."""
    levels = log.columns.levels or _SPREAD
    names = [
        f"corrected_{name}" for name in (log.columns.forecast if log.columns.levels else map("q{:g}".format, levels))
    ]
    number = 0
    with ExitStack() as stack:
        file = None if output is None else stack.enter_context(new_file(output, force=force))
        written: list[Any] = [(*log.by, *log.columns.forecast, log.columns.outcome, *names)]
        for table, outcomes, groups, chunk in log:
            law = log.space.distribution(corrector.update_many(table, outcomes, groups=groups))
            found = np.column_stack([law.quantile(level) for level in levels]).tolist()
            kept = [_listed(chunk.kept[name]) for name in log.by]
            for i, quantiles in enumerate(found):
                number += 1
                own = [column[i] for column in kept]
                if file is None:
                    row = dict(zip(log.by, own, strict=True)) | {log.columns.outcome: float(outcomes[i])}
                    emit({"round": number, **dict(zip(names, quantiles, strict=True)), "row": row})
                else:
                    written.append([*own, *chunk.forecasts[i].tolist(), float(outcomes[i]), *quantiles])
        if file is not None:
            write_csv(file, written)
    problems = log.rows.problems
    if json:
        emit({"scores": corrector.report(), **problems.to_dict()})
    else:
        page(stderr=True).print(f"{corrector.report()}\n{log.rows.repairs}".strip(), markup=False, soft_wrap=True)
    return end(problems)


def watch_numbers(log: NumberLog, watch: Monitor) -> None:
    """Watch a file of forecasts of a number."""
    for table, outcomes, groups, _ in log:
        watch.update_many(table, outcomes, groups=groups)
