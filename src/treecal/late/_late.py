"""Late: any forecaster or corrector, with outcomes by id, when they come."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.correctors import Correction, Corrector
from treecal.correctors._batch import Group, one_each, read_weights
from treecal.exceptions import IdError, ParameterError, UnsupportedError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Norm
from treecal.geometry._outcomes import read_outcome
from treecal.late._desk import Desk
from treecal.late._merged import merged_report
from treecal.late._pool import Thing
from treecal.late._rounds import Counts, Id, read_id, read_time, whole
from treecal.late._snapshot import resumed, state_of
from treecal.ledger import Ledger
from treecal.theory import Certificate


class Late:
    """Outcomes by id: late, out of order, many at once, amended, or never. Around any forecaster or corrector.

    `predict(b, id=...)` announces a forecast and opens a round, `update(id, y)` learns its outcome whenever it comes.
    What is scored is what was announced then. Asked again under the same id for the same, it announces the same.

    **Correctors** (and `Tracker`, `RunningMean`) learn each outcome when it comes: the state is, bit for bit, that of
    learning the pairs in the order of arrival. **Forecasters and correctors with a certificate** need each outcome
    before the next forecast, so there is a pool of copies (Joulani, György and Szepesvári 2013): a forecast is asked of
    a copy that waits for no outcome, the one with most rounds, or of a new one. Each copy sees its own rounds in order,
    and the total error is at most `Σ_c U(n_c)`: see `certificate`. Of `Guarded` and `GuardedCorrector` the copies share
    what is under guard, which learns every outcome when it comes.

    An outcome that comes after `due`, or never, is not learned: the round is void, and counted. Time is what `now`
    says, in the unit of `due`; there is no other clock, and it never goes back. Beyond `limit` rounds that wait, the
    oldest is void. The ids of the last 100,000 closed rounds are remembered, so memory is bounded where `limit` is.

    An amended outcome is kept as history. The first one stands, in what was learned and in all scores.

    Invalid input, an unknown id, a second outcome: an error, and nothing has changed. Several threads may use it; one
    call runs at a time. An interrupt leaves a round learned or not.

    Parameters
    ----------
    thing
        A forecaster or corrector, of which a copy is played; it must be new if it is one to make a pool of.
    limit
        The most rounds that may wait.
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
        self._thing, self._keeps = deepcopy(thing), ledger
        self._desk = Desk(self._thing, limit=self.limit, ledger=ledger)
        self._lock = RLock()

    @property
    def thing(self) -> Thing:
        """What is played, if it learns outcomes as they come; otherwise a new one, such as the copies were."""
        desk = self._desk
        return desk.front if desk.pool is None and desk.front is not None else self._thing

    @property
    def rounds(self) -> int:
        """Number of outcomes learned."""
        return self.counts.learned

    @property
    def void(self) -> int:
        """Number of rounds that were given up: due before their outcomes came, or beyond the limit."""
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
    def now(self) -> float | None:
        """The latest time that was given; None before the first."""
        return self._desk.time

    @property
    def copies(self) -> int:
        """Number of copies in the pool: as many as rounds ever waited at once; 0 where none are needed."""
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
        self, norm: Norm | str, *, rounds: int | None = None, outstanding: int | None = None
    ) -> Certificate | None:
        """Return the bound on the error per round that holds whatever the outcomes and delays; None where none does.

        Void rounds have no outcome, and no error.

        Parameters
        ----------
        norm
            The norm of the error.
        rounds
            For so many rounds, from the first; by default for those learned so far, with the copies that learned them:
            `Σ_c U(n_c)/n`.
        outstanding
            The most rounds that will ever wait at once; by default the limit. Only with `rounds`.
        """
        with self._lock:
            pool = self._settled().pool
            if pool is None:
                return None
            if rounds is None:
                if outstanding is not None:
                    raise ParameterError("outstanding is given, and rounds is not.", hint="pass rounds= as well.")
                return pool.certify(norm)
            most = self.limit if outstanding is None else whole_number("outstanding", outstanding, least=1)
            if most is None:
                hint = "pass outstanding=, or make it with a limit."
                raise ParameterError("it is not known how many rounds may wait.", hint=hint)
            return pool.foresee(norm, whole_number("rounds", rounds, least=1), most)

    def predict(
        self,
        forecast: ArrayLike | None = None,
        *,
        id: Id,  # noqa: A002 # the word of those who have one
        due: float | None = None,
        group: Group = None,
        now: float | None = None,
    ) -> Forecast:
        """Open a round and return the forecast to announce; under an id that waits, what was announced.

        Parameters
        ----------
        forecast
            For correctors: the forecast to correct.
        id
            Text or an integer: the name of the round. Another forecast or group under it is an error. Another `due` is
            not: the first one stands.
        due
            The last moment at which the outcome counts.
        group
            For correctors with groups, what is known of the round.
        now
            What time it is.
        """
        named, last, time = read_id(id), read_time("due", due), read_time("now", now)
        b = self._read(forecast, group)
        with self._lock:
            desk = self._settled()
            if (known := self._repeated(desk, named, b, group)) is not None:
                return known
            _check_due(last, desk.time, time)
            desk.pass_time(time)
            return desk.open(named, b, group, last)

    def predict_many(
        self,
        forecasts: ArrayLike | None = None,
        *,
        ids: Sequence[Id],
        due: float | None = None,
        groups: Sequence[Group] | None = None,
        now: float | None = None,
    ) -> Array:
        """Open many rounds, in order, as `predict` in a loop does; return the means announced, `(n, dim)`.

        All rows are checked before the first is opened.

        Parameters
        ----------
        forecasts
            For correctors: the forecasts, `(n, dim)`.
        ids
            Their ids.
        due, now
            As for `predict`, for all of them.
        groups
            The group of each.
        """
        named, last, time = [read_id(each) for each in ids], read_time("due", due), read_time("now", now)
        rows: Any = [None] * len(named) if forecasts is None else forecasts
        one_each("ids", named, len(rows))
        names = [None] * len(named) if groups is None else list(one_each("groups", groups, len(named)))
        points = [self._read(b, group) for b, group in zip(rows, names, strict=True)]
        _distinct(named)
        with self._lock:
            desk, means = self._settled(), np.empty((len(named), self.space.dim))
            known = [self._repeated(desk, *each) for each in zip(named, points, names, strict=True)]
            _check_due(last, desk.time, time)
            desk.pass_time(time)
            for i, x in enumerate(known):
                means[i] = (desk.open(named[i], points[i], names[i], last) if x is None else x).mean
            return means

    def update(self, id: Id, outcome: ArrayLike, *, weight: float = 1.0, now: float | None = None) -> None:  # noqa: A002
        """Learn the outcome of a round.

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
        self.update_many([id], [outcome], weights=[weight], now=now)

    def update_many(
        self,
        ids: Sequence[Id],
        outcomes: ArrayLike | Sequence[Any],
        *,
        weights: Sequence[float] | ArrayLike | None = None,
        now: float | None = None,
    ) -> None:
        """Learn the outcomes of many rounds, in this order. All are checked before the first is learned.

        Parameters
        ----------
        ids
            The rounds'; none of them twice.
        outcomes, weights, now
            As for `update`: one outcome and one weight for each id.
        """
        named, time, rows = [read_id(each) for each in ids], read_time("now", now), list(outcomes)  # type: ignore[arg-type]
        one_each("outcomes", rows, len(named))
        read = read_weights(weights, len(named), self.rounds)
        w = [1.0] * len(named) if read is None else read.tolist()
        for weight in w:
            self._check_weight(weight)
        _distinct(named)
        with self._lock:
            desk = self._settled()
            y = [read_outcome(self.space, row, desk.counts.learned + i) for i, row in enumerate(rows, 1)]
            for _ in range(2):  # before the time has passed and after it
                for each, outcome in zip(named, y, strict=True):
                    desk.expect(each, outcome)
                desk.pass_time(time)
            desk.learn(named, y, w)

    def amend(self, id: Id, outcome: ArrayLike) -> None:  # noqa: A002
        """Keep another outcome of a round that has one: in `history`. What was learned and scored stays as it is.

        Parameters
        ----------
        id
            The round's, which must be remembered.
        outcome
            The outcome as it is known now. The same again changes nothing.
        """
        named, y = read_id(id), read_outcome(self.space, outcome, self.rounds)
        with self._lock:
            self._settled().amend(named, y)

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

    def _settled(self) -> Desk:
        """Return the desk, with all done that was begun."""
        self._desk.settle()
        return self._desk

    def _scored(self) -> list[Corrector]:
        """Return the correctors that keep the scores."""
        desk = self._settled()
        if isinstance(desk.front, Corrector):
            return [desk.front]
        if desk.pool is None or not isinstance(self._thing, Corrector):
            raise UnsupportedError("forecasters have no report.", hint="ledger has all errors.")
        return [copy for copy in desk.pool.copies if isinstance(copy, Corrector) and copy.rounds] or [self._thing]

    def _read(self, forecast: Any, group: Group) -> Array | None:
        """Return the forecast to correct, or raise."""
        thing = self._thing
        if isinstance(thing, Corrector):
            if forecast is None:
                raise ParameterError("there is no forecast to correct.", hint="predict(b, id=...).")
            thing._check_given(group, 1.0)
            return thing._read(forecast)
        if forecast is not None or group is not None:
            raise ParameterError("a forecaster takes no forecast and no group.", hint="predict(id=...).")
        return None

    def _repeated(self, desk: Desk, named: Id, b: Array | None, group: Group) -> Forecast | None:
        """Return what was announced under this id, None if nothing was; raise if that was for something else."""
        if named in desk.closed:
            raise IdError.of(named, "taken", "was used before, and its round is closed.", hint="use an id once.")
        if (waiting := desk.pending.get(named)) is None:
            return None
        known = waiting.forecast
        if waiting.group != group or not (b is None or known is None or np.array_equal(b, known)):
            raise IdError.of(named, "taken", "awaits the outcome of another forecast.", hint="use an id once.")
        return waiting.announced

    def _check_weight(self, weight: float) -> None:
        if isinstance(self._thing, Corrector):
            self._thing._check_given(None, weight)
        elif weight != 1.0:
            raise UnsupportedError("forecasters know no weights: their rounds count alike.")

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {"thing": self._thing, "limit": self.limit, "ledger": self._keeps}

    def get_state(self) -> dict[str, Any]:
        """Return the state, pending rounds included: arrays, JSON values, and dictionaries of them."""
        with self._lock:
            return state_of(self._settled())

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `TreeCalError` and changes nothing."""
        with self._lock:
            self._desk = resumed(self._settled(), state)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._settled()
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def __copy__(self) -> Self:
        return deepcopy(self)  # a shallow copy would share what changes

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        return f"Late({self._thing!r}{limit}{', ledger=False' * (not self._keeps)})"


def _check_due(due: float | None, *times: float | None) -> None:
    known = [time for time in times if time is not None]
    if due is not None and not known:
        raise ParameterError("due is given, and it is not known what time it is.", hint="pass now= as well.")
    if due is not None and due < max(known):
        raise ParameterError.expected("due", due, f"{max(known):g}, which is now, or later")


def _distinct(ids: list[Id]) -> None:
    if len(set(ids)) < len(ids):
        twice = next(each for i, each in enumerate(ids) if each in ids[:i])
        raise IdError.of(twice, "taken", "appears twice.", hint="use an id once.")
