"""What every corrector does: take a model's forecast, announce a better one, then learn the outcome."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from threading import RLock, get_ident
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Changes
from treecal._validate import sample_weight
from treecal.columns import Streams
from treecal.correctors._batch import Batch, Group, one_each, read_weights
from treecal.correctors._kept import Kept, Opened, checked_opened
from treecal.correctors._names import plain_name, plain_names
from treecal.correctors._scores import Round, Tallies
from treecal.exceptions import (
    ForecastError,
    OutcomeError,
    ParameterError,
    SnapshotError,
    TreeCalError,
    UnsupportedError,
)
from treecal.forecast import Forecast, uniform
from treecal.forecasters import checked_space, register
from treecal.geometry import (
    ConvexSet,
    checked_tolerance,
    frozen,
    read_forecast,
    read_forecast_rows,
    read_outcome,
    read_outcome_rows,
)

Scored = Literal["binned", "exact"]
_AT_ONCE = 2**17  # probabilities of a batch that are learned at a time


class Corrector(Kept):
    """An online corrector: `predict(b)` announces a forecast in place of `b`, `update(y)` learns, round after round.

    `b` is a point of the set: the forecast of a model, a person, a column of a table. Each `predict` opens a round that
    `update` closes. Where outcomes come late or out of order, `tc.Late(corrector)` keeps the rounds apart by an id.

    A subclass defines `_announce` and `_learn`, names its constructor's arguments in `_fields`, and keeps its past in
    `_state`, a dataclass of arrays and numbers. The base class does the rest: it validates forecasts and outcomes,
    copies states in and out, and lets a copy learn, whose state is taken over only if nothing fails or interrupts.
    A class that knows groups or sample weights has the keywords `group` (in `_announce` and `_learn`) or `weight` (in
    `_learn`) in its methods; for others they are refused. Many rounds at once are learned one by one, unless the class
    itself defines a faster way (`_played`, `_announce_many`): it does not inherit one with hooks of its own.

    Several threads may use a corrector. Each has its own open round: `update` closes that of the same thread, or the
    only one there is.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    scores
        What to keep for `report`: "binned" sums, which never grow; "exact" ones as well, in `ledgers`, which hold every
        distinct forecast; or None.
    tolerance
        How far from the simplex a forecast may be, as rounding leaves it; it is then renormalised.

    Examples
    --------
    A corrector that adds the mean of all past errors; `treecal.testing.check_corrector` passes it.

    >>> from dataclasses import dataclass
    >>> from treecal.geometry import Simplex
    >>> @dataclass
    ... class Errors:
    ...     total: np.ndarray
    >>> class Shift(Corrector):
    ...     def __init__(self, space, *, scores="binned", tolerance=1e-6):
    ...         super().__init__(space, scores=scores, tolerance=tolerance)
    ...         self._state = Errors(np.zeros(space.dim))
    ...
    ...     def _announce(self, forecast):
    ...         point = self.space.project(forecast + self._state.total / max(self.rounds, 1))
    ...         return Forecast([point], space=self.space)
    ...
    ...     def _learn(self, forecast, outcome):
    ...         self._state.total += outcome - forecast
    >>> f = Shift(Simplex(2))
    >>> for y in [[1, 0], [1, 0], [0, 1], [1, 0]]:
    ...     x = f.predict([0.5, 0.5])
    ...     f.update(y)
    >>> f.predict([0.5, 0.5]).mean, f.rounds
    (array([0.75, 0.25]), 4)
    """

    _fields: ClassVar[tuple[str, ...]] = ("space", "scores", "tolerance")
    _takes: ClassVar[frozenset[str]] = frozenset()
    """Which of `group` and `weight` the class is given."""
    name: ClassVar[str | None] = None
    """Its name on the command line and in the server. A class that defines a name is in `REGISTRY` under it."""
    _several: ClassVar[bool] = False
    """Whether its forecast of a round is one of each of several models."""
    _state: Any
    space: ConvexSet

    def __init__(self, space: ConvexSet, *, scores: Scored | None = "binned", tolerance: float = 1e-6) -> None:
        self.space = checked_space(space)
        if scores is not None and scores not in get_args(Scored):
            raise ParameterError.expected("scores", scores, "'binned', 'exact' or None")
        self.scores = scores
        self.tolerance = checked_tolerance(tolerance)
        self._tallies = None if scores is None else Tallies(space, exact=scores == "exact")
        self._sums = None if self._tallies is None else self._tallies.new()
        self._rounds = 0
        self._from_logs = 0  # of these, from logs
        self._open: dict[int, Opened] = {}  # by thread
        self._lock = RLock()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        learns = cls._learn if cls._after is Corrector._after else cls._after
        cls._takes = frozenset({"group", "weight"}.intersection(signature(learns).parameters))
        hooks = min(_place(cls, name) for name in ("_announce", "_learn", "_after"))
        for name in ("_played", "_announce_many", "_forecasts"):
            if _place(cls, name) > hooks:  # a faster way of a base class knows nothing of hooks that came later
                setattr(cls, name, getattr(Corrector, name))
        register(REGISTRY, cls)

    @abstractmethod
    def _announce(self, forecast: Array, *args: Any, **given: Any) -> Forecast:
        """Return the forecast to announce in place of this one, without changing the state."""

    def _learn(self, forecast: Array, outcome: Array, *args: Any, **given: Any) -> None:
        """Learn the outcome of this forecast's round (the caller's array: copy it to keep it)."""
        raise NotImplementedError(f"{type(self).__name__} defines neither _learn nor _after")

    def _after(self, forecast: Array, outcome: Array, *args: Any, **given: Any) -> Changes:
        """Return the attributes that differ once the outcome is learned, by name; change nothing.

        A copy finds them by `_learn`. A class whose state is large defines this instead.
        """
        twin = object.__new__(type(self))
        before = dict(vars(self))
        vars(twin).update(before)
        twin._state = deepcopy(self._state)
        twin._learn(forecast, outcome, **given)
        return {name: value for name, value in vars(twin).items() if value is not before.get(name)}

    def _point(self, point: Array) -> Forecast:
        """Return the forecast of one point of the set."""
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield correctors of this class on the set, for the tests; none if the class does not support the set."""
        yield from ()

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return its names in `treecal recalibrate --method`, each with a function that makes it from a set.

        By default that is its `name`, with the class. A function with a parameter `groups` is given the rule of
        `--groups`.
        """
        return {} if cls.name is None else {cls.name: cls}

    def _streams(self) -> Streams | None:
        """Return no streams yet, in arrays, each of which will be a copy of this one; None where objects have to do.

        Banks ask the class that defines it, and none of its subclasses, which may do anything.
        """
        return None

    @property
    def rounds(self) -> int:
        """Number of rounds whose outcomes arrived, those of logs included and whatever their weights."""
        return self._rounds

    @property
    def ordered(self) -> bool:
        """Whether a certificate needs each outcome to be learned before the next forecast is announced."""
        return False

    def predict(self, forecast: ArrayLike | Mapping[Any, Any], *, group: Group = None) -> Forecast:
        """Open a round and return the forecast to announce; the same one for the same input until `update`.

        Another input before `update` is refused: its outcome could not be told from that of the first.

        Parameters
        ----------
        forecast
            The forecast to correct, a point of the set; where the classes have names, perhaps by name.
        group
            What is known of the round beside the forecast, for correctors with groups.
        """
        b = self._read(forecast)
        group = plain_name(group)
        with self._lock:
            self._finish()
            opened = self._open.get(get_ident())
            if opened is not None and (not np.array_equal(opened.forecast, b) or opened.group != group):
                raise self._still_open()
            if opened is None or (self.ordered and opened.rounds != self._rounds):
                opened = self._open[get_ident()] = Opened(self._rounds, b, group, self._announced(b, group))
            return opened.announced

    def _still_open(self) -> ForecastError:
        return ForecastError.at(
            self._rounds + 1,
            "arrived while another one awaits its outcome.",
            hint="for outcomes that come late use tc.Late(corrector); if none will come, call cancel() first.",
        )

    def cancel(self) -> None:
        """Give up the open round: its outcome will not come. Without one, nothing happens."""
        with self._lock, suppress(OutcomeError):
            self._open = self._without(self._awaiting())

    def update(self, outcome: ArrayLike, *, weight: float = 1.0) -> None:
        """Learn the outcome of the open round. An invalid one raises a `TreeCalError` and changes nothing.

        Parameters
        ----------
        outcome
            A point of the set; on a simplex also a class, by its index or name.
        weight
            How much the round counts, in learning and in scores: 0, not at all, or from 1e-12 to 1e12.
        """
        y = read_outcome(self.space, outcome, self._rounds + 1)
        weight = sample_weight(weight)
        with self._lock:
            self._finish()
            opened = self._awaiting()
            if self.ordered and opened.rounds != self._rounds:
                raise OutcomeError.at(
                    self._rounds + 1,
                    "belongs to a forecast after which another outcome was learned, and the certificate needs order.",
                    hint="call cancel(); where several rounds are open at once, use tc.Late(corrector).",
                )
            self._commit(opened, y, weight, _open=self._without(opened))

    def _without(self, opened: Opened) -> dict[int, Opened]:
        """Return the open rounds but for this one."""
        return {thread: other for thread, other in self._open.items() if other is not opened}

    def learn(
        self,
        forecast: ArrayLike | Mapping[Any, Any],
        outcome: ArrayLike,
        *,
        announced: Forecast | ArrayLike | None = None,
        group: Group = None,
        weight: float = 1.0,
    ) -> None:
        """Learn a forecast and its outcome, whenever it was announced; open rounds stay open.

        Parameters
        ----------
        forecast
            The model's forecast.
        outcome
            What followed.
        announced
            What was announced then, which is what is scored. By default what would be announced now.
        group, weight
            As for `predict` and `update`.
        """
        b = self._read(forecast)
        group = plain_name(group)
        weight = sample_weight(weight)
        y = read_outcome(self.space, outcome, self._rounds + 1)
        with self._lock:
            self._finish()
            self._commit(self._past_round(b, group, announced), y, weight)

    def _past_round(self, forecast: Array, group: Group, announced: Forecast | ArrayLike | None) -> Opened:
        """Return a round whose outcome is here, with what was announced in it."""
        now = None if announced is not None and not self.ordered else self._announced(forecast, group)
        if announced is None and now is not None:
            return Opened(self._rounds, forecast, group, now)
        x = self._read_announced(announced)
        if now is not None and x != now:
            raise ForecastError.at(
                self._rounds + 1,
                "is not what would be announced now, and the certificate holds for rounds in order.",
                hint="use tc.Late(corrector).",
            )
        return Opened(self._rounds, forecast, group, x)

    def predict_many(
        self, forecasts: ArrayLike | Mapping[Any, Any], *, groups: Sequence[Group] | ArrayLike | None = None
    ) -> Array:
        """Return what would be announced now in place of each forecast, as means, `(n, dim)`; no round is opened.

        Parameters
        ----------
        forecasts
            The model's forecasts, `(n, dim)`.
        groups
            The group of each, for correctors with groups: a list, an array or a series.
        """
        P = self._read_many(forecasts)
        names = self._checked_groups(groups, len(P), 1.0)
        with self._lock:
            self._finish()
            return self._announce_many(P, names)

    def _forecasts(self, forecasts: Array, groups: Sequence[Group]) -> list[Forecast]:
        """Return what would be announced now in place of each forecast."""
        return [self._announced(b, group) for b, group in zip(forecasts, groups, strict=True)]

    def _announce_many(self, forecasts: Array, groups: Sequence[Group] | None) -> Array:
        found = [self._announced(b, None if groups is None else groups[i]).mean for i, b in enumerate(forecasts)]
        return np.array(found).reshape(-1, self.space.dim)

    def update_many(
        self,
        forecasts: ArrayLike | Mapping[Any, Any],
        outcomes: ArrayLike | Sequence[Any],
        *,
        announced: Sequence[Forecast] | ArrayLike | None = None,
        groups: Sequence[Group] | ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Array:
        """Learn forecasts and their outcomes in order; return the means of what was announced, `(n, dim)`.

        Without `announced` it is what `predict` and `update` in a loop do, and the result is what they announce; so it
        is refused while a round is open. All rows are checked before the first is learned.

        Parameters
        ----------
        forecasts
            The model's forecasts, `(n, dim)`.
        outcomes
            Their outcomes: points, `(n, dim)`, or classes.
        announced
            What was announced for each, if that was earlier: points, such as `predict_many` gave, or `Forecast`s.
        groups, weights
            Of each, as for `predict` and `update`.
        """
        batch = self._checked_rows(forecasts, outcomes, announced, groups, weights)
        with self._lock:
            self._finish()
            if announced is None and len(batch) and get_ident() in self._open:
                raise self._still_open()
            return self._learn_many(batch)

    def fit(
        self,
        forecasts: ArrayLike | Mapping[Any, Any],
        outcomes: ArrayLike | Sequence[Any],
        *,
        groups: Sequence[Group] | ArrayLike | None = None,
        weights: ArrayLike | None = None,
        in_order: bool = False,
    ) -> Self:
        """Learn from a log before the first round, without scores; from another one, after that. Returns itself.

        The order of the rows does not matter, unless they are in order of time: scalings and
        `IsotonicCalibration` are fitted to all of them, and what learns row by row takes them evenly mixed.

        Parameters
        ----------
        forecasts, outcomes, groups, weights
            As for `update_many`. Rows of weight 0 are left out.
        in_order
            Whether the rows are in order of time: they are learned in this order, and scalings learn whether to forget,
            and what.
        """
        batch = replace(self._checked_rows(forecasts, outcomes, None, groups, weights).counted(), in_order=in_order)
        batch = batch if in_order else batch.sorted().spread()
        with self._lock:
            self._finish()
            if played := self._rounds - self._from_logs:
                raise ParameterError(
                    f"fit comes before the first round, and {played:,} were played.",
                    hint="update_many(P, y) learns more rounds; to start again, fit a new corrector.",
                )
            self._fit(batch)
        return self

    def _fit(self, batch: Batch) -> None:
        """Learn a log: all of it, at once, or in order."""
        for i, (b, y) in enumerate(zip(batch.forecasts, batch.outcomes, strict=True)):
            changes = self._changed(b, y, batch.group(i), batch.weight(i))
            vars(self).update(changes, **self._counted(1))

    def _counted(self, rows: int) -> dict[str, int]:
        """Return the numbers of rounds after a log of so many rows."""
        return {"_rounds": self._rounds + rows, "_from_logs": self._from_logs + rows}

    def _learn_many(self, batch: Batch) -> Array:
        """Learn rounds in order; return the means announced."""
        means = np.empty((len(batch), self.space.dim))
        step = max(1, _AT_ONCE // self.space.dim)
        for at in range(0, len(batch), step):
            part = batch.of(slice(at, at + step))
            means[at : at + step] = self._learn_rows(part)
        return means

    def _learn_rows(self, batch: Batch) -> Array:
        """Learn rounds in order, at once if the class knows how and what is scored are points."""
        exact = self._tallies is not None and bool(self._tallies.ledgers)
        points = batch.points()
        rounds = self._rounds
        at_once = not exact and (batch.announced is None or (points is not None and not self.ordered))
        if at_once and (found := self._played(batch)) is not None:
            means, changes = found if points is None else (points, found[1])
            self._settle()
            if self._tallies is not None and self._sums is not None:
                scored = means[batch.all_weights() > 0]
                changes["_sums"] = self._tallies.after_rows(self._sums, batch.counted(), scored)
            self._check_alone(rounds)
            vars(self).update(changes, _rounds=rounds + len(batch))
            self._finish()
            return means
        means = np.empty((len(batch), self.space.dim))
        for i, (b, y) in enumerate(zip(batch.forecasts, batch.outcomes, strict=True)):
            opened = self._past_round(b, batch.group(i), batch.known(i))
            means[i] = opened.announced.mean
            self._commit(opened, y, batch.weight(i))
        return means

    def _played(self, batch: Batch) -> tuple[Array, Changes] | None:
        """Return the points announced in rounds in order, and the attributes that differ after them, by name.

        It is what `_announce` and `_after` give one by one, bit for bit, only faster; None where there is no such way.
        """
        return None

    def _commit(self, opened: Opened, outcome: Array, weight: float, **also: Any) -> None:
        """Learn a round: all of it, at once. One of weight 0 is counted, and neither learned nor scored."""
        rounds = self._rounds
        if not weight:
            changes = self._passed()
        else:
            changes = self._changed(opened.forecast, outcome, opened.group, weight)
            if self._tallies is not None and self._sums is not None:
                learned = Round(self._scored(opened.forecast), opened.announced, np.array(outcome), weight)
                changes["_sums"] = self._tallies.after(self._sums, learned)
        self._check_alone(rounds)
        vars(self).update(changes, _rounds=rounds + 1, **also)
        self._finish()

    def _check_alone(self, rounds: int) -> None:
        """Raise if there are no longer so many rounds: a signal handler in this thread learned one meanwhile."""
        if self._rounds != rounds:
            raise TreeCalError(
                f"{type(self).__name__} learned another round while it learned this one, which is not learned.",
                hint="let signal handlers and finalizers set a flag, and look at it in the loop.",
            )

    def _passed(self) -> Changes:
        """Return the attributes that differ after a round of weight 0, by name."""
        return {}

    def _scored(self, forecast: Array) -> Array:
        """Return the point that is scored as the model's forecast."""
        return forecast

    def _announced(self, forecast: Array, group: Group) -> Forecast:
        """Return the forecast to announce, on this set."""
        return self._on_space(self._announce(forecast, **self._given(group=group)))

    def _mean(self, forecast: Array) -> Array:
        """Return the mean of what is announced: for those that are made of others."""
        return self._announced(forecast, None).mean

    def _changed(self, forecast: Array, outcome: Array, group: Group, weight: float) -> Changes:
        return self._after(forecast, outcome, **self._given(group=group, weight=weight))

    def _learned(self, forecast: Array, outcome: Array, group: Group = None, weight: float = 1.0) -> Self:
        """Return a corrector, without scores, that has learned a round: for those that are made of others."""
        return self._with(self._changed(forecast, outcome, group, weight), 1)

    def _with(self, changes: Changes, rounds: int) -> Self:
        """Return a corrector, without scores, that differs in some attributes after so many rounds."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), **changes)
        twin._rounds = self._rounds + rounds
        twin._open = {}
        return twin

    def _fitted_to(self, batch: Batch, near: Corrector | None = None) -> Self:
        """Return a copy that has learned a log: for those that are made of others.

        A search may begin at what one like it found in a log like this one.
        """
        twin = deepcopy(self)
        twin._fit(batch)
        return twin

    def _unscored(self) -> Self:
        """Return a copy that keeps no scores: as a part of another corrector, which does."""
        twin = deepcopy(self)
        twin._tallies = None
        twin._sums = None
        twin._open = {}
        return twin

    def _given(self, **given: Any) -> dict[str, Any]:
        """Return those of `group` and `weight` that the class takes; one it does not take must be the usual one."""
        takes = self._takes
        if "group" not in takes and given.pop("group", None) is not None:
            hint = f"tc.ByGroup({type(self).__name__}(space)) keeps one for each group."
            raise UnsupportedError(f"{type(self).__name__} knows no groups.", hint=hint)
        if "weight" not in takes and given.pop("weight", 1.0) != 1.0:
            raise UnsupportedError(f"{type(self).__name__} knows no weights: its rounds count alike.")
        return given

    def _on_space(self, x: Forecast) -> Forecast:
        if x.space is self.space or x.space == self.space:
            return x
        return Forecast(x.points, weights=x.weights, nodes=x.nodes, space=self.space)

    def _read_announced(self, announced: Any) -> Forecast:
        """Return what was announced: a distribution, or one point."""
        if isinstance(announced, Forecast):
            return self._on_space(announced)
        return self._point(frozen(read_forecast(self.space, announced, self._rounds + 1, self.tolerance)))

    def _read(self, forecast: Any) -> Array:
        """Return a forecast as a read-only point of the set, or raise."""
        return frozen(read_forecast(self.space, forecast, self._rounds + 1, self.tolerance))

    def _read_many(self, forecasts: Any) -> Array:
        """Return forecasts as read-only rows, or raise."""
        rows = read_forecast_rows(self.space, forecasts, before=self._rounds, tolerance=self.tolerance)
        rows.setflags(write=False)
        return rows

    def _checked_rows(self, forecasts: Any, outcomes: Any, announced: Any, groups: Any, weights: Any) -> Batch:
        """Return rows to learn, all valid, or raise."""
        P = self._read_many(forecasts)
        Y = read_outcome_rows(self.space, outcomes, before=self._rounds)
        one_each("outcomes", Y, len(P))
        known = None
        if one_each("announced", announced, len(P)) is not None:
            known = [self._read_announced(x) for x in announced]
        w = read_weights(weights, len(P), self._rounds)
        heaviest = 1.0 if w is None or not len(w) else float(w[np.abs(w - 1).argmax()])
        return Batch(P, Y, self._checked_groups(groups, len(P), heaviest), w, known)

    def _checked_groups(self, groups: Any, count: int, weight: float) -> list[Group] | None:
        """Return the groups of so many rows, or raise unless rounds of these groups and this weight can be learned."""
        if one_each("groups", groups, count) is None:
            self._check_given(None, weight)
            return None
        names = plain_names(groups)
        for name in names:
            self._check_given(name, weight)
        return names

    def _check_given(self, group: Group, weight: float) -> None:
        """Raise unless rounds of this group and weight can be learned."""
        self._given(group=group, weight=weight)

    def _checked_open(self, state: Any, rounds: int) -> Opened:
        """Return the open round of a state, or raise."""
        try:
            opened = checked_opened(state, rounds, self.space)
            self._check_given(opened.group, 1.0)
            return opened._replace(forecast=self._read(opened.forecast))
        except (ForecastError, ParameterError, UnsupportedError) as error:
            raise SnapshotError(f"the open round cannot be: {error}") from None

    def _waiting(self) -> Opened | None:
        with suppress(OutcomeError):
            return self._awaiting()
        return None

    def _awaiting(self) -> Opened:
        """Return the round that awaits its outcome."""
        awaiting = self._open
        own = awaiting.get(get_ident())
        if own is not None:
            return own
        if len(awaiting) == 1:
            return next(iter(awaiting.values()))
        if not awaiting:
            hint = "call predict(b) once before each update(y)."
            raise OutcomeError.at(self._rounds + 1, "arrived before its forecast.", hint=hint)
        raise OutcomeError.at(
            self._rounds + 1,
            f"arrived in a thread that made no forecast, and those of {len(awaiting)} others await their outcomes.",
            hint="call predict(b) and update(y) of a round in one thread.",
        )


REGISTRY: dict[str, type[Corrector]] = {}
"""Every corrector that has a name, in the order of their definition."""


def _place(cls: type, name: str) -> int:
    """Return the place, in the order in which attributes are looked up, of the class that defines this one."""
    return next(place for place, base in enumerate(cls.__mro__) if name in vars(base))


def checked_part(name: str, part: Any, expected: str, *, hint: str | None = None) -> Corrector:
    """Return a corrector that can be a part of another one, which gives it one forecast a round; or raise."""
    if not isinstance(part, Corrector):
        raise ParameterError.expected(name, part, expected, hint=hint)
    if part._several:
        raise ParameterError.expected(
            name,
            part,
            f"{expected}, of one model: a {type(part).__name__} takes the forecasts of several",
            hint=f"put it outside: {type(part).__name__}(space, models, corrector=...).",
        )
    return part
