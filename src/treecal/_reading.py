"""The ledger read in one way: what every error, table and score is computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.geometry import ROUNDING, Distance, as_distance, l2
from treecal.measures import Losses, Verdict, best_actions, bin_rows


class Table(NamedTuple):
    """One row for each distinct forecast, the largest share of the error first.

    Attributes
    ----------
    forecast
        The forecast point, `(n, d)`.
    weight
        Its total weight: the number of rounds it was forecast in, counted by their weights.
    outcome
        The mean outcome of those rounds, `(n, d)`.
    gap
        The distance of the mean outcome from the forecast; `weight @ gap` is the total error.
    """

    forecast: Array
    weight: Array
    outcome: Array
    gap: Array


class Brier(NamedTuple):
    """The Brier score per round and its three parts: `score = calibration − resolution + uncertainty` (Murphy 1973).

    Attributes
    ----------
    score
        `Σ_p x(p)·‖y − p‖₂²`: for a distribution over points, the expected score of a draw from it.
    calibration
        `Σ_p m_p·‖ν_p − p‖₂²`, the squared ℓ2 calibration error.
    resolution
        `Σ_p m_p·‖ν_p − ȳ‖₂²`: how far the mean outcomes `ν_p` of the forecasts lie from the mean of all outcomes `ȳ`.
        A constant forecast has 0. One that never repeats has as much as there can be, and pays for it in calibration.
    uncertainty
        The mean of `‖y − ȳ‖₂²`: the score of the best constant, chosen with hindsight.
    """

    score: float
    calibration: float
    resolution: float
    uncertainty: float


class Reading:
    """The ledger read in one way: exact or binned, per node or not. Made by `Ledger.exact` and `Ledger.binned`.

    Attributes
    ----------
    forecasts, weights, outcomes
        For each group: the forecast, its total weight, and the mean outcome.
    rounds
        Number of rounds read.
    resolution
        Width of the grid's cells; None for an exact reading.
    weight
        Total weight of these rounds, by which errors per round are divided: `rounds`, unless they have weights.
    """

    def __init__(
        self,
        forecasts: Array,
        weights: Array,
        outcomes: Array,
        rounds: int,
        resolution: float | None,
        *,
        weight: float | None = None,
    ) -> None:
        self.forecasts = forecasts
        self.weights = weights
        self.outcomes = outcomes
        self.rounds = rounds
        self.resolution = resolution
        self.weight = float(rounds) if weight is None else weight

    def error(self, distance: Distance | str, *, total: bool = False) -> float:
        """Return `Σ_p m_p · D(ν_p, p)`, per round unless `total`."""
        # Correctly rounded, so that the order of rounds or ledgers makes no difference.
        error = math.fsum(self.weights * as_distance(distance).between(self.outcomes, self.forecasts))
        if total:
            return error
        return error / self._divisor("error")

    def regret(self, losses: Losses) -> Any:
        """Return the swap regret per round of whoever acts on the forecasts: what other actions would have saved.

        That is `Σ_a max_b`, over the rounds whose forecast calls for action a, of what b would have cost less. Of a
        forecast that is a distribution each point counts with its weight.

        Parameters
        ----------
        losses
            What each action costs under each class. Of several decisions the regrets come by name.

        Examples
        --------
        An umbrella costs 1, rain without one 4. Rain is forecast at 20 %, and comes every second time:

        >>> import treecal as tc
        >>> ledger = tc.Ledger(sky := tc.Simplex(classes=["dry", "rain"]))
        >>> for k in range(10):
        ...     ledger.record([0.8, 0.2], k % 2)
        >>> ledger.regret(tc.Losses(sky, [[0, 4], [1, 1]]))
        1.0
        """
        weight = self._divisor("regret")
        found = []
        for table in losses.tables:
            sums = np.zeros(table.costs.shape)
            actions = best_actions(table.chances(self.forecasts).T, table.costs)
            np.add.at(sums, actions, self.weights[:, None] * table.chances(self.outcomes))
            costs = sums @ table.costs.T
            found.append(float(np.maximum(costs.diagonal() - costs.min(axis=1), 0.0).sum()) / weight)
        return losses.named(found)

    def _divisor(self, what: str) -> float:
        if self.rounds == 0:
            raise ParameterError(f"no round is recorded, so there is no {what} per round.")
        if self.weight == 0:
            raise ParameterError(f"all rounds have weight 0, so there is no {what} per round.")
        return self.weight

    def table(self, distance: Distance | str) -> Table:
        """Return one row for each group, the largest share of the error first."""
        gap = as_distance(distance).between(self.outcomes, self.forecasts)
        order = np.argsort(-self.weights * gap, kind="stable")
        return Table(self.forecasts[order], self.weights[order], self.outcomes[order], gap[order])

    def brier(self, squares: float | None = None) -> Brier:
        """Return the Brier score per round and its parts.

        Parameters
        ----------
        squares
            The sum of `‖y‖₂²` over all rounds, each times its weight, which a ledger does not keep: by default that of
            classes, the ledger's `weight`.

        Examples
        --------
        >>> import treecal as tc
        >>> ledger = tc.Ledger(tc.Simplex(2))
        >>> for p, y in [([0.5, 0.5], [1, 0]), ([0.5, 0.5], [0, 1]), ([1, 0], [1, 0]), ([1, 0], [1, 0])]:
        ...     ledger.record(p, y)
        >>> ledger.exact().brier()
        Brier(score=0.25, calibration=0.0, resolution=0.125, uncertainty=0.375)
        """
        weight = self._divisor("score")
        if squares is None:
            if np.abs(self.outcomes.sum(axis=1) - 1).max() > ROUNDING:
                raise ParameterError("squares is missing, and outcomes are not classes.", hint="squares=(Y**2).sum().")
            squares = weight
        calibration = self.error(l2.squared)
        base = self.weights @ self.outcomes / self.weights.sum()
        resolution = math.fsum(self.weights * l2.square(self.outcomes - base)) / weight
        uncertainty = max(float(squares) / weight - float(base @ base), 0.0)
        return Brier(calibration - resolution + uncertainty, calibration, resolution, uncertainty)

    def verdict(self, classes: Sequence[str] | None = None) -> Verdict:
        """Return how calibrated these forecasts of classes are, in words, and what to do: see `measures.Verdict`.

        Each class is binned by itself, in bins of a tenth. Of a forecast that is a distribution, each point counts
        with its weight, as if it were drawn.

        Parameters
        ----------
        classes
            Names of the classes.

        Examples
        --------
        >>> import treecal as tc
        >>> ledger = tc.Ledger(tc.Simplex(2))
        >>> for k in range(1000):
        ...     ledger.record([0.5, 0.5], np.eye(2)[k % 2])
        >>> ledger.exact().verdict().level
        'calibrated'
        """
        self._divisor("verdict")
        if self.weight != self.rounds:
            raise UnsupportedError(
                "rounds have weights, and a ledger does not keep how much they differ, so chance cannot be estimated.",
                hint="tc.audit(P, y, weight=w) can.",
            )
        low = self.forecasts.min()
        sums = self.forecasts.sum(axis=1)
        if low < -1e-6 or np.abs(sums - 1).max() > 1e-6:
            raise UnsupportedError("a verdict is about forecasts of classes, and these are not probabilities.")
        top, each = bin_rows(self.forecasts, self.outcomes, self.weights)
        names = map(str, range(len(each))) if classes is None else classes
        return Verdict(top, dict(zip(names, each, strict=True)))

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        how = "exact" if self.resolution is None else f"binned at {self.resolution:g}"
        return f"Reading({len(self)} groups over {self.rounds} rounds, {how})"
