"""Send an audit and alarms by OpenTelemetry, to whatever collects them: `python examples/opentelemetry_audit.py`.

The audit is an event `gen_ai.evaluation.result`, as the semantic conventions for generative AI have it, the verdict its
label. Beside it is the interval of the score, for which the conventions have no name yet.
"""

from __future__ import annotations

import numpy as np
from opentelemetry import metrics
from opentelemetry._logs import SeverityNumber, get_logger

import treecal as tc


def send_audit(audit: tc.Audit, name: str) -> None:
    """Send the calibration error of a model's forecasts, with its interval and the verdict in words."""
    found = audit.whole.verdict
    error = found.worst.error
    attributes = {
        "gen_ai.evaluation.name": f"calibration of {name}",
        "gen_ai.evaluation.score.value": error.value,
        "gen_ai.evaluation.score.label": found.level,
        "gen_ai.evaluation.explanation": str(found),
        "treecal.score.low": error.low,
        "treecal.score.high": error.high,
        "treecal.score.level": error.level,
        "treecal.rows": audit.whole.rounds,
    }
    get_logger("treecal").emit(event_name="gen_ai.evaluation.result", attributes=attributes)


def send_alarm(monitor: tc.Monitor, name: str) -> None:
    """Send how strong the evidence against a model is, and its alarm, if there is one."""
    evidence = metrics.get_meter("treecal").create_gauge("treecal.monitor.e_value", description="1 / a p-value")
    evidence.set(monitor.e_value, {"model": name})
    if (alarm := monitor.alarm) is not None:
        attributes = {"model": name, "treecal.alarm.round": alarm.round, "treecal.alarm.onset": alarm.onset}
        log = get_logger("treecal")
        log.emit(
            event_name="treecal.alarm", severity_number=SeverityNumber.WARN, body=str(alarm), attributes=attributes
        )


def main() -> None:
    """Send what a model that is too sure shows."""
    rng = np.random.default_rng(0)
    truth = rng.random(2000)
    p = truth**2 / (truth**2 + (1 - truth) ** 2)
    P, y = np.column_stack([1 - p, p]), (rng.random(2000) < truth).astype(int)
    monitor = tc.Monitor(tc.Simplex(2))
    for forecast, outcome in zip(P, y, strict=True):
        monitor.update(forecast, outcome)
    send_audit(tc.audit(P, y), "rain")
    send_alarm(monitor, "rain")


if __name__ == "__main__":
    main()
