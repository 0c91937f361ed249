"""ByGroup: one corrector for each group of rounds."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from treecal._states import Entries, check_names, resumed
from treecal._typing import Array, Changes, Saved
from treecal.correctors._base import Corrector, Scored, checked_part
from treecal.correctors._batch import Batch, Group
from treecal.correctors._groups import Cells
from treecal.correctors._names import read_name, saved_names
from treecal.correctors._recalibrator import Recalibrator, nodes_of_group
from treecal.correctors._scaling_kinds import TemperatureScaling
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex


class _Part(NamedTuple):
    """A group's corrector, and the group's number, by which the nodes it announces are told from those of others."""

    number: int
    corrector: Corrector


class ByGroup(Corrector):
    """A copy of a corrector for each group: `predict(b, group="JFK")` asks that of JFK, and `update(y)` teaches it.

    Groups are met as they come. A new one starts from the state of the corrector that was given, so from a fitted one
    if it was fitted. Rounds without a group are a group of their own, None. Nothing is shared between groups: for
    rounds that belong to several at once there is `Multicalibrator`, and for very many groups a `Bank`.

    A round costs what it costs the corrector. Memory is one state of the corrector for each group met, and grows with
    every new name.

    Parameters
    ----------
    corrector
        What each group starts from; a copy is kept, without its scores.
    scores, tolerance
        As for every `Corrector`: the scores are those of all groups together, and the tolerance is by default that of
        the corrector.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> f = tc.ByGroup(tc.Recalibrator(tc.Simplex(2)))
    >>> for _ in range(10):
    ...     for group, y in [("JFK", [1, 0]), ("LGA", [0, 1])]:
    ...         x = f.predict([0.5, 0.5], group=group)
    ...         f.update(y)
    >>> f.predict([0.5, 0.5], group="JFK").mean.round(2)
    array([0.95, 0.05])
    >>> f.groups, f["LGA"].rounds
    (('JFK', 'LGA'), 10)
    """

    _fields = ("corrector", "scores", "tolerance")

    def __init__(
        self, corrector: Corrector, *, scores: Scored | None = "binned", tolerance: float | None = None
    ) -> None:
        part = checked_part("corrector", corrector, "a corrector to copy for each group")
        super().__init__(part.space, scores=scores, tolerance=part.tolerance if tolerance is None else tolerance)
        self.corrector = part._unscored()
        self._parts: Entries[Hashable, _Part] = Entries()

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield group means, and a corrector that starts where a log left it."""
        yield cls(Recalibrator(space, groups=None if isinstance(space, Simplex) else Cells(width=1.0)))
        if isinstance(space, Simplex):
            log = np.tile(np.full(space.dim, 1 / space.dim), (3, 1))
            yield cls(TemperatureScaling(space).fit(log, np.eye(space.dim)[[0, -1, 0]]))

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The groups met, in that order."""
        with self._lock:
            return tuple(self._parts.read())

    def __getitem__(self, group: Group) -> Corrector:
        """Return a copy of a group's corrector."""
        with self._lock:
            part = self._parts.read().get(read_name(group))
            if part is None:
                raise ParameterError(f"the group {group!r} was not met yet.", hint="groups lists those that were.")
            return deepcopy(part.corrector)

    def __contains__(self, group: object) -> bool:
        with self._lock:
            return read_name(group) in self._parts.read()

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.groups)

    @property
    def ordered(self) -> bool:
        """Whether the corrector of a group needs its outcomes in order."""
        return self.corrector.ordered

    def _check_given(self, group: Group, weight: float) -> None:
        read_name(group)
        self.corrector._check_given(None, weight)

    def _announce(self, forecast: Array, *, group: Group = None) -> Forecast:
        part = self._part(read_name(group))
        x = part.corrector._announced(forecast, None)
        if x.nodes is None:
            return x
        return Forecast.trusted(x.points, x.weights, nodes_of_group(part.number, x.nodes), self.space)

    def _part(self, name: Hashable) -> _Part:
        """Return a group's corrector; for a new group the one that it starts from."""
        parts = self._parts.read()
        return parts.get(name) or _Part(len(parts), self.corrector)

    def _announce_many(self, forecasts: Array, groups: Sequence[Group] | None) -> Array:
        means = np.empty_like(forecasts)
        for name, rows in _rows(groups, len(forecasts)).items():
            means[rows] = self._part(name).corrector._announce_many(forecasts[rows], None)
        return means

    def _fit(self, batch: Batch) -> None:
        """Fit each group's corrector to the group's rows, as it fits; all take their place at once."""
        parts = dict(self._parts.read())
        for name, rows in _rows(batch.groups, len(batch)).items():
            number, corrector = parts.get(name) or _Part(len(parts), self.corrector)
            parts[name] = _Part(number, corrector._fitted_to(replace(batch.of(rows), groups=None)))
        vars(self).update(_parts=Entries(parts), **self._counted(len(batch)))

    def _after(self, forecast: Array, outcome: Array, *, group: Group = None, weight: float = 1.0) -> Changes:
        name = read_name(group)
        number, corrector = self._part(name)
        if corrector is self.corrector:
            corrector = deepcopy(corrector)  # those that have learned may share what grows with it
        learned = _Part(number, corrector._learned(forecast, outcome, None, weight))
        return {"_parts": self._parts.after({name: learned})}

    def _played(self, batch: Batch) -> tuple[Array, Changes] | None:
        """Let one group after the other learn its rounds, if its corrector knows how."""
        met = self._parts.read()
        new = dict[Hashable, _Part]()
        means = np.empty_like(batch.forecasts)
        counted = [i for i in range(len(batch)) if batch.weight(i)]
        for name in dict.fromkeys(read_name(batch.group(i)) for i in counted):
            if name not in met:  # those that have learned may share what grows with the corrector
                new[name] = _Part(len(met) + len(new), deepcopy(self.corrector))
        for name, rows in _rows(batch.groups, len(batch)).items():
            number, corrector = new.get(name) or met.get(name) or _Part(0, self.corrector)
            own = replace(batch.of(rows), groups=None, inner=True)
            if (found := corrector._played(own)) is None:
                return None
            means[rows], changes = found
            if name in new or name in met:
                new[name] = _Part(number, corrector._with(changes, len(own.counted())))
        return means, {"_parts": self._parts.after(new)}

    def _own_state(self) -> Saved:
        parts = self._parts.read()
        return {
            "start": self.corrector._past(),
            "names": list(parts),
            "inside": {str(part.number): part.corrector._past() for part in parts.values()},
        }

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        check_names("the groups", state, ("start", "names", "inside"))
        names = saved_names(state["names"])
        check_names("inside", state["inside"], [str(i) for i in range(len(names))])
        met = {name: _Part(i, resumed(self.corrector, state["inside"][str(i)])) for i, name in enumerate(names)}
        return {"corrector": resumed(self.corrector, state["start"]), "_parts": Entries(met)}

    def __repr__(self) -> str:
        return f"ByGroup({self.corrector!r})"


def _rows(groups: Sequence[Group] | None, count: int) -> dict[Hashable, list[int]]:
    """Return the rows of each group, by name."""
    rows: dict[Hashable, list[int]] = {}
    for i in range(count):
        rows.setdefault(None if groups is None else read_name(groups[i]), []).append(i)
    return rows
