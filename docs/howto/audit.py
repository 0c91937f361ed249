"""Draw the pictures of docs/howto/audit.md, `audit.svg` and `windows.svg`.

Run it from anywhere; it takes some seconds: python docs/howto/audit.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import treecal as tc
from treecal import plots

HERE = Path(__file__).parent


def overconfident(days: int = 1500) -> tc.auditing.Audit:
    """Audit the new model of the page."""
    rng, sky = np.random.default_rng(0), np.array(["rain", "snow", "sun"])
    truth = rng.dirichlet([2, 1, 3], size=days)
    forecasts = truth**2 / (truth**2).sum(axis=1)[:, None]
    came = (truth.cumsum(axis=1) > rng.random((days, 1))).argmax(axis=1)
    return tc.audit(forecasts, sky[came], classes=list(sky))


def main() -> None:
    """Draw both pictures."""
    with plots.drawing(10, 3.8) as figure:
        plots.plot_audit(overconfident(), figure=figure)
        (HERE / "audit.svg").write_text(plots.svg(figure), encoding="utf-8")
    rng = np.random.default_rng(0)
    p, week = rng.random(6000), np.arange(6000) // 500
    clicked = rng.random(6000) < np.where(week < 6, p, p**1.5)
    monitor = tc.Monitor(tc.Simplex(2))
    monitor.update_many(np.column_stack([1 - p, p]), clicked.astype(int))
    weeks = tc.audit({"p": p, "clicked": clicked, "week": week}, forecast="p", outcome="clicked", by="week")
    with plots.drawing(9, 3.6) as figure:
        plots.plot_windows(weeks, 1, alarm=monitor.alarm, ax=figure.subplots())
        (HERE / "windows.svg").write_text(plots.svg(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
