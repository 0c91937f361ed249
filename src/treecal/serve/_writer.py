"""The one thread that writes: requests wait in a queue, and those that wait together are committed together.

Long ones are committed by themselves, one between two groups of the others, which so wait for one of them at most.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Self, TypeVar

from treecal.exceptions import TreeCalError
from treecal.serve._books import Books, Event
from treecal.serve._connections import Store
from treecal.serve._refusals import Refusal
from treecal.serve._store import Broken

T = TypeVar("T")
_MOST = 512  # requests in one transaction
log = logging.getLogger("treecal.serve")


class Job(NamedTuple):
    """What is to be done, and whoever waits for it."""

    act: Callable[[Books], Any]
    future: Future[Any]
    writes: bool
    long: bool


class Writer:
    """Lets requests act on the books, one after the other, and answers once what they did is durable.

    The store is not yet opened: it belongs to the writer's thread. The rest is as for `Books`.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        receivers: Callable[[str], Iterable[str]] = lambda stream: (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._receivers = receivers
        self.listeners: list[Callable[[list[Event]], None]] = []
        """Called with the events, after each commit, on the writer's thread."""
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._long: deque[Job] = deque()  # those that have left the queue, and wait for their turn
        self._ready: Future[None] = Future()
        self._thread = Thread(target=self._run, name="treecal-writer", daemon=True)
        self._stopping = False
        self._door = Lock()
        self._stale = False  # whether what is in memory may not be what the store has
        self.trouble = False
        """Whether the last transaction could not be written."""
        self.failure: str | None = None
        """Why nothing can be written until the process is started again; None if all is well."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called when that is so, on the writer's thread."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()  # raises what opening the store raised
        return self

    def __exit__(self, *error: object) -> None:
        """Do what is waiting, keep snapshots, close the store."""
        with self._door:
            self._stopping = True
            self._queue.put(None)
        self._thread.join()

    def submit(self, act: Callable[[Books], T], *, long: bool = False) -> Future[T]:
        """Do something to the books, which may take long; the result is there when it is durable."""
        return self._put(act, writes=True, long=long)

    def read(self, act: Callable[[Books], T]) -> Future[T]:
        """Look at the books between two transactions: what is seen is committed."""
        return self._put(act, writes=False, long=False)

    @property
    def waiting(self) -> int:
        """Requests in the queue, about."""
        return self._queue.qsize() + len(self._long)

    def _put(self, act: Callable[[Books], T], *, writes: bool, long: bool) -> Future[T]:
        future: Future[T] = Future()
        with self._door:  # nothing is put after the word to stop
            if not self._stopping:
                self._queue.put(Job(act, future, writes, long))
                return future
        future.set_exception(Refusal("unavailable", "the server is stopping.", hint="send it again later."))
        return future

    def _run(self) -> None:
        stopping = False
        try:
            with self._store as store:
                books = Books(store, clock=self._clock, receivers=self._receivers)
                self._ready.set_result(None)
                while (jobs := self._next()) is not None:
                    self._serve(books, jobs)
                stopping = True
                self._finish(books)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
                return
            log.critical("the writer failed", exc_info=error)
            self._give_up(self.failure or str(error))
            for waiting in self._long:
                _fail(waiting, self._broken())
            while not stopping and (job := self._queue.get()) is not None:
                _fail(job, self._broken())

    def _next(self) -> list[Job] | None:
        """Wait for a request; return all short ones that wait, then one long one; or None when it is to stop."""
        jobs: list[Job] = []
        while len(jobs) < _MOST and not (self._queue.empty() and (jobs or self._long)):
            if (job := self._queue.get()) is None:
                if not jobs and not self._long:
                    return None
                self._queue.put(None)  # after these
                break
            (self._long if job.long else jobs).append(job)
        return [*jobs, self._long.popleft()] if self._long else jobs

    def _serve(self, books: Books, jobs: list[Job]) -> None:
        writes = [job for job in jobs if job.writes and job.future.set_running_or_notify_cancel()]
        for group in ([job for job in writes if not job.long], [job for job in writes if job.long]):
            if group:
                self._commit(books, group)
        for job in jobs:
            if not job.writes and job.future.set_running_or_notify_cancel():
                try:
                    job.future.set_result(self._look(books, job))
                except BaseException as error:
                    _fail(job, error)

    def _look(self, books: Books, job: Job) -> Any:
        if self.failure is not None:  # what is in memory may be ahead of the store
            raise self._broken()
        try:
            self._refresh(books)
            found = job.act(books)
            books.shed(save=False)  # what is committed can be read again
            return found
        except Refusal as refusal:
            self._stale |= refusal.code == "unavailable"  # the store was away: others may have written
            raise

    def _refresh(self, books: Books) -> None:
        if self._stale:
            books.forget()
            self._stale = False

    def _commit(self, books: Books, jobs: list[Job]) -> None:
        """Let requests act, and commit; if one of them fails, each by itself, so that it cannot harm the others."""
        if self.failure is not None:
            for job in jobs:
                _fail(job, self._broken())
            return
        results: list[Any] = []
        try:
            books.store.begin()
            self._refresh(books)
            for job in jobs:
                try:
                    results.append((True, job.act(books)))
                except Refusal as refusal:
                    if refusal.code == "unavailable":  # of the store, in the midst of it
                        raise
                    results.append((False, refusal))
            books.shed(save=True)
            events = books.events
            books.events = []
            books.store.commit()
        except BaseException as error:
            self._undo(books, error)
            if len(jobs) > 1 and self.failure is None and not isinstance(error, Refusal):
                for job in jobs:
                    self._commit(books, [job])
            else:
                for job in jobs:
                    _fail(job, self._broken() if self.failure is not None else error)
            return
        if self.trouble:
            self.trouble = False
            log.warning("the books can be written again")
        for job, (fine, result) in zip(jobs, results, strict=True):
            if fine:
                job.future.set_result(result)
            else:
                job.future.set_exception(result)
        if events:
            for listen in tuple(self.listeners):
                try:
                    listen(events)
                except Exception:  # whoever listens is none of the books' business
                    log.exception("events were not sent")

    def _undo(self, books: Books, error: BaseException) -> None:
        """Take back a transaction, in the store and in memory."""
        self._stale = True
        try:
            if isinstance(error, Broken):
                raise error
            books.store.rollback()
            if isinstance(error, Refusal) and not self.trouble:
                self.trouble = True
                log.error("%s", error.message)
            if not isinstance(error, TreeCalError):
                log.error("a request failed", exc_info=error)
        except BaseException as failure:
            self._give_up(str(failure))
            log.critical("the books failed: nothing is written until the server is started again", exc_info=failure)

    def _give_up(self, why: str) -> None:
        self.failure = why
        self.on_failure()

    def _broken(self) -> Refusal:
        hint = "start the server again; what was acknowledged is kept."
        return Refusal("unavailable", f"the books failed: {self.failure}.", hint=hint)

    def _finish(self, books: Books) -> None:
        """Keep snapshots, so that the next start is quick."""
        if self.failure is None:
            try:
                books.store.begin()
                self._refresh(books)
                books.save_all()
                books.store.commit()
            except Exception as error:  # the log has it all; only the next start takes longer
                books.store.rollback()
                log.warning("no snapshots were kept: %s", error)


def _fail(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)
