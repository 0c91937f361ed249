"""Certified ℓ2 errors in the unit ball: `python benchmarks/certificates.py [--rounds 1000 10000]`.

For harmonic averaging and for trees: the spectral certificate, the error that the stream it constructs attains (so the
truth lies between the two), and the tree certificate of `tc.certificate`. A minute with 10^5 rounds.
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

import treecal as tc
from treecal.theory import Replay, spectral_certificate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs="+", default=[10**3, 10**4, 10**5])
    table = Table("forecaster", "rounds", "spectral", "attained", "tree certificate", "seconds", title="unit ball, ℓ2")
    for rounds in parser.parse_args().rounds:
        cases = {"Harmonic": Replay.harmonic(rounds)}
        cases |= {f"TreeCal, arity {a}": Replay.tree(rounds, arity=a) for a in (2, 4, 8, 16, 32)}
        for name, replay in cases.items():
            start = time.perf_counter()
            found = spectral_certificate(replay)
            spent = time.perf_counter() - start
            tree = ""
            if name != "Harmonic":
                tree = f"{tc.certificate(tc.Ball(2), 'l2', rounds=rounds, arity=int(name.split()[-1])).bound:.4f}"
            table.add_row(name, f"{rounds:,}", f"{found.bound:.4f}", f"{found.attained:.4f}", tree, f"{spent:.1f}")
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
