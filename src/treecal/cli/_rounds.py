"""Rounds on the command line: in order, or by the ids of rows; and the table of those whose outcome is known."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from treecal.cli._reader import NOTHING, Batch, News
from treecal.correctors import Corrector, learns_at_once
from treecal.exceptions import HorizonError, IdError, OutcomeError, ParameterError, SnapshotError
from treecal.io import listed
from treecal.late import Late

if TYPE_CHECKING:
    from treecal._typing import Array
    from treecal.correctors import Correction
    from treecal.forecast import Forecast
    from treecal.forecasters import Forecaster
    from treecal.io import NewTable

Write = Callable[[int, News, "Forecast"], None]
WriteMany = Callable[[int, Batch, "Array"], tuple[int, BaseException | None]]
"""Writes what was announced in rounds, given the number of the first; returns how many, and what stopped it."""


class Waiting(NamedTuple):
    """A round that awaits its outcome: its number, the row that opened it, and the mean of what was announced."""

    number: int
    row: dict[str, Any]
    mean: list[float]


class Rounds:
    """The rounds of a corrector or forecaster, each opened by a row, and closed by the same row or a later one.

    Rounds whose outcome is in another row have a name, the row's id; at most one at a time has none.

    Parameters
    ----------
    thing
        The corrector or forecaster. `Late` is put around it when the first round with a name is opened.
    names
        Columns of the table for what was announced.
    table
        Where a round goes once its outcome is known.
    waiting
        The open rounds that `to_list` returned earlier.
    limit
        The most rounds with names that may wait; beyond it the oldest is void. By default that of `Late`, if it is one.
    kept
        Whether there is a snapshot, which has learned what was written, and no more.
    """

    def __init__(
        self,
        thing: Corrector | Forecaster | Late,
        *,
        names: tuple[str, ...] = (),
        table: NewTable | None = None,
        waiting: Any = (),
        limit: int | None = None,
        kept: bool = False,
    ) -> None:
        self._kept = kept
        self.thing = _limited(thing, limit) if isinstance(thing, Late) else thing
        self._names = names
        self._table = table
        self._limit = limit
        if not isinstance(waiting, list | tuple) or not all(map(_is_waiting, waiting)):
            raise SnapshotError("the snapshot's notes on open rounds cannot be read.")
        self._waiting: dict[str | None, Waiting] = {name: Waiting(*rest) for name, *rest in waiting}
        if isinstance(self.thing, Late):
            self._agree(self.thing)
        self.changed = False
        """Whether a row was followed: something was announced or learned."""
        self._in_order = False
        self._asked: Waiting | None = None

    def _agree(self, late: Late) -> None:
        """Let the notes follow what waits: the snapshot may have been used from Python since."""
        pending = {name: each for name, each in late.pending_rounds.items() if isinstance(name, str)}
        self._waiting = {name: each for name, each in self._waiting.items() if name is None or name in pending}
        for name, each in pending.items():
            self._waiting.setdefault(name, Waiting(each.order + 1, {}, each.announced.mean.tolist()))

    def to_list(self) -> list[list[Any]]:
        """Return the open rounds, as JSON values."""
        return [[name, *each] for name, each in self._waiting.items()]

    @property
    def inner(self) -> Any:
        """The corrector or forecaster itself; of one that is copied for late outcomes, a new one."""
        return self.thing.thing if isinstance(self.thing, Late) else self.thing

    @property
    def saved(self) -> Any:
        """What a snapshot keeps."""
        return self.thing

    @property
    def learned(self) -> int:
        """Number of outcomes learned."""
        return self.thing.rounds if self._copied else self.inner.rounds  # `Late` does not count those before it

    @property
    def report(self) -> Correction:
        """The scores of a corrector."""
        return self.thing.report() if isinstance(self.thing, Late) else self.inner.report()

    @property
    def waiting(self) -> int:
        """Number of forecasts that await their outcomes."""
        return len(self._waiting)

    @property
    def void(self) -> int:
        """Number of forecasts that were given up: due before their outcomes arrived, or beyond the limit."""
        return self.thing.void if isinstance(self.thing, Late) else 0

    @property
    def too_late(self) -> int:
        """Number of outcomes that arrived for them, and were not learned."""
        return self.thing.counts.too_late if isinstance(self.thing, Late) else 0

    @property
    def standing(self) -> str:
        """How many rounds are open, and how many were given up, in words; nothing if there are none."""
        found = list[str]()
        one = self.waiting == 1
        if self.waiting:
            words = ("", "s its outcome") if one else ("s", " their outcomes")
            found.append(f"{self.waiting:,} forecast{words[0]} await{words[1]}")
        if self.void:
            found.append(f"{self.void:,} forecast{' is' if self.void == 1 else 's are'} void")
        if self.too_late:
            found.append(f"{self.too_late:,} outcome{'' if self.too_late == 1 else 's'} arrived too late")
        return f"{'; '.join(found)}." if found else ""

    def by_name(self) -> None:
        """Prepare for rounds with names, if they are not expected yet."""
        if isinstance(self.thing, Late):
            return
        if self.thing.ordered and self.learned:
            raise OutcomeError(
                f"{self.learned:,} rounds were learned in order, and for outcomes that come late, what "
                f"{type(self.thing).__name__} guarantees needs ids from the first round on.",
                hint="begin with a new snapshot, or choose a method without a guarantee.",
            )
        self.thing = Late(self.thing, limit=self._limit, ledger=False)

    def ask(self, write: Write) -> None:
        """Announce a forecast for the next round, of which nothing is known, and write it; beyond a horizon, none."""
        self._in_order = True
        self._asked = None
        try:
            x = self.inner.predict()
        except HorizonError:  # another outcome is refused
            return
        self._asked = Waiting(self._next, {}, x.mean.tolist())
        write(self._next, NOTHING, x)

    def take(self, news: News, write: Write) -> None:
        """Do what a row says: announce its forecast, and write it; then learn the outcome it brings.

        A row that cannot be followed to its end raises, and changes nothing. If writing fails, the same row can be
        taken again, and announces the same.
        """
        at_once = news.opens and news.closes is None and news.outcome is not None
        name = None if at_once and news.id not in self._waiting else news.id
        if news.outcome is not None and not (at_once or self._in_order):
            self._check_open(news)
        if news.opens:
            self._announce(name, news, write, at_once=at_once)
        if news.outcome is not None:
            self._learn(name if at_once else news.closes, news)
        if news.now is not None and isinstance(self.thing, Late):
            self.thing.expire(news.now)
        self._drop_void()
        self.changed = True

    @property
    def at_once(self) -> bool:
        """Whether rounds that are opened and closed by one row each can be played at once, as far as is known now."""
        inner = self.thing
        return isinstance(inner, Corrector) and learns_at_once(inner) and not inner.ordered and not self._waiting

    def take_many(self, batch: Batch, write: WriteMany) -> tuple[int, BaseException | None]:
        """Do what rows say one by one would, at once; return how many were taken, and what stopped it, if anything.

        What is announced is written, unless it goes to the table. Rows that could not be written are not taken; nor is
        any while a round is open.
        """
        if not self.at_once:
            return 0, None
        corrector: Corrector = self.inner
        before = deepcopy(corrector) if self._table is None and self._kept else None
        first = self._next
        means = corrector.update_many(batch.forecasts, batch.outcomes, groups=batch.groups)
        count = len(means)
        failure = None
        if self._table is not None:
            self._table.add_columns(batch.row | dict(zip(self._names, means.T.tolist(), strict=True)))
        else:
            written, failure = write(first, batch, means)
            if before is not None and written < count:
                count = written
                learned = batch.of(slice(count))
                before.update_many(learned.forecasts, learned.outcomes, groups=learned.groups)
                self.thing = before
        self.changed = self.changed or count > 0
        return count, failure

    def _drop_void(self) -> None:
        """Forget the rounds that have become void."""
        if isinstance(self.thing, Late):
            pending = self.thing.pending_rounds
            named = len(self._waiting) - (None in self._waiting and not self._copied)
            gone = (name for name in self._waiting if name is not None and name not in pending)
            for name in list(islice(gone, max(named - len(pending), 0))):  # mostly the oldest, which are the first
                del self._waiting[name]

    def _check_open(self, news: News) -> None:
        """Raise unless the round whose outcome a row brings is open, or was, until it became void."""
        if news.closes in self._waiting or self._is_void(news.closes):
            return
        if news.closes is not None:
            raise OutcomeError(
                f"it has an outcome for {news.closes!r}, and no forecast of that id awaits one.",
                hint="its outcome is known already, or there was no such forecast.",
            )
        if self._waiting:
            waiting = listed([repr(name) for name in self._waiting])
            raise OutcomeError(
                f"it has an outcome and does not say for which forecast; waiting: {waiting}.",
                hint="name the id in outcome_for.",
            )
        raise OutcomeError(
            "it has an outcome, and neither it nor a row before has a forecast for it: "
            f"looked for {news.sought}; it has {listed(list(news.row))}."
        )

    def _is_void(self, name: str | None) -> bool:
        if name is not None and isinstance(self.thing, Late):
            try:
                self.thing.history(name)
            except IdError as error:
                return error.reason == "void"
        return False

    def _announce(self, name: str | None, news: News, write: Write, *, at_once: bool) -> None:
        before = self._waiting.get(name)
        if None in self._waiting and not (before is not None and before.row == news.row):
            raise OutcomeError(
                "it has a forecast, while the one before, without an id, still awaits its outcome.",
                hint="where outcomes come late, give each forecast an id, and each outcome that id in outcome_for.",
            )
        if name is not None or (news.id is not None and self.inner.ordered and not self.learned):
            self.by_name()
        number = self._next if before is None else before.number
        x = self._predict(name, number, news)
        if before is None:
            self._waiting[name] = Waiting(number, news.row, x.mean.tolist())
        if at_once and self._table is not None:
            return  # it goes there
        try:
            write(number, news, x)
        except BaseException:
            if at_once and not self._copied:  # a copy is asked again
                self._cancel()
            raise

    @property
    def _copied(self) -> bool:
        """Whether late outcomes are learned by copies."""
        return isinstance(self.thing, Late) and self.inner.ordered

    @property
    def _next(self) -> int:
        """The number of the next round to be opened, from 1."""
        return self.learned + len(self._waiting) + self.void + 1

    def _predict(self, name: str | None, number: int, news: News) -> Forecast:
        given: dict[str, Any] = {} if news.group is None else {"group": news.group}
        forecast = () if news.forecast is None else (news.forecast,)
        if isinstance(self.thing, Late) and (name is not None or self._copied):
            given |= {"due": news.due, "now": news.now}
            return self.thing.predict(*forecast, id=number if name is None else name, **given)
        return self.inner.predict(*forecast, **given)  # type: ignore[no-any-return]

    def _cancel(self) -> None:
        """Give up the round without a name."""
        del self._waiting[None]
        if isinstance(self.inner, Corrector):
            self.inner.cancel()

    def _learn(self, name: str | None, news: News) -> None:
        closed = self._asked if self._in_order else self._waiting.get(name)
        if isinstance(self.thing, Late) and (name is not None or (closed is not None and self._copied)):
            known = name if closed is None or name is not None else closed.number
            try:
                self.thing.update(known, news.outcome, now=news.now)  # type: ignore[arg-type]
            except IdError as error:
                if error.reason != "void":
                    raise
                self._waiting.pop(name, None)
                return  # too late, and counted
        else:
            self.inner.update(news.outcome)
        self._waiting.pop(name, None)
        if closed is not None and self._table is not None:
            told = {column: value for column, value in news.told.items() if closed.row.get(column) is None}
            self._table.add(closed.row | told | dict(zip(self._names, closed.mean, strict=True)))


def _limited(late: Late, limit: int | None) -> Late:
    """Return it with this limit, if there is one."""
    if limit is None or limit == late.limit:
        return late
    if (waiting := len(late.pending)) > limit:
        raise ParameterError(f"{waiting:,} forecasts await their outcomes already, more than --limit {limit}.")
    twin = Late(**late.arguments() | {"limit": limit})
    twin.set_state(late.get_state())
    return twin


def _is_waiting(entry: Any) -> bool:
    match entry:
        case [str() | None, int(), dict(), list(mean)]:
            return all(isinstance(number, float) for number in mean)
    return False
