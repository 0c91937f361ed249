"""What a corrector keeps: its books, and its state, which is copied out and in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from treecal._states import Configured, Locked, check_array, check_count, check_like, check_names
from treecal._typing import Array, Changes, Saved
from treecal.correctors._batch import Group
from treecal.correctors._names import saved_names
from treecal.correctors._scores import Correction, Sums, Tallies
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet
from treecal.ledger import Ledger


class Opened(NamedTuple):
    """A round that awaits its outcome."""

    rounds: int
    """Those learned before it."""
    forecast: Array
    group: Group
    announced: Forecast

    def state(self) -> Saved:
        """Return arrays and JSON values."""
        x = self.announced
        nodes = np.empty((0, 2), np.int64) if x.nodes is None else x.nodes
        return self._asdict() | {"announced": {"points": x.points, "weights": x.weights, "nodes": nodes}}


def checked_opened(state: Any, rounds: int, space: ConvexSet) -> Opened:
    """Return the open round of a state, or raise unless so many rounds and the set allow it.

    The forecast is as it was given: whoever knows what a forecast is reads it.
    """
    check_names("the open round", state, Opened._fields)
    check_count("the open round's number", state["rounds"], most=rounds)
    check_names("what was announced", state["announced"], ("points", "weights", "nodes"))
    points, weights, nodes = (state["announced"][name] for name in ("points", "weights", "nodes"))
    (group,) = saved_names([state["group"]])
    for name, array in (("points", points), ("weights", weights), ("nodes", nodes)):
        check_array(name, array, np.shape(array), np.int64 if name == "nodes" else np.float64)
    x = Forecast(points, weights=weights, nodes=nodes if len(nodes) else None, space=space)
    return Opened(int(state["rounds"]), state["forecast"], group, x)


class Kept(Locked, Configured, ABC):
    """The part of a corrector that keeps books and states; `Corrector` is the part that plays rounds."""

    space: ConvexSet
    scores: str | None
    _state: Any
    _tallies: Tallies | None
    _sums: Sums | None
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
        if self._tallies is None or not self._tallies.ledgers:
            raise ParameterError(
                f"scores is {self.scores!r}, so there are no ledgers.", hint="make the corrector with scores='exact'."
            )
        with self._lock:
            self._finish()
            return self._tallies.ledgers

    def _own_state(self) -> Saved:
        """Return everything that `_learn` changes: arrays, JSON values, or dictionaries of them. The caller copies."""
        return dict(vars(self._state))

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        """Return the attributes, by name, that a copy of this state of so many rounds makes; any other raises."""
        check_like(self._own_state(), state)
        own = type(self._state)(**deepcopy(state))
        self._check(own, rounds)
        return {"_state": own}

    def _check(self, state: Any, rounds: int) -> None:  # most have nothing more to check
        """Raise unless the arguments allow this state, whose names and kinds of values are right."""

    def _finish(self) -> None:
        """Do what remains to be done for rounds that were learned: write them. If interrupted, the next call does."""
        if self._tallies is not None and self._sums is not None and self._sums.unrecorded:
            self._replaced(self._tallies.recorded)

    def _settle(self) -> None:
        """Add the rounds that wait to the scores; each step can be interrupted, and none is done twice."""
        self._finish()
        if self._tallies is not None:
            self._replaced(self._tallies.added)

    def _replaced(self, act: Callable[[Sums], Sums]) -> None:
        """Replace the sums; unless a signal handler learned a round meanwhile, and replaced them."""
        before = self._sums
        assert before is not None
        after = act(before)
        if self._sums is before:
            self._sums = after

    def report(self) -> Correction:
        """Return Brier and log scores before and after, and the two parts of the Brier score."""
        with self._lock:
            self._settle()
            if self._tallies is None or self._sums is None:
                raise ParameterError("no scores are kept.", hint="make the corrector with scores='binned'.")
            return self._tallies.report(self._sums)

    def get_state(self) -> Saved:
        """Return a copy of the state: arrays, JSON values, dictionaries of them; and any open round's forecast."""
        with self._lock:
            state = self._past()
            if (waits := self._waiting()) is not None:
                state["open"] = waits.state()
            return deepcopy(state)

    def _past(self) -> Saved:
        self._settle()
        scores = {} if self._tallies is None or self._sums is None else self._tallies.state(self._sums)
        ledgers = {} if self._tallies is None else self._tallies.ledgers
        return {
            "rounds": self._rounds,
            "fitted": self._from_logs,
            "own": self._own_state(),
            "scores": scores,
            "ledgers": {role: ledger.get_state() for role, ledger in ledgers.items()},
        }

    def set_state(self, state: Saved) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `TreeCalError` and changes nothing."""
        with self._lock:
            vars(self).update(self._resumed(state))

    def _resumed(self, state: Saved) -> Changes:
        """Return the attributes, by name, that a copy of this state makes; any other raises."""
        waits = isinstance(state, dict) and "open" in state
        check_names("the state", state, ["rounds", "fitted", "own", "scores", "ledgers", *["open"] * waits])
        rounds = state["rounds"]
        check_count("rounds", rounds)
        check_count("the rounds of logs", state["fitted"], most=rounds)
        tallies = self._tallies
        ledgers = {} if tallies is None else tallies.ledgers
        check_names("ledgers", state["ledgers"], ledgers)
        sums = None
        if tallies is None:
            check_names("scores", state["scores"], ())
        else:
            sums = tallies.checked(state["scores"], rounds - state["fitted"])
            if any(state["ledgers"][role]["rounds"] != sums.rounds for role in ledgers):
                raise SnapshotError(f"the ledgers are not those of {sums.rounds} rounds.")
            tallies = tallies.resumed(state["ledgers"])
        opened = {get_ident(): self._checked_open(state["open"], rounds)} if waits else {}
        counts = {"_rounds": int(rounds), "_from_logs": int(state["fitted"])}
        own = self._own_resumed(state["own"], rounds)
        return own | counts | {"_tallies": tallies, "_sums": sums, "_open": opened}
