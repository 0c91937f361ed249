"""`treecal replay --key`: a log of many streams, each replayed alone, on this machine or on Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treecal.cli._options import Method, as_norm, described
from treecal.cli._rows import end
from treecal.cli._terminal import Exit, counted, emit, page, say, table
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import ConvexSet, Norm, Simplex
from treecal.io import (
    NUMBER,
    Decoder,
    Keys,
    OnError,
    Outcomes,
    Problems,
    check_columns,
    class_labels,
    listed,
    new_file,
    open_source,
    read_outcomes,
    write_csv,
)
from treecal.keyed import Errors, errors

if TYPE_CHECKING:
    from treecal.forecasters import Forecaster

_SHOWN = 5  # of the keys left out


@dataclass(frozen=True)
class Log:
    """A file of outcomes of many keys."""

    path: str
    outcome: tuple[str, ...] | None
    keys: Keys
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
                rows = open_rows(self.path, self.outcome, self.space, self.on_error, keys=self.keys)
                forecaster = method.make(rows.space)
                measure = measured_in(forecaster, norm)
                found = self._here(rows, forecaster, measure)
                problems = rows.problems
            shown = KeyedFindings(found, measure, self.path, self.keys, self.on_error)
            if file is not None:
                write_csv(file, shown.cells())
        if json:
            emit({"forecaster": described(forecaster), **shown.document(top), **problems.to_dict()})
        else:
            shown.show(top, described(forecaster))
        shown.say_problems()
        code = end(problems)
        return Exit.FLAWED if shown.problems else code

    def _named_classes(self) -> Simplex:
        if not isinstance(self.space, Simplex) or (self.outcome is not None and len(self.outcome) > 1):
            raise ParameterError("--engine spark needs --classes or --dim, and one column for --outcome.")
        return self.space

    def _here(self, rows: Outcomes, forecaster: Forecaster, norm: Norm) -> Errors:
        """Replay on this machine."""
        import pyarrow as pa

        key, seq = self.keys
        parts = [
            pa.table(
                {
                    "key": c.kept[key],
                    "seq": c.kept[seq],
                    "outcome": c.outcomes if c.outcomes.ndim == 1 else list(c.outcomes),
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

        from treecal.cli._spark import quoted, read
        from treecal.keyed import spark
        from treecal.keyed.session import session

        names = *self.keys, (self.outcome or ("outcome",))[0]
        log = read(session(master), self.path)
        check_columns(self.path, log.columns, names)
        self.keys.check(self.path, dict(log.dtypes))
        key, seq, outcome = (log[quoted(name)] for name in names)
        key = key.cast("string")
        seq = seq.cast("string")
        label = functions.lit(None).cast("long")
        labels = class_labels(forecaster.space)
        for k, name in enumerate(labels):
            label = functions.when(outcome == name, k).otherwise(label)
        number = functions.when(seq.rlike(NUMBER), functions.trim(seq)).cast("long")
        columns = {"key": key, "seq": number, "outcome": label, "number": seq, "class": outcome.cast("string")}
        rows = log.select(*(column.alias(name) for name, column in columns.items()))
        valid = "key IS NOT NULL AND seq IS NOT NULL AND outcome IS NOT NULL"
        invalid = rows.where(f"NOT ({valid})")
        problems = Problems(self.path, self.on_error)
        problems.count = invalid.count()
        if problems.count and self.on_error == "stop":
            first = invalid.first()
            assert first is not None
            cells = (first[name] for name in ("key", "number", "class"))
            example = ", ".join(f"{name} {cell!r}" for name, cell in zip(names, cells, strict=True))
            raise FileError(
                f"{self.path} has {counted(problems.count, 'invalid row')}, such as {example}: expected a key, a whole "
                f"number for {self.keys.seq}, and one of {listed(labels)} for {names[2]}.",
                hint="--on-error skip leaves them out.",
            )
        return spark.errors(rows.where(valid), forecaster, norm), problems


class KeyedFindings:
    """The errors of each key in a norm, and of all rounds together."""

    def __init__(self, found: Errors, norm: Norm, source: str, keys: Keys, on_error: OnError) -> None:
        self.norm = norm
        self.streams = found.errors.to_pylist()
        problems = sorted(found.problems.to_pylist(), key=lambda row: (row["key"], row["seq"]))
        self.repeated = sum(row["rows"] for row in problems if row["kind"] == "duplicate")
        left_out = {row["key"]: row for row in reversed(problems) if row["kind"] in ("conflict", "horizon")}
        self.problems = [
            f"{keys.key} {key!r}, {keys.seq} {row['seq']} {row['detail']}" for key, row in sorted(left_out.items())
        ]
        if self.problems and on_error == "stop":
            raise FileError(f"{source}: {self.problems[0]}", hint=f"--on-error skip leaves each such {keys.key} out.")
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
        return {**whole, "streams": first, "problems": self.problems}

    def cells(self) -> Iterator[list[Any]]:
        """Yield the rows of a spreadsheet, the header first."""
        yield ["key", "rounds", "forecasts", "exact", "per node"]
        yield from ([*stream.values()] for stream in self.streams)

    def show(self, top: int, title: str) -> None:
        """Print the tables."""
        found = self.errors()
        page().print(
            f"{title}: {counted(len(self.streams), 'key')}, {counted(self.rounds, 'round')}. "
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

    def say_problems(self) -> None:
        """Report which keys were left out, and how many rows were there twice."""
        if self.repeated:
            say(f"{counted(self.repeated, 'row')} repeated another, and counted once.")
        if self.problems:
            shown = "".join(f"\n  {problem}" for problem in self.problems[:_SHOWN])
            more = f"\n  and {len(self.problems) - _SHOWN:,} more" if len(self.problems) > _SHOWN else ""
            say(f"{counted(len(self.problems), 'key')} left out:{shown}{more}")


def _kinds(stream: dict[str, Any]) -> dict[str, float]:
    return {kind: stream[kind] for kind in ("exact", "per_node")}


def open_rows(
    path: str,
    outcome: Sequence[str] | None,
    space: ConvexSet | None,
    on_error: OnError,
    *,
    keys: Keys | None = None,
) -> Outcomes:
    """Return the outcomes of a file, to be read in chunks."""
    source = open_source(path)
    decoder = Decoder(space or Simplex(2), outcome=outcome or ())
    return read_outcomes(
        source,
        outcome=decoder.outcome_columns(
            [name for name in source.types if name not in (keys or ())], source=source.name
        ),
        keys=keys,
        classes=None if space is None else class_labels(space) or None,
        space=space,
        on_error=on_error,
    )


def measured_in(forecaster: Forecaster, norm: str | None) -> Norm:
    """Return the norm of errors: the one asked for, or the forecaster's own, or the usual one."""
    own: Norm = forecaster.arguments().get("norm") or forecaster.space.default_norm
    return own if norm is None else as_norm(norm)
