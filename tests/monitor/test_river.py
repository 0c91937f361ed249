"""The drift detector for river."""

from __future__ import annotations

import numpy as np
import pytest

import treecal as tc
from treecal.exceptions import TreeCalError

pytest.importorskip("river")

from treecal.integrations.river import CalibrationDrift


def test_it_begins_anew_after_each_drift() -> None:
    rng = np.random.default_rng(0)
    drift, m, found, expected = CalibrationDrift(["no", "yes"]), tc.Monitor(tc.Simplex(2)), [], []
    for t in range(1500):
        p = rng.uniform(0.1, 0.6)
        yes = rng.random() < min(p + 0.35 * (t > 500), 1)
        drift.update(({"yes": p, "no": 1 - p}, "yes" if yes else "no"))
        if m.alarm is not None:
            m.reset()
        m.update([1 - p, p], int(yes))
        found += [t] if drift.drift_detected else []
        expected += [t] if m.alarm is not None else []
    assert found == expected
    assert len(found) > 2
    assert drift.alarm is not None
    assert (drift.alarm.where, drift.alarm.direction) == ("yes", "too low")


def test_what_is_no_data_point_is_refused_and_changes_nothing() -> None:
    drift = CalibrationDrift(["no", "yes"])
    drift.update(({}, "yes"))  # equal probabilities
    for wrong in (1.0, ({"no": 1.0}, "perhaps"), ({"perhaps": 1.0}, "no"), ({"no": 0.5}, "no"), ({"no": 0.5}, None)):
        with pytest.raises(TreeCalError):
            drift.update(wrong)
    assert drift.monitor.rounds == 1
    with pytest.raises(TreeCalError):
        CalibrationDrift(["no", "no"])
    assert isinstance(drift.clone(), CalibrationDrift)
