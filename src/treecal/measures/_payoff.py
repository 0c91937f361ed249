"""What acting on forecasts costs."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from treecal._sums import group_rows
from treecal._typing import Array, Integers
from treecal._validate import finite_array
from treecal.exceptions import LossError, ParameterError
from treecal.measures._log import read_log
from treecal.measures._parts import sum_by

_MOST = 1 << 24


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
    log = read_log(P, y, weights)
    return PayoffParts(log.forecasts, log.weights, loss=loss, by=by).value(log.outcomes)


class PayoffParts:
    """Pay-off loss: the weight of each class in each group."""

    debiased = False

    def __init__(
        self, forecasts: Array, weights: Array, loss: ArrayLike, by: Literal["action", "forecast"] = "action"
    ) -> None:
        self._loss, self._weights = finite_array("loss", loss), weights
        classes = forecasts.shape[1]
        if self._loss.ndim != 2 or self._loss.shape[1] != classes or len(self._loss) < 2:
            raise LossError(f"loss has shape {self._loss.shape}, expected (actions, {classes}) with 2 actions or more.")
        taken: Integers = np.argmin(forecasts @ self._loss.T, axis=1)
        if by == "action":
            self._groups, self._taken = taken, np.arange(len(self._loss))
        elif by == "forecast":
            first, self._groups = group_rows(np.ascontiguousarray(forecasts + 0.0).view(np.int64))
            self._taken = taken[first]
        else:
            raise ParameterError.expected("by", by, "'action' or 'forecast'")
        self._classes = classes
        self.bounds = (0.0, float(np.ptp(self._loss, axis=0).max()))

    def value(self, y: Integers) -> float:
        return float(self.read(self.sums(y, np.zeros_like(y), 1))[0])

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        width = len(self._taken) * self._classes
        if chunks > 1 and chunks * width > _MOST:
            raise ParameterError(
                f"{len(self._taken):,} distinct forecasts are too many to resample.",
                hint="by='action', or forecasts rounded to fewer decimals.",
            )
        at = chunk * width + self._groups * self._classes + y
        return sum_by(at, self._weights, chunks * width).reshape(chunks, width)

    def read(self, sums: Array) -> Array:
        counts = sums.reshape(len(sums), len(self._taken), self._classes)
        done = (counts * self._loss[self._taken]).sum(axis=(1, 2))
        best = (counts @ self._loss.T).min(axis=2).sum(axis=1)
        found: Array = np.maximum(done - best, 0) / sums.sum(axis=1)
        return found
