"""What was found of a run: the errors and gaps of its ledger, and what its guard did; as tables, words and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from treecal.cli._terminal import by_class, page, printable, table
from treecal.correctors import GuardedCorrector
from treecal.engine import GuardedRun, Run
from treecal.exceptions import UnsupportedError
from treecal.forecasters import Guarded, largest_error
from treecal.geometry import Cdf, Distance, NegativeEntropy, Norm, Simplex, l1, l2, linf
from treecal.io import class_labels
from treecal.ledger import Ledger, Table
from treecal.measures import Losses

if TYPE_CHECKING:
    from treecal.correctors import Corrector
    from treecal.forecasters import Forecaster, GuardReport
    from treecal.late import Late

Played = Ledger | Run | GuardedRun

_CLASSES = 4  # shown of a forecast: those with the largest gaps


@dataclass(frozen=True, eq=False)
class Findings:
    """The errors of a forecaster on a file, from its forecasts and their outcomes, and its largest gaps in a norm."""

    played: Played
    norm: Norm

    @cached_property
    def gaps(self) -> Table:
        """Every distinct forecast, the largest share of the error first."""
        return self.played.table(self.norm)

    @cached_property
    def errors(self) -> dict[str, dict[str, float]]:
        """The error in several distances, exact and per node."""
        distances: list[Distance] = [l1, l2, linf, self.norm, l2.squared]
        if isinstance(self.played.space, Simplex):
            distances.append(NegativeEntropy())
        kinds = {"exact": False, "per_node": True}
        return {repr(d): {kind: self.played.error(d, per_node=v) for kind, v in kinds.items()} for d in distances}

    def document(self, top: int) -> dict[str, Any]:
        """Return the errors and the first gaps as JSON values."""
        rows = zip(*(column[:top] for column in self.gaps), strict=True)
        space = self.played.space
        return {
            "rounds": self.played.rounds,
            "classes": class_labels(space) or None,
            "forecasts": len(self.gaps.weight),
            "errors": self.errors,
            "norm": repr(self.norm),
            "gaps": [
                {"forecast": by_class(space, p), "weight": w, "outcome": by_class(space, y), "gap": g}
                for p, w, y, g in rows
            ],
        }

    def cells(self) -> Iterator[list[Any]]:
        """Yield the rows of a spreadsheet, the header first."""
        yield ["weight", "gap", *(f"{column} {name}" for column in ("forecast", "outcome") for name in self._names)]
        for forecast, weight, outcome, gap in zip(*self.gaps, strict=True):
            yield [float(weight), float(gap), *forecast.tolist(), *outcome.tolist()]

    def show(self, top: int, title: str) -> None:
        """Print the tables."""
        paper = page()
        heading = f"{title}: {self.played.rounds:,} rounds, {len(self.gaps.weight):,} distinct forecasts.\n"
        paper.print(Text(heading), soft_wrap=True)
        shown = table("Calibration error per round", "distance", ">exact", ">per node")
        for name, values in self.errors.items():
            shown.add_row(name, *(f"{value:.4f}" for value in values.values()))
        paper.print(shown)
        if top:
            self._show_gaps(top)
        if any(value == np.inf for values in self.errors.values() for value in values.values()):
            paper.print(
                "An error is infinite: an outcome had probability 0. With treecal or adaptive, --mix 0.05 avoids that.",
                soft_wrap=True,
            )
        paper.print(
            "The error is the distance from each forecast to its mean outcome, averaged over rounds: 0 is calibrated. "
            "Per node, equal forecasts of different nodes of the tree count separately.",
            soft_wrap=True,
        )

    def _show_gaps(self, top: int) -> None:
        shown = table(f"Largest gaps, in {self.norm!r}", ">share", ">weight", ">gap", "forecast → mean outcome")
        total = float(self.gaps.weight @ self.gaps.gap) or 1.0
        for forecast, weight, outcome, gap in zip(*(column[:top] for column in self.gaps), strict=True):
            order = sorted(np.argsort(-np.abs(outcome - forecast), kind="stable")[:_CLASSES])
            text = ", ".join(f"{printable(self._names[k])} {forecast[k]:.3f} → {outcome[k]:.3f}" for k in order)
            shown.add_row(f"{weight * gap / total:.1%}", f"{weight:,.1f}", f"{gap:.3f}", Text(text))
        page().print(shown)

    @property
    def _names(self) -> tuple[str, ...]:
        space = self.played.space
        if isinstance(space, Cdf):
            return tuple(f"F({z:.12g})" for z in space.thresholds)
        return class_labels(space) or tuple(f"x{i + 1}" for i in range(space.dim))


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
