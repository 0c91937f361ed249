"""Chain: correctors one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from treecal._states import Resume, check_names
from treecal._typing import Array
from treecal.correctors._base import Corrector
from treecal.correctors._groups import Groups
from treecal.correctors._recalibrator import Recalibrator
from treecal.correctors._scaling import TemperatureScaling, VectorScaling
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
    audit
        Keep the scores that `report` needs. Each part keeps its own as well, unless made with `audit=False`.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> space = tc.Simplex(2)
    >>> f = tc.Chain([tc.PlattScaling(space), tc.Recalibrator(space)])
    >>> for k in np.random.default_rng(0).integers(2, size=1000):
    ...     x = f.predict([0.05, 0.95])  # far too confident: it is a fair coin
    ...     f.update(np.eye(2)[k])
    >>> f.predict([0.05, 0.95]).mean.round(1)
    array([0.5, 0.5])
    """

    _fields = ("parts", "audit")

    def __init__(self, parts: Sequence[Corrector], *, audit: bool = True) -> None:
        self.parts = tuple(parts)
        if not self.parts or not all(isinstance(part, Corrector) for part in self.parts):
            raise ParameterError.expected("parts", parts, "one corrector or more")
        for place, part in enumerate(self.parts):
            if part.space != self.parts[0].space:
                raise ParameterError(f"parts are on {self.parts[0].space!r} and {part.space!r}, expected one set.")
            if any(part is other for other in self.parts[:place]):
                raise ParameterError(f"{part!r} is twice among the parts.", hint="use copy.copy(part) for the second.")
        super().__init__(self.parts[0].space, audit=audit)
        self._unapplied: tuple[dict[str, Any], ...] = ()

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield scaling before recalibration, and a chain in a chain."""
        if isinstance(space, Simplex):
            yield cls([VectorScaling(space), Recalibrator(space)])
            yield cls([TemperatureScaling(space, audit=False), cls([Recalibrator(space)])])

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return scaling before recalibration."""

        def both(space: ConvexSet, groups: Groups | None = None) -> Chain:
            return cls([VectorScaling(space, audit=False), Recalibrator(space, groups=groups, audit=False)])

        return {"vector-then-mean": both}

    def _announce(self, forecast: Array) -> Forecast:
        x = self.parts[0].predict(forecast)
        for part in self.parts[1:]:
            x = part.predict(x.mean)
        return x

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        self._announce(forecast)  # a part may have been given another forecast since
        return {"_unapplied": tuple(part._changes(outcome) for part in self.parts)}

    def _catch_up(self) -> None:
        super()._catch_up()
        if self._unapplied:
            for part, changes in zip(self.parts, self._unapplied, strict=True):
                vars(part).update(changes)
                part._catch_up()
            self._unapplied = ()

    def _own_state(self) -> dict[str, Any]:
        return {str(i): part._past() for i, part in enumerate(self.parts)}

    def _own_prepared(self, state: dict[str, Any], rounds: int) -> Resume:
        check_names("the chain", state, [str(i) for i in range(len(self.parts))])
        prepared = [part._prepared(state[str(i)]) for i, part in enumerate(self.parts)]

        def resume() -> None:
            self._unapplied = ()
            for part in prepared:
                part()

        return resume

    def __repr__(self) -> str:
        return f"Chain([{', '.join(map(repr, self.parts))}])"
