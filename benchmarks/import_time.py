"""What `import treecal` adds to `import numpy`: `python benchmarks/import_time.py`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15


def seconds(statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def main() -> None:
    pairs = [(seconds("import numpy"), seconds("import numpy, treecal")) for _ in range(RUNS)]
    numpy, both = (statistics.median(column) for column in zip(*pairs, strict=True))
    extra = statistics.median(b - a for a, b in pairs)
    print(f"import numpy           {numpy:.3f} s (median of {RUNS} fresh interpreters)")
    print(f"import numpy, treecal  {both:.3f} s")
    print(f"treecal adds           {extra:.3f} s, {extra / numpy:.2f} of what NumPy takes; the limit is 0.3 s")


if __name__ == "__main__":
    main()
