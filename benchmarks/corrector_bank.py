"""Many keyed streams corrected in a bank, beside the same streams forecast without a model: time and memory.

`python benchmarks/corrector_bank.py --keys 100000 --rows 10000000`
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

import treecal as tc


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1_000_000, help="rows in one call")
    given = parser.parse_args()
    two, rng = tc.Simplex(2), np.random.default_rng(0)
    banks: dict[str, tc.Bank | tc.CorrectorBank] = {
        "TreeCal, no correction": tc.Bank(tc.TreeCal(two), streams=given.keys),
        "PlattScaling": tc.CorrectorBank(tc.PlattScaling(two, forget=False), streams=given.keys),
        "TemperatureScaling": tc.CorrectorBank(tc.TemperatureScaling(two, forget=False), streams=given.keys),
        "Recalibrator, means": tc.CorrectorBank(tc.Recalibrator(two, forget=False), streams=given.keys),
        "Recalibrator, shifts": tc.CorrectorBank(tc.Recalibrator(two, make="shift", forget=False), streams=given.keys),
    }
    keys = rng.integers(given.keys, size=given.rows)
    second = rng.random(given.rows)
    forecasts = np.column_stack([1 - second, second])
    outcomes = (rng.random(given.rows) < 0.25 + 0.5 * second).astype(np.int64)
    few = slice(0, min(1000, given.rows))
    print(f"{given.keys:,} keys, {given.rows:,} rows in calls of {given.batch:,}; seconds of the processor")
    for name, bank in banks.items():
        if isinstance(bank, tc.Bank):
            tc.Bank(tc.TreeCal(two), streams=given.keys).update(keys[few], outcomes[few])  # compiles
        start = process_time()
        for at in range(0, given.rows, given.batch):
            rows = slice(at, at + given.batch)
            if isinstance(bank, tc.CorrectorBank):
                bank.update(keys[rows], forecasts[rows], outcomes[rows])
            else:
                bank.predict(keys[rows])
                bank.update(keys[rows], outcomes[rows])
        spent, state = process_time() - start, bank.get_state()
        arrays = [*state.get("streams", state).values(), state["rounds"]]
        size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
        print(f"{name:24}{spent:8.1f} s {1e6 * spent / given.rows:8.2f} µs a row {size / 1e6:8.1f} MB of state")


if __name__ == "__main__":
    main()
