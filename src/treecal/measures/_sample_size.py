"""How many outcomes it takes to convict a model, and what a log of given length can show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import finite_array, fraction, whole_number
from treecal.exceptions import ParameterError
from treecal.measures._log import read_forecasts

_PRIOR = 0.5
_MOST = 1e15
_SHIFT = "a class and how far its logit is too low, a finite number other than 0"


@dataclass(frozen=True)
class SampleSize:
    """How many outcomes it takes to convict a model.

    Attributes
    ----------
    outcomes
        The number of outcomes after which the model is convicted with the power asked for; 10^15 stands for more.
    information
        What an outcome tells on average, `KL(truth‖model)` in nats.
    regret
        What not knowing the effect costs, in nats.
    alpha, power
        The rate of false alarms, and of convictions within a number of outcomes.
    """

    outcomes: int
    information: float
    regret: float
    alpha: float
    power: float

    @property
    def mean(self) -> float:
        """The number of outcomes until conviction on average: `(ln(1/alpha) + regret)/information`."""
        if not self.information > 0:
            return math.inf
        return (math.log(1 / self.alpha) + self.regret) / self.information

    def __str__(self) -> str:
        if self.outcomes >= _MOST:
            return (
                f"No log is long enough to convict this model: an outcome tells {self.information:.2g} nats, because "
                "the effect hardly changes these forecasts."
            )
        return (
            f"About {self.outcomes:,} outcomes convict this model with a probability of {self.power:g}, "
            f"and a right one with {self.alpha:g} at most."
        )


def sample_size(
    forecasts: ArrayLike | None = None,
    *,
    temperature: float | None = None,
    shift: tuple[int, float] | None = None,
    stretch: float | None = None,
    offset: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    regret: float | None = None,
) -> SampleSize:
    """Return how many outcomes it takes until a model that is off in a given way is convicted.

    Evidence is an e-process: a bettor without foresight multiplies its capital by `q(y)/p(y)` at each outcome, and the
    model p is convicted when the capital reaches `1/alpha`. However often one looks, a right model is convicted with
    probability `alpha` at most. If the truth is q, the log capital grows by `KL(q‖p)` a round, so it takes about
    `(ln(1/alpha) + regret)/KL` outcomes on average (the field `mean`). The spread of the increments makes that the
    number for a given power, by the first passage of Brownian motion with drift.

    The regret is that of a bettor who knows neither the kind nor the size of the effect: the mean of `d + 1`
    components, a temperature and a shift of each class, each with a normal prior of standard deviation 1/2 on
    `ln(temperature)` or the logit: `ln(d + 1) + ln(1 + n·I/4)/2 + 2·effect²`, with the Fisher information I of an
    outcome. Simulated with this bettor, the number is 1 to 14 % too large for a power of 0.5 and 0.8, and up to 27 %
    for 0.95, for effects that take 50 outcomes or more (the table is in the how-to page). A monitor that tries more
    kinds of effects has more regret, one that knows more has less.

    Parameters
    ----------
    forecasts
        Forecasts that are typical of the model, `(n, d)`, some hundred rows of a log for instance; or one, `(d,)`. Not
        for numbers, whose levels are uniform whatever the forecasts are.
    temperature
        The temperature that would correct the model: the truth is proportional to `p^(1/temperature)`. Above 1 the
        model is overconfident.
    shift
        A class, and how far its logit is too low: the truth is proportional to `p·e^shift` for this class.
    stretch, offset
        Of numbers: how many times as wide as its forecasts the truth is; how far above them, in standard deviations.
        It is taken to be normal, and the bettor to know neither which of the two it is, nor how large.
    alpha
        Rate of false alarms.
    power
        Probability of conviction.
    regret
        What the bettor loses against one who knows the truth, in nats: 0 for one who does.

    Examples
    --------
    >>> import treecal as tc
    >>> print(tc.sample_size([0.7, 0.2, 0.1], temperature=2))
    About 117 outcomes convict this model with a probability of 0.8, and a right one with 0.05 at most.
    >>> tc.sample_size([0.7, 0.2, 0.1], shift=(2, 0.5), power=0.5).outcomes
    367
    >>> tc.sample_size(stretch=1.5).outcomes, tc.sample_size(offset=0.3).outcomes
    (40, 182)
    """
    if sum(each is not None for each in (temperature, shift, stretch, offset)) != 1:
        raise ParameterError("give one of a temperature, a shift, a stretch and an offset.")
    if stretch is not None or offset is not None:
        if forecasts is not None:
            raise ParameterError("of numbers, sample_size takes no forecasts: their levels are uniform.")
        return _of_numbers(stretch, offset, fraction("alpha", alpha), fraction("power", power), _regret(regret))
    P = _typical(() if forecasts is None else forecasts)
    which, effect = _effect(P.shape[1], temperature, shift)
    alpha = fraction("alpha", alpha)
    power = fraction("power", power)
    return _needed(P, which, effect, alpha, power, _regret(regret))


def smallest_effect(
    forecasts: ArrayLike,
    *,
    outcomes: int,
    of: int | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    regret: float | None = None,
) -> float:
    """Return the smallest effect that a log of given length shows with the power asked for.

    If nothing was found in a log, this is what could have been: an effect that is larger would probably be seen.

    Parameters
    ----------
    forecasts, alpha, power, regret
        As in `sample_size`.
    outcomes
        Number of rows of the log.
    of
        A class, for a shift of its logit; by default a temperature above 1. Infinite if no effect is large enough.

    Examples
    --------
    >>> round(smallest_effect([0.7, 0.2, 0.1], outcomes=1000), 2)          # a temperature
    1.23
    >>> round(smallest_effect([0.7, 0.2, 0.1], outcomes=1000, of=2), 2)    # of class 2, in logits
    0.4
    """
    P = _typical(forecasts)
    whole_number("outcomes", outcomes, least=1)
    alpha = fraction("alpha", alpha)
    power = fraction("power", power)
    regret = _regret(regret)
    which = None if of is None else whole_number("of", of, least=0, most=P.shape[1] - 1)

    def enough(effect: float) -> bool:
        return _needed(P, which, effect, alpha, power, regret).outcomes <= outcomes

    high = 1.0
    while not enough(high):
        high *= 2
        if high > 64:
            return math.inf
    low = 0.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.exp(high) if which is None else high


def _typical(forecasts: ArrayLike) -> Array:
    given = finite_array("forecasts", forecasts)
    return read_forecasts(given[None] if given.ndim == 1 else given)


def _regret(value: float | None) -> float | None:
    if value is not None and not (_is_number(value) and 0 <= value < math.inf):
        raise ParameterError.expected("regret", value, "a number of 0 or more, or None")
    return value


def _effect(classes: int, temperature: float | None, shift: tuple[int, float] | None) -> tuple[int | None, float]:
    """Return the class, None for a temperature, and the size of the effect, ln(temperature) or logits."""
    if temperature is not None:
        if not _is_number(temperature) or not 0 < temperature < math.inf or temperature == 1:
            raise ParameterError.expected("temperature", temperature, "a positive number other than 1")
        return None, math.log(temperature)
    if not isinstance(shift, tuple | list) or len(shift) != 2 or not _is_number(shift[1]):
        raise ParameterError.expected("shift", shift, _SHIFT, hint="for class 2 and half a logit, shift=(2, 0.5).")
    which, size = shift
    if not math.isfinite(size) or size == 0:
        raise ParameterError.expected("shift", shift, _SHIFT)
    return whole_number("the class of shift", which, least=0, most=classes - 1), float(size)


def _of_numbers(
    stretch: float | None, offset: float | None, alpha: float, power: float, regret: float | None
) -> SampleSize:
    """Return it for normal laws."""
    for name, given in (("stretch", stretch), ("offset", offset)):
        valid = given is None or (_is_number(given) and math.isfinite(given))
        if not valid or (name == "stretch" and given is not None and not (given > 0 and given != 1)) or given == 0:
            raise ParameterError.expected(
                name, given, "a positive number other than 1" if name == "stretch" else "not 0"
            )
    if offset is not None:  # by how much ln q exceeds ln p is linear in the outcome, or in its square
        return _solved(offset**2 / 2, offset**2, 1.0, float(offset), 2, alpha, power, regret)
    assert stretch is not None
    excess = stretch**2 - 1
    effect = math.log(stretch)
    return _solved(excess / 2 - effect, excess**2 / 2, 2.0, effect, 2, alpha, power, regret)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _needed(P: Array, which: int | None, effect: float, alpha: float, power: float, regret: float | None) -> SampleSize:
    classes = P.shape[1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logits = np.log(np.maximum(P, 0))
        moved = logits * math.exp(-effect) if which is None else logits + effect * (np.arange(classes) == which)
        top = moved.max(axis=1, keepdims=True)
        log_q = moved - top - np.log(np.exp(moved - top).sum(axis=1, keepdims=True))
        q = np.exp(log_q)
        gain = np.where(q > 0, log_q - logits, 0.0)  # what the outcome adds to the log capital of who knows the truth
        # The derivative of ln q by the effect has the Fisher information as its variance.
        slope = -np.where(q > 0, moved, 0.0) if which is None else np.broadcast_to(np.arange(classes) == which, q.shape)
    each = (q * gain).sum(axis=1)
    information = float(each.mean())
    variance = float((q * gain**2).sum(axis=1).mean()) - information**2
    fisher = float(((q * slope**2).sum(axis=1) - (q * slope).sum(axis=1) ** 2).mean())
    return _solved(information, variance, fisher, effect, classes + 1, alpha, power, regret)


def _solved(
    information: float,
    variance: float,
    fisher: float,
    effect: float,
    components: int,
    alpha: float,
    power: float,
    regret: float | None,
) -> SampleSize:
    """Return it by what an outcome tells of an effect, and among how many kinds of effects the bettor chooses."""
    if not information > 1e-15:
        return SampleSize(int(_MOST), max(information, 0.0), regret or 0.0, alpha, power)

    def loss(n: float) -> float:
        if regret is not None:
            return regret
        return math.log(components) + math.log1p(n * fisher * _PRIOR**2) / 2 + effect**2 / (2 * _PRIOR**2)

    def convicted(n: float) -> float:
        # A walk of steps oversteps its goal, by 0.583 standard deviations of a step on average (Siegmund).
        goal = math.log(1 / alpha) + loss(n) + 0.583 * math.sqrt(variance)
        return _passage(n, goal, information, variance)

    low = 1.0
    high = 2.0
    while convicted(high) < power and high < _MOST:
        low = high
        high = 2 * high
    while high - low > max(0.5, 1e-9 * high):
        middle = (low + high) / 2
        low, high = (low, middle) if convicted(middle) >= power else (middle, high)
    return SampleSize(math.ceil(high), information, loss(high), alpha, power)


def _passage(time: float, goal: float, drift: float, variance: float) -> float:
    """Return how often Brownian motion with a drift has reached the goal by a time (inverse Gaussian law)."""
    from scipy.special import log_ndtr, ndtr  # imported when needed: SciPy takes long

    if variance <= 0:
        return float(drift * time >= goal)
    root = math.sqrt(variance * time)
    again = math.exp(min(2 * drift * goal / variance + float(log_ndtr(-(drift * time + goal) / root)), 0.0))
    return min(float(ndtr((drift * time - goal) / root)) + again, 1.0)
