"""What acting on forecasts costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from treecal._sums import group_rows
from treecal._typing import Array, Integers
from treecal._validate import finite_array
from treecal.exceptions import LossError, ParameterError
from treecal.measures._levels import Chance, Interval, unseen
from treecal.measures._log import Parts, measured, sum_by
from treecal.measures._losses import Action

_MOST = 1 << 24
_RARE = 1 << 22
_DRAWS = 500


def payoff_loss(
    P: ArrayLike,
    y: ArrayLike,
    loss: ArrayLike,
    *,
    by: Literal["action", "forecast"] = "action",
    weights: ArrayLike | None = None,
) -> float:
    """Return what believing the forecasts cost, per row, in the units of the loss.

    Who believes forecast p takes the action a that has the least `Σ_k p_k·loss[a, k]` (the first of them). Rows are put
    in groups, and the best action of each group in hindsight is compared with what was done:
    `Σ_groups [Σ loss(action taken, y) − min_a Σ loss(a, y)] / n`. It is 0 for calibrated forecasts with many rows, for
    every loss.

    - `by="action"`: rows of one action are a group. This is the swap regret of the decision maker: what replacing each
      action by another, all rows of it alike, would have saved. There are as few groups as actions, so it can be
      estimated from a log whose forecasts never repeat.
    - `by="forecast"`: rows of one distinct forecast are a group: best response to the mean outcome of each forecast.
      It is at least as much, and the larger for noise the fewer rows a forecast has; where forecasts never repeat, it
      is the regret against knowing every outcome.

    Parameters
    ----------
    P, y, weights
        As in `brier`.
    loss
        What each action costs under each class, `(actions, d)`; negative costs are gains.
    by
        The groups.

    Examples
    --------
    An umbrella costs 1; rain without one costs 4. Forecasts say 20 % where it rains half of the time:

    >>> loss = [[0, 4], [1, 1]]             # no umbrella, umbrella; dry, rain
    >>> payoff_loss([0.2] * 4, [1, 0, 1, 0], loss)
    1.0
    """
    return measured(PayoffParts, P, y, weights, loss, by)


class PayoffParts(Parts):
    """Pay-off loss: the weight of each class in each group."""

    def __init__(
        self, forecasts: Array, weights: Array, loss: ArrayLike, by: Literal["action", "forecast"] = "action"
    ) -> None:
        classes = forecasts.shape[1]
        self._loss = read_loss(loss, classes)
        self._weights = weights
        taken = best_actions(forecasts.T, self._loss)
        if by == "action":
            self._groups = taken
            self._taken = np.arange(len(self._loss))
        elif by == "forecast":
            first, self._groups = group_rows(np.ascontiguousarray(forecasts + 0.0).view(np.int64))
            self._taken = taken[first]
        else:
            raise ParameterError.expected("by", by, "'action' or 'forecast'")
        self._classes = classes
        self.bounds = (0.0, float(np.ptp(self._loss, axis=0).max()))

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        width = len(self._taken) * self._classes
        if chunks > 1 and chunks * width > _MOST:
            raise ParameterError(
                f"{len(self._taken):,} distinct forecasts are too many to resample.",
                hint="by='action', or forecasts rounded to fewer decimals.",
            )
        at = chunk * width + self._groups * self._classes + y
        return sum_by(at, self._weights, chunks * width).reshape(chunks, width)

    def rare_end(
        self, value: float, high: float, y: Integers, rows: int, level: float, rng: np.random.Generator
    ) -> float:
        """Return the upper end of an interval that what was never seen leaves open."""
        counts = self.sums(y, np.zeros_like(y), 1).reshape(len(self._taken), self._classes)
        each = counts * (rows / counts.sum())
        return _rare_end(value, high, each, self._loss, self._loss[self._taken], level, rng)

    def read(self, sums: Array) -> Array:
        return _saved(sums.reshape(len(sums), len(self._taken), self._classes), self._loss, self._loss[self._taken])


def called(action: Action) -> str:
    """Return what an action is called; one without a name by its number, from 1."""
    return action if isinstance(action, str) else f"action {action + 1}"


@dataclass(frozen=True, eq=False)
class ActionPayoff:
    """What was done with one action.

    Attributes
    ----------
    action
        Its name.
    rows
        The weight of the rows in which the forecast called for it.
    cost
        What it cost in them, per row; NaN without rows.
    better
        The name of the action that would have cost least in them: itself, unless another would have cost less.
    saved
        What that would have saved, per row of this action, with an interval.
    chance
        What would be saved if the forecasts were right.

    Examples
    --------
    >>> umbrella = np.array([[0, 4], [1, 1]])
    >>> payoff = Payoff(umbrella, np.array([[50, 50], [0, 0]]), np.array([[80, 20], [0, 0]]), names=("go", "take it"))
    >>> [(each.action, each.rows, each.better, each.saved.value) for each in payoff.actions]
    [('go', 100.0, 'take it', 1.0), ('take it', 0.0, 'take it', 0.0)]
    """

    action: Action
    rows: float
    cost: float
    better: Action
    saved: Interval
    chance: Chance

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values; there is no cost without rows."""
        return {
            "action": self.action,
            "rows": self.rows,
            "cost": self.cost if self.rows else None,
            "better": self.better,
            "saved": self.saved.value,
            "interval": [self.saved.low, self.saved.high],
            "chance": {"mean": self.chance.mean, "p_value": self.chance.p_value(self.saved.value)},
        }


@dataclass(frozen=True, eq=False)
class Payoff:
    """What acting on forecasts cost, from counts of actions and outcomes, which add up over parts of a log.

    Attributes
    ----------
    loss
        What each action costs under each class, `(actions, d)`.
    counts
        The weight of the rows with each action and each outcome, `(actions, d)`.
    expected
        The sum of the forecasts of the rows of each action, `(actions, d)`.
    worth
        How many rows of equal weight a weight of 1 is worth.
    names
        The names of the actions; by default their numbers.

    Examples
    --------
    An umbrella costs 1, rain without one 4; rain is forecast at 20 % a hundred times, and comes every second time:

    >>> payoff = Payoff(np.array([[0, 4], [1, 1]]), np.array([[50, 50], [0, 0]]), np.array([[80, 20], [0, 0]]))
    >>> payoff.cost, payoff.value, payoff.better
    (2.0, 1.0, (1, 1))
    >>> print(payoff.interval())
    1, 90 % interval 0.68 to 1.32
    >>> payoff.chance.p_value(payoff.value) < 0.01
    True
    """

    loss: Array
    counts: Array
    expected: Array
    worth: float = 1.0
    names: tuple[Action, ...] = ()

    @cached_property
    def actions(self) -> list[ActionPayoff]:
        """What was done with each action, and what the best other one would have saved."""
        names = self.names or tuple(range(len(self.loss)))
        found = []
        for a, (name, better) in enumerate(zip(names, self.better, strict=True)):
            rows = float(self.counts[a].sum())
            if not rows:
                nothing = Interval(0.0, 0.0, 0.0, 0.9, "no rows")
                found.append(ActionPayoff(name, 0.0, math.nan, name, nothing, Chance(np.zeros(1))))
                continue
            own = (np.arange(len(names)) == a)[:, None]
            alone = Payoff(self.loss, self.counts * own, self.expected * own, self.worth)
            found.append(ActionPayoff(name, rows, alone.cost, names[better], alone.interval(), alone.chance))
        return found

    @property
    def cost(self) -> float:
        """What the actions taken cost, per row."""
        return float((self.loss * self.counts).sum() / self.counts.sum())

    @property
    def value(self) -> float:
        """The pay-off loss: what the best action for the rows of each action would have saved, per row."""
        return float(self._of(np.asarray(self.counts, np.float64)[None])[0])

    @property
    def better(self) -> tuple[int, ...]:
        """For each action, the one that would have been best for its rows: the same where none is better."""
        costs = self.counts @ self.loss.T
        best = costs.argmin(axis=1)
        own = np.arange(len(best))
        return tuple(np.where(costs[own, best] < costs[own, own], best, own).tolist())

    def interval(self, level: float = 0.9) -> Interval:
        """Return `value` with an interval, by resampling rows (their counts say all there is to know of them)."""
        rng = np.random.default_rng(0)
        rows = self._rows
        share = (self.counts / self.counts.sum()).ravel()
        times = int(np.clip(4_000_000 // share.size, 100, 1000))  # many actions and classes hardly vary
        draws = self._of(rng.multinomial(rows, share, size=times).reshape(-1, *self.counts.shape) * 1.0)
        low, high = (float(q) for q in np.quantile(draws, [(1 - level) / 2, (1 + level) / 2]))
        reach = max(high - self.value, self.value - low)
        value = self.value
        each = self.counts * (rows / self.counts.sum())
        rare = _rare_end(value, value + reach, each, self.loss, self.loss, level, rng)
        return Interval(value, max(value - reach, 0.0), rare, level)

    @cached_property
    def chance(self) -> Chance:
        """What the pay-off loss would be if the forecasts were right, by drawing outcomes from them."""
        rng = np.random.default_rng(0)
        rows = self._rows
        size = self.counts.sum(axis=1)
        share = np.where(size[:, None] > 0, self.expected, 1.0)
        share = share / share.sum(axis=1, keepdims=True)
        each = np.rint(size / size.sum() * rows).astype(np.int64)
        times = int(np.clip(4_000_000 // share.size, 100, 500))
        draws = rng.multinomial(each, share, size=(times, len(each))).astype(np.float64)
        return Chance(np.sort(self._of(draws)))

    @property
    def sentence(self) -> str:
        """What acting on the forecasts cost, and which actions should have been others, in words."""
        saved = self.interval()
        luck = self.chance
        text = (
            f"Acting on these forecasts costs {self.cost:.4g} a row. Recalibration would save {saved.value:.4g} of "
            f"that or more: what another action in place of each saves (90 % interval {saved.low:.4g} to "
            f"{saved.high:.4g}; by chance {luck.mean:.4g})."
        )
        if luck.p_value(saved.value) < 0.05:
            for each in self.actions:
                if each.better != each.action:
                    text += (
                        f" Where {called(each.action)} was taken, {each.rows:,.0f} row{'s' * (each.rows != 1)}, "
                        f"{called(each.better)} would have cost less."
                    )
        return text

    def _of(self, counts: Any) -> Array:
        return _saved(counts, self.loss, self.loss)

    @property
    def _rows(self) -> int:
        return max(round(float(self.counts.sum()) * self.worth), 1)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        interval = self.interval()
        return {
            "cost": self.cost,
            "loss": self.value,
            "interval": [interval.low, interval.high],
            "chance": {"mean": self.chance.mean, "p_value": self.chance.p_value(self.value)},
            "actions": [each.to_dict() for each in self.actions],
        }


def _saved(counts: Any, loss: Array, taken: Array) -> Array:
    """Return what the best action of each group would have saved, per row: counts are `(r, groups, d)`."""
    done = (counts * taken).sum(axis=(1, 2))
    best = (counts @ loss.T).min(axis=2).sum(axis=1)
    found: Array = np.maximum(done - best, 0) / counts.sum(axis=(1, 2))
    return found


def _rare_end(
    value: float, high: float, counts: Any, loss: Array, taken: Array, level: float, rng: np.random.Generator
) -> float:
    """Return the upper end of an interval for what could have been saved, also by what is rare or was never seen.

    Clopper and Pearson's end for a share is a quantile of the law of the rows and of one more. Here that is one of the
    action and the class which would raise the loss most; where none would, all that three of n rows could cost.
    """
    groups, classes = counts.shape
    rows = float(counts.sum())
    cells = counts.size
    regret = float((taken - loss.min(axis=0)).max())
    least = min(unseen(level) / rows, 1.0) * regret
    if high - value >= least or cells**2 > _RARE:  # with that many groups, some are often seen
        return high
    more = (counts.ravel() + np.eye(cells)).reshape(cells, groups, classes)
    raised = _saved(more, loss, taken)
    if raised.max() <= _saved(counts[None] * 1.0, loss, taken)[0]:
        return max(high, least)
    draws = rng.gamma(more[int(raised.argmax())].ravel(), size=(_DRAWS, cells))
    found = _saved(draws.reshape(-1, groups, classes), loss, taken)
    return max(high, float(np.quantile(found, (1 + level) / 2)))


def best_actions(forecasts: Array, loss: Array) -> Integers:
    """Return the action of least expected loss under each forecast, `(d, n)`: of equal ones the first."""
    costs = np.zeros((len(loss), forecasts.shape[1]))
    for each, p in zip(loss.T, forecasts, strict=True):  # a matrix product rounds by where a row is, and ties follow it
        costs += each[:, None] * p
    found: Integers = costs.argmin(axis=0)
    return found


def read_loss(loss: ArrayLike, classes: int) -> Array:
    """Return a loss matrix, `(actions, classes)`."""
    found = finite_array("loss", loss)
    if found.ndim != 2 or found.shape[1] != classes or len(found) < 2:
        raise LossError(f"loss has shape {found.shape}, expected (actions, {classes}) with 2 actions or more.")
    return found
