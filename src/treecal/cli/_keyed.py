"""`treecal replay --key`: a log of many streams, each replayed alone, on this machine or on Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treecal.cli._audit import _read as read_on_spark
from treecal.cli._options import Method, as_norm, described
from treecal.cli._rows import end
from treecal.cli._terminal import Exit, emit, page, table
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import ConvexSet, Norm, Simplex
from treecal.io import Decoder, OnError, Outcomes, Problems, new_file, open_source, read_outcomes
from treecal.io._decoder import check_columns, class_labels
from treecal.io._output import write_csv
from treecal.keyed import Errors, errors

if TYPE_CHECKING:
    from treecal.forecasters import Forecaster

_TYPES = ("varchar", "string", "json", "tinyint", "smallint", "int", "integer", "bigint")
_NUMBER = r"^\s*[+-]?\d{1,18}\s*$"
_FATAL = ("key", "seq", "outcome", "conflict", "horizon")  # a key with such a row is left out


@dataclass(frozen=True)
class Log:
    """A file of outcomes of many keys."""

    path: str
    outcome: tuple[str, ...] | None
    key: str
    seq: str
    space: ConvexSet | None
    on_error: OnError

    def replay(
        self,
        method: Method,
        norm: str | None,
        *,
        spark: bool,
        master: str | None,
        top: int,
        csv: Path | None,
        force: bool,
        json: bool,
    ) -> int:
        """Replay every key, and print what was found."""
        with ExitStack() as stack:
            file = stack.enter_context(new_file(csv, force=force)) if csv else None
            if spark:
                forecaster = method.make(self._named_classes())
                measure = measured_in(forecaster, norm)
                found, problems = self._there(master, forecaster, measure)
            else:
                rows = open_rows(self.path, self.outcome, self.space, self.on_error, keep=(self.key, self.seq))
                forecaster = method.make(rows.space)
                measure = measured_in(forecaster, norm)
                found, problems = self._here(rows, forecaster, measure), rows.problems
            shown = KeyedFindings(found, measure, self.path, self.on_error)
            if file is not None:
                write_csv(file, shown.cells())
        if json:
            emit({"forecaster": described(forecaster), **shown.document(top), **problems.to_dict()})
        else:
            shown.show(top, described(forecaster))
        code = end(problems)
        return Exit.FLAWED if shown.problems else code

    def _named_classes(self) -> Simplex:
        if not isinstance(self.space, Simplex) or (self.outcome is not None and len(self.outcome) > 1):
            raise ParameterError("--engine spark needs --classes or --dim, and one column for --outcome.")
        return self.space

    def _here(self, rows: Outcomes, forecaster: Forecaster, norm: Norm) -> Errors:
        """Replay on this machine."""
        import pyarrow as pa

        for name in (self.key, self.seq):
            _check(self.path, name, rows.source.types[name])
        parts = [
            pa.table(
                {
                    "key": c.kept[self.key].cast("string"),
                    "seq": _whole(c.kept[self.seq]),
                    "outcome": _column(c.outcomes),
                }
            )
            for c in rows
        ]
        if not parts:
            raise FileError(f"{self.path} has no valid row.")
        return errors(pa.concat_tables(parts), forecaster, norm)

    def _there(self, master: str | None, forecaster: Forecaster, norm: Norm) -> tuple[Errors, Problems]:
        """Replay on Spark."""
        from pyspark.sql import functions

        from treecal.keyed import spark
        from treecal.keyed.session import session

        names = (self.outcome or ("outcome",))[0], self.key, self.seq
        log = read_on_spark(session(master), self.path)
        check_columns(self.path, log.columns, names)
        kinds, (outcome, key, seq) = dict(log.dtypes), (log[f"`{name.replace('`', '``')}`"] for name in names)
        for name in names[1:]:
            _check(self.path, name, kinds[name])
        label = functions.lit(None).cast("long")
        for k, name in enumerate(class_labels(forecaster.space)):
            label = functions.when(outcome == name, k).otherwise(label)
        number = seq.cast("string")
        number = functions.when(number.rlike(_NUMBER), functions.trim(number)).cast("long")
        rows = log.select(key.cast("string").alias("key"), number.alias("seq"), label.alias("outcome"))
        problems = Problems(self.path, self.on_error)
        problems.count = rows.where("outcome IS NULL").count()
        if problems.count and self.on_error == "stop":
            raise FileError(
                f"{self.path} has {problems.count:,} rows whose outcome is none of the classes.",
                hint="--on-error skip leaves them out.",
            )
        return spark.errors(rows.where("outcome IS NOT NULL"), forecaster, norm), problems


class KeyedFindings:
    """The errors of each key in a norm, and of all rounds together."""

    def __init__(self, found: Errors, norm: Norm, source: str, on_error: OnError) -> None:
        self.norm, self.streams = norm, found.errors.to_pylist()
        problems = sorted(found.problems.to_pylist(), key=lambda row: (row["key"] or "", row["seq"] or 0, row["kind"]))
        self.problems = [row for row in problems if row["kind"] in _FATAL]
        if self.problems and on_error == "stop":
            raise FileError(f"{source}: {_described(self.problems[0])}", hint="--on-error skip leaves such keys out.")
        self.rounds = sum(stream["rounds"] for stream in self.streams)
        if not self.rounds:
            raise FileError(f"{source} has no key that can be replayed.")
        self.streams.sort(key=lambda stream: (-stream["rounds"] * stream["exact"], stream["key"]))

    def errors(self) -> dict[str, float]:
        """Return the errors per round, of all keys together; sums do not depend on their order."""
        sums = {kind: math.fsum(s["rounds"] * s[kind] for s in self.streams) for kind in ("exact", "per_node")}
        return {kind: total / self.rounds for kind, total in sums.items()}

    def document(self, top: int) -> dict[str, Any]:
        """Return the errors, and those of the first keys, as JSON values."""
        name = repr(self.norm)
        first = [
            {**{what: s[what] for what in ("key", "rounds", "forecasts")}, "errors": {name: _kinds(s)}}
            for s in self.streams[:top]
        ]
        whole = {"rounds": self.rounds, "keys": len(self.streams), "errors": {name: self.errors()}, "norm": name}
        return {**whole, "streams": first, "problems": [_described(row) for row in self.problems]}

    def cells(self) -> Iterator[list[Any]]:
        """Yield the rows of a spreadsheet, the header first."""
        yield ["key", "rounds", "forecasts", "exact", "per node"]
        yield from ([*stream.values()] for stream in self.streams)

    def show(self, top: int, title: str) -> None:
        """Print the tables."""
        found = self.errors()
        page().print(
            f"{title}: {len(self.streams):,} keys, {self.rounds:,} rounds. "
            f"Calibration error per round in {self.norm!r}: {found['exact']:.4f}, per node {found['per_node']:.4f}.",
            markup=False,
            soft_wrap=True,
        )
        if top:
            shown = table("Largest shares of the error", "key", ">rounds", ">forecasts", ">exact", ">per node")
            for s in self.streams[:top]:
                shown.add_row(
                    s["key"], f"{s['rounds']:,}", f"{s['forecasts']:,}", *(f"{x:.4f}" for x in _kinds(s).values())
                )
            page().print(shown)


def _kinds(stream: dict[str, Any]) -> dict[str, float]:
    return {kind: stream[kind] for kind in ("exact", "per_node")}


def _described(problem: dict[str, Any]) -> str:
    who = "a row" if problem["key"] is None else f"key {problem['key']!r}"
    number = "" if problem["seq"] is None else f", number {problem['seq']}"
    return f"{who}{number}: {problem['detail']}"


def open_rows(
    path: str,
    outcome: Sequence[str] | None,
    space: ConvexSet | None,
    on_error: OnError,
    *,
    keep: Sequence[str] = (),
) -> Outcomes:
    """Return the outcomes of a file, to be read in chunks."""
    source = open_source(path)
    decoder = Decoder(space or Simplex(2), outcome=outcome or ())
    return read_outcomes(
        source,
        outcome=decoder.outcome_columns([name for name in source.types if name not in keep], source=source.name),
        keep=keep,
        classes=None if space is None else class_labels(space) or None,
        space=space,
        on_error=on_error,
    )


def measured_in(forecaster: Forecaster, norm: str | None) -> Norm:
    """Return the norm of errors: the one asked for, or the forecaster's own, or the usual one."""
    own: Norm = forecaster.arguments().get("norm") or forecaster.space.default_norm
    return own if norm is None else as_norm(norm)


def _column(outcomes: Any) -> Any:
    return outcomes if outcomes.ndim == 1 else list(outcomes)


def _whole(column: Any) -> Any:
    """Return the cells that are whole numbers, and null for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column.cast(pa.string())
    good = pc.match_substring_regex(text, _NUMBER)
    return pc.if_else(good, pc.utf8_trim_whitespace(text), pa.scalar(None, pa.string())).cast(pa.int64())


def _check(source: str, name: str, kind: str) -> None:
    """Raise unless the cells of a column have one text each, in which engines agree."""
    if kind.lower() not in _TYPES:
        raise FileError(f"column {name!r} of {source} holds {kind} values, expected text or whole numbers.")
