"""What the documentation's tables say of false alarms and delays: a small version, and in `make heavy` all of it."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal.monitor import Watched, discoveries

_SCRIPT = spec_from_file_location("monitor_table", Path(__file__).parents[2] / "examples" / "monitor_table.py")
assert _SCRIPT is not None
assert _SCRIPT.loader is not None
table: Any = module_from_spec(_SCRIPT)
_SCRIPT.loader.exec_module(table)

KINDS = [table.right, table.right_and_moving, table.right_on_the_boundary]


def most(streams: int, alpha: float) -> float:
    """Return what the share of false alarms exceeds once in 10,000 times, at most, if its expectation is alpha."""
    return float(alpha + 3.8 * np.sqrt(alpha * (1 - alpha) / streams) + 1 / streams)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_false_alarms_are_rare(kind: Any, classes: int) -> None:
    found = table.alarms(kind(classes), rounds=500, streams=40, alpha=0.2)
    assert np.isfinite(found).mean() <= most(40, 0.2)


def test_what_is_off_is_found_soon() -> None:
    assert np.median(table.alarms(table.sure(3, 2.0), rounds=400, streams=30)) <= 75
    assert np.median(table.alarms(table.sure(10, 2.0), rounds=400, streams=30)) <= 60
    late = table.alarms(table.sure(5, 2.0, after=2000), rounds=2500, streams=15)
    assert np.median(late) <= 2250


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3, 10, 50])
def test_false_alarms(kind: Any, classes: int) -> None:
    found = table.alarms(kind(classes), rounds=5000, streams=2000, alpha=0.05)
    assert np.isfinite(found).mean() <= most(2000, 0.05)


@pytest.mark.heavy
def test_power() -> None:
    for classes in (3, 10):
        assert np.median(table.alarms(table.sure(classes, 2.0), rounds=1000, streams=300)) <= 60
        assert np.median(table.alarms(table.sure(classes, 1.25), rounds=5000, streams=300)) <= 600
    late = table.alarms(table.sure(5, 2.0, after=5000), rounds=6000, streams=300)
    assert np.median(late[late > 5000]) <= 5250
    shifted = table.alarms(table.shifted(50, 0.5, 0.05), rounds=5000, streams=200)
    assert np.isfinite(shifted).mean() >= 0.5


@pytest.mark.heavy
def test_false_alarms_of_groups_and_false_discoveries() -> None:
    """Ten groups that are right: alarms; and with two more that are not, the share of false discoveries."""
    alarms, shares, streams = 0, [], 300
    for i in range(streams):
        rng = np.random.default_rng([2, i])
        truth, model = table.right(3)(rng, 3000)
        groups = rng.integers(10, size=3000)
        off = groups >= 8
        y = table.draw(truth, rng)
        m = tc.Monitor(tc.Simplex(3), by_group=True)
        m.update_many(model, y, groups=groups.tolist())
        alarms += m.alarm is not None
        model = np.where(off[:, None], table.softmax(2.5 * np.log(truth)), truth)
        m = tc.Monitor(tc.Simplex(3), by_group=True)
        m.update_many(model, y, groups=groups.tolist())
        found = discoveries({int(str(g)): e for g, e in m.e_values.items()})
        shares.append(sum(int(g) < 8 for g in found) / max(len(found), 1))
    assert alarms / streams <= most(streams, 0.05)
    assert np.mean(shares) <= most(streams, 0.05)


@pytest.mark.heavy
def test_false_alarms_by_ids() -> None:
    """Outcomes late and out of order, by delays that do not depend on them."""
    alarms, streams = 0, 200
    for i in range(streams):
        rng = np.random.default_rng([3, i])
        truth, model = table.right(3)(rng, 500)
        y, late = table.draw(truth, rng), tc.Late(Watched(tc.Monitor(tc.Simplex(3), alpha=0.2), scores=None))
        due = np.arange(500) + rng.geometric(0.05, size=500)
        for t in range(600):
            if t < 500:
                late.predict(model[t], id=t)
            for k in np.flatnonzero(due == t):
                late.update(int(k), int(y[k]))
        watched = late.thing
        assert isinstance(watched, Watched)
        alarms += watched.monitor.alarm is not None
    assert alarms / streams <= most(streams, 0.2)


@pytest.mark.heavy
def test_the_average_run_length_is_kept() -> None:
    found = table.alarms(table.right(3), rounds=5000, streams=300, arl=500.0)
    assert np.minimum(found, 5000).mean() >= 500
