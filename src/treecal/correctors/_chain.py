"""Chain: correctors one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from treecal._states import check_names, resumed
from treecal._typing import Array, Changes, Saved
from treecal.correctors._base import Corrector, Scored, checked_part
from treecal.correctors._batch import Batch, Group
from treecal.correctors._groups import Groups
from treecal.correctors._recalibrator import Recalibrator
from treecal.correctors._scaling_kinds import TemperatureScaling, VectorScaling
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex


class Chain(Corrector):
    """Correctors one after the other: each corrects the mean of what the one before it announces.

    Online scaling learns a few parameters fast and keeps the shape of the forecast; recalibration then corrects what
    scaling cannot. It costs as much as its parts. Either all parts learn from a round or none does.

    Parameters
    ----------
    parts
        The correctors, in order, all on one set.
    scores, tolerance
        As for every `Corrector`. Its parts, which are copies of those given, keep no scores; the tolerance is by
        default that of the first.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> space = tc.Simplex(2)
    >>> f = tc.Chain([tc.PlattScaling(space), tc.Recalibrator(space)])
    >>> for k in np.random.default_rng(0).integers(2, size=1000):
    ...     x = f.predict([0.05, 0.95])  # far too confident: it is a fair coin
    ...     f.update(np.eye(2)[k])
    >>> bool(0.4 < f.predict([0.05, 0.95]).mean[0] < 0.6)
    True
    """

    _fields = ("parts", "scores", "tolerance")

    def __init__(
        self, parts: Sequence[Corrector], *, scores: Scored | None = "binned", tolerance: float | None = None
    ) -> None:
        given = tuple(parts)
        if not given:
            raise ParameterError.expected("parts", parts, "one corrector or more")
        for place, part in enumerate(given):
            if checked_part(f"part {place + 1}", part, "a corrector").space != given[0].space:
                raise ParameterError(f"parts are on {given[0].space!r} and {part.space!r}, expected one set.")
            if any(part is other for other in given[:place]):
                raise ParameterError(f"{part!r} is twice among the parts.", hint="use copy.copy(part) for the second.")
        tolerance = given[0].tolerance if tolerance is None else tolerance
        super().__init__(given[0].space, scores=scores, tolerance=tolerance)
        self.parts = tuple(part._unscored() for part in given)  # the chain keeps the scores

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield scaling before recalibration, and a chain in a chain."""
        if isinstance(space, Simplex):
            yield cls([VectorScaling(space), Recalibrator(space)])
            yield cls([TemperatureScaling(space), cls([Recalibrator(space)])])

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return scaling before recalibration."""

        def both(space: ConvexSet, groups: Groups | None = None) -> Chain:
            return cls([VectorScaling(space), Recalibrator(space, groups=groups)])

        return {"vector-then-mean": both}

    @property
    def ordered(self) -> bool:
        """Whether one of the parts needs its outcomes in order."""
        return any(part.ordered for part in self.parts)

    def _announce(self, forecast: Array, *, group: Group = None) -> Forecast:
        x = self.parts[0]._announced(forecast, self._known(self.parts[0], group))
        for part in self.parts[1:]:
            x = part._announced(x.mean, self._known(part, group))
        return x

    def _after(self, forecast: Array, outcome: Array, *, group: Group = None, weight: float = 1.0) -> Changes:
        parts = []
        for part in self.parts:
            known = self._known(part, group)
            parts.append(part._learned(forecast, outcome, known, weight))
            forecast = part._announced(forecast, known).mean
        return {"parts": tuple(parts)}

    def _played(self, batch: Batch) -> tuple[Array, Changes] | None:
        """Let one part after the other learn all rounds, if they all know how."""
        parts = []
        forecasts = batch.forecasts
        rounds = len(batch.counted())
        for part in self.parts:
            known = self._known_rows(part, batch.groups)
            found = part._played(replace(batch, forecasts=forecasts, groups=known, inner=True))
            if found is None:
                return None
            forecasts, changes = found
            parts.append(part._with(changes, rounds))
        return forecasts, {"parts": tuple(parts)}

    def _announce_many(self, forecasts: Array, groups: Sequence[Group] | None) -> Array:
        for part in self.parts:
            forecasts = part._announce_many(forecasts, self._known_rows(part, groups))
        return forecasts

    def _fit(self, batch: Batch) -> None:
        """Fit one part after the other, each to what the one before it, now fitted, makes of the log."""
        parts = []
        forecasts = batch.forecasts
        for part in self.parts:
            known = self._known_rows(part, batch.groups)
            fitted = part._fitted_to(replace(batch, forecasts=forecasts, groups=known))
            forecasts = fitted._announce_many(forecasts, known)
            parts.append(fitted)
        vars(self).update(parts=tuple(parts), **self._counted(len(batch)))

    def _known_rows(self, part: Corrector, groups: Sequence[Group] | None) -> Sequence[Group] | None:
        return None if groups is None else [self._known(part, group) for group in groups]

    def _check_given(self, group: Group, weight: float) -> None:
        for part in self.parts:
            part._check_given(self._known(part, group), weight)

    def _known(self, part: Corrector, group: Group) -> Group:
        """Return the group for a part: None for one that knows none, if another does."""
        return group if "group" in part._takes or not any("group" in other._takes for other in self.parts) else None

    def _own_state(self) -> Saved:
        return {str(i): part._past() for i, part in enumerate(self.parts)}

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        check_names("the chain", state, [str(i) for i in range(len(self.parts))])
        return {"parts": tuple(resumed(part, state[str(i)]) for i, part in enumerate(self.parts))}

    def __repr__(self) -> str:
        return f"Chain([{', '.join(map(repr, self.parts))}])"
