"""What a bank can say of its streams' forecasts: scores, and evidence against them, stream by stream."""

from __future__ import annotations

from threading import RLock
from typing import Any

import numpy as np

from treecal.columns import Streams
from treecal.correctors import BankScores
from treecal.engine._kept_streams import KeptStreams
from treecal.engine._keys import Numbers
from treecal.engine._names import Names
from treecal.exceptions import UnsupportedError
from treecal.monitor import Alarm, Monitor, StreamEvidence, WatchedStreams, discovered


def kept(streams: Streams, *, scores: bool = False, monitor: Monitor | None = None) -> Streams:
    """Return the streams with scores and evidence, where they are asked for."""
    return streams if scores is False and monitor is None else KeptStreams(streams, scores=scores, monitor=monitor)


class BankReports:
    """The part of a bank that reports on its streams."""

    _streams: Streams
    _keys: Numbers | Names
    _lock: RLock

    def scores(self) -> BankScores:
        """Return what each stream scored since it was added, in the order of `keys`; for a bank with `scores=True`.

        They are what a corrector reports (`Corrector.report`): of the model's forecasts and of what was announced.

        Examples
        --------
        >>> import numpy as np, treecal as tc
        >>> bank = tc.Bank(tc.Guarded(tc.Simplex(2)), streams=3, scores=True)
        >>> for k in np.random.default_rng(0).choice(2, size=300, p=[0.8, 0.2]):
        ...     bank.update([0, 2], [k, 1 - k])
        >>> bank.scores().after.brier.round(2)
        array([0.4, nan, 0.4])
        """
        with self._lock:
            rows = self._keys.rows.all()
            if not isinstance(self._streams, KeptStreams) or self._streams.scores is None:
                raise UnsupportedError("this bank keeps no scores.", hint="make it with scores=True.")
            return self._streams.scores.scores(rows, self._keys.listed, self._streams.rounds[rows])

    def evidence(self) -> StreamEvidence:
        """Return the evidence against each stream's announcements, in the order of `keys`; for a bank with `monitor=`.

        It is that of the monitor, had it been given the announcements of this stream alone.

        Examples
        --------
        >>> import numpy as np, treecal as tc
        >>> space = tc.Simplex(2)
        >>> slow = tc.TreeCal(space, arity=1000, mix=0.5)  # half the mean of all outcomes
        >>> bank, rng = tc.Bank(slow, streams=2, monitor=tc.Monitor(space, alpha=0.01)), np.random.default_rng(0)
        >>> for t in range(200):  # the second stream changes by turns
        ...     bank.update([0, 1], [rng.integers(2), t // 40 % 2])
        >>> bank.evidence().alarmed
        array([False,  True])
        >>> bank.alarms[1].round, bank.alarms[1].direction
        (28, 'too high')
        """
        with self._lock:
            return self._watched().evidence(self._keys.rows.all(), self._keys.listed)

    @property
    def alarms(self) -> dict[Any, Alarm]:
        """The first alarm of each stream that had one, by its key."""
        with self._lock:
            alarms = self._watched().alarms
            rows = np.array(sorted(alarms), np.int64)
            keys = self._keys.of(rows).tolist()
        return {key: alarms[row] for key, row in zip(keys, rows.tolist(), strict=True)}

    def discoveries(self, alpha: float = 0.05) -> Any:
        """Return the keys of the streams whose forecasts are off, the strongest evidence first.

        Of those that are right, `alpha` at most are among them, in expectation: `monitor.discoveries` of all e-values.

        Parameters
        ----------
        alpha
            The most that the false discovery rate may be.
        """
        with self._lock:
            watched = self._watched()
            watched.monitor._check_kind()
            rows = self._keys.rows.all()
            return self._keys.of(rows[discovered(watched.statistic(rows), alpha)])

    def _watched(self) -> WatchedStreams:
        if not isinstance(self._streams, KeptStreams) or self._streams.evidence is None:
            raise UnsupportedError("this bank has no monitor.", hint="make it with monitor=tc.Monitor(space).")
        return self._streams.evidence

    def _kept_arguments(self) -> dict[str, Any]:
        if not isinstance(self._streams, KeptStreams):
            return {}
        found = {} if self._streams.scores is None else {"scores": True}
        return found if self._streams.evidence is None else found | {"monitor": self._streams.evidence.monitor}
