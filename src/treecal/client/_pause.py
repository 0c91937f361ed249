"""How long to leave a server alone that did not answer."""

from __future__ import annotations

import logging
import random
import threading
import time

from treecal.client._line import AwayError

FIRST, LONGEST = 0.1, 5.0  # seconds
_ASKED = 300.0  # the longest that a server may ask for
_log = logging.getLogger("treecal.client")
_now = time.monotonic


def backoff(failures: int, away: AwayError) -> float:
    """Return the seconds to wait after so many failures in a row: those that the server asks for, or a random delay."""
    if away.after is not None:
        return min(away.after, _ASKED)
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, 10)) * random.uniform(0.5, 1.0)


class Pause:
    """After a failure nobody calls for a while, and then one at a time, until a call succeeds.

    So a server that is away costs a few answers their timeout, and not all.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._failures, self._until, self._why = 0, 0.0, ""

    def why(self, probe: float) -> str | None:
        """Return why not to call now; None if one may. If that is to try again, others wait as long as the probe."""
        if not self._failures:
            return None
        with self._lock:
            left = self._until - _now()
            if not self._failures:
                return None
            if left > 0:
                return f"{self._why}; the next try is in {left:.1f} s"
            self._until = _now() + probe
            return None

    def left(self) -> float:
        """Return the seconds until the next try."""
        return max(self._until - _now(), 0.0) if self._failures else 0.0

    def fail(self, away: AwayError) -> None:
        """Note that there was no answer."""
        with self._lock:
            self._failures += 1
            if self._failures == 1:
                _log.warning("%s is away: %s", self._url, away)
            self._until, self._why = _now() + backoff(self._failures, away), str(away)

    def end(self) -> None:
        """Note that there was an answer."""
        if self._failures:
            with self._lock:
                self._failures = 0
            _log.warning("%s is back", self._url)
