"""Streams that happened. The data ship inside packages on PyPI: `pip install "treecal[data]"`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecal._exact import Array
from treecal.exceptions import TreeCalError
from treecal.geometry import Simplex


@dataclass(frozen=True, eq=False)
class ClassStream:
    """A sequence of events, each of one class out of a few.

    Attributes
    ----------
    title
        What it is, for people.
    classes
        Names of the classes, in the order of the coordinates.
    outcomes
        One row a round, `(rounds, classes)`: 1 for the class that happened, 0 elsewhere.
    """

    title: str
    classes: tuple[str, ...]
    outcomes: Array

    @property
    def space(self) -> Simplex:
        """The simplex the outcomes are vertices of."""
        return Simplex(len(self.classes))

    def __len__(self) -> int:
        return len(self.outcomes)


def seattle_weather() -> ClassStream:
    """Return Seattle's weather, a day a round: drizzle, fog, rain, snow or sun, 2012 to 2015 (`vega_datasets`).

    Examples
    --------
    >>> stream = seattle_weather()
    >>> len(stream), stream.classes
    (1461, ('drizzle', 'fog', 'rain', 'snow', 'sun'))
    """
    try:
        from vega_datasets import local_data
    except ModuleNotFoundError:
        raise TreeCalError(
            "Seattle's weather needs the package vega_datasets, which is not installed.",
            hint='pip install "treecal[data]".',
        ) from None
    days = local_data.seattle_weather().sort_values("date")["weather"].to_numpy(dtype=str)
    classes, index = np.unique(days, return_inverse=True)
    return ClassStream("Seattle's weather, day by day", tuple(classes.tolist()), np.eye(len(classes))[index])
