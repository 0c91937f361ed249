"""Tracker: the forecaster of streams that repeat themselves, drift, change abruptly, or have an order or a season."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from treecal._elementary import power
from treecal._states import State, check_array, check_count
from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space, reach
from treecal.geometry import ConvexSet, Simplex

HALF_LIVES = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, np.inf)
SHARE = 0.002
LONGEST = 10**15  # no stream has more rounds
CLASSES = 100  # up to which the laws given the last classes are kept, and seasons looked for

DEPTH = 4  # the most of the last classes that a law is given
ENTRIES = 4096  # the most numbers in the tree of contexts, which bounds its memory
BACKING = 4.0  # outcomes that the law of the shorter context counts for

SHORT = tuple(range(2, 15))  # periods: of a week in days, a year in months or quarters …
LONG = (24, 28, 30, 48, 52, 60, 96, 144, 168, 288, 336, 365)  # … and of days, weeks, months and years in finer steps
CYCLES = 6  # how many periods back a season is looked up
KEPT = 3  # how many of the longest period are kept
FADE = 0.85  # the weight of each beside that of the one after it
FOG = 0.2  # the outcomes that the uniform law counts for
RECENT = 0.003  # the least step of how often a period holds
LONGEST_PERIOD = 10_000
_NONE = np.zeros(0, np.int64)


@dataclass(eq=False)
class Experts(State):
    """What each expert would forecast, and how far it is trusted."""

    rounds: int
    weights: Array
    """Of each expert, with sum 1."""
    means: Array
    """The moving averages, `(half-lives, d)`."""
    sums: Array
    """For each context the sum of the outcomes that followed it, `(contexts, d)`; the first is that of no classes."""
    seen: Array
    """The number of those outcomes."""
    longer: Integers
    """The context that has one more class, farther back, `(contexts, d)`; 0 for none."""
    past: Integers
    """The last classes, each the largest entry of an outcome, that of round `t` in place `t mod` their number."""
    holds: Array
    """For each period how often the class was that of a period before."""


class Tracker(Forecaster):
    """Follows a stream: a mixture of moving averages, laws of order and seasons, trusted by past success.

    Each expert is a rule that suits some streams. Averages with half-lives of 3 to 3,000 rounds and of all rounds; and
    of up to 100 classes the outcomes that followed the last one, two, three or four classes so far, each law filled up
    by that of the shorter context as if by four outcomes; and the outcomes one to six periods ago, with the period
    that held most often of those of 2 to 14 rounds, and of 24 to 365. All start at the set's centre.

    A round multiplies an expert's weight by the probability it gave the outcome `y`, then every expert gets the share
    `γ = 0.002` of the weight in equal parts, so that a change is followed quickly (fixed share). With `N` experts, the
    log score exceeds that of any sequence of experts with `k` changes by at most
    `ln N + k·ln(N/γ) − (T−1−k)·ln(1−γ)`. Where the outcome is not a class, the factor is `1 − ‖y − q‖²/(2D²)`, `D` the
    set's ℓ2 diameter: concave in the forecast `q` too, so the same bound holds for its logarithm.

    A sharp forecaster without a certificate: its points hardly repeat, and an adversary makes its error large.
    `Codebook` makes them repeat, `Guarded` adds the certificate. Costs `O(N·d)` a round, and 50 kB at most for the
    contexts, which are added as they come, up to `4096/d` of them.

    Parameters
    ----------
    space
        The set outcomes lie in.
    period
        The rounds after which the stream repeats itself, where that is known: in place of 24 to 365.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.Tracker(tc.Simplex(2))
    >>> for k in [0, 0, 1, 1] * 25:  # after two classes the next is known
    ...     f.update(np.eye(2)[k])
    >>> f.mean_forecast.round(2)
    array([0.98, 0.02])

    References
    ----------
    Herbster and Warmuth, "Tracking the Best Expert", 1998.
    Willems, Shtarkov and Tjalkens, "The Context-Tree Weighting Method", 1995, for trees of contexts.
    """

    name = "tracker"
    _fields = ("space", "period")
    symmetric = False  # squares are added in the order of coordinates, and of equal ones the first is the class
    ordered = False

    def __init__(self, space: ConvexSet, *, period: int | None = None) -> None:
        self.space = checked_space(space)
        dim, start = space.dim, space.centre
        self.period = None if period is None else whole_number("period", period, least=2)
        self.classes = isinstance(space, Simplex) and dim <= CLASSES
        if self.period is not None and not (self.classes and self.period <= LONGEST_PERIOD):
            raise ParameterError(
                f"period={self.period} is for up to {CLASSES} classes, and up to {LONGEST_PERIOD:,} rounds."
            )
        self._seasons = (SHORT, LONG if self.period is None else (self.period,)) if self.classes else ()
        self._lags = np.array([lag for lags in self._seasons for lag in lags], np.int64)
        self._longest = int(self._lags.max(initial=0))
        self._most = max(dim + 1, ENTRIES // dim) if self.classes else 0  # contexts
        self._rates = np.array([[1 - power(0.5, 1 / each)] for each in HALF_LIVES])
        self._scale = 2 * reach(space, "l2") ** 2
        self._fades = [power(FADE, float(k)) for k in range(CYCLES)]
        self._totals = [*accumulate(self._fades, initial=FOG)]
        experts = len(HALF_LIVES) + (DEPTH + len(self._seasons) if self.classes else 0)
        means = np.tile(start, (len(HALF_LIVES), 1))
        self._asked: tuple[Experts | None, Integers, Array] = None, _NONE, means  # contexts and forecasts of a state
        self._state = Experts(
            0,
            np.full(experts, 1 / experts),
            means,
            np.zeros((0, dim)),
            np.zeros(0),
            np.zeros((0, dim), np.int16),
            np.zeros(KEPT * self._longest, np.uint8),
            np.zeros(len(self._lags)),
        )

    @property
    def mean_forecast(self) -> Array:
        """The point forecast for the coming round, `(d,)`."""
        now = self._state
        # Accumulated, so that compiled code can add in the same order.
        mixed: Array = np.add.accumulate(now.weights[:, None] * self._experts(now)[1])[-1]
        return mixed

    def _experts(self, now: Experts) -> tuple[Integers, Array]:
        """Return the contexts of the coming round, the shortest first, and the forecast of each expert."""
        if not self.classes:
            return _NONE, now.means
        asked, contexts, points = self._asked
        if asked is not now:
            past = now.past.tobytes()  # of which entries are read in a fourth of the time
            past = past[now.rounds % len(past) :] + past[: now.rounds % len(past)]  # the class before is the last
            contexts = self._contexts(now, past)
            points = np.empty((len(now.weights), self.space.dim))
            laws = len(now.means)
            seasons = laws + DEPTH
            points[:laws] = now.means
            self._write_laws(now, contexts, points[laws:seasons])
            self._write_seasons(now, past, points[seasons:])
            self._asked = now, contexts, points
        return contexts, points

    def _contexts(self, now: Experts, past: bytes) -> Integers:
        """Return the contexts that are kept of the last classes: of none of them, of one, and so on."""
        if not len(now.sums):
            return _NONE
        contexts = [0]
        longer = 0
        for ago in range(1, min(DEPTH, now.rounds) + 1):
            longer = now.longer.item(longer, past[-ago])
            if not longer:
                break
            contexts.append(longer)
        return np.array(contexts)

    def _write_laws(self, now: Experts, contexts: Integers, laws: Array) -> None:
        """Write what followed the last class, the last two, and so on: each law filled up by the one before it."""
        law = self.space.centre
        seen = now.seen.take(contexts) + BACKING
        found = now.sums.take(contexts, 0) / seen[:, None]
        for own, share in zip(found, (BACKING / seen).tolist(), strict=True):
            own += share * law
            law = own
        longer = found[1:]
        laws[: len(longer)] = longer
        laws[len(longer) :] = law

    def _write_seasons(self, now: Experts, past: bytes, laws: Array) -> None:
        """Write what the outcomes of earlier periods say, for the period that held most often, of those of a season."""
        # Less what chance may have added to how often it held.
        since = now.rounds + 1 - self._lags
        if now.rounds < self._longest:
            since = np.maximum(since, 1)
        held = now.holds - 0.5 / np.sqrt(since)
        end = 0
        for lags, law in zip(self._seasons, laws, strict=True):
            begin = end
            end += len(lags)
            seen = bisect_right(lags, now.rounds // 2)
            if not seen:
                law[:] = self.space.centre
                continue
            lag = lags[held[begin : begin + seen].argmax()]
            cycles = min(CYCLES, min(now.rounds, len(past)) // lag)
            weights: dict[int, float] = {}
            for top, fade in zip(past[-lag : -cycles * lag - 1 : -lag], self._fades[:cycles], strict=True):
                weights[top] = weights.get(top, 0.0) + fade
            fog = FOG / len(law)
            law[:] = fog / self._totals[cycles]
            for top, weight in weights.items():
                law[top] = (weight + fog) / self._totals[cycles]

    def _announce(self) -> Forecast:
        return Forecast.trusted(self.mean_forecast[None], uniform(1), None, self.space)

    def _after(self, now: Experts, outcome: Array) -> Experts:
        top = int(outcome.argmax())
        contexts, points = self._experts(now)
        if len(outcome) > 1 and isinstance(self.space, Simplex) and outcome[top] == 1:
            success = points[:, top]
        else:
            success = 1 - np.add.accumulate((outcome - points) ** 2, axis=1)[:, -1] / self._scale
        weights = now.weights * success
        weights /= np.add.accumulate(weights).item(-1)
        weights *= 1 - SHARE
        weights += SHARE / len(weights)
        means = outcome - now.means
        means *= np.maximum(self._rates, 1 / (now.rounds + 2))  # the start counts as one outcome
        means += now.means
        if not self.classes:
            return Experts(now.rounds + 1, weights, means, now.sums, now.seen, now.longer, now.past, now.holds)
        past = now.past.copy()
        place = now.rounds % len(past)
        past[place] = top
        holds: Array = (now.past[place - self._lags] == top) - now.holds
        if (now.rounds + 2 - self._longest) * RECENT > 1:
            holds *= RECENT
        else:
            since = now.rounds + 2 - self._lags  # 2 or more where there is a round to compare with
            holds *= (since > 1) * np.maximum(RECENT, 1 / np.maximum(since, 1))
        holds += now.holds
        return Experts(now.rounds + 1, weights, means, *self._followed(now, contexts, outcome), past, holds)

    def _followed(self, now: Experts, contexts: Integers, outcome: Array) -> tuple[Array, Array, Integers]:
        """Return sums, counts and longer contexts after an outcome; a context that came again has a longer one."""
        sums = now.sums.copy()
        seen = now.seen.copy()
        longer = now.longer
        sums[contexts] = now.sums.take(contexts, 0) + outcome
        seen[contexts] += 1
        known = len(contexts)
        again = not known or (known <= min(DEPTH, now.rounds) and seen[contexts[-1]] > 1)
        if again and len(sums) < self._most:
            if known:
                longer = longer.copy()
                longer[contexts[-1], now.past.item(now.rounds % len(now.past) - known)] = len(sums)
            sums = np.concatenate([sums, outcome[None]])
            seen = np.append(seen, 1.0)
            longer = np.concatenate([longer, np.zeros((1, len(outcome)), np.int16)])
        return sums, seen, longer

    _fork = Forecaster._light_fork

    def _check(self, state: Experts) -> None:
        check_count("rounds", state.rounds, most=LONGEST)
        own, dim, kept = self._state, self.space.dim, len(state.sums) if state.sums.ndim else 0
        if kept > min(self._most, state.rounds):
            raise SnapshotError(
                f"there are {kept} contexts after {state.rounds} rounds, expected {self._most} at most."
            )
        check_array("weights", state.weights, own.weights.shape)
        check_array("means", state.means, own.means.shape)
        check_array("sums", state.sums, (kept, dim))
        check_array("seen", state.seen, (kept,))
        check_array("longer", state.longer, (kept, dim), np.int16)
        check_array("past", state.past, own.past.shape, np.uint8)
        check_array("holds", state.holds, own.holds.shape)
        if (state.seen < 1).any():
            raise SnapshotError("the counts of the contexts are less than 1.")
        if ((state.longer < 0) | (state.longer >= max(kept, 1))).any() or (state.past >= max(dim, 1)).any():
            raise SnapshotError("a context or a class is none of those there are.")
