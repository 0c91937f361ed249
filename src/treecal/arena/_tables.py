"""What a race has shown: means and spread over seeds, ranks, and Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treecal._optional import require
from treecal.exceptions import ParameterError
from treecal.geometry import Norm, as_norm

if TYPE_CHECKING:
    import pyarrow as pa

MEASURES = ("error", "brier", "resolution")
Values = dict[tuple[str, str], float]  # by stream and forecaster
_Cell = tuple[int, int, str, str]  # dim, length, stream, forecaster


def summary(table: pa.Table, *, norm: Norm | str = "l1") -> pa.Table:
    """Return a row for each forecaster on each stream, set and length: mean, deviation and range over the seeds.

    Parameters
    ----------
    table
        The table that `race` returned, or several of them concatenated.
    norm
        Norm of the errors.

    Returns
    -------
    A `pyarrow.Table` with the columns stream, dim, rounds, forecaster, seeds (how many were played to the end); for
    each of error, brier and resolution the mean over seeds under that name, and with `_sd`, `_min` and `_max` the
    sample deviation (none for one seed) and the range; uncertainty, forecasts and microseconds (a round), all means;
    and note.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal import arena
    >>> streams = {"drift": arena.STREAMS["drift"]}
    >>> table = arena.race({"TreeCal": tc.TreeCal}, streams, [tc.Simplex(2)], rounds=64, seeds=range(3), workers=1)
    >>> (row,) = summary(table).to_pylist()
    >>> row["forecaster"], row["seeds"], row["error_min"] <= row["error"] <= row["error_max"]
    ('TreeCal', 3, True)
    """
    pa = require("pyarrow", extra="arena", what="a table of the arena")
    ends = _ends(table, norm)
    rows = []
    spent = _microseconds(table)
    for (dim, length, stream, name), own in ends.items():
        played = [row for row in own if row["error"] is not None]
        row: dict[str, Any] = {"stream": stream, "dim": dim, "rounds": length, "forecaster": name, "seeds": len(played)}
        for measure in MEASURES if played else ():
            values = [each[measure] for each in played]
            row |= {measure: float(np.mean(values)), f"{measure}_min": min(values), f"{measure}_max": max(values)}
            if len(values) > 1:
                row[f"{measure}_sd"] = float(np.std(values, ddof=1))
        for measure in ("uncertainty", "forecasts") if played else ():
            row[measure] = float(np.mean([each[measure] for each in played]))
        row["microseconds"] = spent.get((dim, length, stream, name))
        row["note"] = next((each["note"] for each in own if each["note"]), None)
        rows.append(row)
    real = pa.float64()
    fields = {"stream": pa.string(), "dim": pa.int64(), "rounds": pa.int64(), "forecaster": pa.string()}
    fields |= {"seeds": pa.int64()} | {f"{m}{end}": real for m in MEASURES for end in ("", "_sd", "_min", "_max")}
    fields |= {"uncertainty": real, "forecasts": real, "microseconds": real, "note": pa.string()}
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def final(table: pa.Table, *, norm: Norm | str = "l1", measure: str = "error") -> dict[tuple[int, str, str], float]:
    """Return the mean error over seeds at the end of the runs, by (dim, stream, forecaster), in one norm.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.arena import race
    >>> from treecal.streams import iid
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> [key for key in final(table)]
    [(2, 'iid', 'mean')]
    """
    rows = summary(table, norm=norm).to_pylist()
    return {
        (row["dim"], row["stream"], row["forecaster"]): row[_known(measure)] for row in rows if row["error"] is not None
    }


class Rank(NamedTuple):
    """How a forecaster compares with the best of the others on one stream, set and length.

    Attributes
    ----------
    stream, dim, rounds
        Which one.
    value
        The forecaster's error or score, the mean over the seeds that both played.
    best
        The rival that it compares worst with: that of the least value, where all played the same seeds.
    least
        The rival's value.
    ratio
        `value / least`, at most 1 for the best of all.
    """

    stream: str
    dim: int
    rounds: int
    value: float
    best: str
    least: float
    ratio: float


def rank(table: pa.Table, forecaster: str, *, norm: Norm | str = "l1", measure: str = "error") -> list[Rank]:
    """Return, for each stream, set and length, how many times the least value of the others a forecaster has.

    Worst first. Every rival is compared over the seeds that both played to the end, since some are too slow for all.

    Parameters
    ----------
    table
        The table that `race` returned, or several of them concatenated.
    forecaster
        Its name in the table.
    norm
        Norm of the errors.
    measure
        "error" or "brier".

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal import arena
    >>> streams = {"alternation": arena.STREAMS["alternation"]}
    >>> rivals = {"TreeCal": tc.TreeCal, "RunningMean": tc.RunningMean}
    >>> table = arena.race(rivals, streams, [tc.Simplex(2)], rounds=64, workers=1)
    >>> (only,) = rank(table, "TreeCal")
    >>> only.best, only.ratio < 1
    ('RunningMean', True)
    """
    if measure not in ("error", "brier"):
        raise ParameterError.expected("measure", measure, "'error' or 'brier'")
    values: dict[tuple[int, int, str], dict[str, dict[int, float]]] = {}
    for (dim, length, stream, name), rows in _ends(table, norm).items():
        of_seeds = {row["seed"]: row[measure] for row in rows if row[measure] is not None}
        values.setdefault((dim, length, stream), {})[name] = of_seeds
    if not any(forecaster in by_name for by_name in values.values()):
        known = dict.fromkeys(name for by_name in values.values() for name in by_name)
        raise ParameterError.expected("forecaster", forecaster, "one of " + ", ".join(known))
    ranks = []
    for (dim, length, stream), by_name in values.items():
        own = by_name.pop(forecaster, {})
        pairs = []
        for name, theirs in by_name.items():
            if both := sorted(own.keys() & theirs.keys()):
                value, rival = (float(np.mean([of_seeds[seed] for seed in both])) for of_seeds in (own, theirs))
                ratio = value / rival if rival else 1.0 if value == rival else math.inf
                pairs.append(Rank(stream, dim, length, value, name, rival, ratio))
        if pairs:
            ranks.append(max(pairs, key=lambda pair: pair.ratio))
    return sorted(ranks, key=lambda pair: -pair.ratio)


class Standing(NamedTuple):
    """How a forecaster does on many streams, beside one that it is compared with.

    Attributes
    ----------
    forecaster
        Its name.
    streams
        On how many of them it took part, to the end.
    error, brier
        The geometric mean of its errors, and the mean of its Brier scores.
    error_ratio, brier_ratio
        The same as multiples of the other's, on the streams where both took part.
    best
        On how many streams no other error is less.
    """

    forecaster: str
    streams: int
    error: float
    brier: float
    error_ratio: float
    brier_ratio: float
    best: int


def standings(errors: Values, briers: Values, beside: str) -> list[Standing]:
    """Return how each forecaster does on all streams together, the least error first.

    Parameters
    ----------
    errors, briers
        By (stream, forecaster).
    beside
        The forecaster that all are compared with.

    Examples
    --------
    >>> errors = {("a", "one"): 0.1, ("b", "one"): 0.4, ("a", "two"): 0.2}
    >>> [(s.forecaster, s.streams, round(s.error_ratio, 2), s.best) for s in standings(errors, errors, "one")]
    [('one', 2, 1.0, 2), ('two', 1, 2.0, 0)]
    """
    least: dict[str, float] = {}
    for (stream, _), error in errors.items():
        least[stream] = min(error, least.get(stream, math.inf))
    found = []
    for name in dict.fromkeys(name for _, name in errors):
        own = {stream: error for (stream, other), error in errors.items() if other == name}
        common = [stream for stream in own if (stream, beside) in errors]
        logs = [math.log(max(error, 1e-9)) for error in own.values()]  # no error of a long stream is 0 but by luck
        gaps = [math.log(max(own[s], 1e-9) / max(errors[s, beside], 1e-9)) for s in common]
        theirs = [briers[stream, beside] for stream in common]
        scores = [briers[stream, name] for stream in own]
        found.append(
            Standing(
                name,
                len(own),
                math.exp(np.mean(logs)),
                float(np.mean(scores)),
                math.exp(np.mean(gaps)) if gaps else math.nan,
                sum(briers[stream, name] for stream in common) / sum(theirs) if theirs else math.nan,
                sum(error == least[stream] for stream, error in own.items()),
            )
        )
    return sorted(found, key=lambda standing: standing.error)


def show(table: pa.Table, *, norm: Norm | str = "l1", measure: str = "error", split: bool = True) -> str:
    """Return final errors or scores as Markdown, the best of each stream in bold.

    With several seeds, the mean and the sample deviation. A forecaster that was too slow is marked so.

    Parameters
    ----------
    table
        The table that `race` returned, or several of them concatenated.
    norm
        Norm of the errors.
    measure
        "error", "brier" or "resolution".
    split
        One table for each set and length; False puts all streams into one.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.arena import race
    >>> from treecal.streams import iid
    >>> table = race({"mean": tc.RunningMean}, {"iid": iid}, [tc.Simplex(2)], rounds=20, workers=1)
    >>> print(show(table).splitlines()[2])
    | forecaster | iid |
    """
    rows = summary(table, norm=norm).to_pylist()
    lines = list[str]()
    several = len({row["rounds"] for row in rows}) > 1
    for dim, length in sorted({(row["dim"], row["rounds"]) for row in rows}) if split else [(0, 0)]:
        own = [row for row in rows if not split or (row["dim"], row["rounds"]) == (dim, length)]
        streams = list(dict.fromkeys(row["stream"] for row in own))
        if split:
            lines += [f"### {dim} dimensions" + f", {length:,} rounds" * several, ""]
        lines += [f"| forecaster | {' | '.join(streams)} |", "| --- " * (1 + len(streams)) + "|"]
        best = {stream: _best((row for row in own if row["stream"] == stream), _known(measure)) for stream in streams}
        for name in dict.fromkeys(row["forecaster"] for row in own):
            cells = {row["stream"]: _text(row, measure, best) for row in own if row["forecaster"] == name}
            if any(cells.values()):
                lines.append(f"| {name} | {' | '.join(cells.get(stream, '') for stream in streams)} |")
        lines.append("")
    return "\n".join(lines)


def _best(rows: Iterable[dict[str, Any]], measure: str) -> float:
    values = [row[measure] for row in rows if row["seeds"]]
    return (
        math.nan if not values or measure == "resolution" else min(values)
    )  # a large resolution is not good in itself


def _text(row: dict[str, Any], measure: str, best: dict[str, float]) -> str:
    value = row[measure]
    spread = row[f"{measure}_sd"]
    if value is None:
        return "too slow" if (row["note"] or "").startswith("too slow") else ""
    text = f"**{value:.3f}**" if value == best[row["stream"]] else f"{value:.3f}"
    return text if spread is None else f"{text} ± {spread:.3f}"


def _known(measure: str) -> str:
    if measure not in MEASURES:
        raise ParameterError.expected("measure", measure, "one of " + ", ".join(MEASURES))
    return measure


def _ends(table: pa.Table, norm: Norm | str) -> dict[_Cell, list[dict[str, Any]]]:
    """Return the last rows of all runs in one norm, by cell."""
    ends: dict[_Cell, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["norm"] == repr(as_norm(norm)) and row["rounds"] == row["length"]:
            ends.setdefault((row["dim"], row["length"], row["stream"], row["forecaster"]), []).append(row)
    return ends


def _microseconds(table: pa.Table) -> dict[_Cell, float]:
    """Return the time of a round in each cell, from what was played round by round."""
    spent: dict[_Cell, dict[int, float]] = {}
    for row in table.to_pylist():
        if row["seconds"]:
            cell = (row["dim"], row["length"], row["stream"], row["forecaster"])
            spent.setdefault(cell, {})[row["seed"]] = 1e6 * row["seconds"] / row["rounds"]
    return {cell: float(np.mean([*of_seeds.values()])) for cell, of_seeds in spent.items()}
