"""What is read of the books: from pictures of what is in memory, and from the log by a connection that reads."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing import Actions, Audit, AuditCounts, AuditRows, BinCounts, Groups, tally
from treecal.correctors import method_of
from treecal.geometry import Cdf, ConvexSet, Simplex
from treecal.io import Problems
from treecal.late import VOID
from treecal.measures import Losses, Verdict, mean_interval
from treecal.serve import _wire as wire
from treecal.serve._books import STEP, quantiles_of, wire_alarm
from treecal.serve._config import space_of
from treecal.serve._connections import Reader
from treecal.serve._player import BINS, CurvePoint, arrays, numbers_of
from treecal.serve._refusals import Refusal
from treecal.serve._replay import Picture, StreamRow, as_arrival
from treecal.serve._rounds import LogEntry, Round, outcome_of, plain_outcome

Window = Literal["minute", "hour", "day", "week", "month"]
LAST = 20_000
"""Rounds that scores are computed of, unless more are asked for: more hold up other requests."""
MOST_LAST = 1_000_000
"""Rounds that scores are computed of at most; an export has all."""
_MOST_GROUPS = 1000
_MOST_NUMBERS = 2**24  # in the forecasts that are read at once
_MOST_CURVES = 2**16  # in an answer: one for each class of each group
_FAN = 200  # forecasts in a fan chart
_PAGE = 4096
_NONE = np.empty(0, np.int64)


class Verdicts:
    """Verdicts on what is announced and on the model, by stream: they take time, and change with outcomes only.

    Those of so many streams are remembered, asked for last.
    """

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._known: OrderedDict[int, tuple[int, dict[str, Any]]] = OrderedDict()

    def of(self, picture: Picture) -> dict[str, Any]:
        """Return the verdicts on a stream as it stands."""
        kept = picture.kept
        learned, found = self._known.pop(kept.stream, (-1, {}))
        if learned != picture.counts.learned:
            found = {role: _verdict(picture, role) for role in picture.cells}
        self._known[kept.stream] = picture.counts.learned, found
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return found


def stream(picture: Picture, reader: Reader, now: float, verdicts: Verdicts) -> wire.Stream:
    """Return how a stream stands."""
    kept = picture.kept
    found = verdicts.of(picture)
    ((overdue,),) = reader.query("count_overdue", kept.stream, now)
    counts = msgspec.structs.replace(picture.counts, overdue=overdue)
    alarms = {row[1]: row for row in reversed(reader.query("alarms_of", kept.stream, 100))}
    monitors = {}
    for name, (value, peak, threshold, alarm) in picture.monitors.items():
        latest = alarms.get(name) if alarm is not None else None
        shown = None if latest is None else wire_alarm(kept.name, name, latest[2], msgspec.json.decode(latest[3]))
        monitors[name] = wire.Evidence(value, peak, threshold, shown)
    return wire.Stream(
        kept.name,
        kept.config,
        kept.created,
        kept.archived,
        counts,
        picture.state,
        picture.played,
        found.get("announced"),
        found.get("model"),
        monitors,
        picture.last or None,
        [wire.LeadTime(*lead[:-1], None if math.isnan(lead.too_sure) else lead.too_sure) for lead in picture.leads],
    )


def curve(picture: Picture) -> wire.Curve:
    """Return the course of a stream."""
    numbers = isinstance(space_of(picture.kept.config), Cdf)
    error = "calibration error in l1, each class by itself in bins of a tenth: at most the exact error"
    if numbers:
        error = "calibration error of the distribution function, in bins of a tenth: the mean over the range"
    return wire.Curve(picture.kept.name, "crps" if numbers else "l1", error, [_mark(each) for each in picture.marks])


def _mark(each: CurvePoint) -> wire.Mark:
    known = {name: None if math.isnan(value) else value for name, value in each._asdict().items()}
    return msgspec.convert(known | {"rounds": int(each.rounds)}, wire.Mark)


def _verdict(picture: Picture, role: str) -> dict[str, Any] | None:
    cells = picture.cells[role]
    if not cells.weight.any():
        return None
    verdict = _audit(Groups(()), cells, _classes(space_of(picture.kept.config))).whole.verdict
    return {**verdict.to_dict(), "advice": _advice(picture, role, verdict)}


def _advice(picture: Picture, role: str, verdict: Verdict) -> str:
    """Return what to do, in the words of the server."""
    config = picture.kept.config
    if config.forecaster is not None:
        return _outlook(picture)
    if config.corrector is None or verdict.level not in ("somewhat off", "far off"):
        return verdict.advised.text(lambda kind: f"the corrector {method_of(kind)}")
    if role == "announced":
        name = config.corrector.name
        return (
            f"It is corrected by {name} and still off: {name} learns from each outcome. If it stays off, improve the "
            "model, or try another corrector: PATCH the stream, and it learns from the log."
        )
    return f"{verdict.advised.found} What is announced is corrected."


def _outlook(picture: Picture) -> str:
    """Return what to expect of a stream that forecasts by itself: it has no model to correct."""
    bound = picture.marks[-1].guarantee if picture.marks else math.nan
    assert picture.kept.config.forecaster is not None
    if "losses" in picture.kept.config.forecaster.options:
        return "It forecasts by itself, and the swap regret of its advice is bounded: docs/explanation/decisions.md."
    learned = picture.counts.learned
    if math.isnan(bound):
        return "It forecasts by itself, without a guarantee: what it has learned so far is all it knows."
    useful = space_of(picture.kept.config).diameter("l1") * (1 - 1e-9)
    outlook = f"after {learned:,} outcomes its error in l1 is guaranteed to be at most {bound:.3g} a round."
    if bound >= useful:
        outlook = f"after {learned:,} outcomes there is no useful guarantee yet: it takes more of them."
    elif picture.ahead is not None and picture.ahead[1] < useful:
        more, most = picture.ahead
        outlook = f"{outlook[:-1]}, and after {more:,} more, whatever they are, at most {most:.3g}."
    return f"It forecasts by itself: {outlook} The more forecasts are pending, the slower it learns."


def _audit(groups: Groups, cells: BinCounts, classes: tuple[str, ...], actions: Actions | None = None) -> Audit:
    return AuditCounts(groups, cells, None, actions=actions).audit(
        "the books", classes, classes, Problems("the books", "stop")
    )


def _classes(space: ConvexSet) -> tuple[str, ...]:
    names = space.classes if isinstance(space, Simplex) else None
    return tuple(map(str, range(space.dim))) if names is None else tuple(names)


def record(kept: StreamRow, reader: Reader, named: str) -> wire.Record:
    """Return all that is known of a round, or refuse."""
    rows = reader.query("round_by_id", kept.stream, named)
    if not rows:
        raise Refusal("not_found", f"stream {kept.name!r} has no forecast {named!r}.", at="id")
    each = Round(*rows[0])
    space = space_of(kept.config)
    model = each.model_point()
    status: Any = "pending"
    outcome = settled = None
    amendments = []
    for _, kind, at, class_, point in reader.query("arrivals_of_round", kept.stream, each.round):
        if kind in ("used", "revised"):
            continue
        brief = outcome_of(class_, point)
        plain = None if brief == VOID else plain_outcome(space, brief)
        if kind == "amended" and plain is not None:
            amendments.append(wire.Amendment(at, plain))
        elif status == "pending":
            status = "learned" if kind == "outcome" else kind
            outcome = plain
            settled = at
    return wire.Record(
        each.id,
        each.round,
        each.at,
        None if model is None else model.tolist(),
        each.mean().tolist(),
        each.tag_values(),
        each.due,
        each.state.hex(),
        status,
        outcome,
        settled,
        amendments,
        bool(each.used or each.marked),
    )


def tagged(kept: StreamRow, reader: Reader, tag: str, value: str, after: int) -> tuple[list[int], int | None]:
    """Return the next rounds after one with a value of a tag, as many as are deleted at once; and where to go on."""
    found: list[int] = []
    while rows := reader.query("tags_after", kept.stream, after, _PAGE):
        for number, text in rows:
            if text and msgspec.json.decode(text, type=dict[str, str]).get(tag) == value:
                found.append(number)
                if len(found) == STEP:
                    return found, number
        after = rows[-1][0]
    return found, None


def pending(kept: StreamRow, reader: Reader, *, overdue: bool, after: int, limit: int, now: float) -> wire.Pending:
    """Return rounds that await their outcomes, the oldest first."""
    if overdue:
        rows = reader.query("overdue_page", kept.stream, after, now, limit + 1)
    else:
        rows = reader.query("pending_page", kept.stream, after, limit + 1)
    rounds = [Round(*row) for row in rows]
    space = space_of(kept.config)
    found = [
        wire.Waiting(
            each.id,
            each.round,
            each.at,
            each.due,
            each.due is not None and each.due < now,
            each.mean().tolist(),
            each.tag_values(),
            quantiles_of(space, each.mean()) if isinstance(space, Cdf) else None,
        )
        for each in rounds[:limit]
    ]
    return wire.Pending(found, found[-1].round if len(rounds) > limit else None)


def alarms(reader: Reader, prefix: str, only: StreamRow | None, limit: int) -> wire.Alarms:
    """Return alarms, the latest first: of one stream, or of those whose names start with a prefix."""
    if only is None:
        rows = reader.query("alarms", len(prefix), prefix, limit)
    else:
        rows = [(only.name, *row[1:]) for row in reader.query("alarms_of", only.stream, limit)]
    return wire.Alarms([wire_alarm(name, watched, at, msgspec.json.decode(body)) for name, watched, at, body in rows])


class Read(NamedTuple):
    """Rounds with their outcomes, as arrays, in the order of their outcomes; -1 is the class of none."""

    model: Array | None
    announced: Array
    classes: Integers
    outcomes: Array
    numbers: Array | None
    losses: Losses | None
    at: Array
    tags: list[dict[str, str]]


def scores(
    kept: StreamRow,
    reader: Reader,
    *,
    of: int,
    by: str | None = None,
    window: Window = "day",
    since: float = -math.inf,
    until: float = math.inf,
    last: int = LAST,
) -> wire.Scores:
    """Return errors, reliability and scores of the last rounds, `of` so many, overall and by a tag or time, or refuse.

    Of points with many coordinates fewer are read, and in fewer groups, so that whoever asks cannot fill the memory.
    """
    if by is not None and by != "time" and by not in kept.config.tags:
        hint = f"by is time, or one of {', '.join(kept.config.tags)}." if kept.config.tags else "by is time."
        raise Refusal("invalid", f"stream {kept.name!r} has no tag {by!r}.", hint=hint, at="by")
    if window not in get_args(Window):
        raise Refusal("invalid", f"window is {window!r}.", hint=f"one of {', '.join(get_args(Window))}.", at="window")
    space = space_of(kept.config)
    last = min(last, _MOST_NUMBERS // space.dim)
    groups_at_most = min(_MOST_GROUPS, _MOST_CURVES // space.dim)
    rows = list(islice(_back(kept, reader, since, until, last), last))[::-1]
    read = _read(rows, space, tagged=by is not None and by != "time")._replace(losses=_losses(kept.config, space))
    keys: list[Any] = []
    if by == "time":
        keys = _windows(read.at, window)
    elif by is not None:
        keys = [tags.get(by) for tags in read.tags]
    if len(set(keys)) > groups_at_most:
        hint = "ask for a longer window, or for less time." if by == "time" else "export the rounds instead."
        raise Refusal("invalid", f"there are more than {groups_at_most} groups by {by}.", hint=hint, at="by")
    score = _class_scores if isinstance(space, Simplex) else _point_scores
    score = _number_scores if isinstance(space, Cdf) else score
    parts = {
        role: score(points, read, keys, space)
        for role, points in (("model", read.model), ("announced", read.announced))
        if points is not None and len(rows)
    }
    groups = [
        {"by": key, **{role: part[1].get(key) for role, part in parts.items()}}
        for key in sorted(set(keys), key=lambda key: (key is None, key))
    ]
    whole_of = {role: part[0] for role, part in parts.items()}
    change = _change(read, space) if kept.config.corrector is not None else None
    fan = _fan(read, space) if isinstance(space, Cdf) else None
    return wire.Scores(kept.name, len(rows), of, whole_of.get("model"), whole_of.get("announced"), groups, change, fan)


def _losses(config: wire.NewStream, space: ConvexSet) -> Losses | None:
    """Return the costs of the one decision that a stream's forecasts are for, if they are."""
    part = config.corrector or config.forecaster
    given = None if part is None else part.options.get("losses")
    if given is None or not isinstance(space, Simplex):
        return None
    losses = Losses(space, given)
    return losses if losses.names is None else None


def _fan(read: Read, space: Cdf) -> wire.Fan:
    assert read.numbers is not None
    last = slice(max(len(read.at) - _FAN, 0), None)
    quantiles = quantiles_of(space, read.announced[last])
    return wire.Fan(read.at[last].tolist(), read.numbers[last].tolist(), quantiles)


def _change(read: Read, space: ConvexSet, level: float = 0.9) -> wire.Change | None:
    """Return what correction changed, round by round: the outcomes, which both share, make no noise in it."""
    met = read.classes >= 0 if isinstance(space, Simplex) else np.ones(len(read.at), bool)
    if read.model is None or met.sum() < 2:
        return None
    from scipy.special import ndtri

    if isinstance(space, Cdf) and read.numbers is not None:
        model, announced = (space.distribution(x).crps(read.numbers) for x in (read.model, read.announced))
    else:
        model, announced = (((x[met] - read.outcomes[met]) ** 2).sum(axis=1) for x in (read.model, read.announced))
    own = announced - model
    value = float(own.mean())
    half = float(ndtri((1 + level) / 2) * own.std(ddof=1) / math.sqrt(len(own)))
    return wire.Change(value, value - half, value + half, level)


def _back(kept: StreamRow, reader: Reader, since: float, until: float, last: int) -> Iterator[tuple[LogEntry, Round]]:
    """Yield outcomes with their rounds, the latest first."""
    before = 2**62
    low = max(since, -1e300)
    high = min(until, 1e300)  # which every store can compare with
    while rows := reader.query("outcomes_back", kept.stream, before, low, high, min(_PAGE, last)):
        for row in rows:
            entry, each = as_arrival(row)
            assert each is not None
            yield entry, each
        before = rows[-1][0]


def _read(rows: list[tuple[LogEntry, Round]], space: ConvexSet, *, tagged: bool) -> Read:
    briefly = [outcome_of(entry.class_, entry.point) for entry, _ in rows]
    announced, model, outcomes, classes = arrays([each for _, each in rows], briefly, space)
    at = np.array([entry.at for entry, _ in rows])
    numbers = numbers_of(briefly) if isinstance(space, Cdf) else None
    tags = [x.tag_values() for _, x in rows if tagged]
    return Read(model if rows else None, announced, classes, outcomes, numbers, None, at, tags)


def _windows(at: Array, window: Window) -> list[str]:
    """Return the start of the window of each time, in UTC."""
    seconds = np.floor(at).astype("datetime64[s]")
    if window == "week":  # which begins on Monday; 1970 began on a Thursday
        days = seconds.astype("datetime64[D]").astype(np.int64)
        starts = ((days + 3) // 7 * 7 - 3).astype("datetime64[D]")
    else:
        starts = seconds.astype(f"datetime64[{ {'minute': 'm', 'hour': 'h', 'day': 'D', 'month': 'M'}[window] }]")
    return [str(each) for each in starts]


Part = tuple[dict[str, Any] | None, dict[Any, dict[str, Any]]]


def _class_scores(points: Array, read: Read, keys: list[Any], space: ConvexSet) -> Part:
    met = read.classes >= 0
    if not met.any():
        return None, {}
    own = [key for key, known in zip(keys, met.tolist(), strict=True) if known] if keys else []
    groups = Groups(("by",) if keys else ())
    for key in dict.fromkeys(own):
        groups.index[(key,)] = len(groups.index)
    home = np.array([groups.index[(key,)] for key in own], np.int64) if keys else np.zeros(met.sum(), np.int64)
    cells = BinCounts.empty(classes=space.dim, bins=BINS).with_room(groups)
    rows = AuditRows(np.ascontiguousarray(points[met].T), read.classes[met], home, _NONE)
    tally(rows, cells)
    actions = None
    if read.losses is not None:
        actions = Actions(read.losses.tables[0])
        actions.add(rows, max(len(groups.index), 1))
    found = _audit(groups, cells, _classes(space), actions)
    return found.whole.to_dict(), {key[0]: each.to_dict() for key, each in found.groups.items()}


def _number_scores(points: Array, read: Read, keys: list[Any], space: ConvexSet) -> Part:
    assert isinstance(space, Cdf)
    assert read.numbers is not None
    numbers = read.numbers
    law = space.distribution(points)
    scores = np.asarray(law.crps(numbers))
    inner = {share: law.interval(share) for share in (0.5, 0.9)}
    held = {share: (low <= numbers) & (numbers <= high) for share, (low, high) in inner.items()}
    widths = {share: high - low for share, (low, high) in inner.items()}
    bias = numbers - np.asarray(law.mean)

    def part(rows: Any) -> dict[str, Any]:
        own = scores[rows]
        interval = mean_interval(float(own.mean()), float((own**2).mean()), len(own))
        return {
            "rounds": len(own),
            "crps": interval.value,
            "interval": [interval.low, interval.high],
            "coverage": {f"{share:g}": float(found[rows].mean()) for share, found in held.items()},
            "width": {f"{share:g}": float(found[rows].mean()) for share, found in widths.items()},
            "bias": float(bias[rows].mean()),
        }

    return _parts(part, keys)


def _point_scores(points: Array, read: Read, keys: list[Any], space: ConvexSet) -> Part:
    squares = ((points - read.outcomes) ** 2).sum(axis=1)
    gaps = read.outcomes - points

    def part(rows: Any) -> dict[str, Any]:
        own = squares[rows]
        interval = mean_interval(float(own.mean()), float((own**2).mean()), len(own))
        return {
            "rounds": len(own),
            "squared_error": interval.value,
            "interval": [interval.low, interval.high],
            "bias": gaps[rows].mean(axis=0).tolist(),
        }

    return _parts(part, keys)


def _parts(part: Callable[[Any], dict[str, Any]], keys: list[Any]) -> Part:
    """Return scores of all rows, and of those with each key."""
    groups: dict[Any, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return part(slice(None)), {key: part(rows) for key, rows in groups.items()}


def export(kept: StreamRow, reader: Reader, path: Any, *, since: float = -math.inf, until: float = math.inf) -> int:
    """Write the rounds with outcomes to a Parquet file, in the order of their outcomes; return how many.

    `treecal audit` reads it: the forecasts announced are in columns `p_…`, the outcome that was learned in `outcome`.
    The model's forecasts are lists in one column: `--forecast model_forecast` audits them. What an outcome was amended
    to, last, is in `amended`, as JSON where it is no class. Late outcomes were not learned, and are not
    in it. Of numbers the columns are quantiles, `q5` to `q95` and `model_q5` to `model_q95`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    space = space_of(kept.config)
    names = _classes(space)
    amended = {}
    for number, class_, point in reader.query("amendments", kept.stream):
        plainly = plain_outcome(space, outcome_of(class_, point))
        amended[number] = plainly if isinstance(plainly, str) else msgspec.json.encode(plainly).decode()
    text = pa.string()
    real = pa.float64()
    moment = pa.timestamp("us", "UTC")

    def columns(rows: list[tuple[LogEntry, Round]]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the columns of some rows, with their names and types."""
        read = _read(rows, space, tagged=True)
        rounds = [each for _, each in rows]
        yield "id", text, [each.id for each in rounds]
        yield "round", pa.int64(), [each.round for each in rounds]
        yield "at", moment, _micros([each.at for each in rounds])
        yield "settled", moment, _micros([entry.at for entry, _ in rows])
        announced = _quantities(space, read.announced)
        for name, column in announced.items():
            yield name, real, column
        if kept.config.forecaster is None:
            model = np.empty((0, space.dim)) if read.model is None else read.model
            if read.numbers is None:
                yield "model_forecast", pa.list_(real, space.dim), list(model)
            else:
                for name, column in _quantities(space, model).items():
                    yield f"model_{name}", real, column
            yield "used", pa.bool_(), [bool(each.used or each.marked) for each in rounds]
        if isinstance(space, Simplex):
            yield "outcome", text, [names[k] if k >= 0 else None for k in read.classes.tolist()]
        elif read.numbers is not None:
            yield "outcome", real, read.numbers
        else:
            for name, column in zip(names, read.outcomes.T, strict=True):
                yield f"outcome_{name}", real, column
        yield "amended", text, [amended.get(each.round) for each in rounds]
        for name in kept.config.tags:
            yield name, text, [each.get(name) for each in read.tags]

    fields: list[tuple[str, Any]] = []
    for name, kind, _ in columns([]):
        while name in dict(fields):
            name = f"tag_{name}"
        fields.append((name, kind))
    schema = pa.schema(fields)
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        for rows in _forth(kept, reader, since, until):
            arrays = [pa.array(column, kind) for _, kind, column in columns(rows)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            count += len(rows)
    return count


def _quantities(space: ConvexSet, points: Array) -> dict[str, Any]:
    """Return forecasts as columns by name: of numbers quantiles, otherwise coordinates."""
    if isinstance(space, Cdf):
        return quantiles_of(space, points)
    return dict(zip([f"p_{name}" for name in _classes(space)], points.T, strict=True))


def _micros(at: list[float]) -> Any:
    return np.round(np.array(at) * 1e6).astype(np.int64).astype("datetime64[us]")


def _forth(kept: StreamRow, reader: Reader, since: float, until: float) -> Iterator[list[tuple[LogEntry, Round]]]:
    """Yield outcomes with their rounds, some at a time, the first ones first."""
    after = 0
    held = list[tuple[LogEntry, Round]]()
    while rows := reader.query("arrivals_after", kept.stream, after, _PAGE):
        for entry, each in map(as_arrival, rows):
            if entry.kind == "outcome" and each is not None and since <= entry.at < until:
                held.append((entry, each))
        if len(held) >= 16 * _PAGE:
            yield held
            held = []
        after = rows[-1][0]
    if held:
        yield held
