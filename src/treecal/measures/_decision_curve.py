"""Forecasts of one class as yes or no at every threshold: what deciding by them gains, costs and regrets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.measures._log import Log, read_log


class DecisionCurve(NamedTuple):
    """What saying yes where a class has more than a probability gains and costs, for every such threshold.

    Saying yes where the class does not come costs v, and saying no where it comes 1 − v: then v is the threshold that
    a right forecast calls for.

    Attributes
    ----------
    threshold
        The thresholds v.
    cost
        The cost per row of following the forecasts.
    always, never
        That of yes, and of no, to all rows.
    regret
        The swap regret per row: what the other answer would have saved, after yes and after no.
    """

    threshold: Array
    cost: Array
    always: Array
    never: Array
    regret: Array

    @property
    def net_benefit(self) -> Array:
        """Hits per row, less false alarms times v/(1 − v): the net benefit of decision curves in medicine."""
        return np.asarray((self.never - self.cost) / (1 - self.threshold))

    @property
    def net_benefit_of_all(self) -> Array:
        """The same of yes to all rows; of no it is 0."""
        return np.asarray((self.never - self.always) / (1 - self.threshold))


def decision_curve(
    P: ArrayLike, y: ArrayLike, *, of: int = 1, points: int = 99, weights: ArrayLike | None = None
) -> DecisionCurve:
    """Return what deciding by the forecasts of a class gains and costs, at thresholds evenly spaced between 0 and 1.

    Parameters
    ----------
    P, y, weights
        As in `brier`.
    of
        The class.
    points
        The number of thresholds.

    Examples
    --------
    >>> curve = decision_curve([0.2, 0.2, 0.8, 0.8], [0, 1, 1, 1], points=3)
    >>> curve.threshold, curve.cost, curve.net_benefit
    (array([0.25, 0.5 , 0.75]), array([0.1875, 0.125 , 0.0625]), array([0.5, 0.5, 0.5]))
    """
    log = read_log(P, y, weights)
    whole_number("of", of, least=0, most=log.forecasts.shape[1] - 1)
    v = np.arange(1, points + 1) / (whole_number("points", points, least=1) + 1)
    p, rows, hits = _sorted(log, of)
    below = np.searchsorted(p, v, side="right")
    no, missed = rows[below], hits[below]
    false = (rows[-1] - no) - (hits[-1] - missed)
    total = rows[-1]
    regret = np.maximum(v * (rows[-1] - no) - (hits[-1] - missed), 0) + np.maximum(missed - v * no, 0)
    cost = v * false + (1 - v) * missed
    return DecisionCurve(v, cost / total, v * (total - hits[-1]) / total, (1 - v) * hits[-1] / total, regret / total)


def v_calibration_error(P: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the most that anybody who decides yes or no by a class's forecast regrets, per row.

    Whoever has the threshold v says yes where the forecast exceeds it. A false yes costs v, a missed one 1 − v; the
    regret is what the other answer would have saved, after yes and after no. This is the greatest over all thresholds
    and classes, exactly: between two forecasts the regret is a convex function of v, and so greatest at one of them.
    For a single class it takes `O(n log n)`. Calibrated forecasts have none but noise; `chance` says how much.

    Parameters
    ----------
    P, y, weights
        As in `brier`.

    Examples
    --------
    The class has 20 %, and comes every second time: who has a threshold just above 20 % regrets most.

    >>> round(v_calibration_error([0.2] * 4, [1, 0, 1, 0]), 3)
    0.3

    References
    ----------
    Kleinberg, Paes Leme, Schneider and Teng, "U-Calibration: Forecasting for an Unknown Agent", 2023.
    """
    log = read_log(P, y, weights)
    columns = range(1, 2) if log.forecasts.shape[1] == 2 else range(log.forecasts.shape[1])
    worst = 0.0
    for k in columns:
        p, rows, hits = _sorted(log, k)
        last = np.flatnonzero(np.append(p[1:] > p[:-1], True)) + 1  # rows up to the last of each distinct forecast
        cuts = np.concatenate([[0], last])
        starts = np.concatenate([[0.0], p[last - 1]])
        ends = np.concatenate([p[last - 1], [1.0]])
        for v in (starts, ends):
            yes = np.maximum(v * (rows[-1] - rows[cuts]) - (hits[-1] - hits[cuts]), 0.0)
            no = np.maximum(hits[cuts] - v * rows[cuts], 0.0)
            worst = max(worst, float((yes + no).max() / rows[-1]))
    return worst


def _sorted(log: Log, k: int) -> tuple[Array, Array, Array]:
    """Return the forecasts of a class in order; the weight of the rows before each, and of those of that outcome."""
    p = log.forecasts[:, k]
    order = np.argsort(p, kind="stable")
    weights = log.weights[order]
    hits = weights * (log.outcomes[order] == k)
    return p[order], np.append(0.0, np.cumsum(weights)), np.append(0.0, np.cumsum(hits))
