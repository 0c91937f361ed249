"""Evidence that may be looked at after every outcome: e-values, as logarithms.

The null hypothesis of a forecast `p` is that `p` is the mean of the outcome given all before it: for classes, its law.
A *bet* is a factor that is at least 0 and has an expectation of at most 1 under the null. A product of bets, each
chosen before its outcome, is an e-process: by Ville's inequality it ever reaches `1/α` with probability `α` at most,
however often one looks. A bet is written as its logarithm, and takes another forecast `q` that is thought to be better.
All are pure functions of points of the set, and none gives NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treecal._elementary import LN2, exp, log
from treecal._states import check_count, check_number
from treecal._typing import Array

MOST = 700.0
"""Of the logarithm of a bet, in size: its exponential is a float. A smaller gain is still a bet; a loss is as good as
total, since it exceeds it by 1e-304."""
FLOOR = 1e-9
"""The least probability in a log score: an outcome of probability 0 costs 20.7, not infinity."""


def brier_bet(forecast: Array, rival: Array, outcome: Array, *, diameter: float) -> float:
    """Return `(‖y − p‖² − ‖y − q‖²)·2/D²`: on the simplex, the difference of the Brier scores itself.

    With `u = q − p` it is `(2⟨y − p, u⟩ − ‖u‖²)·2/D²`. Under the null `⟨y − p, u⟩` has mean 0 and lies in an interval
    of length `D‖u‖` or less, so by Hoeffding's lemma `E exp(4⟨y − p, u⟩/D²) <= exp(2‖u‖²/D²)`: the bet's expectation is
    at most 1. (In the words of Vovk and Zhdanov: the Brier game is 1-mixable.) It lies between −2 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> brier_bet(np.array([0.5, 0.5]), np.array([1.0, 0.0]), np.array([1.0, 0.0]), diameter=math.sqrt(2)).__round__(9)
    0.5
    """
    if not diameter > 0:
        return 0.0
    missed = outcome - forecast
    rivals = outcome - rival
    return min(max((math.fsum(missed * missed) - math.fsum(rivals * rivals)) * 2 / diameter**2, -2.0), 2.0)


def crps_bet(forecast: Array, rival: Array, outcome: Array, widths: Array) -> float:
    """Return `λ(‖y − p‖² − ‖y − q‖²)` in the norm of the widths: the difference of the continuous ranked scores.

    With `u = q − p` the bracket is `2⟨y − p, u⟩ − ‖u‖²`. A step `y` has `⟨y, u⟩ = Σ_{k>=j} w_k·u_k`, which lies in an
    interval whose length `R` is known before the outcome. So by Hoeffding's lemma the bet's exponential has an
    expectation of at most 1 where `λ <= 2‖u‖²/R²`; and `λ <= 2/(2R + ‖u‖²)` keeps the bet between −2 and 2. Of the two
    it is the lesser. Forecasts far narrower than the set make it far larger than `2/D²`.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.5]), np.array([0.0, 0.5])
    >>> crps_bet(p, q, np.array([0.0, 1.0]), np.ones(2))
    0.4
    """
    moved = rival - forecast
    ends = np.append(np.add.accumulate((widths * moved)[::-1]), 0.0)
    reach = float(ends.max() - ends.min())
    square = math.fsum(widths * moved * moved)
    if not reach > 0:
        return 0.0
    rate = min(2 * square / reach / reach, 2 / (2 * reach + square))
    missed = outcome - forecast
    return min(max(rate * (2 * math.fsum(widths * missed * moved) - square), -2.0), 2.0)


def log_bet(forecast: Array, rival: Array, outcome: Array) -> float:
    """Return the difference of the log scores, `Σ_i y_i·ln(q_i/p_i)`, probabilities below 1e-9 read as 1e-9.

    Without that, its exponential has the expectation 1 under the null, and less where outcomes are not classes (the
    geometric mean of `q_i/p_i` is at most the arithmetic one). With it the expectation is at most `Σ_i max(q_i, 1e-9)`,
    which is less than `1 + 1e-9·dim <= e^(1e-9·dim)`: so much is taken off. It lies between `ln 1e-9` and `ln 1e9`.

    Examples
    --------
    >>> import numpy as np
    >>> math.exp(log_bet(np.array([0.5, 0.5]), np.array([0.75, 0.25]), np.array([1.0, 0.0]))).__round__(3)
    1.5
    """
    met = outcome > 0
    gained = [
        y * (log(max(q, FLOOR)) - log(max(p, FLOOR)))
        for p, q, y in zip(forecast[met], rival[met], outcome[met], strict=True)
    ]
    return math.fsum(gained) - FLOOR * len(outcome)


@dataclass(frozen=True)
class EProcess:
    """The average of the products of bets from every start on: the start in round `k` has the weight `1/(k(k+1))`.

    So a change after a long good stretch is found almost as soon as one at the beginning. All starts share their bets,
    so this takes no more than one number: what has been started and what starts next are `C_t = C_{t−1}·f_t + w_{t+1}`,
    and all that starts later is `1/(t+2)`. An average of e-processes is one. Immutable: `after` returns the next.

    Examples
    --------
    >>> e = EProcess()
    >>> for factor in [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]:
    ...     e = e.after(math.log(factor))
    >>> round(e.value, 2), e.onset
    (12.72, 3)
    """

    rounds: int = 0
    capital: float = -LN2
    """Logarithm of what the starts so far have, and the next one gets."""
    run: float = 0.0
    """The largest sum of bets that ends now, or 0 for none: Page's CUSUM."""
    onset: int = 1
    """The round in which that sum begins: where a change most likely began."""

    @property
    def log_value(self) -> float:
        """The logarithm of the e-value."""
        return _log_sum(self.capital, -log(self.rounds + 2))

    @property
    def value(self) -> float:
        """The e-value, at most e^700: evidence against the null, 1 for none."""
        return exp(min(self.log_value, MOST))

    def after(self, bet: float) -> EProcess:
        """Return the e-process after one more round, by the logarithm of its bet."""
        gain = min(max(bet, -MOST), MOST)
        rounds = self.rounds + 1
        run = self.run + gain
        capital = _log_sum(self.capital + gain, _log_weight(rounds + 1))
        return EProcess(rounds, capital, run, self.onset) if run > 0 else EProcess(rounds, capital, 0.0, rounds + 1)

    @classmethod
    def checked(cls, state: dict[str, float], *, most: int) -> EProcess:
        """Return the e-process of a state with the right names, or raise unless its numbers are in range."""
        e = cls(**state)  # type: ignore[arg-type]
        check_count("the evidence's rounds", e.rounds, most=most)
        check_count("the evidence's onset", e.onset, most=e.rounds + 1)
        most_of_all = MOST * (e.rounds + 1)
        check_number("the evidence's capital", e.capital, least=-most_of_all, most=most_of_all)
        check_number("the evidence's run", e.run, least=0.0, most=most_of_all)
        return e


def _log_weight(start: int) -> float:
    """Return the logarithm of the weight of a start."""
    return -log(start) - log(start + 1)


def _log_sum(a: float, b: float) -> float:
    """Return `ln(e^a + e^b)`."""
    return max(a, b) + log(1 + exp(-abs(a - b)))
