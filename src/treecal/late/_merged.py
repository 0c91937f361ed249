"""The scores of several correctors' rounds as one report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treecal.correctors import Correction, Corrector
from treecal.correctors._scores import Sums, Tallies


def merged_report(parts: Sequence[Corrector]) -> Correction:
    """Return the scores of all rounds of correctors of one kind: all are sums."""
    tallies, sums = Tallies(parts[0].space), Sums()
    for part in parts:
        with part._lock:
            part._settle()
            if part._books is None:
                return part.report()  # which says that none are kept
            own = part._page.sums
            totals = np.array(sums.totals) + own.totals
            sums = Sums(sums.rounds + own.rounds, sums.weight + own.weight, tuple(map(tuple, totals.tolist())))
            tallies.cells += part._books.tallies.cells
    before, after, mean = tallies.scores(sums)
    return Correction(sums.rounds, before, after, mean)
