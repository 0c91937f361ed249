"""Monitor: evidence against forecasts, outcome by outcome, and an alarm when it is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from threading import RLock
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import Configured, Entries, Locked, check_count, check_names, check_number
from treecal._typing import Array, Saved
from treecal._validate import finite_array, positive_number
from treecal.correctors import Group, one_each, read_name, saved_names
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import checked_space
from treecal.geometry import (
    ROUNDING,
    Cdf,
    ConvexSet,
    checked_tolerance,
    read_forecast,
    read_forecast_rows,
    read_outcome,
    read_outcome_rows,
)
from treecal.monitor._alarm import Alarm, alarm_state, checked_alarm, read_alarm
from treecal.monitor._bets import MOST, Evidence, evidence_of, evidence_schema, family, fresh, read_columns, stacked
from treecal.monitor._kernels import watch
from treecal.monitor._levels import levels_of, read_levels

_LEAST_ALPHA = 1e-200
_MOST_ARL = 1e200
_CHUNK = 1 << 16  # rounds that are learned at once, so that Ctrl-C is heard


def _probability(given: Any) -> float:
    """Return the least probability with which a row is labelled, or raise."""
    found = positive_number("least_probability", given)
    if found > 1:
        raise ParameterError.expected("least_probability", given, "a probability above 0")
    return found


class _Now(NamedTuple):
    """What has been learned, all but the groups."""

    rounds: int
    peak: float
    alarm: Alarm | None
    evidence: Evidence


class Monitor(Locked, Configured):
    """Watches forecasts, and raises an alarm when they are provably off: false alarms at most `alpha`, for ever.

    The null hypothesis is that each forecast `p` is the law of its outcome, given everything before it; for outcomes
    that are points, its mean. Against it stands an *e-value*: a number that starts at 1, and if the null is true ever
    reaches `1/alpha` with probability `alpha` at most, however often one looks (Ville's inequality). It is the average
    of many bets, each of which gains where the forecasts have one error: logits too large by a factor, the probability
    of one class too low by so many logits, the base rates, the confidence at some level. And it is the average over all
    rounds in which an error may have begun, the `k`-th with weight `1/(k(k+1))`, so that a model that fails after a
    long good stretch is found out soon.

    On a simplex a bet multiplies its capital by `q(y)/p(y)`, `q` another forecast, so that an outcome with a
    probability of 0 is proof: the alarm comes at once. On other sets a bet is `1 + ⟨λ, y − p⟩`. Of a forecast that is a
    distribution over points the mean is watched.

    *Late outcomes.* Outcomes count in the order of `update`, and the null is about that order: `p` is the law of `y`
    given all outcomes that *arrived* before `y` did. That is more than the law given what was known when `p` was
    announced. It holds where outcomes are independent given the forecasts; it does not where an outcome says something
    about another that was open at the same time, or where the delay depends on the outcome: if fraud is reported at
    once and the absence of fraud after a month, what arrives early is fraud. Then pass the outcomes in the order of
    their forecasts, once all of them are there. `treecal.monitor.Watched` gives rounds ids, by `tc.Late`.

    *Groups.* With `by_group=True` half of `alpha` watches the whole stream, and half the groups, each by itself: the
    `j`-th one to appear has the share `1/(j(j+1))` of it. `e_value` is then the largest of the parts, each times its
    share. Which groups are off, of many, is a question for `discoveries(monitor.e_values)`.

    *Few labels.* If only some rows get an outcome, each drawn with a known probability, pass these outcomes alone, with
    `probability=`, and set `least_probability` to the least there is. Then the null may be that `p` is the law of `y`
    given `p` and the past alone, also if rows are drawn for what else is known of them, such as a judge's doubts: each
    bet's factor `f` becomes `1 + (least_probability/probability)·(f − 1)`, whose expectation over draw and outcome is 1
    at most. Rows without an outcome multiply by 1, so there is nothing to learn of them. Equal probabilities cost
    nothing; of others the alarm is later the more they differ. Labels that people chose have no probability, and then
    an alarm may be about how they chose.

    *Revisions.* Forecasts of one event that are right each time are a martingale: each is the mean of the next. So a
    revised forecast counts as the outcome of the one before it, by `revise`, and may convict before there is any
    outcome: movements that revert, of forecasts that are too sure; those that run on, of forecasts that are not sure
    enough (`Alarm.movement`). The prices of a market are revisions, too. Of several events at once, what holds for late
    outcomes holds: the null is about the order in which movements arrive, and where events depend on each other it is
    more than each chain of forecasts being right.

    E-values of two parts of *one* stream cannot be merged: evidence is a product in order. Those of different streams
    may be averaged, whatever their dependence.

    *Numbers.* On a `tc.Cdf` the bets are on `F(y)`, which is uniform if the forecasts are right: that outcomes lie too
    high or low, in the tails or the middle, inside central intervals or below single quantiles too often or too rarely.
    What is known of `F(y)` is an interval: of values at thresholds the cell of the outcome; of quantiles the two levels
    between which it lies, so that nothing else is tested; of `n` members one of `n + 1` gaps that are as likely. A bet
    pays its mean over the interval, as if the level were drawn and forgotten, and where an outcome equals a quantile or
    a member the least that it might: so e-values stay e-values. An outcome that the forecast excludes is proof.

    Takes `O(dim)` a round, and memory that does not grow, but by `O(dim)` for each group.

    Parameters
    ----------
    space
        The set that outcomes lie in.
    alpha
        The probability of a false alarm, over the whole stream, between 1e-200 and 1.
    arl
        Another kind of alarm in place of that of `alpha`, which is then not used: all starts count alike (Shiryaev and
        Roberts), and if the forecasts are right the *average* number of rounds to the first alarm is at least `arl`. It
        is quicker where a change comes late, and **it is not a bound on the probability of ever giving a false
        alarm**: in a stream that is long enough there will be one.
    by_group
        Whether to watch each group of rounds by itself as well.
    least_probability
        Where few rows are labelled: the least probability with which one is drawn.
    tolerance
        How far from the simplex a forecast may be, as rounding leaves it; it is then renormalised.

    Examples
    --------
    A model that is right for 1,000 rounds, and then three times as sure as it should be.

    >>> import numpy as np
    >>> import treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> m = tc.Monitor(tc.Simplex(classes=["dry", "wet"]), alpha=0.01)
    >>> for t in range(2000):
    ...     z = rng.normal()
    ...     wet = rng.random() < 1 / (1 + np.exp(-z))
    ...     p = 1 / (1 + np.exp(-z if t < 1000 else -3 * z))
    ...     m.update([1 - p, p], "wet" if wet else "dry")
    >>> print(m.alarm)  # doctest: +NORMALIZE_WHITESPACE
    alarm after round 1,094, since about round 999: forecasts are too sure: a temperature of about 2.8, by 0.187 on
    average (evidence 891 to 1)

    References
    ----------
    Ville, "Étude critique de la notion de collectif", 1939.
    Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023.
    Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", 2024.
    """

    _fields = ("space", "alpha", "arl", "by_group", "least_probability", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        *,
        alpha: float = 0.05,
        arl: float | None = None,
        by_group: bool = False,
        least_probability: float | None = None,
        tolerance: float = ROUNDING,
    ) -> None:
        self.space = checked_space(space)
        self.alpha = positive_number("alpha", alpha)
        if not _LEAST_ALPHA <= self.alpha < 1:
            raise ParameterError.expected("alpha", alpha, f"between {_LEAST_ALPHA:g} and 1")
        self.arl = None if arl is None else positive_number("arl", arl)
        if self.arl is not None and not 1 <= self.arl <= _MOST_ARL:
            raise ParameterError.expected("arl", arl, f"a number of rounds, from 1 to {_MOST_ARL:g}")
        if not isinstance(by_group, bool):
            raise ParameterError.expected("by_group", by_group, "True or False")
        self.by_group = by_group
        self.least_probability = None if least_probability is None else _probability(least_probability)
        self.tolerance = checked_tolerance(tolerance)
        self._family = family(space, restarts=self.arl is not None)
        self._schema = evidence_schema(self._family)
        self._now = self._new()
        self._groups: Entries[Group, Evidence] = Entries()
        self._lock = RLock()

    def _new(self) -> _Now:
        return _Now(0, 0.0 if self.arl is not None else 0.5 if self.by_group else 1.0, None, fresh(self._schema))

    @property
    def threshold(self) -> float:
        """What `statistic` must reach for an alarm: `1/alpha`, or `arl`."""
        return 1 / self.alpha if self.arl is None else self.arl

    @property
    def rounds(self) -> int:
        """Number of outcomes learned."""
        return self._now.rounds

    @property
    def alarm(self) -> Alarm | None:
        """The first alarm, with what convicts the forecasts; None before. It stays until `reset`."""
        return self._now.alarm

    @property
    def statistic(self) -> float:
        """The evidence now: the e-value; with `arl`, the statistic of Shiryaev and Roberts, which is none."""
        with self._lock:
            own = float(self._now.evidence.values(self._family.table)[0])
            if not self.by_group:
                return own
            values = self._group_values()
            return max([own / 2, *(self._scale(j) * value for j, value in enumerate(values))])

    @property
    def e_value(self) -> float:
        """The e-value now: how many times the bets against the forecasts have multiplied their money."""
        self._check_kind()
        return self.statistic

    @property
    def peak(self) -> float:
        """The largest that `statistic` has been: enough for an alarm, but as evidence quote the e-value of a moment."""
        return self._now.peak

    @property
    def e_values(self) -> dict[Group, float]:
        """The e-value of each group, by itself: for `discoveries`."""
        self._check_kind()
        with self._lock:
            return dict(zip(self._groups.read(), self._group_values(), strict=True))

    def _check_kind(self) -> None:
        if self.arl is not None:
            hint = "statistic and threshold are what is compared; alpha= in place of arl= gives e-values."
            raise UnsupportedError("with arl there is no e-value.", hint=hint)

    def _group_values(self) -> list[float]:
        groups = list(self._groups.read().values())
        if not groups:
            return []
        return [float(value) for value in stacked(groups).values(self._family.table)]

    def _scale(self, place: int) -> float:
        """Return the share of the group that appeared at this place, from 0 on."""
        return 0.5 / ((place + 1) * (place + 2))

    def update(
        self,
        forecast: ArrayLike | Forecast | Mapping[Any, Any],
        outcome: ArrayLike,
        *,
        group: Group = None,
        probability: float | None = None,
    ) -> None:
        """Learn a forecast and its outcome. What is invalid raises a `TreeCalError` and changes nothing.

        Parameters
        ----------
        forecast
            A point of the set: the probability of each class. Of a `Forecast`, its mean. Of numbers, any form of
            forecast that a `tc.Cdf` takes.
        outcome
            A point of the set; on a simplex also a class, by its index or name.
        group
            With `by_group`, the name of the group: text, a number, or a tuple of them. None for no group.
        probability
            With `least_probability`, that with which this row was drawn to be labelled.
        """
        given = forecast.mean if isinstance(forecast, Forecast) else forecast
        number = self._now.rounds + 1
        if isinstance(self.space, Cdf):
            one: Any = {name: [entry] for name, entry in given.items()} if isinstance(given, Mapping) else [given]
            self.update_many(
                one,
                [outcome],
                groups=None if group is None else [group],
                probabilities=None if probability is None else [probability],
            )
            return
        b = read_forecast(self.space, given, number, self.tolerance)
        y = read_outcome(self.space, outcome, number)
        names = None if group is None else [self._checked_group(group)]
        stakes = self._stakes(1, None if probability is None else [probability])
        with self._lock:
            self._learn(np.array([b]), np.array([y]), names, stakes)

    def revise(self, before: ArrayLike | Forecast, after: ArrayLike | Forecast, *, group: Group = None) -> None:
        """Learn that a forecast of an event was revised. What is invalid raises a `TreeCalError` and changes nothing.

        The last forecast of the event meets its outcome by `update`.

        Parameters
        ----------
        before, after
            The forecast as it was, and as it is now.
        group
            As for `update`.

        Examples
        --------
        Forecasts that swing too far, of questions of which none is resolved yet:

        >>> import numpy as np
        >>> import treecal as tc
        >>> rng = np.random.default_rng(0)
        >>> m = tc.Monitor(tc.Simplex(2), alpha=0.01)
        >>> for question in range(200):
        ...     logit = np.cumsum(rng.choice([-1, 1]) * 0.125 + rng.normal(size=9) / 2)
        ...     p = 1 / (1 + np.exp(-3 * logit))
        ...     for before, after in zip(p[:-1], p[1:]):
        ...         m.revise([1 - before, before], [1 - after, after])
        >>> m.alarm.direction, m.alarm.movement
        ('too sure', 'reverts')
        """
        if isinstance(self.space, Cdf):
            hint = "that the median, say, is revised without bias: a Monitor on tc.Box(low, high)."
            raise UnsupportedError("the bets on numbers need outcomes, and a revised forecast is none.", hint=hint)
        given = after.mean if isinstance(after, Forecast) else after
        point = read_forecast(self.space, given, self._now.rounds + 1, self.tolerance)
        self.update(before, point, group=group)

    def update_many(
        self,
        forecasts: ArrayLike | Sequence[Forecast] | Mapping[Any, Any],
        outcomes: ArrayLike | Sequence[Any],
        *,
        groups: Sequence[Group] | None = None,
        probabilities: ArrayLike | None = None,
    ) -> None:
        """Learn forecasts and their outcomes, in order, as `update` in a loop does. All are checked before the first.

        Parameters
        ----------
        forecasts
            Points, `(n, dim)`, or `Forecast`s; of numbers, a table in any form that a `tc.Cdf` takes.
        outcomes
            Points, `(n, dim)`, or classes, `(n,)`.
        groups
            With `by_group`, the group of each.
        probabilities
            With `least_probability`, that with which each row was drawn to be labelled.
        """
        if isinstance(forecasts, list | tuple) and any(isinstance(x, Forecast) for x in forecasts):
            forecasts = [x.mean if isinstance(x, Forecast) else x for x in forecasts]
        before = self._now.rounds
        if isinstance(self.space, Cdf):
            P, Y = read_levels(self.space, forecasts, outcomes, before=before, tolerance=self.tolerance)
            one_each("outcomes", outcomes, len(P))
            self._learn_all(P, Y, self._checked_groups(groups, len(P)), self._stakes(len(P), probabilities))
            return
        P = read_forecast_rows(self.space, forecasts, before=before, tolerance=self.tolerance)
        Y = read_outcome_rows(self.space, outcomes, before=before)
        one_each("outcomes", Y, len(P))
        self.learn_valid(P, Y, self._checked_groups(groups, len(P)), self._stakes(len(P), probabilities))

    def _checked_groups(self, groups: Sequence[Group] | None, count: int) -> list[Group] | None:
        one_each("groups", groups, count)
        return None if groups is None else [None if name is None else self._checked_group(name) for name in groups]

    def learn_valid(self, P: Array, Y: Array, groups: list[Group] | None, stakes: Array | None = None) -> None:
        """Learn rounds, in order, that were checked before.

        Parameters
        ----------
        P, Y
            Forecasts and outcomes, `(n, dim)`.
        groups
            The group of each, if the monitor has groups.
        stakes
            The share of its capital that each bet stakes; by default that of rows that are sure to be labelled.
        """
        stakes = self._stakes(len(P), None) if stakes is None else stakes
        self._learn_all(*self._rows(P, Y), groups, stakes)

    def _rows(self, P: Array, Y: Array) -> tuple[Array, Array]:
        """Return forecasts and outcomes as the bets take them: of numbers, the levels of the outcomes."""
        return levels_of(self.space, P, Y) if isinstance(self.space, Cdf) else (P, Y)

    def _learn_all(self, P: Array, Y: Array, groups: list[Group] | None, stakes: Array) -> None:
        with self._lock:
            for at in range(0, len(P), _CHUNK):
                part = slice(at, at + _CHUNK)
                self._learn(P[part], Y[part], None if groups is None else groups[part], stakes[part])

    def _stakes(self, count: int, probabilities: ArrayLike | None) -> Array:
        """Return the share of its capital that each bet stakes in each round."""
        least = 1.0 if self.least_probability is None else self.least_probability
        if probabilities is None:
            return np.full(count, least)
        if self.least_probability is None:
            hint = "make it with least_probability=, the least with which a row is drawn."
            raise UnsupportedError("the monitor does not know how few rows are labelled.", hint=hint)
        found = finite_array("probabilities", probabilities, ndim=1)
        one_each("probabilities", found, count)
        for each in found[(found < least) | (found > 1)][:1].tolist():
            raise ParameterError.expected("probability", each, f"from least_probability, {least:g}, to 1")
        return np.asarray(least / found)

    def _checked_group(self, group: Any) -> Group:
        if not self.by_group:
            raise UnsupportedError("the monitor knows no groups.", hint="make it with by_group=True.")
        return read_name(group)

    def _learn(self, P: Array, Y: Array, names: list[Group] | None, stakes: Array) -> None:
        now, changed = self._after(P, Y, names, stakes)
        vars(self).update(_now=now, _groups=changed)  # at once: an interrupt leaves the rounds learned or not

    def _after(
        self, P: Array, Y: Array, names: list[Group] | None, stakes: Array
    ) -> tuple[_Now, Entries[Group, Evidence]]:
        """Return what is known after some rounds, and the evidence of the groups."""
        P, Y = (rows if rows.flags.writeable else rows.copy() for rows in (P, Y))  # so that one kernel is compiled
        table = self._family.table
        known = self._groups.read()
        rounds, peak, alarm, own = self._now
        met = dict.fromkeys(name for name in names or () if name is not None)
        places = {name: j for j, name in enumerate([*known, *(name for name in met if name not in known)])}
        scales = np.array([0.5 if self.by_group else 1.0, *(self._scale(places[name]) for name in met)])
        e = own.of(...)
        rows = np.zeros(len(P), np.int64)
        if met:
            e = stacked([own, *(known.get(name) or fresh(self._schema) for name in met)])
            index = {name: r for r, name in enumerate(met, 1)}
            rows = np.array([0 if name is None else index[name] for name in names or ()], np.int64)
        at = 0
        marks = np.array([rounds, peak, self.threshold if alarm is None else np.inf])
        while at < len(P):
            at += watch.for_rows(len(P))(table, e, P[at:], Y[at:], rows[at:], stakes[at:], scales, marks)
            if alarm is None and marks[1] >= self.threshold:
                r = rows[at - 1]
                values = scales[[0, r]] * e.values(table)[[0, r]]
                r = r if values[1] > values[0] else 0
                alarm = read_alarm(
                    self._family,
                    self.space,
                    e.cells[r],
                    e.learned[r],
                    number=int(marks[0]),
                    value=float(max(values)),
                    group=list(met)[r - 1] if r else None,
                )
                marks[2] = np.inf
        now = _Now(rounds + len(P), float(marks[1]), alarm, e.of([0]) if met else e)
        return now, self._groups.after({name: e.of([r]) for r, name in enumerate(met, 1)})

    def _learned(self, P: Array, Y: Array, names: Sequence[Group] | None) -> Self:
        """Return a monitor that has learned rounds: for what is made of one."""
        rows = self._rows(P, Y)
        now, changed = self._after(*rows, None if names is None else list(names), self._stakes(len(P), None))
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), _now=now, _groups=changed, _lock=RLock())
        return twin

    def reset(self) -> None:
        """Begin anew, as after an alarm that was seen to: a new stream, with a new `alpha` of its own."""
        with self._lock:
            vars(self).update(_now=self._new(), _groups=Entries())

    def get_state(self) -> Saved:
        """Return a copy of the state: arrays, JSON values, and dictionaries of them."""
        with self._lock:
            names = list(self._groups.read())
            now = self._now
            parts = list(self._groups.read().values())
            return {
                "rounds": now.rounds,
                "peak": now.peak,
                "alarm": alarm_state(now.alarm, names),
                "evidence": now.evidence.of(...)._asdict(),
                "names": deepcopy(names),
                "groups": (stacked(parts) if parts else now.evidence.of([]))._asdict(),
            }

    def set_state(self, state: Saved) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `TreeCalError` and changes nothing."""
        check_names("the state", state, ("rounds", "peak", "alarm", "evidence", "names", "groups"))
        rounds = state["rounds"]
        check_count("rounds", rounds)
        names = saved_names(state["names"])
        if None in names or (names and not self.by_group):
            raise SnapshotError("the names of the groups are not distinct, or there should be none.")
        own, groups = (evidence_of(read_columns(self._schema, state[name])) for name in ("evidence", "groups"))
        alike = own.rounds.tolist() == [rounds] and len(groups.rounds) == len(names)
        if not alike:
            raise SnapshotError(f"the evidence is not that of {rounds} rounds.")
        check_number("the peak", state["peak"], least=0.0, most=2 * MOST)
        alarm = None
        if state["alarm"] != {}:
            alarm = checked_alarm(state["alarm"], names, rounds=rounds, threshold=self.threshold)
        now = _Now(int(rounds), float(state["peak"]), alarm, own)
        with self._lock:
            vars(self).update(_now=now, _groups=Entries({name: groups.of([r]) for r, name in enumerate(names)}))

    def __repr__(self) -> str:
        kind = f"alpha={self.alpha:g}" if self.arl is None else f"arl={self.arl:g}"
        found = f"e-value {self.e_value:.3g}" if self.arl is None else f"statistic {self.statistic:.3g}"
        alarm = "" if self.alarm is None else f", alarm after {self.alarm.round:,}"
        return f"Monitor({self.space!r}, {kind}: {self.rounds:,} rounds, {found}{alarm})"
