"""Counts for Prometheus, in its text format."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the bins of times, in seconds."""
MOST_STREAMS = 200
"""Streams with series of their own: the number of series stays small, however many streams there are."""

Labels = tuple[tuple[str, str], ...]
Series = Iterable[tuple[Labels, float]]


class Metrics:
    """What the server counts about itself.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.count("/v1/outcomes", "POST", 200, 0.004)
    >>> text = metrics.text({})
    >>> 'treecal_requests_total{route="/v1/outcomes",method="POST",status="200"} 1' in text
    True
    >>> 'treecal_request_seconds_bucket{route="/v1/outcomes",le="0.005"} 1' in text
    True
    """

    def __init__(self) -> None:
        self._started = time.time()
        self._requests: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request by its route, as the table of routes has it: there are only so many."""
        key = (route, method, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        if route not in self._times:
            self._times[route] = [0] * (len(BOUNDS) + 1)
            self._seconds[route] = 0.0
        self._times[route][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds

    def text(self, gauges: Mapping[str, tuple[str, Series]], *, dropped: int = 0) -> str:
        """Return all counts, of dropped lines of the log too, and gauges by name with a description."""
        lines = [
            *_series("treecal_started_seconds", "gauge", "When the server started.", [((), self._started)]),
            *_series(
                "treecal_requests_total",
                "counter",
                "Requests, by route, method and status.",
                (
                    ((("route", route), ("method", method), ("status", str(status))), count)
                    for (route, method, status), count in self._requests.items()
                ),
            ),
            *_series(
                "treecal_log_dropped_total", "counter", "Lines of the log that nobody read in time.", [((), dropped)]
            ),
            "# HELP treecal_request_seconds Seconds from a request to its answer.",
            "# TYPE treecal_request_seconds histogram",
        ]
        for route, counts in self._times.items():
            for bound, total in zip((*map(str, BOUNDS), "+Inf"), accumulate(counts), strict=True):
                lines.append(_line("treecal_request_seconds_bucket", (("route", route), ("le", bound)), total))
            lines.append(_line("treecal_request_seconds_sum", (("route", route),), self._seconds[route]))
            lines.append(_line("treecal_request_seconds_count", (("route", route),), sum(counts)))
        for name, (about, series) in gauges.items():
            lines += _series(name, "gauge", about, series)
        return "\n".join(lines) + "\n"


def _series(name: str, kind: str, about: str, series: Series) -> list[str]:
    return [
        f"# HELP {name} {about}",
        f"# TYPE {name} {kind}",
        *(_line(name, labels, value) for labels, value in series),
    ]


def _line(name: str, labels: Labels, value: float) -> str:
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    inside = ",".join(f'{key}="{text.translate(escapes)}"' for key, text in labels)
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"
