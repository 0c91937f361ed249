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
    return float(((outcomes - forecasts) ** 2).sum(axis=1).mean())


def right() -> None:
    """Print how often a model that is right is left alone, and what correcting it all the same would cost."""
    print("| classes | announced unchanged | Brier, model | ungated |\n| --- | --- | --- | --- |")
    for classes in (2, 3, 10):
        rng, kept, scores = np.random.default_rng(classes), 0, []
        for _ in range(STREAMS):
            P, Y = stream(classes, ROUNDS, 1.0, rng)
            f = tc.Gated(Kept(tc.Simplex(classes)), scores=None)
            kept += np.array_equal(f.update_many(P, Y), P)
            scores.append((brier(P, Y), f.corrector.total / ROUNDS))
        model, plain = np.mean(scores, axis=0)
        print(f"| {classes} | {kept} of {STREAMS} | {model:.4f} | {plain:.4f} |", flush=True)


class Kept(tc.VectorScaling):
    """Vector scaling that adds up its own Brier score, which the gate does not announce."""

    total = 0.0

    def _after(self, forecast: np.ndarray, outcome: np.ndarray, **given: float) -> dict[str, object]:
        missed = outcome - self._announce(forecast).mean
        return {"total": self.total + float(missed @ missed), **super()._after(forecast, outcome, **given)}


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
