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
    banks: dict[str, tc.Bank] = {
        "TreeCal, no correction": tc.Bank(tc.TreeCal(two), streams=given.keys),
        "PlattScaling": tc.Bank(tc.PlattScaling(two, forget=False), streams=given.keys),
        "PlattScaling that forgets": tc.Bank(tc.PlattScaling(two), streams=given.keys),
        "TemperatureScaling": tc.Bank(tc.TemperatureScaling(two, forget=False), streams=given.keys),
        "Recalibrator, means": tc.Bank(tc.Recalibrator(two, forget=False), streams=given.keys),
        "Recalibrator, shifts": tc.Bank(tc.Recalibrator(two, make="shift", forget=False), streams=given.keys),
    }
    keys = rng.integers(given.keys, size=given.rows)
    second = rng.random(given.rows)
    forecasts = np.column_stack([1 - second, second])
    outcomes = (rng.random(given.rows) < 0.25 + 0.5 * second).astype(np.int64)
    few = slice(0, min(1000, given.rows))
    print(f"{given.keys:,} keys, {given.rows:,} rows in calls of {given.batch:,}; seconds of the processor")
    for name, bank in banks.items():
        new = tc.Bank(bank.thing, streams=given.keys)  # compiles
        if isinstance(bank.thing, tc.Corrector):
            new.update(keys[few], outcomes[few], forecasts=forecasts[few])
        else:
            new.update(keys[few], outcomes[few])
        start = process_time()
        for at in range(0, given.rows, given.batch):
            rows = slice(at, at + given.batch)
            if isinstance(bank.thing, tc.Corrector):
                bank.update(keys[rows], outcomes[rows], forecasts=forecasts[rows])
            else:
                bank.predict(keys[rows])
                bank.update(keys[rows], outcomes[rows])
        spent, state = process_time() - start, bank.get_state()
        size = sum(array.nbytes for array in state.values() if isinstance(array, np.ndarray))
        print(f"{name:26}{spent:8.1f} s {1e6 * spent / given.rows:8.2f} µs a row {size / 1e6:8.1f} MB of state")


if __name__ == "__main__":
    main()
