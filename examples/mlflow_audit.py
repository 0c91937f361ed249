"""Log an audit to MLflow: `python examples/mlflow_audit.py`, then `mlflow ui --backend-store-uri sqlite:///mlflow.db`.

Metrics are the scores and the calibration error beside what chance would show, so that runs can be compared; the tag
`calibration` is the verdict in a word; the artifacts are the whole audit, as text for people and as JSON for programs.
"""

from __future__ import annotations

import mlflow
import numpy as np

import treecal as tc


def log_audit(audit: tc.Audit, *, step: int | None = None) -> None:
    """Log an audit to the run that is active; with a step, as one of a series such as days."""
    whole = audit.whole
    found = whole.verdict
    metrics = {"brier": whole.brier, "log_score": whole.log_score, "accuracy": whole.accuracy, "skill": whole.skill}
    for name, view in zip(("top", "classwise"), found.views, strict=True):
        metrics |= {f"{name}_ece": view.luck.value, f"{name}_ece_by_chance": view.luck.mean}
        metrics |= {f"{name}_error": view.error.value, f"{name}_error_low": view.error.low}
        metrics[f"{name}_error_high"] = view.error.high
    mlflow.log_metrics({name: value for name, value in metrics.items() if np.isfinite(value)}, step=step)
    mlflow.set_tag("calibration", found.level)
    mlflow.set_tag("mlflow.note.content", f"{found}")
    mlflow.log_dict(audit.to_dict(), "audit.json")
    mlflow.log_text(str(audit), "audit.txt")


def main() -> None:
    """Log a model that is too sure, and its correction."""
    rng = np.random.default_rng(0)
    truth = rng.random(4000)
    p = truth**2 / (truth**2 + (1 - truth) ** 2)
    P, y = np.column_stack([1 - p, p]), (rng.random(4000) < truth).astype(int)
    for name, forecasts in (("model", P), ("corrected", tc.AutoCorrector(tc.Simplex(2)).update_many(P, y))):
        with mlflow.start_run(run_name=name):
            log_audit(tc.audit(forecasts, y))


if __name__ == "__main__":
    main()
