"""Rationed: advice in which some actions are taken no more often than they may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._states import State, check_array, check_names, resumed
from treecal._typing import Array, Changes, Saved
from treecal.correctors._base import Corrector, Scored, checked_part
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import DecisionForecast, Forecast
from treecal.forecasters import Regrets
from treecal.geometry import ConvexSet, Simplex
from treecal.measures import Action, Losses

STEP = 0.05
"""How much a use raises an action's price, as a share of the most by which costs differ."""


@dataclass(frozen=True, eq=False)
class Rations(State):
    """What is kept: what each action costs on top, `(a,)`, how often it was advised, `(a,)`, and the regrets."""

    prices: Array
    used: Array
    regrets: Array


class Rationed(Corrector):
    """A model's advice with a limit on how often actions are taken: "at most 1 % of the payments are blocked".

    A limited action costs a price on top, which every use raises by `η·(1 − rate)` and every other round lowers by
    `η·rate`, but not below 0: so it is taken where it saves most, and the threshold follows the stream. `η` is a
    twentieth of the span of the costs.

    **How often.** After T rounds an action was taken at most `rate·T + 1 + span/η = rate·T + 21` times, whatever the
    forecasts: its price is at most `span + η`, since it is not taken above `span`, where an action without a limit is
    cheaper. **What it costs** has no bound: the best advice within the limits knows the stream to come. `regret` is
    the swap regret against taking actions without limits, and so at least what the limits are worth.

    Parameters
    ----------
    space
        The classes.
    losses
        What each action costs under each class, of one decision: see `Losses`.
    at_most
        The share of the rounds in which an action may be taken, by its name; one action at least has no limit.
    corrector
        A new corrector to apply to the model's forecasts first; by default none.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> space, rng = tc.Simplex(classes=["fine", "fraud"]), np.random.default_rng(0)
    >>> f = tc.Rationed(space, {"pass": [0, 20], "block": [1, 0]}, at_most={"block": 0.02})
    >>> for p in rng.beta(1, 9, size=3000):
    ...     x = f.predict([1 - p, p])
    ...     f.update(int(rng.random() < p))
    >>> f.used, x.action
    ({'pass': 2932, 'block': 68}, 'pass')
    """

    _fields = ("space", "losses", "at_most", "corrector", "scores", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        losses: Any,
        *,
        at_most: Mapping[Any, float] | Iterable[tuple[Action, float]],
        corrector: Corrector | None = None,
        scores: Scored | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(space, scores=scores, tolerance=tolerance)
        self.losses = Losses.read(space, losses)
        if self.losses.names is not None:
            raise ParameterError.expected("losses", list(self.losses.names), "one decision")
        (table,) = self.losses.tables
        limits = dict(at_most)
        if not limits or not set(limits) <= set(table.actions) or len(limits) == len(table.actions):
            what = f"shares for some of {list(table.actions)}, and not for all"
            raise ParameterError.expected("at_most", limits, what)
        if not all(isinstance(rate, int | float) and 0 <= rate <= 1 for rate in limits.values()):
            raise ParameterError.expected("at_most", limits, "shares of the rounds, from 0 to 1")
        self.at_most = tuple((name, float(rate)) for name, rate in limits.items())
        if corrector is not None:
            part = checked_part("corrector", corrector, new := f"a new Corrector on {space!r}")
            if part.rounds or part.space != space:
                raise ParameterError.expected("corrector", corrector, new)
        rates = [limits.get(name, np.inf) for name in table.actions]
        self._limited = np.isfinite(rates)
        self._rates = np.where(self._limited, rates, 0.0)
        none = np.zeros(len(rates))
        inner = None if corrector is None else corrector._unscored()
        self._none = Regrets.empty(self.losses)
        self._now = inner, Rations(none, none, self._none.get_state()["regrets"])

    @property
    def corrector(self) -> Corrector | None:
        """What is applied to the model's forecasts first."""
        return self._now[0]

    @property
    def used(self) -> dict[Action, int]:
        """How often each action was advised."""
        counts = self._now[1].used.astype(int).tolist()
        return dict(zip(self.losses.actions, counts, strict=True))

    @property
    def regret(self) -> float:
        """The swap regret so far, per round, against taking actions without limits."""
        state = self._now[1]
        rounds = int(state.used.sum())
        return self._none.resumed({"rounds": rounds, "regrets": state.regrets}).total / max(rounds, 1)

    def _announce(self, forecast: Array) -> Forecast:
        corrector, state = self._now
        point = forecast if corrector is None else corrector._announced(forecast, None).mean
        priced = Losses(self.losses.space, self.losses.costs + state.prices[:, None], actions=self.losses.actions)
        return DecisionForecast(self._point(point), priced)

    def _after(self, forecast: Array, outcome: Array) -> Changes:
        (corrector, state), x = self._now, self._announce(forecast)
        assert isinstance(x, DecisionForecast)
        (shares,) = x.shares
        (table,) = self.losses.tables
        step = STEP * table.span
        prices = np.where(self._limited, np.maximum(state.prices + step * (shares - self._rates), 0.0), 0.0)
        each = table.scaled_under(outcome)
        regrets = state.regrets + (shares[:, None] * (each[:, None] - each)).ravel()
        if corrector is not None:
            corrector = corrector._learned(forecast, outcome)
        return {"_now": (corrector, Rations(prices, state.used + shares, regrets))}

    def _own_state(self) -> Saved:
        corrector, state = self._now
        return dict(vars(state)) | ({} if corrector is None else {"corrector": corrector.get_state()})

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        corrector, now = self._now
        check_names("the state", state, [*vars(now), *["corrector"] * (corrector is not None)])
        for name, own in vars(now).items():
            check_array(f"the {name}", state[name], own.shape)
        if (state["used"] < 0).any() or (state["prices"] < 0).any():
            raise SnapshotError("an action was used, or costs, less than 0.")
        kept = Rations(**{name: state[name].copy() for name in vars(now)})
        return {"_now": (None if corrector is None else resumed(corrector, state["corrector"]), kept)}

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield one that may guess the first class every tenth time."""
        if isinstance(space, Simplex) and space.dim > 1:
            yield cls(space, 1.0 - np.eye(space.dim), at_most={0: 0.1})
