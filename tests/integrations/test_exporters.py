"""The examples for MLflow and OpenTelemetry, with the packages themselves."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),  # theirs
]


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="install the dependency group `others`")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    runpy.run_path(str(EXAMPLES / "mlflow_audit.py"), run_name="__main__")
    runs = {run.info.run_name: run for run in mlflow.MlflowClient().search_runs(["0"])}
    before, after = runs["model"].data, runs["corrected"].data
    assert before.tags["calibration"] == "far off"
    assert after.tags["calibration"] in ("calibrated", "nearly calibrated")
    assert after.metrics["brier"] < before.metrics["brier"]
    assert before.metrics["top_error_low"] < before.metrics["top_error"] < before.metrics["top_error_high"]
    artifacts = Path(mlflow.artifacts.download_artifacts(run_id=runs["model"].info.run_id, dst_path=str(tmp_path)))
    assert json.loads((artifacts / "audit.json").read_text("utf-8"))["whole"]["brier"] == before.metrics["brier"]
    assert "What to do" in (artifacts / "audit.txt").read_text("utf-8")


def test_opentelemetry() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="install the dependency group `others`")
    from opentelemetry import metrics
    from opentelemetry._logs import set_logger_provider
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names

    logs, reader, provider = InMemoryLogRecordExporter(), InMemoryMetricReader(), LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
    set_logger_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    runpy.run_path(str(EXAMPLES / "opentelemetry_audit.py"), run_name="__main__")
    evaluation, alarm = (each.log_record for each in logs.get_finished_logs())
    assert evaluation.event_name == "gen_ai.evaluation.result"
    found = evaluation.attributes
    assert found[names.GEN_AI_EVALUATION_SCORE_LABEL] == "far off"
    assert found["treecal.score.low"] < found[names.GEN_AI_EVALUATION_SCORE_VALUE] < found["treecal.score.high"]
    assert "too sure" in found[names.GEN_AI_EVALUATION_EXPLANATION]
    assert alarm.event_name == "treecal.alarm"
    assert alarm.attributes["treecal.alarm.round"] <= 2000
    (metric,) = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "treecal.monitor.e_value"
    assert metric.data.data_points[0].value > 100
