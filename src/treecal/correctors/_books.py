"""The books of a corrector: its scores in bins, and on demand ledgers of every distinct forecast."""

from __future__ import annotations

from typing import Any, NamedTuple

from treecal._states import Resume, check_names
from treecal._typing import Array
from treecal.correctors._batch import Batch
from treecal.correctors._report import ROLES, Correction
from treecal.correctors._scores import Round, Sums, Tallies
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.geometry import ConvexSet
from treecal.ledger import Ledger


class Page(NamedTuple):
    """Where the books are: replaced by one assignment with the round that it counts, and never changed."""

    sums: Sums = Sums()
    unrecorded: tuple[tuple[int, Round], ...] = ()
    """Rounds, by number, that may not be in the ledgers yet."""


class Books:
    """Scores before and after. Pages are values; what is large is written afterwards: again, if that was interrupted.

    Parameters
    ----------
    space
        The set of the forecasts.
    exact
        Whether there are ledgers.
    """

    def __init__(self, space: ConvexSet, *, exact: bool) -> None:
        self.space = space
        self.tallies = Tallies(space)
        self.ledgers = {role: Ledger(space) for role in ROLES} if exact else None

    def after(self, page: Page, learned: Round) -> Page:
        """Return the page after one more round; change nothing."""
        sums = self.tallies.after(page.sums, learned)
        return Page(sums, (*page.unrecorded, (sums.rounds, learned)) if self.ledgers is not None else ())

    def after_rows(self, page: Page, batch: Batch, announced: Array) -> Page:
        """Return a settled page after many rounds in which points were announced; for books without ledgers."""
        return Page(self.tallies.after_rows(page.sums, batch, announced))

    def written(self, page: Page) -> Page:
        """Write what is due, and return the page with nothing due. To do it twice is as good as once."""
        sums = self.tallies.write(page.sums)
        for number, (b, x, y, weight) in page.unrecorded:
            for role, each in zip(ROLES, (self._point(b), x, self._point(x.mean)), strict=True):
                (self.ledgers or {})[role]._record_as(number, each, y, weight)
        return Page(sums)

    def _point(self, point: Array) -> Forecast:
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    def settled(self, page: Page) -> Page:
        """Return a written page with the rounds that wait added, and due; change nothing."""
        return page._replace(sums=self.tallies.added(page.sums))

    def report(self, page: Page) -> Correction:
        """Return the scores of a settled page."""
        if not page.sums.rounds:
            raise ParameterError("no round is scored, so there are no scores.")
        before, after, mean = self.tallies.scores(page.sums)
        return Correction(page.sums.rounds, before, after, mean)

    def state(self, page: Page) -> dict[str, Any]:
        """Return the state of a settled page."""
        ledgers = {role: ledger.get_state() for role, ledger in (self.ledgers or {}).items()}
        return {"scores": self.tallies.state(page.sums), "ledgers": ledgers}

    def prepared(self, state: dict[str, Any], rounds: int) -> tuple[Page, list[Resume]]:
        """Check a state after so many rounds; return its page, and what puts the rest in place."""
        ledgers = self.ledgers or {}
        check_names("ledgers", state["ledgers"], ledgers)
        parts = [ledger._prepared(state["ledgers"][role]) for role, ledger in ledgers.items()]
        sums, cells = self.tallies.checked(state["scores"], rounds)
        if any(state["ledgers"][role]["rounds"] != sums.rounds for role in ledgers):
            raise SnapshotError(f"the ledgers are not those of {sums.rounds} rounds.")

        def resume() -> None:
            self.tallies.cells = cells

        return Page(sums), [*parts, resume]
