"""What watching a long file costs, as the documentation says: memory that does not grow."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = spec_from_file_location("monitor_cost", Path(__file__).parents[2] / "benchmarks" / "monitor.py")
assert _SCRIPT is not None
assert _SCRIPT.loader is not None
cost: Any = module_from_spec(_SCRIPT)
_SCRIPT.loader.exec_module(cost)


@pytest.mark.heavy
def test_ten_million_rows_take_less_than_a_minute_and_no_more_memory(tmp_path: Path) -> None:
    found = {}
    for rows in (1_000_000, 10_000_000):
        path = tmp_path / f"{rows}.parquet"
        cost.write(path, rows, 3)
        found[rows] = cost.watched(path, 3)
        path.unlink()
        print(rows, found[rows])
    assert found[10_000_000].spent <= 60
    assert found[10_000_000].peak <= 1.2 * found[1_000_000].peak
