"""The scores of several correctors' rounds as one report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treecal.correctors import Correction, Corrector
from treecal.correctors._scores import Sums, Tallies
from treecal.exceptions import ParameterError


def merged_report(parts: Sequence[Corrector]) -> Correction:
    """Return the scores of all rounds of correctors of one kind: all are sums."""
    tallies, sums = Tallies(parts[0].space), Sums()
    for part in parts:
        with part._lock:
            part._catch_up()
            if part._tallies is None:
                raise ParameterError(
                    "scores is None, so none were kept.", hint="make the corrector with scores='binned'."
                )
            own = part._sums
            totals = np.array(sums.totals) + own.totals
            sums = Sums(sums.rounds + own.rounds, sums.weight + own.weight, tuple(map(tuple, totals.tolist())))
            tallies.cells += part._tallies.cells
    scores = tallies.scores(sums)
    return Correction(sums.rounds, scores["before"], scores["after"], scores["mean"])
