"""The exact audit: the database counts how often each distinct forecast was made, and its errors are a ledger's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._groups import Groups, Key
from treecal.exceptions import ParameterError
from treecal.geometry import Distance, as_distance, l1
from treecal.io._sources import library

JOINT = -1
"""In the place of a class: all of them together."""
_WHOLE = -1


class ExactSum:
    """A sum of floats that is rounded once, at the end, so that their order leaves no trace.

    Examples
    --------
    >>> total = ExactSum()
    >>> for terms in ([1e100, 1.0], [-1e100]):
    ...     total.add(np.array(terms))
    >>> total.value
    1.0
    """

    def __init__(self) -> None:
        self.parts: list[float] = []

    def add(self, terms: Array) -> None:
        """Add some terms."""
        # fsum rounds correctly, so what it leaves of the terms gets smaller each time, until nothing is left.
        rest = terms.tolist()
        while part := math.fsum(rest):
            self.parts.append(part)
            if not math.isfinite(part):
                break
            rest.append(-part)

    @property
    def value(self) -> float:
        """The sum of all terms."""
        return math.fsum(self.parts)


@dataclass(frozen=True)
class Exact:
    """Exact calibration errors.

    Attributes
    ----------
    forecasts
        Number of distinct forecasts.
    errors
        `Σ_p m_p · D(ν_p, p) / T`, by the name of the distance `D`.
    classes
        The same of each class by itself, in the order of the classes: `Σ_p m_p · |ν_p − p| / T` over its distinct
        probabilities `p`.
    """

    forecasts: int
    errors: dict[str, float]
    classes: tuple[float, ...]


def named_distances(norms: Iterable[Distance | str]) -> dict[str, Distance]:
    """Return what to measure exact errors in, by name."""
    named = {repr(distance): distance for distance in map(as_distance, norms)}
    if not named:
        raise ParameterError("norms is empty, expected one or more.", hint="exact=False leaves the exact errors out.")
    return named


@dataclass
class _Sum:
    """Of some distinct forecasts: how many, in how many rounds, and the sum of their errors in each distance."""

    forecasts: int = 0
    rounds: int = 0
    errors: dict[str, ExactSum] = field(default_factory=dict)

    def add(self, forecasts: int, rounds: int, errors: Mapping[str, Array]) -> None:
        self.forecasts += forecasts
        self.rounds += rounds
        for name, terms in errors.items():
            self.errors.setdefault(name, ExactSum()).add(terms)

    def per_round(self) -> dict[str, float]:
        return {name: total.value / self.rounds for name, total in self.errors.items()}


class ErrorSums:
    """The errors of all rows and of each group, joint and by class, added up batch by batch of distinct forecasts.

    Nothing is kept of a forecast but its share of these sums.

    Parameters
    ----------
    distances
        What joint errors are measured in, by name; those of a class are absolute differences.
    groups
        The groups.
    """

    def __init__(self, distances: Mapping[str, Distance], groups: Groups) -> None:
        self._distances, self._groups = distances, groups
        self._sums: dict[tuple[int, int], _Sum] = {}

    @property
    def forecasts(self) -> int:
        """How many distinct forecasts were added so far, regardless of groups."""
        return self._sum(_WHOLE, JOINT).forecasts

    def add(self, batch: Any) -> None:
        """Add a batch of what `treecal.auditing._sql.distinct_forecasts` asks for."""
        group, number = self._group(batch), batch.column("k").to_numpy().astype(np.int64)
        rounds = batch.column("rounds").to_numpy()
        for chosen, distances in ((number == JOINT, self._distances), (number != JOINT, {"l1": l1})):
            if rows := int(chosen.sum()):
                mask = _mask(chosen)
                points, counts = (
                    batch.column(name).filter(mask).flatten().to_numpy().reshape(rows, -1) for name in ("p", "n")
                )
                weight = rounds[chosen].astype(np.float64)
                means = counts / weight[:, None]
                errors = {name: weight * distance.between(means, points) for name, distance in distances.items()}
                for at, one in _runs(group[chosen], number[chosen]):
                    parts = {name: terms[one] for name, terms in errors.items()}
                    self._sum(*at).add(len(one), int(rounds[chosen][one].sum()), parts)

    def _group(self, batch: Any) -> Integers:
        group = np.full(batch.num_rows, _WHOLE, np.int64)
        mine = ~batch.column("whole").to_numpy(zero_copy_only=False)
        if mine.any():
            by = [batch.column(f"by{k}").filter(_mask(mine)) for k in range(len(self._groups.by))]
            group[mine] = self._groups.of(by, int(mine.sum()))
        return group

    def _sum(self, group: int, number: int) -> _Sum:
        return self._sums.setdefault((group, number), _Sum())

    def to_rows(self) -> list[dict[str, Any]]:
        """Return all sums as rows of one table, for `add_rows` of another process."""
        keys = {_WHOLE: (None,) * len(self._groups.by)} | {g: key for key, g in self._groups.index.items()}
        return [
            {f"by{i}": value for i, value in enumerate(keys[group])}
            | {"whole": group == _WHOLE, "k": number, "forecasts": one.forecasts, "rounds": one.rounds}
            | {"errors": [total.parts for total in one.errors.values()]}
            for (group, number), one in self._sums.items()
        ]

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the sums of other processes."""
        for row in rows:
            key = tuple(row[f"by{i}"] for i in range(len(self._groups.by)))
            group = _WHOLE if row["whole"] else self._groups.index[key]
            names = [*self._distances] if row["k"] == JOINT else ["l1"]
            parts = {name: np.array(terms) for name, terms in zip(names, row["errors"], strict=True)}
            self._sum(group, row["k"]).add(row["forecasts"], row["rounds"], parts)

    def read(self, key: Key | None, classes: int) -> Exact:
        """Return the errors of a group, or of all rows."""
        group = _WHOLE if key is None else self._groups.index[key]
        joint, each = self._sum(group, JOINT), [self._sum(group, k) for k in range(classes)]
        return Exact(joint.forecasts, joint.per_round(), tuple(one.per_round()["l1"] for one in each))


def _mask(chosen: Any) -> Any:
    return library("pyarrow").array(chosen)


def _runs(*keys: Integers) -> Iterator[tuple[tuple[int, ...], Integers]]:
    """Yield the distinct rows of some columns, each with the places where it stands."""
    order = np.lexsort(keys[::-1])
    ordered = np.stack(keys)[:, order]
    starts = np.flatnonzero(np.any(np.diff(ordered, prepend=ordered[:, :1] - 1), axis=0))
    for start, places in zip(starts.tolist(), np.split(order, starts[1:]), strict=True):
        yield tuple(ordered[:, start].tolist()), places
