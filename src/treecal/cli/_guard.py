"""What the guard of a forecaster or corrector did: in words and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treecal.correctors import GuardedCorrector
from treecal.exceptions import UnsupportedError
from treecal.forecasters import Guarded, largest_error
from treecal.measures import Losses

if TYPE_CHECKING:
    from treecal.correctors import Corrector
    from treecal.forecasters import Forecaster, GuardReport
    from treecal.geometry import Norm
    from treecal.late import Late


@dataclass(frozen=True)
class Guard:
    """Who forecast how many rounds, with what error, and what is left of the budget; all errors per round."""

    did: GuardReport
    norm: Norm | Losses
    bound: float | None
    """The guaranteed error; None where there is no certificate."""
    worst: float
    """The largest possible error."""

    @classmethod
    def of(cls, source: Forecaster | Corrector | Late) -> Guard | None:
        """Return what the guard did so far; None if there is none, or no round yet.

        Examples
        --------
        >>> import treecal as tc
        >>> f = tc.Guarded(tc.Simplex(2))
        >>> for _ in range(100):
        ...     f.update([1, 0])
        >>> guard = Guard.of(f)
        >>> guard.did.rounds, round(guard.bound, 2), Guard.of(tc.TreeCal(tc.Simplex(2)))
        (100, 1.23, None)
        """
        if not isinstance(source, Guarded | GuardedCorrector) or not source.rounds:
            return None
        try:
            found = source.certificate(rounds=source.rounds)
        except UnsupportedError:  # no proof covers the safe part's set or norm
            found = None
        did = source.report() if isinstance(source, Guarded) else source.guard()
        worst = largest_error(source.space, source.measure)
        return cls(did, source.measure, None if found is None else min(found.bound, worst), worst)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        did, rounds = self.did, self.did.rounds
        return {
            "norm": self._named,
            "eager": {"rounds": did.eager_rounds, "error": did.eager_error / rounds},
            "safe": {"rounds": did.safe_rounds, "bound": did.safe_bound / rounds},
            "budget": did.budget / rounds,
            "left": did.left / rounds,
            "bound": self.bound,
        }

    @property
    def _named(self) -> str:
        return "swap regret" if isinstance(self.norm, Losses) else repr(self.norm)

    def __str__(self) -> str:
        found = self.document()
        bound = "no error is guaranteed"
        eager = f"{found['eager']['rounds']:,} rounds (error {found['eager']['error']:.4f})"
        safe = f"{found['safe']['rounds']:,} rounds (error at most {found['safe']['bound']:.4f})"
        if self.bound is not None and self.bound >= self.worst:
            bound = f"after {self.did.rounds:,} rounds the guarantee is still vacuous"
        elif self.bound is not None:
            bound = f"guaranteed on every sequence: at most {self.bound:.4f}"
        return (
            f"The guard: eager forecast {eager}, safe {safe}; eager's budget is {found['budget']:.4f}, of which "
            f"{found['left']:.4f} is left; {bound}. Errors are in {found['norm']}, per round of the whole stream."
        )
