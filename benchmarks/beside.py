"""Calibrators of other libraries beside ours, on logs of real models: `python benchmarks/beside.py`, some minutes.

The logs are those of `benchmarks/correctors.py` that are held out. "Once": each calibrator is fitted to the first half
of a log, and scored on the second, as if nothing were learned after the release. "Online": ours goes on learning, each
outcome after its forecast. Of each the table has the mean ratio of its Brier score to the model's, the mean difference
of the log score (probabilities below 1e-6 count as that), the logs on which it is worse than the model by more than
0.2 %, with the worst, and seconds for all fits and forecasts. What is not installed is left out:
`pip install mapie netcal probcal` has all of it.

    python benchmarks/beside.py
    python benchmarks/beside.py --fits                  # beside the best of scikit-learn's, by few rows
    python benchmarks/beside.py --fits --part chosen    # on the other logs, by which choices were made

A second table has fits to few rows, in random order, scored on all others: ours beside the one of scikit-learn's three
calibrators that turned out best on these, the model left as it is where some class has fewer than two rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import treecal as tc
from correctors import LOGS, Given, Log, forecasts, held_out
from treecal._typing import Array, Integers

DRAWS = 6
"""Fits to few rows of a log, each to others."""
Calibrator = Callable[[Array, Integers, Array], Array]
"""From forecasts and classes of the first half, and forecasts of the second, to better ones of the second."""


def ours(P: Array, y: Integers, Q: Array) -> Array:
    """Return what AutoCorrector makes of a log in order, without learning more."""
    return tc.AutoCorrector(tc.Simplex(P.shape[1]), scores=None, tolerance=1e-3).fit(P, y).predict_many(Q)


def scikit_learn(method: str) -> Calibrator:
    """Return one of `CalibratedClassifierCV`, around the fitted model."""

    def calibrated(P: Array, y: Integers, Q: Array) -> Array:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        given = FrozenEstimator(Given(P.shape[1]).model)
        return np.asarray(CalibratedClassifierCV(given, method=method, cv=2).fit(P, y).predict_proba(Q))

    return calibrated


def netcal(module: str, name: str, **options: Any) -> Calibrator:
    """Return one of netcal's."""

    def calibrated(P: Array, y: Integers, Q: Array) -> Array:
        kind = getattr(__import__(f"netcal.{module}", fromlist=[name]), name)
        given = (P, Q) if P.shape[1] > 2 else (P[:, 1], Q[:, 1])  # of two classes the probability of the second
        found = np.asarray(kind(**options).fit(given[0], y).transform(given[1]))
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    return calibrated


def mapie(P: Array, y: Integers, Q: Array) -> Array:
    """Return MAPIE's Venn-Abers calibration, inductive, of the fitted model."""
    from mapie.calibration import VennAbersCalibrator

    calibrator = VennAbersCalibrator(estimator=Given(P.shape[1]).model, inductive=True)
    return np.asarray(calibrator.fit(P, y, calib_size=0.99, stratify=y).predict_proba(Q))


def probcal(name: str) -> Calibrator:
    """Return one of probcal's, which are for two classes."""

    def calibrated(P: Array, y: Integers, Q: Array) -> Array:
        kind = getattr(__import__("probcal"), name)
        found = np.asarray(kind().fit(P[:, 1], y).predict_proba(Q[:, 1]))
        return np.column_stack([1 - found, found])

    return calibrated


CALIBRATORS: dict[str, tuple[str, Calibrator]] = {
    "treecal AutoCorrector, once": ("treecal", ours),
    "scikit-learn isotonic": ("sklearn", scikit_learn("isotonic")),
    "scikit-learn sigmoid": ("sklearn", scikit_learn("sigmoid")),
    "scikit-learn temperature": ("sklearn", scikit_learn("temperature")),
    "netcal TemperatureScaling": ("netcal", netcal("scaling", "TemperatureScaling")),
    "netcal IsotonicRegression": ("netcal", netcal("binning", "IsotonicRegression")),
    "netcal HistogramBinning": ("netcal", netcal("binning", "HistogramBinning")),
}
OF_TWO: dict[str, tuple[str, Calibrator]] = {
    "netcal LogisticCalibration": ("netcal", netcal("scaling", "LogisticCalibration")),
    "MAPIE VennAbersCalibrator": ("mapie", mapie),
    "probcal BetaCalibrator": ("probcal", probcal("BetaCalibrator")),
    "probcal SplineCalibrator": ("probcal", probcal("SplineCalibrator")),
}
"""With two classes only: probcal is for them, MAPIE 1.6 ends in an error with more, and netcal takes hours."""


def scores(x: Array, y: Integers) -> tuple[float, float]:
    """Return the Brier score and the log score."""
    brier = ((np.eye(x.shape[1])[y] - x) ** 2).sum(axis=1).mean()
    return float(brier), float(-np.log(np.maximum(x[np.arange(len(y)), y], 1e-6)).mean())


def runs(P: Array, y: Integers, half: int) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Yield what makes forecasts of the second half of a log, as far as it is installed and takes so many classes."""
    for name, (library, calibrator) in (CALIBRATORS | (OF_TWO if P.shape[1] == 2 else {})).items():
        if find_spec(library) is not None:
            yield name, partial(calibrator, P[:half], y[:half], P[half:])
    auto = tc.AutoCorrector(tc.Simplex(P.shape[1]), scores=None, tolerance=1e-3)
    yield "treecal AutoCorrector, online", lambda: auto.update_many(P, y)[half:]


def main() -> None:
    """Print a table of the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("held-out", "chosen"), default="held-out")
    parser.add_argument("--fits", action="store_true", help="the table of fits to few rows")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logs = [log for log in LOGS if held_out(log) is (given.part == "held-out")]
    Console(width=120).print(fits(logs) if given.fits else halves(logs))


def fits(logs: Sequence[Log]) -> Table:
    """Return how far ours is from the best of scikit-learn's, which is known by hindsight only."""
    table = Table(title=f"{len(logs)} logs, {DRAWS} fits to each: AutoCorrector / the best of scikit-learn's three")
    for column in ("rows", *(f"{score}: {part}" for score in ("log", "Brier") for part in ("mean", "> 1 %", "worst"))):
        table.add_column(column, justify="right")
    known = [forecasts(log) for log in logs]
    for most in (300, 1200):
        ratios = []
        for P, y in known:
            for draw in range(DRAWS):
                rows = np.random.default_rng([most, draw]).permutation(len(y))
                own, others = np.split(rows, [min(most, len(y) // 2)])
                theirs = [scores(P[others], y[others])]
                if np.bincount(y[own], minlength=P.shape[1]).min() >= 2:  # of each class one for both folds
                    made = [scikit_learn(method) for method in ("isotonic", "sigmoid", "temperature")]
                    theirs = [scores(fit(P[own], y[own], P[others]), y[others]) for fit in made]
                ratios.append(scores(ours(P[own], y[own], P[others]), y[others]) / np.min(theirs, axis=0))
        cells = [f"{most:,}"]
        for ratio in np.array(ratios).T[::-1]:
            cells += f"{ratio.mean():.3f}", f"{(ratio > 1.01).sum()} of {len(ratio)}", f"{ratio.max():.3f}"
        table.add_row(*cells)
    return table


def halves(logs: Sequence[Log]) -> Table:
    """Return the table of all calibrators."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for log in logs:
        P, y = forecasts(log)
        half = len(y) // 2
        base = scores(P[half:], y[half:])
        for name, run in runs(P, y, half):
            begun = time.process_time()
            try:
                brier, loss = scores(run(), y[half:])
                if not np.isfinite(loss):
                    raise FloatingPointError("some forecasts are NaN")
            except Exception as error:  # theirs; the log is left out of the row, whose count says so
                print(f"{name} on {log.name}: {type(error).__name__}: {error}")
                continue
            rows.setdefault(name, []).append((brier / base[0], loss - base[1], time.process_time() - begun))
    table = Table(title=f"{len(logs)} logs")
    for column in ("", "logs", "Brier, ratio", "log score", "worse by > 0.2 % on", "the worst", "seconds"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, found in sorted(
        rows.items(), key=lambda each: (len(each[1]) <= len(logs) // 2, np.mean(each[1], axis=0)[0])
    ):
        ratio, loss, spent = np.array(found).T
        numbers = f"{ratio.mean():.3f}", f"{loss.mean():+.3f}", f"{(ratio > 1.002).sum()}", f"{ratio.max() - 1:+.1%}"
        table.add_row(name, f"{len(found)}", *numbers, f"{spent.sum():.1f}")
    return table


if __name__ == "__main__":
    main()
