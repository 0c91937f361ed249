"""What reliability is drawn of: bins, an audit or a part of one, a ledger or a reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.geometry import TOLERANCE
from treecal.ledger import Ledger, Reading
from treecal.measures import MOST_BINS, Bins, bin_class
from treecal.monitor import Alarm
from treecal.plots._style import as_reading, short


@runtime_checkable
class Calibrated(Protocol):
    """Rows binned by the most likely class, and by each class: `treecal.auditing.Calibration`.

    A protocol, since audits are built on top of plots.
    """

    @property
    def rounds(self) -> int:
        """Number of rows."""

    @property
    def top_label(self) -> Bins:
        """Rows binned by the probability of their most likely class."""

    @property
    def classes(self) -> Mapping[str, Bins]:
        """Rows binned by the probability of each class, by its name."""


@runtime_checkable
class Audited(Protocol):
    """All rows of a log, and the rows of each group: `treecal.auditing.Audit`."""

    @property
    def whole(self) -> Calibrated:
        """All rows."""

    @property
    def groups(self) -> Mapping[tuple[Any, ...], Calibrated]:
        """The rows of each group, in order."""

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that rows are grouped by."""

    @property
    def windows(self) -> Audited | None:
        """The same rows by windows of time."""

    @property
    def alarm(self) -> Alarm | None:
        """Of windows: the alarm of a monitor that watched the rows."""


Source = Ledger | Reading | Bins | Calibrated | Audited
"""What has a reliability diagram."""


def likeliest(reading: Ledger | Reading) -> Reading:
    """Read only the likeliest class of each forecast: its probability, and how often it was the outcome.

    The reading has two classes: any other, and the likeliest. Of equally likely ones the first counts.

    Parameters
    ----------
    reading
        A ledger of probabilities of classes, or a reading of one.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.plots import reliability
    >>> ledger = tc.Ledger(tc.Simplex(3))
    >>> for y in [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]]:
    ...     ledger.record([0.1, 0.2, 0.7], y)
    ...     ledger.record([0.1, 0.8, 0.1], y)
    >>> r = reliability(likeliest(ledger), 1)
    >>> r.forecast, r.outcome, r.weight
    (array([0.7, 0.8]), array([0.  , 0.75]), array([4., 4.]))
    """
    reading = as_reading(reading)
    top = reading.forecasts.argmax(axis=1)[:, None]
    p, y = (np.take_along_axis(part, top, axis=1) for part in (reading.forecasts, reading.outcomes))
    points = np.hstack([1 - p, p])
    means = np.hstack([1 - y, y])
    return Reading(points, reading.weights, means, reading.rounds, reading.resolution, weight=reading.weight)


def whole_of(source: Calibrated | Audited) -> Calibrated:
    """Return all rows of an audit, or the part of one that was given."""
    part = source.whole if isinstance(source, Audited) else source
    if not isinstance(part, Calibrated):
        raise ParameterError(f"audit is of type {type(source).__name__}, expected an Audit or a Calibration.")
    _filled(part.top_label)
    return part


TOP = "most likely class"
"""The name of what is drawn where no class is named."""


class Named(NamedTuple):
    """Bins, and whose they are."""

    name: str
    bins: Bins


def bins_of(source: Source, k: int | str | None = None, *, bins: int | None = None) -> Named:
    """Return the bins of one class, or those of the most likely one."""
    if isinstance(source, Ledger | Reading):
        return _bins_of_reading(as_reading(source), k, 10 if bins is None else bins)
    if bins is not None:
        raise ParameterError("bins is for ledgers: these rows are in bins already.", hint="tc.audit(..., bins=20).")
    if isinstance(source, Bins):
        if k is not None:
            raise ParameterError.expected("k", k, "None: these are the bins of one class")
        return Named("", _filled(source))
    if not isinstance(source, Calibrated | Audited):
        what = "an Audit, a Calibration, Bins, a Ledger, a Reading, or a dictionary of them"
        raise ParameterError(f"source is of type {type(source).__name__}, expected {what}.")
    part = whole_of(source)
    if k is None:
        return Named(TOP, part.top_label)
    names = [*part.classes]
    if isinstance(k, str) and k in part.classes:
        return Named(k, part.classes[k])
    if not isinstance(k, str) and (at := whole_number("k", k, least=0)) < len(names):
        return Named(names[at], part.classes[names[at]])
    shown = ", ".join(repr(short(name)) for name in names[:8]) + ", …" * (len(names) > 8)
    raise ParameterError.expected("k", k, f"a class ({shown}) or its number, from 0 to {len(names) - 1}")


def _filled(bins: Bins) -> Bins:
    if not (bins.weight > 0).any():
        raise ParameterError("there are no rows, so there is nothing to draw.")
    return bins


def _bins_of_reading(reading: Reading, k: int | str | None, bins: int) -> Named:
    bins = whole_number("bins", bins, least=1, most=MOST_BINS)
    dim = reading.forecasts.shape[1]
    name = TOP if k is None else str(k)
    if k is None:
        if np.abs(reading.forecasts.sum(axis=1) - 1).max() > TOLERANCE:
            raise ParameterError(
                "k is missing: these are not probabilities of classes, so there is no most likely class."
            )
        reading = likeliest(reading)
        k = 1
    k = whole_number("k", k, least=0)
    if k >= reading.forecasts.shape[1]:
        raise ParameterError.expected("k", k, f"a coordinate, from 0 to {dim - 1}")
    forecast = reading.forecasts[:, k]
    outcome = reading.outcomes[:, k]
    least = min(forecast.min(), outcome.min())
    most = max(forecast.max(), outcome.max())
    if least < -TOLERANCE or most > 1 + TOLERANCE:
        raise ParameterError(f"coordinate {k} runs from {least:g} to {most:g}, expected probabilities, from 0 to 1.")
    return Named(name, bin_class(forecast, outcome, reading.weights, bins, reading.rounds / reading.weight))
