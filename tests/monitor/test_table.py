"""What the documentation's tables say of false alarms and delays: a small version, and in `make heavy` all of it."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def test_false_alarms_are_rare_however_one_watches() -> None:
    assert table.chosen_by_the_evidence(30, 100, alpha=0.2) <= most(30, 0.2)
    assert table.late_by_ids(30, 80, alpha=0.2) <= most(30, 0.2)
    alarms, none_off = table.in_groups(40, 500, alpha=0.2)
    assert max(alarms, none_off) <= most(40, 0.2)
    found, false = table.in_groups(20, 1500, alpha=0.2, off=2)
    assert found >= 0.9
    assert false <= most(20, 0.2)


def test_what_is_off_is_found_soon() -> None:
    assert np.median(table.alarms(table.sure(3, 2.0), rounds=400, streams=30)) <= 75
    assert np.median(table.alarms(table.sure(10, 2.0), rounds=400, streams=30)) <= 60
    late = table.alarms(table.sure(5, 2.0, after=2000), rounds=2500, streams=15)
    assert np.median(late) <= 2250
    assert np.median(table.alarms(table.sure(10, 1.25), rounds=1500, streams=15)) <= 600
    assert np.isfinite(table.alarms(table.shifted(50, 0.5, 0.05), rounds=5000, streams=8)).mean() >= 0.5


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3, 10, 50])
def test_false_alarms(kind: Any, classes: int) -> None:
    found = np.isfinite(table.alarms(kind(classes), rounds=5000, streams=2000, alpha=0.05)).mean()
    print(f"| {classes} | {kind.__name__} | {found:.3f} |")
    assert found <= most(2000, 0.05)


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
    """Ten groups that are right: alarms; and with two that are not, the share of false discoveries."""
    alarms, none_off = table.in_groups(2000, 5000)
    found, false = table.in_groups(2000, 5000, off=2)
    print(f"alarms {alarms:.3f}, false discoveries {none_off:.3f}, and with two off {false:.3f}")
    assert alarms <= most(2000, 0.05)
    assert max(none_off, false) <= most(2000, 0.05)
    assert found == 1


@pytest.mark.heavy
def test_false_alarms_by_ids() -> None:
    """Outcomes late and out of order, by delays that do not depend on them."""
    found = table.late_by_ids(500, 2000)
    print(f"{found:.3f}")
    assert found <= most(500, 0.05)


@pytest.mark.heavy
def test_false_alarms_of_forecasts_chosen_by_the_evidence() -> None:
    found = table.chosen_by_the_evidence(500, 2000)
    print(f"{found:.3f}")
    assert found <= most(500, 0.05)


@pytest.mark.heavy
def test_the_average_run_length_is_kept() -> None:
    found = table.alarms(table.right(3), rounds=5000, streams=300, arl=500.0)
    assert np.minimum(found, 5000).mean() >= 500
