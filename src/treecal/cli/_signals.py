"""Ctrl-C, SIGTERM and a closed terminal: each stops a command in order, so that its temporary files are removed."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, TypeVar

from treecal._platform import STOPPING

T = TypeVar("T")

_AT_ONCE = 1.0  # seconds within which a second signal is the same

Handler = Callable[[int, FrameType | None], object]


def handle(handler: Handler) -> dict[int, Any]:
    """Install a handler, and return those it replaces. A signal that is ignored, as by nohup, stays so."""
    heard = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


class Interrupts:
    """Turns signals into `KeyboardInterrupt`, and remembers them: an import or a callback from C may swallow it.

    Examples
    --------
    >>> interrupts = Interrupts()
    >>> try:
    ...     interrupts.receive(signal.SIGTERM, None)
    ... except KeyboardInterrupt:
    ...     print("swallowed")
    swallowed
    >>> try:
    ...     interrupts.check()
    ... except KeyboardInterrupt:
    ...     print("raised again")
    raised again
    """

    arrived = False
    """Whether there was a signal, also one whose exception was swallowed."""
    ending = False
    """Whether the command has ended, so that there is nothing left to interrupt but the way out."""
    _last = -math.inf

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Be the handler of a signal."""
        now = time.monotonic()
        before = self._last
        self.arrived = True
        self._last = now
        if now - before < _AT_ONCE:  # a closed terminal sends two: cleaning up is not interrupted
            return
        if self.ending:
            os._exit(130)
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise again if a signal has arrived. Long work calls this every now and then."""
        if self.arrived:
            raise KeyboardInterrupt


def print_no_interrupts() -> None:
    """Let libraries that discard a `KeyboardInterrupt` do so without a traceback: it is raised again."""
    before = sys.excepthook
    before_unraisable = sys.unraisablehook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            before(kind, error, trace)

    def unraisable(discarded: Any) -> None:
        if not issubclass(discarded.exc_type, KeyboardInterrupt):
            before_unraisable(discarded)

    sys.excepthook = hook
    sys.unraisablehook = unraisable


interrupts = Interrupts()
"""Those of this process, while it runs a command."""


class Shield:
    """Turns these signals into `KeyboardInterrupt`, but only where that is harmless.

    Waiting for input and writing output are interrupted immediately; anything else, such as an update or a snapshot,
    is finished first.

    Examples
    --------
    >>> with Shield() as shield:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     print("the round is finished first")
    ...     try:
    ...         with shield.opened():
    ...             print("never printed")
    ...     except KeyboardInterrupt:
    ...         print("stopped")
    the round is finished first
    stopped
    """

    def __init__(self) -> None:
        self._open = False
        self._signalled = interrupts.arrived
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Shield:
        self._before = handle(self._receive)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        if self._open:
            self._open = False  # raised once: cleaning up is not interrupted
            raise KeyboardInterrupt

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let a signal interrupt the block; one that has arrived already does so immediately."""
        self._open = True
        try:
            if self._signalled:
                raise KeyboardInterrupt
            yield
        finally:
            self._open = False

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over items; a signal may interrupt the wait for the next."""
        source = iter(items)
        while True:
            with self.opened():
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item
