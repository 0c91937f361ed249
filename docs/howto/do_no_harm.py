"""Print the tables of `do-no-harm.md`: how often a right model is left alone, and how soon a wrong one is corrected.

Run it from anywhere; it takes some minutes: python docs/howto/do_no_harm.py
"""

from __future__ import annotations

import numpy as np

import treecal as tc

STREAMS, ROUNDS = 200, 5000  # of a model that is right
WRONG_STREAMS, WRONG_ROUNDS = 20, 2000  # and of models that are not
TEMPERATURES = (1.25, 2.0, 3.0)


def stream(classes: int, rounds: int, temperature: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the forecasts of a model whose logits are so many times too large, and outcomes."""
    logits = 1.5 * rng.normal(size=(rounds, classes))
    truth, model = (np.exp(t * logits) / np.exp(t * logits).sum(axis=1, keepdims=True) for t in (1.0, temperature))
    drawn = (rng.random((rounds, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    return model, np.eye(classes)[np.minimum(drawn, classes - 1)]


def brier(forecasts: np.ndarray, outcomes: np.ndarray) -> float:
    """Return the mean Brier score."""
    return float(((outcomes - forecasts) ** 2).sum(axis=-1).mean())


def opened(bets: np.ndarray, alpha: float = 0.05) -> np.ndarray:
    """Return in which streams a gate ever opens, from the differences of the Brier scores."""
    capital, ever = np.full(len(bets), 0.5), np.zeros(len(bets), bool)
    for t, bet in enumerate(bets.T, 1):
        capital = np.where(ever, 0.0, capital * np.exp(bet)) + 1 / ((t + 1) * (t + 2))
        ever |= capital + 1 / (t + 2) >= 1 / alpha
    return ever


class Announced(tc.Corrector):
    """Announces what was computed before."""

    def __init__(self, space: tc.ConvexSet, points: np.ndarray) -> None:
        super().__init__(space, scores=None)
        self.points = points

    def _announce(self, forecast: np.ndarray) -> tc.Forecast:
        return tc.Forecast([self.points[self.rounds]])

    def _after(self, forecast: np.ndarray, outcome: np.ndarray) -> dict[str, object]:
        return {}


def right() -> None:
    """Print how often a model that is right is left alone, and what correcting it all the same would cost."""
    print("| classes | announced unchanged | Brier, model | ungated |\n| --- | --- | --- | --- |")
    for classes in (2, 3, 10):
        rng = np.random.default_rng(classes)
        P, Y = (
            np.array(part) for part in zip(*(stream(classes, ROUNDS, 1.0, rng) for _ in range(STREAMS)), strict=True)
        )
        Q = np.array(
            [tc.VectorScaling(tc.Simplex(classes), scores=None).update_many(*one) for one in zip(P, Y, strict=True)]
        )
        ever = opened(((Y - P) ** 2).sum(axis=2) - ((Y - Q) ** 2).sum(axis=2))
        for at in {0, int(ever.argmax())}:  # the same as behind the real gate
            f = tc.Gated(Announced(tc.Simplex(classes), Q[at]), scores=None)
            assert np.array_equal(f.update_many(P[at], Y[at]), P[at]) is not bool(ever[at])
        scores = f"{brier(P, Y):.4f} | {brier(Q, Y):.4f}"
        print(f"| {classes} | {STREAMS - ever.sum()} of {STREAMS} | {scores} |", flush=True)


def wrong() -> None:
    """Print how soon a wrong model is corrected, and the scores of model, corrector and both behind a gate."""
    print(
        "| classes | temperature | from round | by the log score | Brier, model | ungated | gated | most lost | bound |"
    )
    print("| --- " * 9 + "|")
    for classes in (2, 3, 10):
        for temperature in TEMPERATURES:
            rng, rows = np.random.default_rng(classes), []
            for _ in range(WRONG_STREAMS):
                P, Y = stream(classes, WRONG_ROUNDS, temperature, rng)
                corrector = tc.VectorScaling(tc.Simplex(classes), scores=None)
                f, by_log = tc.Gated(corrector, scores=None), tc.Gated(corrector, by="log", scores=None)
                gated, plain = f.update_many(P, Y), corrector.update_many(P, Y)
                by_log.update_many(P, Y)
                three = brier(P, Y), brier(plain, Y), brier(gated, Y)
                firsts = [g.switches[0].round if g.switches else np.inf for g in (f, by_log)]
                rows.append((*firsts, *three, (three[2] - min(three[:2])) * WRONG_ROUNDS, f.excess()))
            found = np.array(rows)
            firsts = [f"{round_:.0f}" if np.isfinite(round_) else "never" for round_ in np.median(found[:, :2], axis=0)]
            means = [f"{score:.4f}" for score in found[:, 2:5].mean(axis=0)]
            most = [f"{worst:.1f}" for worst in found[:, 5:].max(axis=0)]
            print(f"| {classes} | {temperature:g} | {' | '.join([*firsts, *means, *most])} |", flush=True)


if __name__ == "__main__":
    right()
    wrong()
