"""Labels: many yes-or-no outcomes over one row, each corrected and watched by itself."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from threading import RLock

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import Configured, Locked, check_names
from treecal._typing import Array, Integers, Saved
from treecal._validate import finite_array, known_numbers
from treecal.correctors import Corrector, PlattScaling
from treecal.engine._bank import Bank
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, SnapshotError
from treecal.geometry import ROUNDING, Simplex
from treecal.monitor import Alarm, Monitor, StreamEvidence, WatchedStreams, discovered


class Labels(Locked, Configured):
    """Many labels at once: the probability of each, corrected by a corrector of its own, and watched by a monitor each.

    A row has a probability for each label, and later an outcome for each, 1 or 0, or NaN where it is not known: such
    are left out of that label alone. Labels may depend on each other in any way. Each has a copy of the corrector, in a
    `tc.Bank`; the monitors watch the model's own forecasts. Which labels are off, of many, `discoveries` says: of those
    it names, a share of `alpha` at most is right, in expectation, however they depend on each other (e-BH).

    `treecal.auditing.audit_labels` measures a log of labels.

    Parameters
    ----------
    names
        The names of the labels.
    corrector
        For two classes, no and yes; by default `PlattScaling`. Each label gets a copy.
    alpha
        The probability of a false alarm of each label's monitor.
    tolerance
        How far a probability may lie outside `[0, 1]`, as rounding leaves it.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> labels = tc.Labels(["fracture", "mass", "oedema"])
    >>> z = rng.normal(size=(2000, 3))
    >>> y = (rng.random((2000, 3)) < 1 / (1 + np.exp(-z))).astype(float)
    >>> y[rng.random((2000, 3)) < 0.5] = np.nan                            # half of them were never looked for
    >>> labels.update(1 / (1 + np.exp(-z * [1, 3, 1])), y)                 # of one the model is too sure
    >>> labels.discoveries(), {name: alarm.direction for name, alarm in labels.alarms.items()}
    (['mass'], {'mass': 'too sure'})
    >>> labels.predict([0.95, 0.95, 0.95]).round(2)
    array([0.95, 0.73, 0.95])
    """

    _fields = ("names", "corrector", "alpha", "tolerance")

    def __init__(
        self,
        names: Sequence[str],
        *,
        corrector: Corrector | None = None,
        alpha: float = 0.05,
        tolerance: float = ROUNDING,
    ) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) for name in names) or not len(names):
            raise ParameterError.expected("names", names, "a list of names of labels")
        self.names = tuple(names)
        if len(set(self.names)) < len(self.names):
            raise ParameterError("two labels have the same name, expected distinct ones.")
        given = PlattScaling(Simplex(2)) if corrector is None else corrector
        if not isinstance(given, Corrector) or not isinstance(given.space, Simplex) or given.space.dim != 2:
            hint = "tc.PlattScaling(tc.Simplex(2))."
            raise ParameterError.expected("corrector", given, "a corrector of two classes, no and yes", hint=hint)
        self.corrector = deepcopy(given)
        self._monitor = Monitor(Simplex(2), alpha=alpha, tolerance=tolerance)
        self.alpha = self._monitor.alpha
        self.tolerance = self._monitor.tolerance
        self._bank = Bank(self.corrector, streams=len(self.names))
        self._watched = WatchedStreams(self._monitor)
        self._watched.reserve(len(self.names))
        self._lock = RLock()

    def predict(self, forecasts: ArrayLike) -> Array:
        """Return what to announce in place of a row of probabilities, `(labels,)`, or of many, `(n, labels)`.

        Parameters
        ----------
        forecasts
            The model's probability of each label, in the order of `names`.
        """
        p = self._probabilities(forecasts)
        rows = np.atleast_2d(p)
        keys = np.tile(np.arange(len(self.names)), len(rows))
        with self._lock:
            found = self._bank.predict(keys, forecasts=_both(rows.ravel()))
        return np.asarray(found)[:, 1].reshape(p.shape)

    def update(self, forecasts: ArrayLike, outcomes: ArrayLike) -> None:
        """Learn the outcomes of a row, or of many. What is invalid raises a `TreeCalError` and changes nothing.

        Parameters
        ----------
        forecasts
            The model's probabilities, `(labels,)` or `(n, labels)`.
        outcomes
            1 or 0 for each; NaN, or masked, where it is not known.
        """
        p = self._probabilities(forecasts)
        y = known_numbers("outcomes", outcomes, OutcomeError)
        if y.shape != p.shape:
            raise OutcomeError(f"outcomes have shape {y.shape}, expected {p.shape}.")
        known = ~np.isnan(y)
        if not (valid := ~known | (y == 0) | (y == 1)).all():
            *row, k = np.argwhere(np.atleast_1d(~valid))[0].tolist()
            where = f" in row {row[0]}" if row else ""
            value = y[~valid][0]
            raise OutcomeError(f"the outcome of {self.names[k]!r}{where} is {value:g}, expected 1, 0, or NaN.")
        keys = np.broadcast_to(np.arange(len(self.names)), p.shape)[known]
        came = y[known].astype(np.int64)
        P = _both(p[known])
        with self._lock:
            self._bank.update(keys, came, forecasts=P)
            self._watched.learn(keys, P, np.eye(2)[came])

    def _probabilities(self, forecasts: ArrayLike) -> Array:
        p = finite_array("forecasts", forecasts)
        size = len(self.names)
        if p.ndim not in (1, 2) or p.shape[-1] != size:
            raise ForecastError(
                f"forecasts have shape {p.shape}, expected ({size},) or (n, {size}): one for each label."
            )
        if not (valid := (p >= -self.tolerance) & (p <= 1 + self.tolerance)).all():
            *row, k = np.argwhere(np.atleast_1d(~valid))[0].tolist()
            where = f" in row {row[0]}" if row else ""
            raise ForecastError(
                f"the forecast of {self.names[k]!r}{where} is {p[~valid][0]:g}, expected a probability."
            )
        return np.clip(p, 0.0, 1.0)

    @property
    def rounds(self) -> dict[str, int]:
        """Number of outcomes that each label has seen."""
        return dict(zip(self.names, self._bank.rounds.tolist(), strict=True))

    def evidence(self) -> StreamEvidence:
        """Return the evidence against the model's forecasts of each label, in the order of `names`."""
        with self._lock:
            return self._watched.evidence(self._rows, np.array(self.names, object))

    @property
    def e_values(self) -> dict[str, float]:
        """The e-value of each label, now."""
        return dict(zip(self.names, self.evidence().statistic.tolist(), strict=True))

    @property
    def alarms(self) -> dict[str, Alarm]:
        """The first alarm of each label that had one: each by itself is wrong with a probability of `alpha` at most."""
        with self._lock:
            return {self.names[row]: alarm for row, alarm in sorted(self._watched.alarms.items())}

    def discoveries(self, alpha: float = 0.05) -> list[str]:
        """Return the labels whose forecasts are off, the strongest evidence first.

        Parameters
        ----------
        alpha
            The most that the false discovery rate may be, however labels depend on each other.
        """
        return [self.names[row] for row in discovered(self.evidence().statistic, alpha)]

    @property
    def _rows(self) -> Integers:
        return np.arange(len(self.names))

    def get_state(self) -> Saved:
        """Return the state, as arrays that never change afterwards."""
        with self._lock:
            return {"bank": self._bank.get_state(), "evidence": self._watched.state(self._rows)}

    def set_state(self, state: Saved) -> None:
        """Resume from such a state. Any other raises a `SnapshotError` and changes nothing."""
        check_names("the state", state, ("bank", "evidence"))
        bank = deepcopy(self._bank)
        bank.set_state(state["bank"])
        if len(bank) != len(self.names):
            raise SnapshotError(f"the state is of {len(bank)} labels, expected {len(self.names)}.")
        start = self.corrector.rounds
        watched = self._watched.resumed(state["evidence"], bank.rounds - start)
        with self._lock:
            vars(self).update(_bank=bank, _watched=watched)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names[:3])) + ", …" * (len(self.names) > 3)
        return f"Labels([{shown}]: {len(self.names)} labels, {sum(self.rounds.values()):,} outcomes)"


def _both(p: Array) -> Array:
    """Return the probabilities of no and of yes."""
    return np.column_stack([1 - p, p])
