"""What a ledger holds, for people, for spreadsheets and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from treecal._typing import Array
from treecal.cli._terminal import page, printable
from treecal.engine._replay import Run
from treecal.geometry import Distance, NegativeEntropy, Norm, Simplex, l1, l2, linf
from treecal.ledger import Ledger
from treecal.ledger import Table as Gaps

_CLASSES = 4  # shown of a forecast: those it missed most


@dataclass(frozen=True, eq=False)
class Findings:
    """The errors and the largest gaps of one forecaster on one file.

    Attributes
    ----------
    played
        Its forecasts and their outcomes.
    classes
        Names of the coordinates, if they have any.
    norm
        Norm of the gaps.
    """

    played: Ledger | Run
    classes: tuple[str, ...] | None
    norm: Norm

    @property
    def names(self) -> tuple[str, ...]:
        """What the coordinates are called."""
        return self.classes or tuple(f"x{i + 1}" for i in range(self.played.space.dim))

    @cached_property
    def gaps(self) -> Gaps:
        """Every distinct forecast, the largest share of the error first."""
        return self.played.table(self.norm)

    @cached_property
    def errors(self) -> dict[str, tuple[float, float]]:
        """The error in several distances, and per node."""
        distances: dict[str, Distance] = {"l1": l1, "l2": l2, "linf": linf, repr(self.norm): self.norm}
        distances["l2 squared"] = l2.squared
        if isinstance(self.played.space, Simplex):
            distances["KL"] = NegativeEntropy()
        return {name: (self.played.error(d), self.played.error(d, per_node=True)) for name, d in distances.items()}

    def document(self, top: int) -> dict[str, Any]:
        """Return all this for JSON."""
        rows = zip(*(column[:top] for column in self.gaps), strict=True)
        return {
            "rounds": self.played.rounds,
            "classes": self.classes,
            "forecasts": len(self.gaps.weight),
            "errors": {name: {"exact": u, "per_node": v} for name, (u, v) in self.errors.items()},
            "norm": repr(self.norm),
            "gaps": [
                {"forecast": self._named(p), "weight": w, "outcome": self._named(y), "gap": g} for p, w, y, g in rows
            ],
        }

    def _named(self, vector: Array) -> Any:
        return vector if self.classes is None else dict(zip(self.classes, vector.tolist(), strict=True))

    def cells(self) -> Iterator[list[Any]]:
        """Give the rows of a spreadsheet, the header first."""
        yield ["weight", "gap", *(f"{column} {name}" for column in ("forecast", "outcome") for name in self.names)]
        for forecast, weight, outcome, gap in zip(*self.gaps, strict=True):
            yield [float(weight), float(gap), *forecast.tolist(), *outcome.tolist()]

    def show(self, top: int, title: str) -> None:
        """Print the tables."""
        paper = page()
        heading = f"{title}: {self.played.rounds:,} rounds, {len(self.gaps.weight):,} distinct forecasts.\n"
        paper.print(Text(heading), soft_wrap=True)
        table = Table(title="Calibration error per round", title_justify="left")
        table.add_column("distance")
        table.add_column("error", justify="right")
        table.add_column("per node", justify="right")
        for name, values in self.errors.items():
            table.add_row(name, *(f"{value:.4f}" for value in values))
        paper.print(table)
        if top:
            paper.print(self._largest(top))
        if any(value == np.inf for values in self.errors.values() for value in values):
            paper.print("KL is infinite: an outcome had probability 0. --mix 0.05 keeps it finite.", soft_wrap=True)
        paper.print(
            "The error is the distance from each forecast to its mean outcome, averaged over rounds: 0 is calibrated. "
            "Per node, equal forecasts of different nodes of the tree count separately.",
            soft_wrap=True,
        )

    def _largest(self, top: int) -> Table:
        table = Table(title=f"Largest gaps, in {self.norm!r}", title_justify="left")
        for name in ("share", "weight", "gap"):
            table.add_column(name, justify="right")
        table.add_column("forecast → mean outcome")
        total = float(self.gaps.weight @ self.gaps.gap) or 1.0
        for forecast, weight, outcome, gap in zip(*(column[:top] for column in self.gaps), strict=True):
            order = np.argsort(-np.abs(outcome - forecast), kind="stable")[:_CLASSES]
            told = ", ".join(f"{printable(self.names[k])} {forecast[k]:.3f} → {outcome[k]:.3f}" for k in sorted(order))
            table.add_row(f"{weight * gap / total:.1%}", f"{weight:,.1f}", f"{gap:.3f}", Text(told))
        return table
