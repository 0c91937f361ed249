"""Gated: a corrector that announces the model's own forecasts until it has evidence to do better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from treecal._elementary import log
from treecal._evidence import FLOOR, MOST, EProcess, brier_bet, crps_bet, log_bet
from treecal._states import check_count, check_like, check_names, check_number, resumed
from treecal._typing import Array, Changes, Saved
from treecal._validate import positive_number
from treecal.correctors._base import Corrector, Scored, checked_part
from treecal.correctors._batch import Batch, Group
from treecal.correctors._groups import Cells
from treecal.correctors._location_scale import LocationScale
from treecal.correctors._recalibrator import Recalibrator
from treecal.correctors._scaling_kinds import VectorScaling
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import reach
from treecal.geometry import Cdf, ConvexSet, Simplex

KEPT = 1000
"""The latest switches are kept, so that an adversary cannot fill the memory."""
_LEAST_ALPHA = 1e-300
WHO: tuple[Literal["corrector", "model"], ...] = ("corrector", "model")

By = Literal["brier", "log"]


class Switch(NamedTuple):
    """A change of what is announced, with its evidence."""

    round: int
    """The round after whose outcome it happened, as `rounds` counts them: those of a log come first."""
    to: Literal["corrector", "model"]
    """Whose forecasts are announced from then on."""
    e_value: float
    """Evidence against those announced before: `1/alpha` or more."""
    since: int
    """The round in which that evidence most likely began."""


@dataclass(frozen=True)
class Gate:
    """Whether the corrector's forecasts are announced, and the evidence against what is."""

    open: bool = False
    evidence: EProcess = field(default_factory=EProcess)
    count: int = 0
    switches: tuple[Switch, ...] = ()

    def after(self, bet: float, alpha: float, number: int) -> Gate:
        """Return the gate after round `number`, by a bet against what was announced in it."""
        evidence = self.evidence.after(bet)
        if evidence.log_value < -log(alpha):
            return Gate(self.open, evidence, self.count, self.switches)
        began = number - evidence.rounds + evidence.onset
        switch = Switch(number, WHO[self.open], evidence.value, began)
        return Gate(not self.open, EProcess(), self.count + 1, (*self.switches, switch)[-KEPT:])


class Gated(Corrector):
    """Do no harm: announces the model's own forecasts, unchanged, until a corrector has proved to be better.

    The corrector learns from the first round on. Its forecasts `q` are announced once the evidence against the model's
    `p`, an e-value, reaches `1/alpha`; the model's again once the evidence against the corrector's, collected since,
    does. `switches` lists every change.

    In a round where `p` is announced the e-value is multiplied by `exp((‖y − p‖² − ‖y − q‖²)·2/D²)`, `D` the set's ℓ2
    diameter: on the simplex by `exp` of the difference of the Brier scores. If `p` is the mean of the outcome given the
    past, the expectation of that factor is at most 1 (Hoeffding's lemma), whatever `q` is. The e-value is the average
    over all rounds `k` since the last switch in which evidence may have begun, with weights `1/(k(k+1))`, so a model
    that fails after years of good service is found out soon. Where `q` is announced the two change places. Two
    guarantees follow.

    - *A model that is right is left alone.* If every `p` is the law of its outcome given the past, the probability
      that anything else is ever announced is at most `alpha`, over the whole stream (Ville). In the same way a
      corrector that is right since it was switched to is left with probability `alpha` at most.
    - *On every sequence*, of whatever kind, the total Brier score is at most that of the better of the two *in each
      stretch between switches*, plus `(ln(2/alpha) + 2)·D²/2` for each switch, and `ln(2/alpha)·D²/2` for the stretch
      that has not ended: 5.7 and 3.7 on the simplex with `alpha=0.05`, in total and not per round. For the sum of a
      stretch's bets is at most the logarithm of twice the e-value, which is below `1/alpha` until the switch, and the
      last bet is at most 2. `excess()` is this number now.

    No rule that announces one of two forecasts can do without the number of switches in its bound: an outcome that is
    always bad for the one announced makes both of them better than the rule. (`Mixture`, which announces something in
    between, can.) The score of a distribution is here that of its mean.

    With `by="log"` the same holds for the log score, probabilities below 1e-9 read as 1e-9: at most
    `ln(2/alpha) + 20.8` for each switch, `ln(2/alpha)` for the last stretch, and `1e-9·dim` a round. It finds errors in
    small probabilities much sooner.

    On a `tc.Cdf` the score is the CRPS, and a round's difference of scores counts `λ_t` times in place of `2/D²`, where
    `λ_t >= 2/D²` is as large as the two forecasts allow (`treecal._evidence.crps_bet`): narrow forecasts on a wide set
    are told apart as soon as others. `excess()` is then of the scores counted so many times.

    The second guarantee is one of rounds in order, with weights of 1. Where outcomes come late (`tc.Late`, `learn`),
    evidence is collected in order of arrival, with the corrector as it is then: what is tested is whether `p` is right
    given all that had arrived before the outcome, and `excess()` does not cover what was announced meanwhile. Evidence
    counts each round once, whatever its weight, so it does not cover weighted scores either; the rounds of `fit` are
    not counted at all. Costs a round of the corrector and `O(dim)`.

    Parameters
    ----------
    corrector
        The corrector, of which a copy is used; it may have learned from a log before.
    alpha
        The probability of a switch away from forecasts that are right, between 1e-300 and 1.
    by
        The score in which the two are compared: "brier", or for classes "log".
    scores, tolerance
        As for every `Corrector`; the tolerance is by default that of the corrector.

    Examples
    --------
    A model that is right for 1,000 rounds, then three times as sure as it should be.

    >>> import numpy as np
    >>> import treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> f = tc.Gated(tc.PlattScaling(tc.Simplex(2)))
    >>> for t in range(3000):
    ...     z = rng.normal()
    ...     rain = rng.random() < 1 / (1 + np.exp(-z))
    ...     p = 1 / (1 + np.exp(-z if t < 1000 else -3 * z))
    ...     x = f.predict([1 - p, p])
    ...     f.update([0, 1] if rain else [1, 0])
    >>> [(s.round, s.to, round(s.e_value)) for s in f.switches]
    [(1126, 'corrector', 33)]

    References
    ----------
    Ville, "Étude critique de la notion de collectif", 1939.
    Vovk and Zhdanov, "Prediction with expert advice for the Brier game", 2009.
    Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023.
    """

    _fields = ("corrector", "alpha", "by", "scores", "tolerance")

    def __init__(
        self,
        corrector: Corrector,
        *,
        alpha: float = 0.05,
        by: By = "brier",
        scores: Scored | None = "binned",
        tolerance: float | None = None,
    ) -> None:
        part = checked_part("corrector", corrector, "a Corrector", hint="tc.Gated(tc.VectorScaling(space)).")
        super().__init__(part.space, scores=scores, tolerance=part.tolerance if tolerance is None else tolerance)
        self.alpha = positive_number("alpha", alpha)
        if not _LEAST_ALPHA <= self.alpha < 1:
            raise ParameterError.expected("alpha", alpha, f"between {_LEAST_ALPHA:g} and 1")
        if by not in get_args(By) or (by == "log" and not isinstance(self.space, Simplex)):
            kinds = "'brier' or 'log'" if isinstance(self.space, Simplex) else "'brier': a log score needs classes"
            raise ParameterError.expected("by", by, kinds)
        self.by, self._diameter = by, reach(self.space, "l2")
        self._asked: tuple[object, Array | None, Group, Forecast | None] = None, None, None, None
        self._now: tuple[Corrector, Gate] = part._unscored(), Gate()  # scores are kept here

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield one for every set, one for classes that switches often, and one by the log score."""
        if isinstance(space, Cdf):
            yield cls(LocationScale(space), alpha=0.5)
        with suppress(UnsupportedError):  # a set that does not know its size
            yield cls(Recalibrator(space, groups=Cells(), make="shift"), alpha=0.5)
        if isinstance(space, Simplex):
            yield cls(VectorScaling(space, ridge=1.0), alpha=0.9)
            yield cls(cls(Recalibrator(space), by="log"), by="log", alpha=0.3)

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return vector scaling behind a gate."""
        return {"gated": lambda space: cls(VectorScaling(space))}

    @property
    def corrector(self) -> Corrector:
        """The corrector, as it is now."""
        return self._now[0]

    @property
    def open(self) -> bool:
        """Whether the corrector's forecasts are announced now."""
        return self._now[1].open

    @property
    def e_value(self) -> float:
        """The evidence since the last switch against what is announced now: a switch comes at `1/alpha`."""
        return self._now[1].evidence.value

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The switches, oldest first; of more than 1,000, the latest."""
        return self._now[1].switches

    @property
    def switch_count(self) -> int:
        """The number of all switches."""
        return self._now[1].count

    @property
    def ordered(self) -> bool:
        """Whether the corrector needs its outcomes in order."""
        return self.corrector.ordered

    def excess(self) -> float:
        """Return the most by which the total score can exceed that of the better one in each stretch: see above.

        Examples
        --------
        >>> import treecal as tc
        >>> round(tc.Gated(tc.VectorScaling(tc.Simplex(3))).excess(), 2)
        3.69
        """
        switches = self.switch_count
        stretch = math.log(2 / self.alpha)
        if self.by == "log":
            floor = math.log1p(FLOOR * self.space.dim)
            return switches * (stretch - math.log(FLOOR)) + stretch + (self._rounds - self._from_logs) * floor
        unit = 1.0 if isinstance(self.space, Cdf) else self._diameter**2 / 2
        return (switches * (stretch + 2) + stretch) * unit

    def _check_given(self, group: Group, weight: float) -> None:
        self.corrector._check_given(group, weight)

    def _corrected(self, forecast: Array, group: Group) -> Forecast:
        """Return the corrector's forecast: asked once, to be announced and to be compared."""
        now, b, known, x = self._asked
        if x is None or now is not self._now or b is not forecast or known != group:
            x = self.corrector._announced(forecast, group)
            self._asked = self._now, forecast, group, x
        return x

    def _announce(self, forecast: Array, *, group: Group = None) -> Forecast:
        x = self._corrected(forecast, group)  # also where it is not announced: what it refuses is refused
        return x if self.open else self._point(forecast)

    def _announce_many(self, forecasts: Array, groups: Sequence[Group] | None) -> Array:
        found = self.corrector._announce_many(forecasts, groups)
        return found if self.open else np.array(forecasts)

    def _after(self, forecast: Array, outcome: Array, *, group: Group = None, weight: float = 1.0) -> Changes:
        corrector, gate = self._now
        gate = self._judged(gate, self._rounds + 1, forecast, self._corrected(forecast, group).mean, outcome)
        return {"_now": (corrector._learned(forecast, outcome, group, weight), gate)}

    def _judged(self, gate: Gate, number: int, model: Array, corrected: Array, outcome: Array) -> Gate:
        """Return the gate after a round, by both forecasts."""
        announced, other = (corrected, model) if gate.open else (model, corrected)
        if self.by == "log":
            bet = log_bet(announced, other, outcome)
        elif isinstance(self.space, Cdf):
            bet = crps_bet(announced, other, outcome, self.space.widths)
        else:
            bet = brier_bet(announced, other, outcome, diameter=self._diameter)
        return gate.after(bet, self.alpha, number)

    def _played(self, batch: Batch) -> tuple[Array, Changes] | None:
        """Let the corrector learn all rounds, if it knows how: what it announces is judged afterwards, in order."""
        corrector, gate = self._now
        if (found := corrector._played(replace(batch, inner=True))) is None:
            return None
        corrected, changes = found
        means = np.array(batch.forecasts)
        numbers = self._rounds + batch.numbers()
        for i, (b, y) in enumerate(zip(batch.forecasts, batch.outcomes, strict=True)):
            if gate.open:
                means[i] = corrected[i]
            if batch.weight(i):
                gate = self._judged(gate, int(numbers[i]), b, corrected[i], y)
        return means, {"_now": (corrector._with(changes, len(batch.counted())), gate)}

    def _fit(self, batch: Batch) -> None:
        """Fit the corrector. A log that it was fitted to is no evidence, so the gate stays as it is."""
        corrector, gate = self._now
        vars(self).update(_now=(corrector._fitted_to(batch), gate), **self._counted(len(batch)))

    def _own_state(self) -> Saved:
        corrector, gate = self._now
        columns = zip(*gate.switches, strict=True) if gate.switches else [()] * 4
        switches = dict(zip(Switch._fields, map(list, columns), strict=True))
        return {
            "corrector": corrector._past(),
            "open": gate.open,
            "evidence": asdict(gate.evidence),
            "count": gate.count,
            "switches": switches,
        }

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        check_names("the gate", state, ("corrector", "open", "evidence", "count", "switches"))
        check_like(asdict(EProcess()), state["evidence"], "the evidence")
        check_count("the number of switches", state["count"], most=rounds)
        switches = _checked_switches(state["switches"], state["count"], rounds)
        gate = Gate(state["open"], EProcess.checked(state["evidence"], most=rounds), int(state["count"]), switches)
        if not isinstance(gate.open, bool):
            raise SnapshotError("whether the gate is open is not True or False.")
        return {"_now": (resumed(self.corrector, state["corrector"]), gate)}

    def __repr__(self) -> str:
        by = f", by={self.by!r}" * (self.by != "brier")
        return f"Gated({self.corrector!r}, alpha={self.alpha:g}{by})"


def _checked_switches(state: Any, count: int, rounds: int) -> tuple[Switch, ...]:
    """Return the latest of so many switches, or raise unless they are switches of so many rounds."""
    check_names("the switches", state, Switch._fields)
    kept = min(count, KEPT)
    if any(not isinstance(column, list) or len(column) != kept for column in state.values()):
        raise SnapshotError(f"the switches are not lists of {kept}.")
    found = tuple(map(Switch, *(state[name] for name in Switch._fields)))
    for switch in found:
        check_count("a switch's round", switch.round, most=rounds)
        check_count("a switch's onset", switch.since, most=switch.round)
        check_number("a switch's e-value", switch.e_value, least=1.0, most=1.01 * math.exp(MOST))
        if switch.to not in WHO:
            raise SnapshotError(f"the switch in round {switch.round} is to nobody.")
    return found
