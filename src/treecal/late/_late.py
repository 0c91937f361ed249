"""Late: any forecaster or corrector, with outcomes by id, when they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from threading import RLock
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import Configured, Locked
from treecal._typing import Array, Saved
from treecal._validate import whole_number
from treecal.correctors import Correction, Corrector, Group, merged_report
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import as_measure, certified
from treecal.geometry import ConvexSet, Norm
from treecal.late._arguments import (
    forecast_of,
    forecasts_of,
    groups_of,
    ids_of,
    outcome_of,
    outcomes_of,
    read_id,
    read_time,
    weight_of,
    weights_of,
)
from treecal.late._arrivals import Arrival, briefs, whole
from treecal.late._pool import Id, Thing
from treecal.late._revisions import Lead, Revisions
from treecal.late._rounds import Counts, Pending, Rounds, refusal
from treecal.late._snapshot import resumed, state_of
from treecal.ledger import Ledger
from treecal.measures import Losses
from treecal.monitor import Watched
from treecal.theory import Certificate


class Late(Locked, Configured):
    """Outcomes by id: late, out of order, many at once, amended, or never. Around any forecaster or corrector.

    `predict(b, id=...)` announces a forecast and opens a round, `update(id, y)` learns its outcome whenever it comes.
    What is scored is what was announced then. Asked again under the same id for the same, it announces the same.

    **Correctors** (and `Tracker`, `RunningMean`) learn each outcome when it comes: the state is, bit for bit, that of
    learning the pairs in the order of arrival. **Forecasters and correctors with a certificate** need each outcome
    before the next forecast, so there is a pool of copies (Joulani, György and Szepesvári 2013): a forecast is asked of
    a copy that awaits no outcome, the one with most rounds, or of a new one. Each copy sees its own rounds in order,
    and the total error is at most `Σ_c U(n_c)`: see `certificate`. Of a `Guarded` only the safe part
    is copied: the eager part learns every outcome when it comes, under one guard. The copies of a `GuardedCorrector`
    share its corrector, which does so too.

    An outcome that comes after `due`, or never, is not learned: the round is void, and counted. Time is what `now`
    says, in the unit of `due`; there is no other clock. It goes back only by `set_clock`. Beyond `limit` pending
    rounds, the oldest is void. The ids of the last 100,000 closed rounds are remembered, so memory is bounded where
    `limit` is. After a void round its copy is asked again: `Sampled` then draws afresh, so that no draw is known before
    its round. That a round is void must not depend on its draw.

    A pending forecast may be revised: `revise(id, b)` announces a new one. The outcome is learned and scored with the
    last one; `leads()` scores all of them, by how long before the outcome they were announced. A monitor
    (`tc.Late(treecal.monitor.Watched(tc.Monitor(space)))`) watches each revision at once.

    The same outcome again is a replay, which changes nothing. An amended outcome is kept as history. The first one
    stands, in what was learned and in all scores.

    Invalid input, an unknown id, another outcome: an error that names the id, and nothing has changed. Several threads
    may use it; one call runs at a time. An interrupt leaves a round learned or not.

    Parameters
    ----------
    thing
        A forecaster or corrector, of which a copy is played; it must be new if it is one to make a pool of.
    limit
        The most rounds that may be pending.
    ledger
        Whether to keep the ledger of a forecaster's rounds, which holds every distinct forecast. A corrector keeps the
        scores it was made to keep.

    Examples
    --------
    >>> import treecal as tc
    >>> late = tc.Late(tc.PlattScaling(tc.Simplex(2)))
    >>> monday = late.predict([0.3, 0.7], id="monday")
    >>> tuesday = late.predict([0.6, 0.4], id="tuesday")
    >>> late.update("tuesday", [1, 0])
    >>> late.pending, late.rounds
    (['monday'], 1)
    >>> late.update("tuesday", [0, 1])
    Traceback (most recent call last):
    ...
    treecal.exceptions.IdError: id 'tuesday' has another outcome.
    <BLANKLINE>
    Hint: amend(id, y) keeps it as an amendment.

    With a certificate, whatever the delays:

    >>> late = tc.Late(tc.BinaryGrid(tc.Simplex(2)))
    >>> for day in range(1000):
    ...     x = late.predict(id=day)
    ...     if day >= 3:
    ...         late.update(day - 3, [1, 0])
    >>> late.copies, round(late.ledger.error("l1"), 2), round(late.certificate("l1").bound, 2)
    (4, 0.06, 0.84)
    """

    def __init__(self, thing: Thing, *, limit: int | None = None, ledger: bool = True) -> None:
        if not isinstance(thing, Thing):
            raise ParameterError.expected("thing", thing, "a Forecaster or a Corrector")
        if thing.ordered and thing.rounds:
            raise ParameterError.expected("thing", thing, "a new one, since copies of it are made")
        if not isinstance(ledger, bool):
            raise ParameterError.expected("ledger", ledger, "True or False")
        self.limit = None if limit is None else whole_number("limit", limit, least=1)
        self.space: ConvexSet = thing.space
        self._thing = deepcopy(thing)
        self._keeps = ledger
        self._shown: Thing | None = None
        self._rounds = Rounds(self._thing, limit=self.limit, ledger=ledger)
        self._revisions = Revisions(thing.space)
        self._lock = RLock()

    @property
    def thing(self) -> Thing:
        """What is played, itself, if it learns outcomes as they come; otherwise a new one, such as the copies were.

        It is there to be looked at. What it is taught directly (`fit`, `learn`) it has learned, and nothing of that is
        counted here. A new one is for show: no copy is made of it.
        """
        rounds = self._rounds
        if rounds.pool is None and isinstance(rounds.front, Thing):
            return rounds.front
        if self._shown is None:
            self._shown = deepcopy(self._thing)
        return self._shown

    @property
    def rounds(self) -> int:
        """Number of outcomes learned."""
        return self.counts.learned

    @property
    def void(self) -> int:
        """Number of rounds that were given up: due before their outcomes arrived, or beyond the limit."""
        return self.counts.void

    @property
    def counts(self) -> Counts:
        """Rounds `opened`, `learned` and `void`; outcomes `too_late`, for void ones; amendments (`amended`)."""
        with self._lock:
            return self._settled().counts

    @property
    def pending(self) -> list[Id]:
        """The ids that await their outcomes, the oldest first."""
        with self._lock:
            return list(self._settled().pending)

    @property
    def pending_rounds(self) -> Mapping[Id, Pending]:
        """The same with their rounds, as they change: `order`, `forecast`, `group`, `announced` and `due` of each."""
        with self._lock:
            return MappingProxyType(self._settled().pending)

    @property
    def now(self) -> float | None:
        """The latest time that was given; None before the first."""
        return self._rounds.time

    @property
    def copies(self) -> int:
        """Number of copies in the pool: as many as rounds were ever pending at once; 0 where none are needed."""
        with self._lock:
            pool = self._settled().pool
            return 0 if pool is None else len(pool.copies)

    @property
    def ledger(self) -> Ledger:
        """What a forecaster announced, and the outcomes."""
        with self._lock:
            ledger = self._settled().ledger
        if ledger is None:
            hint = "ledgers, or report()." if isinstance(self._thing, Corrector) else "make it with ledger=True."
            raise UnsupportedError("there is no ledger.", hint=hint)
        return ledger

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """A corrector's three ledgers, if it keeps them: "before", "after" and "mean"."""
        with self._lock:
            scored = self._scored()
            merged = scored[0].ledgers
            for other in scored[1:]:
                merged = {role: ledger.merge(other.ledgers[role]) for role, ledger in merged.items()}
            return merged

    def report(self) -> Correction:
        """Return a corrector's scores, before and after: of what was announced then, with the first outcome of each."""
        with self._lock:
            scored = self._scored()
            return scored[0].report() if len(scored) == 1 else merged_report(scored)

    def certificate(
        self,
        norm: Norm | str | Losses,
        *,
        rounds: int | None = None,
        outstanding: int | None = None,
        after: Ledger | None = None,
    ) -> Certificate | None:
        """Return the bound on the error per round that holds whatever the outcomes and delays; None where none does.

        Void rounds have no outcome, and no error.

        Parameters
        ----------
        norm
            The norm of the error; or the losses of what is guarded, for the swap regret of its advice.
        rounds
            For so many rounds, from the first; by default for those learned so far, with the copies that learned them:
            `Σ_c U(n_c)/n`.
        outstanding
            The most rounds that will ever be pending at once; by default the limit, or after a ledger those that were.
            Only with `rounds`.
        after
            `ledger`: the bound is then on the error of the rounds learned so far and of so many more.
        """
        with self._lock:
            state = self._settled()
            pool = state.pool
            if pool is None:
                return None
            if rounds is None:
                if outstanding is not None or after is not None:
                    what = "after" if outstanding is None else "outstanding"
                    raise ParameterError(f"{what} is given, and rounds is not.", hint="pass rounds= as well.")
                return pool.certify(norm)
            most = self.limit if outstanding is None else whole_number("outstanding", outstanding, least=1)
            more = whole_number("rounds", rounds, least=1)
            if after is not None:
                space = self._thing.space
                of = as_measure(norm, space)
                found = pool.certify_more(of, more, state.front, 1 if outstanding is None else most or 1)
                return certified(found, of, more, self.rounds, space, after)
            if most is None:
                hint = "pass outstanding=, or make it with a limit."
                raise ParameterError("it is not known how many rounds may be pending.", hint=hint)
            return pool.foresee(norm, more, most)

    def predict(
        self,
        forecast: ArrayLike | Mapping[str, float] | None = None,
        *,
        id: Id,  # noqa: A002 # the word of those who have one
        due: float | None = None,
        group: Group = None,
        now: float | None = None,
    ) -> Forecast:
        """Open a round and return the forecast to announce; under an id that is pending, what was announced.

        Parameters
        ----------
        forecast
            For correctors: the forecast to correct.
        id
            The name of the round: text, an integer, or a tuple of them. Another forecast, group or `due` under it is an
            error.
        due
            The last moment at which the outcome counts. It may be left out when asking again.
        group
            For correctors with groups, what is known of the round.
        now
            What time it is.
        """
        named = read_id(id)
        last = read_time("due", due)
        time = read_time("now", now)
        b = forecast_of(self._thing, forecast, named)
        (group,) = groups_of(self._thing, [group], 1)
        with self._lock:
            rounds = self._settled()
            new = rounds.openings([named], [b], [group], last, time)
            _check_due(last if new else None, rounds.time, time)
            rounds.pass_time(time)
            if not new:
                return rounds.pending[named].announced
            x = rounds.open(named, b, group, last)
            if time is not None and rounds.pool is None:
                self._revisions.opened(named, time, rounds.pending)
            return x

    def predict_many(
        self,
        forecasts: ArrayLike | None = None,
        *,
        ids: Iterable[Id],
        due: float | None = None,
        groups: Sequence[Group] | ArrayLike | None = None,
        now: float | None = None,
    ) -> Array:
        """Open many rounds, in order, as `predict` in a loop does; return the means announced, `(n, dim)`.

        All rows are checked before the first is opened.

        Parameters
        ----------
        forecasts
            For correctors: the forecasts, `(n, dim)`; of a table the columns named like the classes.
        ids
            Their ids. One that appears twice asks again.
        due, now
            As for `predict`, for all of them.
        groups
            The group of each.
        """
        named = ids_of(ids)
        last = read_time("due", due)
        time = read_time("now", now)
        points = forecasts_of(self._thing, forecasts, named)
        names = groups_of(self._thing, groups, len(named))
        with self._lock:
            rounds = self._settled()
            means = np.empty((len(named), self.space.dim))
            new = rounds.openings(named, points, names, last, time)
            _check_due(last if new else None, rounds.time, time)
            rounds.pass_time(time)
            known = dict(zip(new, rounds.announced([points[i] for i in new], [names[i] for i in new]), strict=True))
            for i, each in enumerate(named):
                if i in known:
                    x = rounds.open(each, points[i], names[i], last, known[i])
                    if time is not None and rounds.pool is None:
                        self._revisions.opened(each, time, rounds.pending)
                else:
                    x = rounds.pending[each].announced
                means[i] = x.mean
            return means

    def revise(self, id: Id, forecast: ArrayLike | Mapping[str, float], *, now: float | None = None) -> Forecast:  # noqa: A002
        """Announce another forecast of a round that is pending, in place of the one before; return it.

        Only of correctors that need no order. An unknown or closed id raises an `IdError`, and nothing has changed.

        Parameters
        ----------
        id
            The round's.
        forecast
            The forecast to correct, as it is now.
        now
            What time it is: lead times follow from it, and else from the number of revisions.

        Examples
        --------
        >>> import treecal as tc
        >>> from treecal.monitor import Watched
        >>> late = tc.Late(Watched(tc.Monitor(tc.Simplex(2))))
        >>> x = late.predict([0.5, 0.5], id="election", now=0)
        >>> x = late.revise("election", [0.2, 0.8], now=30)
        >>> late.update("election", 1, now=100)
        >>> [(lead.least, lead.forecasts, round(lead.brier, 2)) for lead in late.leads()]
        [(64.0, 2, 0.29)]
        >>> late.thing.monitor.rounds
        2
        """
        named = read_id(id)
        time = read_time("now", now)
        b = forecast_of(self._thing, forecast, named)
        with self._lock:
            rounds = self._settled()
            before = rounds.pending.get(named)
            after = rounds.revise(named, b, time)
            assert before is not None
            self._revisions.note(named, rounds.time if time is None else time, before.announced.mean, after.mean)
            return after

    def leads(self) -> list[Lead]:
        """Return how good forecasts were, by lead time, of rounds that were revised."""
        with self._lock:
            return self._revisions.leads()

    def update(self, id: Id, outcome: ArrayLike, *, weight: float = 1.0, now: float | None = None) -> None:  # noqa: A002
        """Learn the outcome of a round; the same again changes nothing.

        An unknown id or another outcome raises an `IdError`, and nothing has changed. So does an outcome that comes too
        late, which is counted.

        Parameters
        ----------
        id
            The round's.
        outcome
            A point of the set; on a simplex also a class, by its index or name.
        weight
            How much the round counts, for correctors that know weights.
        now
            What time it is: if that is after `due`, the round is void.
        """
        named = read_id(id)
        time = read_time("now", now)
        y = outcome_of(self.space, outcome, named)[None]
        w = [weight_of(self._thing, weight, named)]
        with self._lock:
            found = self._settled().take([named], y, briefs(y), w, time, strict=True)
            self._score([named], y, found)
            if found == ["late"]:
                raise refusal(named, "late")

    def _score(self, ids: Sequence[Id], outcomes: Array, found: Sequence[Arrival]) -> None:
        """Score revised forecasts whose outcomes were learned, and forget those of void rounds."""
        if self._revisions:
            for named, y, arrival in zip(ids, outcomes, found, strict=True):
                if arrival == "learned":
                    self._revisions.score(named, y, self._rounds.time)
            self._revisions.forget(self._rounds.pending)

    def update_many(
        self,
        ids: Iterable[Id],
        outcomes: ArrayLike | Iterable[Any],
        *,
        weights: Sequence[float] | ArrayLike | None = None,
        now: float | None = None,
        strict: bool = True,
    ) -> list[Arrival]:
        """Learn the outcomes of many rounds, in this order, as `update` in a loop does; return what became of each.

        That is "learned"; "replayed" if the round has this outcome already; "late" if it is void; "conflict" if it has
        another outcome; or "unknown". Nothing but the first is learned. All arguments are checked before that.

        Parameters
        ----------
        ids
            The rounds'.
        outcomes, weights, now
            As for `update`: one outcome and one weight for each id.
        strict
            Whether a conflict or an unknown id is an error, for which nothing has changed.

        Examples
        --------
        >>> import treecal as tc
        >>> late = tc.Late(tc.PlattScaling(tc.Simplex(2)))
        >>> means = late.predict_many([[0.3, 0.7], [0.6, 0.4]], ids=["a", "b"])
        >>> late.update_many(["a", "b", "a"], [1, 0, 1])
        ['learned', 'learned', 'replayed']
        >>> late.update_many(["a", "c"], [0, 0], strict=False)
        ['conflict', 'unknown']
        """
        named = ids_of(ids)
        time = read_time("now", now)
        y = outcomes_of(self.space, outcomes, named)
        w = weights_of(self._thing, weights, named)
        if not isinstance(strict, bool):
            raise ParameterError.expected("strict", strict, "True or False")
        with self._lock:
            found = self._settled().take(named, y, briefs(y), w, time, strict=strict)
            self._score(named, y, found)
            return found

    def amend(self, id: Id, outcome: ArrayLike) -> None:  # noqa: A002
        """Keep another outcome of a round that has one: in `history`. What was learned and scored stays as it is.

        Parameters
        ----------
        id
            The round's, which must be remembered.
        outcome
            The outcome as it is known now. The same again changes nothing.
        """
        named = read_id(id)
        (last,) = briefs(outcome_of(self.space, outcome, named)[None])
        with self._lock:
            self._settled().amend(named, last)

    def history(self, id: Id) -> Array:  # noqa: A002
        """Return the outcome of a round and what it was amended to, `(n, dim)`, in order of arrival."""
        named = read_id(id)
        with self._lock:
            return np.array([whole(each, self.space.dim) for each in self._settled().outcomes(named)])

    def expire(self, now: float) -> list[Id]:
        """Let it be so late; return the ids that are void since then.

        Parameters
        ----------
        now
            What time it is.
        """
        time = read_time("now", now)
        with self._lock:
            return self._settled().pass_time(time)

    def set_clock(self, now: float) -> None:
        """Let it be this time, also if that is before `late.now`: after a wrong `now`. What is void stays void.

        Parameters
        ----------
        now
            What time it is.
        """
        time = read_time("now", now)
        if time is None:
            raise ParameterError.expected("now", now, "a finite number")
        with self._lock:
            self._settled().set_time(time)

    def _finish(self) -> None:
        self._rounds.settle()

    def _settled(self) -> Rounds:
        """Return the rounds, with all done that was begun."""
        self._rounds.settle()
        return self._rounds

    def _scored(self) -> list[Corrector]:
        """Return the correctors that keep the scores."""
        rounds = self._settled()
        if isinstance(rounds.front, Corrector):
            return [rounds.front]
        if rounds.pool is None or not isinstance(self._thing, Corrector):
            raise UnsupportedError("forecasters have no report.", hint="ledger has all errors.")
        return [copy for copy in rounds.pool.copies if isinstance(copy, Corrector) and copy.rounds] or [self._thing]

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {"thing": self._thing, "limit": self.limit, "ledger": self._keeps}

    def get_state(self) -> Saved:
        """Return the state, pending rounds included: arrays, JSON values, and dictionaries of them."""
        with self._lock:
            state = state_of(self._settled())
            revised = self._revisions.state(self._rounds.pending)
            awaited = bool(revised["opened"]) and isinstance(self._rounds.front, Watched)
            return state | {"revisions": revised} if self._revisions or awaited else state

    def set_state(self, state: Saved) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `TreeCalError` and changes nothing."""
        with self._lock:
            own = dict(state) if isinstance(state, Mapping) else state
            given = own.pop("revisions", None) if isinstance(own, dict) else None
            rounds = resumed(self._settled(), own)
            fresh = Revisions(self.space)
            revisions = fresh if given is None else fresh.resumed(given, rounds.pending)
            vars(self).update(_rounds=rounds, _revisions=revisions)

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        return f"Late({self._thing!r}{limit}{', ledger=False' * (not self._keeps)})"


def _check_due(due: float | None, *times: float | None) -> None:
    known = [time for time in times if time is not None]
    if due is not None and not known:
        raise ParameterError("due= needs the current time.", hint="pass now=.")
    if due is not None and due < max(known):
        hint = "if the clock is wrong, set_clock(now) sets it back."
        raise ParameterError.expected("due", due, f"{max(known):.15g}, which is now, or later", hint=hint)
