"""The client for threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, Self

from msgspec import UNSET, UnsetType

from treecal._atomic import new_file
from treecal._validate import positive_number
from treecal.client._line import AwayError
from treecal.client._replies import Answer, Answers, Receipt, read
from treecal.client._requests import (
    Due,
    Given,
    Label,
    Vector,
    in_requests,
    new_forecast,
    new_forecasts,
    new_outcomes,
    settings,
)
from treecal.client._session import Session, quoted, route, with_query
from treecal.client._spool import LIMIT, SpoolCounts
from treecal.serve import (
    MOST_ROWS,
    Alarm,
    Alarms,
    Curve,
    Deleted,
    NewForecasts,
    NewStream,
    Pending,
    Record,
    Scores,
    Stream,
    StreamChange,
    Streams,
)

FORECAST = 0.2
"""Seconds that a model's answer may wait for its correction."""
BATCH = 1.0
"""The same, for many at once."""
ALL = 10.0
"""Seconds for everything else, attempts and delays together."""


class Client:
    """A client of `treecal serve`; several threads may share it.

    `forecast` never holds up a model's answer: if the server is away, or takes longer than the timeout, the answer is
    the model's own forecast, marked as such. With a spool it is kept in a file, and delivered when the server is back,
    under the same id, as the forecast that was used; and so are outcomes. While the server is away, most calls do not
    even try: one does, after 0.1 s and then after longer and longer times up to 5 s.

    Everything else, and outcomes if there is no spool, is tried again until the timeout, with random delays, under the
    same ids, so that nothing is recorded twice. What the server refuses raises `treecal.exceptions.ServerError`, with
    its code and hint.

    Parameters
    ----------
    url
        Where the server is, such as "http://127.0.0.1:8000".
    token
        What `treecal token create` printed, if the server wants one.
    timeout
        Seconds for a call, with all attempts; `forecast` and `forecast_many` have their own.
    spool
        A file for what cannot be delivered at once, which one process may use at a time. It survives the end of the
        process, also by kill -9; of the last second, a power cut may lose some. By default there is none.
    spool_limit
        The most bytes that may wait in it. A spool that is full keeps the oldest: forecasts are then answered but not
        kept, which `spooled.dropped` counts, and outcomes raise. Its last quarter is for outcomes.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> client = Client("http://127.0.0.1:9", spool=f"{folder.name}/spool")  # nobody listens there
    >>> answer = client.forecast("rain", [0.3, 0.7], id="monday")
    >>> answer.forecast, answer.corrected, answer.kept
    ([0.3, 0.7], False, True)
    >>> client.outcome("rain", "monday", 1).status
    'spooled'
    >>> client.spooled.waiting
    2
    >>> client.close(); folder.cleanup()
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = ALL,
        spool: str | os.PathLike[str] | None = None,
        spool_limit: int = LIMIT,
    ) -> None:
        self._session = Session(url, token=token, timeout=timeout, spool=spool, limit=spool_limit)

    # Forecasts and outcomes

    def forecast(
        self,
        stream: str,
        p: Vector | None = None,
        *,
        id: str | None = None,  # noqa: A002
        tags: Mapping[str, str] | None = None,
        due: Due | None = None,
        timeout: float = FORECAST,
    ) -> Answer:
        """Return the forecast to use: the corrected one, or the model's own if there is no answer in time.

        Parameters
        ----------
        stream
            The name of the stream.
        p
            The model's forecast: probabilities in the order of the classes, or by their names; the answer is like it.
            None is for a stream that forecasts by itself; if the server is away then, that raises.
        id
            The name under which the outcome will arrive; by default a random one, `answer.id`.
        tags
            Values of tags of the stream.
        due
            The last moment at which the outcome counts, in seconds since 1970 or as a `datetime` with a time zone.
        timeout
            Seconds to wait for an answer, all in all.
        """
        deadline = time.monotonic() + positive_number("timeout", timeout)
        new = new_forecast(p, id, tags, due)
        found = self._session.in_time(f"{route(stream)}/forecasts", Answer, new, deadline, timeout)
        return self._session.raw(stream, [new], found)[0] if isinstance(found, str) else found

    def forecast_many(
        self,
        stream: str,
        P: Iterable[Vector],
        *,
        ids: Iterable[str] | None = None,
        tags: Iterable[Mapping[str, str]] | None = None,
        due: Due | None = None,
        timeout: float = BATCH,
    ) -> list[Answer]:
        """Return the forecasts to use, in order, as `forecast` does; 10,000 go in one request, all of them or none.

        Parameters
        ----------
        stream
            The name of the stream.
        P
            The model's forecasts, such as an array with a row for each.
        ids
            Their ids; by default random ones.
        tags
            Tags of each.
        due
            The last moment at which their outcomes count, in seconds since 1970 or as a `datetime` with a time zone.
        timeout
            Seconds to wait for an answer, all in all.
        """
        deadline = time.monotonic() + positive_number("timeout", timeout)
        answers: list[Answer] = []
        for rows in in_requests(new_forecasts(P, ids, tags, due)):
            target = f"{route(stream)}/forecasts/batch"
            found = self._session.in_time(target, Answers, NewForecasts(rows), deadline, timeout)
            answers += self._session.raw(stream, rows, found) if isinstance(found, str) else found.forecasts
        return answers

    def outcome(
        self,
        stream: str,
        id: str,  # noqa: A002
        y: Label,
        *,
        amend: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Settle a round.

        Parameters
        ----------
        stream
            The name of the stream.
        id
            The id of the forecast.
        y
            The outcome: a class by its index or name, or a point of the set.
        amend
            Whether it is kept beside an earlier one, which stays what was learned and scored. Send
            amendments one after the other.
        timeout
            Seconds; by default the client's.
        """
        return self.outcomes([(stream, id, y)], amend=amend, timeout=timeout)[0]

    def outcomes(
        self, rows: Iterable[tuple[str, str, Label]], *, amend: bool = False, timeout: float | None = None
    ) -> list[Receipt]:
        """Settle many rounds, of any streams, in order; 10,000 go in one request.

        The server says what became of each: learned, replayed, amended, late, conflict or unknown. They are "spooled"
        if it is away, and also while the spool is not empty, so that no outcome overtakes its forecast.

        Parameters
        ----------
        rows
            For each a stream, an id and an outcome.
        amend
            Whether they are kept beside earlier ones, which stay what was learned and scored.
        timeout
            Seconds; by default the client's.
        """
        new = new_outcomes(rows, amend)
        parts = (new[start : start + MOST_ROWS] for start in range(0, len(new), MOST_ROWS))
        return [receipt for part in parts for receipt in self._session.settle(part, timeout)]

    # Streams

    def create(
        self,
        name: str,
        *,
        classes: Iterable[object] | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002
        corrector: Given | None = None,
        gate: bool = False,
        forecaster: Given | None = None,
        monitor: bool | Mapping[str, Any] = True,
        tags: Iterable[str] = (),
        group: Iterable[str] = (),
        limit: int | None = None,
        keep: int | None = None,
        revises: bool = False,
    ) -> Stream:
        """Create a stream, or return it if there is the same already; another one of that name raises.

        Parameters
        ----------
        name
            Letters, digits, dots, underscores and hyphens.
        classes
            The names of the classes, in order.
        set
            In place of classes, a set such as `{"name": "Box", "options": {"low": 0, "high": 1, "dim": 2}}`.
        corrector
            What corrects the model's forecasts: a name, such as "auto", or `{"name": "vector", "options": {...}}`.
        gate
            Whether it acts only once there is evidence that it helps.
        forecaster
            In place of a corrector, what forecasts by itself.
        monitor
            Whether to watch the forecasts; or how, such as `{"alpha": 0.01}`.
        tags
            Names of the tags that forecasts may have.
        group
            Tags that say which group a round is of.
        limit
            The most rounds that may await their outcomes.
        keep
            Days for which rounds are kept; then they are deleted.
        revises
            Whether another forecast under an id that awaits its outcome revises the one before; without a corrector.
        """
        given = {"classes": classes, "set": set, "corrector": corrector, "gate": gate, "forecaster": forecaster}
        more = {"monitor": monitor, "tags": tags, "group": group, "limit": limit, "keep": keep, "revises": revises}
        new = settings(NewStream, name=name, **given, **more)
        return self._session.ask("POST", "/v1/streams", Stream, new)

    def change(
        self,
        name: str,
        *,
        corrector: Given | UnsetType | None = UNSET,
        gate: bool | UnsetType = UNSET,
        monitor: bool | Mapping[str, Any] | UnsetType = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
        limit: int | UnsetType | None = UNSET,
        keep: int | UnsetType | None = UNSET,
    ) -> Stream:
        """Change settings of a stream, as `create` has them; what is not given stays as it is.

        With `corrector` or `gate`, also the same again, a new corrector learns from the stream's log first.
        """
        given = {"corrector": corrector, "gate": gate, "monitor": monitor, "tags": tags, "limit": limit, "keep": keep}
        return self._session.ask("PATCH", route(name), Stream, settings(StreamChange, **given))

    def delete(self, name: str) -> int:
        """Delete a stream with all that is kept of it; return how many forecasts it had."""
        return self._session.ask("DELETE", route(name), Deleted).forecasts

    def delete_forecast(self, stream: str, id: str) -> int:  # noqa: A002
        """Delete a forecast with its outcome and all that is known of it; return 1."""
        return self._session.ask("DELETE", f"{route(stream)}/forecasts/{quoted(id)}", Deleted).forecasts

    def delete_forecasts(self, stream: str, *, tag: str, value: str) -> int:
        """Delete the forecasts that have a tag with a value, such as those of a person; return how many."""
        return self._session.ask(
            "DELETE", with_query(f"{route(stream)}/forecasts", tag=tag, value=value), Deleted
        ).forecasts

    def stream(self, name: str) -> Stream:
        """Return how a stream was made, and how it stands."""
        return self._session.ask("GET", route(name), Stream)

    def streams(self, *, prefix: str | None = None, archived: bool = False) -> list[Stream]:
        """Return all streams in the order of their names; those of a prefix, or archived ones too."""
        found: list[Stream] = []
        after: str | None = None
        while True:
            target = with_query("/v1/streams", after=after, prefix=prefix, archived=archived)
            page = self._session.ask("GET", target, Streams)
            found += page.streams
            after = page.next
            if after is None:
                return found

    def archive(self, name: str) -> Stream:
        """Archive a stream: it rejects new forecasts and still accepts outcomes of pending ones."""
        return self._session.ask("POST", f"{route(name)}/archive", Stream)

    def reset(self, name: str) -> Stream:
        """Reset the monitors after an alarm has been handled."""
        return self._session.ask("POST", f"{route(name)}/reset", Stream)

    # Rounds and scores

    def record(self, stream: str, id: str) -> Record:  # noqa: A002
        """Return all that is known of a round."""
        return self._session.ask("GET", f"{route(stream)}/forecasts/{quoted(id)}", Record)

    def pending(self, stream: str, *, overdue: bool = False, after: int = 0, limit: int = 100) -> Pending:
        """Return a page of rounds that await their outcomes, the oldest first; its `next` is the next `after`."""
        target = with_query(f"{route(stream)}/pending", overdue=overdue, after=after, limit=limit)
        return self._session.ask("GET", target, Pending)

    def scores(
        self,
        stream: str,
        *,
        by: str | None = None,
        window: str | None = None,
        since: float | None = None,
        until: float | None = None,
        last: int | None = None,
    ) -> Scores:
        """Return errors, reliability and scores, before and after.

        Parameters
        ----------
        stream
            The name of the stream.
        by
            Also for each value of a tag; or "time", for each window.
        window
            "minute", "hour", "day", "week" or "month".
        since, until
            The stretch of time, in seconds since 1970.
        last
            The most rounds, the last ones.
        """
        target = with_query(f"{route(stream)}/scores", by=by, window=window, since=since, until=until, last=last)
        return self._session.ask("GET", target, Scores)

    def curve(self, stream: str) -> Curve:
        """Return error over time with its guarantee, and evidence."""
        return self._session.ask("GET", f"{route(stream)}/curve", Curve)

    def alarms(self, stream: str | None = None) -> list[Alarm]:
        """Return the alarms of a stream, or of all, the latest first."""
        return self._session.ask("GET", with_query("/v1/alarms", stream=stream), Alarms).alarms

    def export(
        self,
        stream: str,
        path: str | os.PathLike[str],
        *,
        since: float | None = None,
        until: float | None = None,
        force: bool = False,
    ) -> None:
        """Write the rounds of a stream to a Parquet file, which `treecal audit` reads.

        Parameters
        ----------
        stream
            The name of the stream.
        path
            The file. It is there when it is complete.
        since, until
            The stretch of time, in seconds since 1970.
        force
            Replace an existing file.
        """
        self._session.check()
        target = with_query(f"{route(stream)}/export", since=since, until=until)
        with new_file(path, force=force) as temporary, open(temporary, "wb") as file:
            try:
                reply = self._session.line.download(target, self._session.timeout, file)
                if reply.status != 200:
                    read(reply, Stream)
            except AwayError as away:
                raise self._session.away(away) from None

    # The spool

    @property
    def spooled(self) -> SpoolCounts:
        """What waits in the spool, and what became of the rest."""
        return self._session.counts

    def flush(self, timeout: float | None = None) -> int:
        """Deliver now what is in the spool; return how many still wait when it is empty, or the time is over.

        Parameters
        ----------
        timeout
            Seconds; by default the client's.
        """
        return self._session.flush(timeout)

    def close(self) -> None:
        """Close the connections and the spool; what waits in it is delivered by the next client that has it."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: copies of a model share its client."""
        return self
