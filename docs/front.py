"""Draw the picture of the README, `front.svg`: a real model before and after its correction.

Run it from anywhere; it takes some seconds: python docs/front.py
"""

from __future__ import annotations

from pathlib import Path

import treecal as tc
from treecal import plots
from treecal.streams import new_york_flights_model

ROUNDS = 10_000


def main() -> None:
    """Draw it."""
    stream = new_york_flights_model(days=13)
    outcomes = stream.outcomes[:ROUNDS]
    forecasts = stream.forecasts[:ROUNDS]
    forecasts = forecasts / forecasts.sum(axis=1, keepdims=True)  # the sums are 1 up to rounding
    corrected = tc.Gated(tc.VectorScaling(stream.space)).update_many(forecasts, outcomes)
    audits = {"the model": tc.audit(forecasts, outcomes), "corrected": tc.audit(corrected, outcomes)}
    with plots.drawing(6.4, 4.4) as figure:
        axes = plots.plot_reliability(audits, ax=figure.subplots())
        axes.set_xlabel("probability of the likeliest class")
        axes.set_ylabel("how often it was right")
        (Path(__file__).parent / "front.svg").write_text(plots.svg(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
