"""What a corrector keeps: its books, and its state, which is copied out and in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from threading import get_ident
from typing import Any

from treecal._states import Configured, Locked, Resume, check_count, check_like, check_names
from treecal.correctors._books import Books, Page
from treecal.correctors._opened import Opened
from treecal.correctors._report import Correction
from treecal.exceptions import ParameterError
from treecal.geometry import ConvexSet
from treecal.ledger import Ledger


class Kept(Locked, Configured, ABC):
    """The part of a corrector that keeps books and states; `Corrector` is the part that plays rounds."""

    space: ConvexSet
    scores: str | None
    _state: Any
    _books: Books | None
    _page: Page
    _rounds: int
    _from_logs: int
    _open: dict[int, Opened]

    @abstractmethod
    def _waiting(self) -> Opened | None:
        """Return the round that awaits its outcome, if it is clear which."""

    @abstractmethod
    def _checked_open(self, state: Any, rounds: int) -> Opened:
        """Return the open round of a state, or raise."""

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """Three ledgers: "before" for the model's forecasts, "after" for those announced, "mean" for their means."""
        if self._books is None or self._books.ledgers is None:
            raise ParameterError(
                f"scores is {self.scores!r}, so there are no ledgers.", hint="make the corrector with scores='exact'."
            )
        with self._lock:
            self._finish()
            return self._books.ledgers

    def _own_state(self) -> dict[str, Any]:
        """Return everything that `_learn` changes: arrays, JSON values, or dictionaries of them. The caller copies."""
        return dict(vars(self._state))

    def _set_own_state(self, state: dict[str, Any]) -> None:
        """Resume from a copy of what `_own_state` returned."""
        self._state = type(self._state)(**state)

    def _own_prepared(self, state: dict[str, Any], rounds: int) -> Resume:
        """Check what `_own_state` returned after so many rounds; return what puts it in place."""
        check_like(self._own_state(), state)
        own = deepcopy(state)
        self._check(type(self._state)(**own), rounds)
        return lambda: self._set_own_state(own)

    def _check(self, state: Any, rounds: int) -> None:  # most have nothing more to check
        """Raise unless the arguments allow this state, whose names and kinds of values are right."""

    def _finish(self) -> None:
        """Do what remains to be done for rounds that were learned: write them. If interrupted, the next call does."""
        if self._books is not None and (self._page.sums.due is not None or self._page.unrecorded):
            self._turn(self._books.written)

    def _settle(self) -> None:
        """Add the rounds that wait to the scores; each step can be interrupted, and none is done twice."""
        self._finish()
        if self._books is not None:
            self._turn(self._books.settled)
            self._finish()

    def _turn(self, write: Callable[[Page], Page]) -> None:
        """Write the books; unless a signal handler learned a round meanwhile, and wrote them."""
        page = self._page
        written = write(page)
        if self._page is page:
            self._page = written

    def report(self) -> Correction:
        """Return Brier and log scores before and after, and the two parts of the Brier score."""
        with self._lock:
            if self._books is None:
                raise ParameterError("no scores are kept.", hint="make the corrector with scores='binned'.")
            self._settle()
            return self._books.report(self._page)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state: arrays, JSON values, dictionaries of them; and any open round's forecast."""
        with self._lock:
            state = self._past()
            if (waits := self._waiting()) is not None:
                state["open"] = waits.state()
            return deepcopy(state)

    def _past(self) -> dict[str, Any]:
        self._settle()
        state = {"rounds": self._rounds, "fitted": self._from_logs, "own": self._own_state()}
        return state | ({"scores": {}, "ledgers": {}} if self._books is None else self._books.state(self._page))

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `TreeCalError` and changes nothing."""
        with self._lock:
            self._prepared(state)()

    def _prepared(self, state: dict[str, Any]) -> Resume:
        """Check a state, a copy of which is kept; return what puts it in place."""
        waits = isinstance(state, dict) and "open" in state
        if isinstance(state, dict):
            state = {"fitted": 0, **state}  # older snapshots lack it
        check_names("the state", state, ["rounds", "fitted", "own", "scores", "ledgers", *["open"] * waits])
        rounds = state["rounds"]
        check_count("rounds", rounds)
        check_count("the rounds of logs", state["fitted"], most=rounds)
        page = Page()
        parts = list[Resume]()
        if self._books is None:
            for name in ("scores", "ledgers"):
                check_names(name, state[name], ())
        else:
            page, parts = self._books.prepared(state, rounds - state["fitted"])
        parts.append(self._own_prepared(state["own"], rounds))
        opened = None
        if waits:
            opened = self._checked_open(state["open"], rounds)

        def resume() -> None:
            for part in parts:
                part()
            self._rounds = int(rounds)
            self._from_logs = int(state["fitted"])
            self._page = page
            self._open = {} if opened is None else {get_ident(): opened}

        return resume
