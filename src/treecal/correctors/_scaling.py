"""Scaling: a few numbers that correct logarithms of probabilities, learned by the online Newton step."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from treecal._elementary import power
from treecal._states import MOST_ROUNDS, check_array, check_number
from treecal._typing import Array, Changes, Integers, Outcomes
from treecal._validate import HEAVIEST, positive_number
from treecal.columns import ROUNDS, Columns, ColumnStreams, Field, Schema
from treecal.correctors import _forgetting as forgetting, _newton_kernels as kernels
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._batch import Batch
from treecal.correctors._fit_kernels import Objective, curvature, optimum, remembered
from treecal.correctors._newton_kernels import FIRST, Design, Newton, Scalings, Steps, speeds
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex

LEAST = 1e-6
"""Smaller probabilities are read as this one, so that all logarithms are finite."""

TINIEST = 1e-9
"""Of rate and ridge: with less, curvatures of rounds and ridge differ by more than floats can hold."""
LARGEST = 1e9
"""Of the radius."""
_AT_ONCE = 2**20  # probabilities that `predict_many` holds at a time
PRIOR = 0.03
"""The share of the ridge that pulls a fit to all rows: with all of it, fits to a few hundred rows change too little.

Chosen on eight logs of 59 to 599 rows (digits, breast cancer and wine; naive Bayes, forests, support vectors; means of
six splits): the better of vector and temperature scaling has a log loss within 1 % of the best of scikit-learn's
calibrators, or below, on all of them. With 0.1 it is 3 % above on one, with all of the ridge 8 and 38 % on two.
"""
_FEW_PARAMETERS = 64  # of which a fit takes the whole curvature at once, not block by block: that is faster
_ALONE = np.zeros(1, np.int64), np.ones(1)  # the row and the weight of the one step of a round
_ROUNDED = 1 + 1e-6  # how far above its limit a number of a snapshot may be: far more than rounding
_NOTHING = 1e-9  # a row of a log that counts less, beside the last one, is left out of a fit


class Scaling(Corrector):
    """Announces `softmax(F(b)·θ)`, where `F(b)` holds logarithms of the forecast and `θ` is learned online.

    Each round takes one online Newton step on the log loss: with its gradient `∇ = F(b)ᵀ(p − y)`, `A += ∇∇ᵀ`, then
    `θ ← θ − A⁻¹∇/rate`, projected onto `‖θ‖ <= radius` in the norm of `A`. The start is `A = ridge·I` and the identity:
    forecasts stay as they are until outcomes give a reason to change them.

    For any outcomes and any fixed `φ` in the ball, with `c_t = ∇_t·(θ_t − φ)`,
    `Σ(c_t − rate·c_t²/2) <= rate·ridge·‖θ_1 − φ‖²/2 + Σ ∇ᵀA⁻¹∇/(2·rate)`, where for `k` parameters
    `Σ ∇ᵀA⁻¹∇ <= k·ln(1 + Σ‖∇‖²/(k·ridge))`. Where the loss is as curved as `rate` needs, that is, it exceeds its
    tangent by `rate·c²/2` or more, the left side bounds the regret, which is then `O(k log T)`. A subclass defines the
    identity parameters and `F`.

    It forgets where that pays. There are copies whose `A − ridge·I` halves in 64, 128, 256, … rounds, up to the number
    of rounds, and one that never forgets, to which all of the above applies. Announced is the mean of their
    probabilities by trust, which is each copy's likelihood, with fixed share. For any outcomes the log loss is, in
    total, within `tracking_bound(rounds, first=6, ...)` of that of any sequence of the copies, and within `O(log T)` of
    that of the one that never forgets.

    `fit` finds the `θ` that minimises `Σ log loss + rate·(θ − θ_1)ᵀ(A − 0.97·ridge·I)(θ − θ_1)/2` over all rows, by
    Newton's method, and adds the rows' `∇∇ᵀ` there to `A`. All copies start from it, with as much of that as they would
    remember of so many rounds. With `in_order=True` each copy has its own optimum, of the losses with the weights that
    it gives to the rows and `rate·(θ − θ_1)ᵀA(θ − θ_1)/2`, and the trust in it is its likelihood in the last quarter of
    the log, after a fit to the rest. The bound above then holds for the rounds after it with the `θ_1` and `A` of the
    fit, `rate·(θ_1 − φ)ᵀA(θ_1 − φ)/2` in place of its first term, and that of the copies, after a log in order, with
    one change more.

    A weight that is a whole number up to 16 counts as exactly so many rounds; any other is learned in up to 16 equal
    steps, whose weight multiplies gradients and `∇∇ᵀ` and counts as so many rounds for half-lives.

    Parameters
    ----------
    space
        A simplex.
    rate, ridge, radius
        The online Newton step's `γ`, `A_0 = ridge·I`, both at least 1e-9, and the largest `‖θ‖`, at most 1e9.
    forget
        Whether it forgets.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    A temperature for all classes, and an offset for each:

    >>> from treecal.geometry import Simplex
    >>> class BiasCorrected(Scaling):
    ...     def _identity(self):
    ...         return np.append(1.0, np.zeros(self.space.dim))
    ...
    ...     def _features(self, logs):
    ...         return np.column_stack([logs, np.eye(len(logs))])
    >>> f = BiasCorrected(Simplex(3))
    >>> for _ in range(100):
    ...     x = f.predict([0.2, 0.3, 0.5])
    ...     f.update([1, 0, 0])
    >>> bool(f.predict([0.2, 0.3, 0.5]).mean[0] > 0.9)
    True
    """

    _state: Newton
    _fields: ClassVar[tuple[str, ...]] = ("space", "rate", "ridge", "radius", "forget", "scores", "tolerance")
    _least: ClassVar[float] = LEAST

    def __init__(
        self,
        space: ConvexSet,
        *,
        rate: float = 0.1,
        ridge: float = 100.0,
        radius: float = 100.0,
        forget: bool = True,
        scores: Scored | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        if not isinstance(space, Simplex):
            raise ParameterError.expected("space", space, "a Simplex, because scaling needs probabilities")
        super().__init__(space, scores=scores, tolerance=tolerance)
        if forget not in (True, False):
            raise ParameterError.expected("forget", forget, "True or False")
        self.rate, self.ridge = (_large_enough(*given) for given in (("rate", rate), ("ridge", ridge)))
        self.radius, identity = positive_number("radius", radius), self._identity()
        if self.radius > LARGEST:
            raise ParameterError.expected("radius", radius, f"at most {LARGEST:g}: a greater one limits nothing")
        if (size := math.sqrt(identity @ identity)) > self.radius:
            raise ParameterError.expected("radius", radius, f"at least {size:g}, the norm of the identity")
        self.forget = bool(forget)
        self._design = Design(
            *self._entries(), self._blocks, self.rate, self.ridge, self.radius, forgetting.SHARE, forgetting.LASTING
        )
        self._fitting = self._design
        if len(identity) <= _FEW_PARAMETERS:
            self._fitting = self._design._replace(blocks=1)
        self._pairs = _pairs(self._fitting, len(identity))
        self._eye = np.tile(np.eye(len(identity) // self._blocks), (self._blocks, 1, 1))
        self._state = Newton(identity[None], self.ridge * self._eye[None], np.ones(1), 0.0)
        self._asked: tuple[Array | None, Array] = None, identity  # the last forecast alone, and its entries of F(b)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the default, and one whose parameters reach the edge of their ball."""
        with suppress(ParameterError):
            yield cls(space)
            yield cls(space, rate=0.2, ridge=0.5, radius=1.01 * math.sqrt(space.dim))

    def _streams(self) -> ScalingStreams:
        """Those of a class that says so itself: a scaling of your own may take other steps."""
        return ScalingStreams(self)

    @property
    def theta(self) -> Array:
        """The current parameters: their mean by trust, if there are copies."""
        return np.asarray(np.add.reduce(self._state.trust[:, None] * self._state.theta, axis=0))

    @property
    def _blocks(self) -> int:
        """Into how many blocks the curvature falls: block `i` is of the parameters `i`, `i + blocks`, and so on."""
        return 1

    @abstractmethod
    def _identity(self) -> Array:
        """Return the parameters that change nothing."""

    def _features(self, logs: Array) -> Array:
        """Return `F(b)`, `(dim, parameters)`, from the logarithms of `b`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither _features nor _entries and _values")

    def _entries(self) -> tuple[Integers, Integers]:
        """Return the classes and the parameters of the entries of `F(b)` that are not 0: by default of all."""
        classes, parameters = np.indices((self.space.dim, len(self._identity())))
        return classes.ravel(), parameters.ravel()

    def _values(self, logs: Array) -> Array:
        """Return these entries, `(rows, entries)`, from the logarithms of rows."""
        return np.array([np.ravel(self._features(row)) for row in logs], np.float64).reshape(len(logs), -1)

    def _logs(self, forecasts: Array) -> Array:
        found = np.empty(forecasts.shape)
        kernels.logarithms.for_rows(len(found))(np.array(forecasts), self._least, found)
        return found

    def _alone(self, forecast: Array) -> Array:
        """Return the entries of `F(b)` of one forecast, `(1, entries)`: computed once for both halves of its round."""
        asked = self._asked
        if asked[0] is not forecast:
            asked = self._asked = forecast, self._values(self._logs(forecast[None]))
        return asked[1]

    def _announce(self, forecast: Array) -> Forecast:
        return self._point(self._mean(forecast))

    def _mean(self, forecast: Array) -> Array:
        now = self._state
        mean = np.empty((1, self.space.dim))
        kernels.announce.now(now.theta, now.trust, self._alone(forecast), self._design, mean)
        return np.asarray(mean[0])

    def _announce_many(self, forecasts: Array, groups: Any) -> Array:
        return self._means(forecasts)

    def _means(self, forecasts: Array) -> Array:
        now = self._state
        means = np.empty(forecasts.shape)
        step = max(1, _AT_ONCE // self.space.dim)
        for at in range(0, len(forecasts), step):
            values = self._values(self._logs(forecasts[at : at + step]))
            kernels.announce.for_rows(len(values))(now.theta, now.trust, values, self._design, means[at : at + step])
        return means

    def _forecasts(self, forecasts: Array, groups: Any) -> list[Forecast]:
        return [self._point(row.copy()) for row in self._means(forecasts)]

    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> Changes:
        weights = None if weight == 1.0 else np.array([weight])
        batch = Batch(forecast[None], np.array(outcome)[None], weights=weights)
        return {"_state": self._stepped(batch, self._alone(forecast))[1]}

    def _played(self, batch: Batch) -> tuple[Array, Changes]:
        means, now = self._stepped(batch, self._values(self._logs(batch.forecasts)))
        return means, {"_state": now}

    def _stepped(self, batch: Batch, values: Array) -> tuple[Array, Newton]:
        """Return what is announced in rounds in order, given the entries of their `F(b)`, and the state after them."""
        rows, weights = _ALONE if len(batch) == 1 and batch.weights is None else forgetting.steps_of(batch)
        steps = Steps(np.zeros(len(rows), np.int64), rows, weights, values, np.array(batch.outcomes))
        means = np.empty(batch.forecasts.shape)
        one = self._with_room(self._state.seen + math.fsum(weights))
        kernels.play.for_rows(len(rows))(one, steps, self._design, speeds(self.forget), means)
        return means, self._state_of(one)

    def _copies(self, seen: float) -> int:
        return forgetting.copies(seen, FIRST) if self.forget else 1

    def _with_room(self, seen: float) -> Scalings:
        """Return a copy of the state as kernels take it, with room for the copies after so much weight."""
        now = self._state
        one = Scalings(now.theta[None].copy(), now.curvature[None].copy(), now.trust[None].copy(), np.array([now.seen]))
        more = self._copies(seen * (1 + 1e-9)) - len(now.trust)  # however it is rounded
        if not more:
            return one
        theta, A, trust = (np.pad(each, [(0, 0), (0, more)] + [(0, 0)] * (each.ndim - 2)) for each in one[:3])
        return one._replace(theta=theta, curvature=A, trust=trust)

    def _state_of(self, one: Scalings) -> Newton:
        seen = float(one.seen[0])
        count = self._copies(seen)
        return Newton(one.theta[0, :count], one.curvature[0, :count], one.trust[0, :count], seen)

    def _joined(self, weight: float) -> Newton:
        """Return the state with so much more weight, and the copies that it asks for."""
        one = self._with_room(self._state.seen + weight)
        one.seen[0] += weight
        for count in range(len(self._state.trust), self._copies(float(one.seen[0]))):
            kernels.join.now(one, 0, count, self._design, speeds(self.forget))
        return self._state_of(one)

    def _fitted_to(self, batch: Batch, near: Corrector | None = None) -> Self:
        twin = deepcopy(self)
        twin._fit(batch, near)
        return twin

    def _fit(self, batch: Batch, near: Corrector | None = None) -> None:
        if not len(batch):
            return
        values = self._values(self._logs(batch.forecasts))
        outcomes = np.array(batch.outcomes)
        weights = np.array(batch.all_weights())
        if not batch.in_order:
            begin = near._state.theta[0] if isinstance(near, Scaling) else self._state.theta[0]
            now = self._fitted(values, outcomes, weights, begin)
        else:
            now = self._fitted_in_order(values, outcomes, weights)
            if self.forget and (held := len(batch) // 4):
                then = self._fitted_in_order(values[:-held], outcomes[:-held], weights[:-held])
                trust = np.array(forgetting.start(len(then.theta)))
                losses = np.empty(len(then.theta))
                last = values[-held:], outcomes[-held:], weights[-held:]
                kernels.losses.for_rows(held)(then.theta, *last, self._design, losses)
                forgetting.trusted.now(trust, losses, then.seen, 1.0, forgetting.SHARE, forgetting.LASTING)
                now = replace(now, trust=forgetting.joined(trust, len(now.theta)))
        vars(self).update(_state=now, **self._counted(len(batch)))

    def _fitted(self, values: Array, outcomes: Array, weights: Array, near: Array) -> Newton:
        """Return the state with all copies at the optimum for a log in no order, after all that went before.

        Newton's method begins near there.

        A copy's curvature is that of as much of the log, on average, as it would remember of one in order.
        """
        total = float(np.add.accumulate(weights)[-1])
        now = self._joined(total)
        before = now.curvature[0] - (1 - PRIOR) * self.ridge * self._eye
        log = values, outcomes, weights
        theta, found = self._optimum(near, now.theta[0], before, *log, least=PRIOR * self.ridge)
        A = np.empty_like(now.curvature)
        for copy, keeps in enumerate(forgetting.kept(len(now.trust), FIRST).tolist()):
            left = power(keeps, total)
            part = 1.0 if keeps == 1.0 else (1.0 - left) / (1.0 - keeps) / total
            A[copy] = left * now.curvature[copy] + (1 - left) * (self.ridge * self._eye) + part * found
        return Newton(np.tile(theta, (len(A), 1)), A, forgetting.start(len(A)), now.seen)

    def _fitted_in_order(self, values: Array, outcomes: Array, weights: Array) -> Newton:
        """Return the state with each copy at its optimum for a log in order, after all that went before."""
        counts = np.empty_like(weights)
        total = float(np.add.accumulate(weights)[-1])
        now = self._joined(total)
        theta = np.array(now.theta)
        A = np.empty_like(now.curvature)
        for copy, keeps in enumerate(forgetting.kept(len(now.trust), FIRST).tolist()):
            left = remembered.for_rows(len(weights))(keeps, weights, counts)
            before = left * now.curvature[copy] + (1 - left) * (self.ridge * self._eye)
            rows = counts > _NOTHING * counts.max()
            near = theta[0] if copy else now.theta[0]
            log = values[rows], outcomes[rows], counts[rows]
            theta[copy], found = self._optimum(near, now.theta[copy], before, *log, least=self.ridge)
            A[copy] = before + found
        return Newton(theta, A, forgetting.start(len(theta)), now.seen)

    def _optimum(
        self, near: Array, start: Array, before: Array, values: Array, outcomes: Array, counts: Array, *, least: float
    ) -> tuple[Array, Array]:
        """Return the best parameters in the ball for a log and the curvature before it, and the log's curvature there.

        They minimise `Σ counts·loss + rate·(θ − start)ᵀA(θ − start)/2`.
        """
        theta = np.array(near)
        found = np.empty_like(before)
        whole = _whole(before) if self._fitting.blocks == 1 else np.array(before)
        log = Objective(values, outcomes, counts, np.array(start), whole, least, self._pairs)
        optimum.for_rows(len(values))(theta, log, self._fitting)
        curvature.for_rows(len(values))(theta, log, self._design, found)
        return theta, found

    def _check(self, state: Newton, rounds: int) -> None:
        check_number("seen", state.seen, least=0.0, most=HEAVIEST * rounds)
        copies = self._copies(state.seen)
        theta = state.theta
        A = state.curvature
        check_array("theta", theta, (copies, len(self._identity())), most=_ROUNDED * self.radius)
        check_array("curvature", A, (copies, *self._eye.shape))
        check_array("the trust in the copies", state.trust, (copies,), most=_ROUNDED)


def scaling_schema(thing: Any) -> Schema:
    """Return what is kept of a stream: parameters and curvature of each copy, the trust in it, and the rounds seen."""
    copies = partial(_copies_of, thing.forget)
    own = thing._state
    seen = Field("seen", new=own.seen, least=0.0, most=MOST_ROUNDS * HEAVIEST)
    arrays = {"theta": own.theta, "curvature": own.curvature, "trust": own.trust}
    limits = {"theta": _ROUNDED * thing.radius, "trust": _ROUNDED}
    fields = [ROUNDS, seen]
    for name, array in arrays.items():
        most = limits.get(name, math.inf)
        fields.append(Field(name, array.shape[1:], new=array, length=copies, least=-most, most=most))
    return Schema(tuple(fields))


def _copies_of(forget: bool, columns: Any) -> Integers:
    """Return how many copies each row has: `forgetting.copies`."""
    seen: Array = columns["seen"]
    if not forget:
        return np.ones(len(seen), np.int64)
    return np.asarray(1 + np.maximum(0, np.frexp(seen)[1] - FIRST) * (seen >= 1), np.int64)


class ScalingStreams(ColumnStreams):
    """The state of `Scaling` with an axis for streams; all have room for the copies of the longest stream."""

    def __init__(self, thing: Any) -> None:
        super().__init__(thing, scaling_schema(thing))

    def announce(self, rows: Integers, forecasts: Array | None) -> Array:
        assert forecasts is not None
        of = self.thing
        means = np.empty(forecasts.shape)
        now = _scalings(self.columns)
        kernels.announce_streams(now, rows, of._values(of._logs(forecasts)), of._design, speeds(of.forget), means)
        return means

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array:
        """Learn on copies of the states, which are put in place at the end."""
        assert forecasts is not None
        of = self.thing
        means = np.empty(forecasts.shape)
        Y = np.array(outcomes) if outcomes.ndim == 2 else np.eye(of.space.dim)[outcomes]
        touched, home, counts = np.unique(rows, return_inverse=True, return_counts=True)
        now = self.columns.take(touched)
        copies = _copies_of(of.forget, {"seen": now["seen"] + counts})
        for field in self.schema.of(length=True):
            now.widen(field.name, int(copies.max(initial=1)))
        steps = Steps(home, np.arange(len(rows)), np.ones(len(rows)), of._values(of._logs(forecasts)), Y)
        kernels.play(_scalings(now), steps, of._design, speeds(of.forget), means)
        now["rounds"][:] += counts
        self.torn = True
        self.columns.put(touched, now)
        self.torn = False
        return means


def _scalings(columns: Columns) -> Scalings:
    return Scalings(*(columns[name] for name in ("theta", "curvature", "trust", "seen")))


def _pairs(design: Design, parameters: int) -> Integers:
    """Return the pairs of entries of one class whose parameters are in one block, and their places in the blocks.

    The later parameter is first.
    """
    found: list[tuple[int, int, int]] = []
    blocks = design.blocks
    size = parameters // blocks
    of_class: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for entry, (each, parameter) in enumerate(zip(design.classes.tolist(), design.parameters.tolist(), strict=True)):
        of_class.setdefault((each, parameter % blocks), []).append((entry, parameter // blocks))
    for (_, block), entries in of_class.items():
        for e, i in entries:
            found.extend((e, f, (block * size + i) * size + j) for f, j in entries if i >= j)
    return np.array(found, np.int64).reshape(-1, 3)


def _whole(A: Array) -> Array:
    """Return the matrix with these blocks, as one block."""
    blocks, size, _ = A.shape
    found = np.zeros((size, blocks, size, blocks))
    places = np.arange(blocks)
    found[:, places, :, places] = A
    return found.reshape(1, blocks * size, blocks * size)


def _large_enough(name: str, value: float) -> float:
    number = positive_number(name, value)
    if number < TINIEST:
        raise ParameterError.expected(name, value, f"{TINIEST:g} or more: floats cannot tell less from 0")
    return number
