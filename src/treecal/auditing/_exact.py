"""The exact errors of an audit, from the counts of its distinct forecasts: those of a ledger."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._groups import Groups, Key
from treecal.exceptions import ParameterError
from treecal.geometry import Distance, as_distance, l1
from treecal.measures import mean_gap

JOINT = -1
"""Stands for all classes together."""
WHOLE = -1
"""Stands for the rows of all groups."""
_CHANCE = "by chance"  # beside the names of distances


@dataclass
class ExactSum:
    """A sum of floats that is rounded once, at the end, so that it does not depend on their order."""

    parts: list[float] = field(default_factory=list)

    def add(self, terms: Array) -> None:
        """Add some terms."""
        # fsum rounds correctly, so the remainder gets smaller each time, until it is 0.
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
        The error of each class on its own, in the order of the classes: `Σ_p m_p · |ν_p − p| / T` over its distinct
        probabilities `p`.
    chance
        What the ℓ1 error would be on average, if the forecasts were right; None if rows have weights.
    """

    forecasts: int
    errors: dict[str, float]
    classes: tuple[float, ...]
    chance: float | None


def named_distances(norms: Iterable[Distance | str]) -> dict[str, Distance]:
    """Return the distances of the exact errors, by name."""
    named = {repr(distance): distance for distance in map(as_distance, norms)}
    if not named:
        raise ParameterError("norms is empty, expected one or more.", hint="exact=False leaves the exact errors out.")
    return named


@dataclass
class _Sum:
    """The number of some distinct forecasts, their rounds, and the sum of their errors in each distance."""

    forecasts: int = 0
    rounds: int = 0
    errors: dict[str, ExactSum] = field(default_factory=lambda: defaultdict(ExactSum))

    def add(self, forecasts: int, rounds: int, errors: Mapping[str, Array]) -> None:
        self.forecasts += forecasts
        self.rounds += rounds
        for name, terms in errors.items():
            self.errors[name].add(terms)


@dataclass
class ErrorSums:
    """The sums of errors of all rows and of each group, joint and by class, over batches of distinct forecasts.

    Attributes
    ----------
    distances
        The distances of joint errors, by name; those of a class are absolute differences.
    groups
        The groups.
    weighted
        Whether rows have weights.
    sums
        The sums of each group (or `WHOLE`) and each class (or `JOINT`).
    """

    distances: Mapping[str, Distance]
    groups: Groups
    weighted: bool = False
    sums: defaultdict[tuple[int, int], _Sum] = field(default_factory=lambda: defaultdict(_Sum))

    def add(self, batch: Any) -> int:
        """Add a batch of `distinct_forecasts`; return the number of joint forecasts of all rows in it."""
        k, rounds = (batch.column(name).to_numpy().astype(np.int64) for name in ("k", "rounds"))
        whole = batch.column("whole").to_numpy(zero_copy_only=False)
        group = np.full(len(k), WHOLE)
        if len(grouped := np.flatnonzero(~whole)):
            by = [batch.column(f"by{i}").take(grouped) for i in range(len(self.groups.by))]
            group[grouped] = self.groups.of(by, len(grouped))
        for chosen in (k == JOINT, k != JOINT):
            if not len(at := np.flatnonzero(chosen)):
                continue
            points, counts = (
                batch.column(name).take(at).flatten().to_numpy().reshape(len(at), -1) for name in ("p", "n")
            )
            self._add(k[at], group[at], rounds[at], points, counts)
        return int((whole & (k == JOINT)).sum())

    def add_counts(self, k: int, group: Integers, rounds: Integers, points: Array, counts: Integers) -> None:
        """Add distinct forecasts, of a class or joint ones: the group of each, and its rounds, in all and by outcome.

        `points` and `counts` are of shape `(n, d)`, or `(n, 1)` for the probability of a class.
        """
        self._add(np.full(len(rounds), k), group, rounds, points, counts)

    def _add(self, k: Integers, group: Integers, rounds: Integers, points: Array, counts: Integers) -> None:
        """Add distinct forecasts, all of them joint or all of single classes."""
        joint = k[0] == JOINT
        means = counts / rounds[:, None]
        distances = self.distances if joint else {"l1": l1}
        errors = {name: rounds * distance.between(means, points) for name, distance in distances.items()}
        if joint and not self.weighted:
            errors[_CHANCE] = rounds * mean_gap(rounds[:, None], np.clip(points, 0, 1)).sum(axis=1)
        for which, run in _runs(group, k):
            parts = {name: terms[run] for name, terms in errors.items()}
            self.sums[which].add(len(run), int(rounds[run].sum()), parts)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return all sums as rows of a table, for `add_rows` in another process."""
        keys = {WHOLE: (None,) * len(self.groups.by)} | {g: key for key, g in self.groups.index.items()}
        return [
            {f"by{i}": value for i, value in enumerate(keys[group])}
            | {"whole": group == WHOLE, "k": number, "forecasts": one.forecasts, "rounds": one.rounds}
            | {"errors": [total.parts for total in one.errors.values()]}
            for (group, number), one in self.sums.items()
        ]

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the sums of other processes."""
        for row in rows:
            key = tuple(row[f"by{i}"] for i in range(len(self.groups.by)))
            group = WHOLE if row["whole"] else self.groups.index[key]
            names = [*self.distances, _CHANCE] if row["k"] == JOINT else ["l1"]
            parts = {name: np.array(terms) for name, terms in zip(names, row["errors"], strict=False)}
            self.sums[group, row["k"]].add(row["forecasts"], row["rounds"], parts)

    def read(self, key: Key | None, classes: int) -> Exact:
        """Return the errors of a group, or of all rows."""
        group = WHOLE if key is None else self.groups.index[key]
        joint, *each = (self.sums[group, k] for k in (JOINT, *range(classes)))
        errors = {name: total.value / joint.rounds for name, total in joint.errors.items()}
        by_chance = errors.pop(_CHANCE, None)
        return Exact(joint.forecasts, errors, tuple(one.errors["l1"].value / one.rounds for one in each), by_chance)


def _runs(group: Integers, k: Integers) -> Iterator[tuple[tuple[int, int], Integers]]:
    """Yield each pair of group and class, with its positions."""
    order = np.lexsort((k, group))
    pairs = np.stack([group[order], k[order]])
    starts = np.flatnonzero(np.any(np.diff(pairs, prepend=pairs[:, :1] - 1), axis=0))
    yield from zip(zip(*pairs[:, starts].tolist(), strict=True), np.split(order, starts[1:]), strict=True)
