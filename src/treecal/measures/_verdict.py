"""The verdict on forecasts of classes, and what to do: one rule, for audits, correctors, forecasters and reports.

Two views are judged: the most likely class of each row, and all classes, one by one.

1. *Is it chance?* The ECE of either view is compared with what calibrated forecasts would show. If neither is larger
   than in one of twenty such logs (Bonferroni: one of forty each), the forecasts are **calibrated** as far as the log
   can tell: if the interval of the error ends below a quarter of the base rate. If it does not, one **cannot tell**.
2. *Is it much?* Otherwise the error, without its noise, is divided by the base rate (see `Bins.base`): up to a tenth is
   **nearly calibrated** (if its interval ends below a quarter), up to three tenths **somewhat off**, more **far off**.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from treecal._typing import Array, Integers
from treecal.measures._levels import Interval
from treecal.measures._reliability import Bins, Luck, chance_of, classwise_base, interval_of, together

Name = TypeVar("Name")
Level = Literal["calibrated", "nearly calibrated", "somewhat off", "far off", "cannot tell"]

ALPHA = 0.05
"""How often calibrated forecasts are called off."""
TELL = 0.25
"""Of the base rate: where an error as large could hide, one cannot tell."""
NEARLY = 0.1
SOMEWHAT = 0.3
"""Of the base rate: the largest errors that are nearly calibrated, and somewhat off."""
REMEDY = ("AutoCorrector",)
"""What is advised whatever is wrong: on held-out logs it is better than any single corrector."""
_COUNTLESS = 1e12
_EXPLAINED = 0.75  # of the square of the error: what a remedy must remove to be advised


class View(NamedTuple):
    """One way to look at the forecasts.

    Attributes
    ----------
    name
        What is compared.
    error
        The root mean square gap without noise, with its interval.
    luck
        The ECE, and what chance alone would show.
    base
        The base rate that the error is compared with.
    """

    name: str
    error: Interval
    luck: Luck
    base: float

    @property
    def share(self) -> float:
        """The error as a share of the base rate."""
        return self._of_base(self.error.value)

    @property
    def most(self) -> float:
        """The end of its interval as a share of the base rate."""
        return self._of_base(self.error.high)

    def to_dict(self) -> dict[str, Any]:
        """Return the error, its interval, and what chance would show as JSON values."""
        return {
            "debiased_ece": self.error.value,
            "interval": [self.error.low, self.error.high],
            "chance": self.luck.to_dict(),
            "base": self.base,
        }

    def _of_base(self, error: float) -> float:
        # Without a base rate every forecast and every outcome was certain.
        return error / self.base if self.base > 0 else 0.0


class Advice(NamedTuple):
    """What to do about forecasts: what was found, and the correctors of this package that would help.

    Attributes
    ----------
    found
        The findings, in sentences.
    methods
        Names of classes of correctors, such as "AutoCorrector": any one of them.

    Examples
    --------
    >>> advice = Advice("Too sure: a temperature of about 1.5.", ("AutoCorrector",))
    >>> advice.text()
    'Too sure: a temperature of about 1.5. Use tc.AutoCorrector.'
    """

    found: str
    methods: tuple[str, ...] = ()

    def text(self, named: Callable[[str], str] = "tc.{}".format) -> str:
        """Return it in a line.

        Parameters
        ----------
        named
            How a corrector is called where this is read.
        """
        if not self.methods:
            return self.found
        return f"{self.found} Use {' or '.join(map(named, self.methods))}."


@dataclass(frozen=True, eq=False)
class Verdict:
    """How calibrated forecasts of classes are, in a word, in sentences, and what to do about it.

    Attributes
    ----------
    top
        Rows binned by the probability of their most likely class.
    classes
        Rows binned by the probability of each class, by its name.

    Examples
    --------
    A model that never expects a fraud, and 4 % are:

    >>> never = Bins(np.array([0.0]), np.array([2000]), np.array([0.04]))
    >>> always = Bins(np.array([1.0]), np.array([2000]), np.array([0.96]))
    >>> verdict = Verdict(always, {"honest": always, "fraud": never})
    >>> verdict.level, round(verdict.share, 2)
    ('far off', 0.99)
    """

    top: Bins
    classes: Mapping[str, Bins]

    @cached_property
    def views(self) -> tuple[View, View]:
        """The two views: the most likely class, and all classes."""
        top = self.top
        each = list(self.classes.values())
        return (
            View("for the most likely class", top.interval(), top.chance, top.base),
            View("class by class", interval_of(each), chance_of(each), classwise_base(each)),
        )

    def __str__(self) -> str:
        first, *more = self.sentences
        return f"{first}\n{' '.join(more)}\nWhat to do: {self.advice}"

    @property
    def p_value(self) -> float:
        """How often chance alone shows as much, in one view or the other."""
        return min(1.0, len(self.views) * min(view.luck.p_value for view in self.views))

    @property
    def share(self) -> float:
        """The error as a share of the base rate, in the view that is further off."""
        return self.worst.share

    @property
    def worst(self) -> View:
        """The view that decides: of those that chance does not explain, if any, the one that is further off."""
        off = [view for view in self.views if view.luck.p_value < ALPHA / len(self.views)]
        return max(off, key=lambda view: view.share) if off else max(self.views, key=lambda view: view.most)

    @property
    def level(self) -> Level:
        """The verdict in a word or two."""
        if self.p_value >= ALPHA:
            return "calibrated" if self.worst.most <= TELL else "cannot tell"
        share = self.share
        if share <= NEARLY and self.worst.most > TELL:
            return "somewhat off"
        return "nearly calibrated" if share <= NEARLY else "somewhat off" if share <= SOMEWHAT else "far off"

    @property
    def rows(self) -> int:
        """Rows of equal weight."""
        return round(math.fsum(self.top.rows))

    @property
    def sentences(self) -> list[str]:
        """The verdict in plain words."""
        view = self.worst
        rows = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        if self.top.worth != 1:
            rows = f"weighted rows worth {rows} of equal weight"
        error = view.error
        luck = view.luck
        seen = f"{view.name[0].upper()}{view.name[1:]}"
        measured = (
            f"the ECE is {luck.value:.3f}; calibrated forecasts would show {luck.mean:.3f} by chance, and "
            f"{luck.high:.3f} or more in one such log of twenty"
        )
        if self.level == "calibrated":
            text = [f"Calibrated, as far as {rows} can tell. {seen}, {measured}."]
        elif self.level == "cannot tell":
            text = [
                f"Cannot tell from {rows}. {seen}, {measured}; but an error of up to {error.high:.3f} could hide, "
                f"{percent(view.most)} of the base rate, {view.base:.3f}."
            ]
        else:
            text = [
                f"{self.level.capitalize()}, over {rows}. {seen}, forecasts miss the mean outcome by {error.value:.3f} "
                f"({100 * error.level:g} % interval {error.low:.3f} to {error.high:.3f}), {percent(view.share)} of the "
                f"base rate, {view.base:.3f}. It is not chance: {measured}."
            ]
        return [*text, self._sureness, *self._thin]

    @property
    def _sureness(self) -> str:
        forecast = self.top.mean_forecast
        outcome = self.top.mean_outcome
        gap = forecast - outcome
        found = f"The most likely class was given {forecast:.3f} on average, and was right in {outcome:.3f} of the rows"
        tendency = f"{'too sure' if gap > 0 else 'not sure enough'} by {abs(gap):.3f}"
        if f"{abs(gap):.3f}" == "0.000" or (abs(_shift(self.top)) <= 2 and self.level == "calibrated"):
            return f"{found}: as sure as it should be, as far as these rows tell."
        if abs(_shift(self.top)) <= (3 if self.level == "cannot tell" else 2):
            return f"{found}: {tendency}, which may be chance; no tendency to over- or underconfidence is proved."
        return f"{found}: {tendency}."

    @property
    def _thin(self) -> list[str]:
        thin = sum(int(bins.thin.sum()) for bins in self.classes.values())
        full = sum(int((bins.weight > 0).sum()) for bins in self.classes.values())
        return [f"{thin} of {full} bins are thin: they have fewer than 30 rows."] if 2 * thin > full else []

    @property
    def off(self) -> list[str]:
        """The classes that chance does not explain, the largest share of their base rate first."""
        limit = ALPHA / len(self.classes)
        found = {name: bins for name, bins in self.classes.items() if bins.chance.p_value < limit}
        return sorted(found, key=lambda name: -found[name].debiased_ece / max(found[name].base, 1e-12))

    @property
    def advice(self) -> str:
        """What to do, in a line."""
        return self.advised.text()

    @cached_property
    def advised(self) -> Advice:
        """What to do, as data."""
        if self.level == "calibrated":
            return Advice("No correction needed.")
        if self.level == "cannot tell":
            more = self._needed - self.rows
            if more > _COUNTLESS:
                return Advice(
                    "Too few rows to tell, and no log has enough of them: what is so rare is as good as impossible."
                )
            return Advice(f"Too few rows to tell: about {_rounded(more):,} more at least.")
        remedy = self._remedy
        if self.level == "nearly calibrated":
            return remedy._replace(found=f"Small enough for most uses. {remedy.found}")
        return remedy

    @property
    def _needed(self) -> float:
        """Rows with which one could tell: intervals shrink as 1/n until the rare class is met, then as 1/√n."""
        view = self.worst
        met = max(self.rows, 1 / max(view.base, 1e-300))
        return met * max(view.most * (self.rows / met) / TELL, 1.0) ** 2

    @property
    def _remedy(self) -> Advice:
        """What is wrong, in the words of the simplest correction that removes most of the error."""
        each = list(self.classes.values())
        fits = [_fit(each, slope=slope, by_class=own) for slope, own in _REMEDIES]
        temperature, shift, both = fits
        if both.slope <= 0.1:
            return Advice(
                "The forecasts hardly follow the outcomes, or run against them: are the classes in the right order? If "
                "they are, correction makes the forecasts honest, and only another model makes them useful.",
                REMEDY,
            )
        # A simple one that is enough and nearly as good as the best, whichever fits better; or both together.
        least = min(fit.left for fit in fits)
        enough = [fit for fit in fits if fit.enough and (fit.fine or fit.left <= least + 0.1 * fit.before)]
        chosen = min((fit for fit in enough if fit is not both), key=lambda fit: fit.squares, default=None)
        chosen = both if chosen is None and both in enough else chosen
        if chosen is None:
            return Advice("No temperature or shift explains it.", REMEDY)
        if chosen is shift or abs(chosen.slope - 1) <= 0.05:
            return Advice(self._where, REMEDY)
        sure = "too sure" if chosen.slope < 1 else "not sure enough"
        about = f"{sure}: a temperature of about {1 / chosen.slope:.2g}"
        if chosen is temperature:
            return Advice(f"{about[0].upper()}{about[1:]}.", REMEDY)
        return Advice(f"{self._where} And {about}.", REMEDY)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "level": self.level,
            "share": self.share,
            "p_value": self.p_value,
            "off": self.off,
            "sentences": self.sentences,
            "advice": self.advice,
        }

    @property
    def _where(self) -> str:
        """Which classes are off."""
        off = self.off
        if not off or 2 * len(off) > len(self.classes) or len(self.classes) == 2:
            # Of two classes, whose gaps are the same, the rarer one.
            name = max(self.classes, key=lambda n: abs(_shift(self.classes[n])))
            if len(self.classes) == 2:
                name = min(self.classes, key=lambda n: self.classes[n].mean_outcome)
            if abs(_shift(self.classes[name])) < 2:
                return "Classes are off in ways of their own."
            return f"Base rates are off, most that of {_said(name, self.classes[name])}."
        named = ", ".join(_said(name, self.classes[name]) for name in off[:3])
        rest = f" and {len(off) - 3} more" if len(off) > 3 else ""
        return f"Only {named}{rest} {'is' if len(off) == 1 else 'are'} off."


class Judged(Protocol):
    """A verdict on forecasts of any kind."""

    @property
    def p_value(self) -> float: ...

    @property
    def share(self) -> float: ...


def off_among(verdicts: Mapping[Name, Judged], *, dependent: bool = False) -> list[Name]:
    """Return which of many are off, the largest share of the base rate first.

    One calibrated view in twenty is off by chance, so of many some always are. Of those returned, at most one of twenty
    is there by chance, on average (Benjamini and Hochberg 1995); where they depend on each other in any way, with a
    smaller limit (Benjamini and Yekutieli 2001).
    """
    limit = ALPHA / math.fsum(1 / k for k in range(1, len(verdicts) + 1)) if dependent and verdicts else ALPHA
    p_values = np.array([verdict.p_value for verdict in verdicts.values()])
    ranked = np.sort(p_values)
    passed = np.flatnonzero(ranked < limit * np.arange(1, len(ranked) + 1) / max(len(ranked), 1))
    most = ranked[passed[-1]] if len(passed) else -1.0
    off = [name for name, p in zip(verdicts, p_values, strict=True) if p <= most]
    return sorted(off, key=lambda name: -verdicts[name].share)


class _Fit(NamedTuple):
    """A remedy `logit(outcome) = slope·logit(forecast) + shift`, and whether it puts most of the error right.

    The squared error `before` it and what is `left`; `squares` of the gaps left, each over its variance; whether
    chance explains what is left (`fine`).
    """

    slope: float
    before: float
    left: float
    squares: float
    fine: bool
    enough: bool


_REMEDIES = ((True, False), (False, True), (True, True))
"""A slope and one shift, as a temperature has; a shift for each class; both."""


def _fit(classes: list[Bins], *, slope: bool, by_class: bool) -> _Fit:
    """Fit a remedy to the bins of all classes by maximum likelihood, with Newton's method.

    It is enough if it takes three quarters of the squared error, or leaves no more than chance does.
    """
    full = [bins.weight > 0 for bins in classes]
    sizes = [int(some.sum()) for some in full]
    k: Integers = np.repeat(np.arange(len(classes)) * by_class, sizes)
    n, p, outcome = (
        np.concatenate([values[some] for values, some in zip(each, full, strict=True)])
        for each in zip(*((bins.rows, bins.forecast, bins.outcome) for bins in classes), strict=True)
    )
    p = np.clip(p, 1e-6, 1 - 1e-6)
    x = np.log(p / (1 - p))
    a = 1.0
    c = np.zeros(k[-1] + 1)
    for _ in range(30):
        mu = _rate(a * x + c[k])
        rest = n * (outcome - mu)
        spread = n * mu * (1 - mu) + 1e-6
        across, own, pull = (np.bincount(k, part, len(c)) for part in (spread * x, spread + 1e-3, rest))
        left = float(spread @ x**2 - across @ (across / own))
        step = float(np.clip((rest @ x - across @ (pull / own)) / max(left, 1e-9), -0.5, 0.5)) * slope
        a += step
        c += np.clip((pull - across * step) / own, -2, 2)
    mu = _rate(a * x + c[k])
    noise = np.where(n > 1, outcome * (1 - outcome) / np.maximum(n - 1, 1e-9), np.inf)
    tells = np.isfinite(noise)
    before, after = (float(n[tells] @ ((outcome - forecast) ** 2 - noise)[tells]) for forecast in (p, mu))
    free = len(n) - len(c) - slope
    squares = float(n @ ((outcome - mu) ** 2 / np.maximum(mu * (1 - mu), 1e-9)))
    by_chance = free + 2 * math.sqrt(2 * max(free, 0) * together(classes))
    fine = squares <= by_chance
    enough = fine or after <= (1 - _EXPLAINED) * before
    enough = enough and (not slope or max(sizes) > 1)  # one forecast determines no slope
    return _Fit(a, max(before, 0.0), max(after, 0.0), squares, fine, enough)


def _rate(logit: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-np.clip(logit, -40, 40)))
    return found


def _shift(bins: Bins) -> float:
    """Return how far the mean forecast of a class lies from its mean outcome, in standard deviations."""
    forecast = bins.mean_forecast
    outcome = bins.mean_outcome
    variance = max(outcome * (1 - outcome), forecast * (1 - forecast), 1e-12)
    return (forecast - outcome) / math.sqrt(variance / max(math.fsum(bins.rows), 1.0))


def _said(name: str, bins: Bins) -> str:
    return f"{name} ({bins.mean_forecast:.3f} forecast, {bins.mean_outcome:.3f} observed)"


def _rounded(count: float) -> int:
    """Return a number to two digits, upwards."""
    size = 10 ** max(math.floor(math.log10(max(count, 1.0))) - 1, 0)
    return int(math.ceil(count / size) * size)


def percent(share: float) -> str:
    """Return a share in per cent, to two digits."""
    if share >= 10:
        return "many times"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
