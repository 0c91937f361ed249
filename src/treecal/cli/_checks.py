"""A small job with a known answer for each part of treecal. Each says what it found, or raises."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import treecal as tc
from treecal import games, streams, swap
from treecal._optional import require
from treecal.engine._replay import replay
from treecal.exceptions import TreeCalError
from treecal.geometry import linf


def _ensure(holds: object, claim: str) -> None:
    if not holds:
        raise TreeCalError(f"it does not hold that {claim}.")


def forecasters() -> str:
    """An adversary does not push TreeCal beyond its certificate."""
    space = tc.Simplex(3)
    f, ledger, adversary = tc.TreeCal(space, arity=4), tc.Ledger(space), streams.MeanAdversary(space)
    for _ in range(256):
        x = f.predict()
        y = adversary.outcome(f.mixture)
        ledger.record(x, y)
        f.update(y)
    error, bound = ledger.error("l1", per_node=True), tc.certificate(space, "l1", rounds=256, arity=4).bound
    _ensure(0 < error <= bound, f"an error of {error:.3f} is within the certified {bound:.3f}")
    return f"an adversary brought TreeCal to an ℓ1 error of {error:.3f}; at most {bound:.3f} was certified"


def snapshots() -> str:
    """A saved forecaster goes on as the one it was saved from."""
    f = tc.AdaptiveTreeCal(tc.Simplex(3))
    outcomes = streams.iid(f.space, 100, np.random.default_rng(0))
    for y in outcomes:
        f.update(y)
    with tempfile.TemporaryDirectory() as folder:
        tc.save(f, Path(folder, "f"))
        again = tc.load(Path(folder, "f"))
    for y in outcomes:
        _ensure(again.predict() == f.predict(), "a resumed forecaster says the same")
        f.update(y)
        again.update(y)
    return "a forecaster saved after 100 rounds goes on bit for bit"


def correctors() -> str:
    """A model that is far too sure is put right."""
    corrector = tc.Chain([tc.VectorScaling(tc.Simplex(2)), tc.Recalibrator(tc.Simplex(2))])
    for k in np.random.default_rng(0).integers(2, size=400):
        corrector.predict([0.05, 0.95])
        corrector.update(np.eye(2)[k])
    report = corrector.report()
    _ensure(report.after.brier < report.before.brier, "the corrected forecasts score better")
    return (
        f"a model too sure of a fair coin: Brier score {report.before.brier:.3f} before, {report.after.brier:.3f} after"
    )


def theory() -> str:
    """The planner, and Harmonic's numerical certificate."""
    best = tc.recommend(tc.Ball(50), "l2", rounds=200).best
    _ensure(best.forecaster == "Harmonic(space)", "Harmonic is certain of most in 50 dimensions")
    return f"{best.forecaster} is certain of {best.bound:.3f} after 200 rounds in a ball in 50 dimensions"


def semidefinite() -> str:
    """Cvxpy finds a better quadratic form than the closed ones."""
    from treecal.theory._jensen import jensen_gap, quadratic_form

    triangle = tc.Polytope(vertices=np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    closed, solved = jensen_gap(triangle, linf).value, quadratic_form(triangle, linf)
    assert solved is not None, "the corners of a triangle are known"
    _ensure(solved.value < closed, f"the best regularizer's {solved.value:.3f} is less than {closed:.3f}")
    return f"Jensen gap of a triangle in ℓ∞: {closed:.3f} in closed form, {solved.value:.3f} solved for"


def equilibria() -> str:
    """TreeSwap's gap is its regret, and the linear program's is none."""
    game = games.chicken()
    players = [swap.TreeSwap(partial(swap.RegretMatching, 2), arity=4) for _ in range(2)]
    result = games.play(game, players, rounds=100)
    _ensure(abs(result.correlated_gap - result.swap_regrets.max()) < 1e-9, "the gap is the largest swap regret")
    best = game.correlated_equilibrium()
    _ensure(game.correlated_gap(best) < 1e-8, "the solved equilibrium is one")
    paid = float(game.expected_payoffs(best).sum())
    return f"chicken: gap {result.correlated_gap:.3f} after 100 rounds; the best equilibrium pays {paid:.1f} together"


def gambit() -> str:
    """A game comes back from pygambit as it went."""
    game = games.chicken()
    _ensure(games.Game.from_gambit(game.to_gambit()) == game, "a game survives pygambit")
    return "a game goes to pygambit and comes back the same"


def openspiel() -> str:
    """OpenSpiel's matching pennies are ours."""
    pyspiel = require("pyspiel", extra="games", what="an OpenSpiel game")
    theirs = games.Game.from_openspiel(pyspiel.load_game("matrix_mp"))
    _ensure(theirs == games.matching_pennies(), "OpenSpiel's game is the same")
    return "OpenSpiel's matching pennies are ours"


def data() -> str:
    """The streams that ship with packages are whole."""
    days, storms = streams.seattle_weather(), streams.atlantic_storms()
    _ensure((len(days), len(storms)) == (1461, 19537), "the streams have 1,461 and 19,537 rounds")
    return f"{days.title}, {len(days):,} rounds; {storms.title}, {len(storms):,} rounds"


def race() -> str:
    """The arena's table has a row for each checkpoint."""
    from treecal import arena

    table = arena.race({"mean": tc.RunningMean}, {"iid": streams.iid}, [tc.Simplex(2)], rounds=20, workers=1)
    _ensure(table.num_rows == 11, "a race of 20 rounds has 11 checkpoints")
    return "a race of 20 rounds, 11 checkpoints"


def files() -> str:
    """The same rows come out of CSV and Parquet, and a bad one is named."""
    from treecal.io import read_outcomes
    from treecal.io._sources import library

    days = ["rain", "sun", "hail", "sun"]
    with tempfile.TemporaryDirectory() as folder:
        text, packed = Path(folder, "days.csv"), Path(folder, "days.parquet")
        text.write_text("sky\n" + "\n".join(days))
        library("pyarrow.parquet").write_table(library("pyarrow").table({"sky": days}), packed)
        for path in (text, packed):
            rows = read_outcomes(path, outcome="sky", classes=["rain", "sun"], on_error="collect")
            _ensure([chunk.outcomes.tolist() for chunk in rows] == [[0, 1, 1]], f"{path.suffix} is read as written")
            _ensure([problem.row for problem in rows.problems] == [3], "the bad row is the third")
    return "four rows by CSV and by Parquet, the third of them bad"


def log() -> str:
    """An audit finds a gap that is known."""
    from treecal.auditing import audit

    exact = audit({"p": np.full(8, 0.75), "y": np.arange(8) % 2}, forecast="p", outcome="y").whole.exact
    _ensure(exact is not None and abs(exact.errors["l1"] - 0.5) < 1e-12, "0.75 said of a half is 0.5 off in ℓ1")
    return "0.75 said of what happened half the time is 0.5 off in ℓ1"


def at_once() -> str:
    """A compiled replay makes the errors that a ledger counts."""
    outcomes, f = np.random.default_rng(0).integers(3, size=500), tc.TreeCal(tc.Simplex(3))
    ledger, run = tc.Ledger(f.space), replay(outcomes, f.space)
    for k in outcomes:
        ledger.record(f.predict(), np.eye(3)[k])
        f.update(np.eye(3)[k])
    for per_node in (False, True):
        error, counted = run.error("l1", per_node=per_node), ledger.error("l1", per_node=per_node)
        _ensure(abs(error - counted) < 1e-12, f"the replay's {error:.6f} is the ledger's {counted:.6f}")
    return f"500 rounds, compiled: an ℓ1 error of {run.error('l1'):.3f}, as the ledger counts"


def bank() -> str:
    """A compiled bank of streams says what each TreeCal says."""
    space, outcomes = tc.Simplex(3), np.random.default_rng(0).integers(3, size=(2, 50))
    many, single = tc.Bank(space, streams=2), [tc.TreeCal(space) for _ in range(2)]
    for step in outcomes.T:
        many.update([0, 1], np.eye(3)[step])
        for f, k in zip(single, step, strict=True):
            f.update(np.eye(3)[k])
    for x, f in zip(many.predict(), single, strict=True):
        _ensure(x == f.predict(), "a bank's stream is a TreeCal")
    return "two streams of 50 rounds, compiled, bit for bit as one by one"


def report() -> str:
    """A report is one whole page."""
    from treecal.report import Section, play, render

    entry = play(tc.TreeCal(tc.Simplex(3)), np.eye(3)[np.random.default_rng(0).integers(3, size=100)])
    html = render([Section("Dice", [entry])], title="Dice")
    _ensure(html.rstrip().endswith("</html>") and ("<svg" in html or "data:image" in html), "a page has pictures")
    return f"a page of {len(html) // 1000:,} kB with pictures"


def river() -> str:
    """The metric for river agrees with the ledger."""
    from treecal.integrations.river import CalibrationError

    metric, ledger = CalibrationError(resolution=None), tc.Ledger(tc.Simplex(2))
    for k in range(8):
        metric.update(k % 2, {0: 0.25, 1: 0.75})
        ledger.record([0.25, 0.75], np.eye(2)[k % 2])
    _ensure(abs(metric.get() - ledger.error("l1")) < 1e-12, "the metric is the ledger's error")
    return f"an ℓ1 error of {metric.get():.3f}, in river as in the ledger"


def sklearn() -> str:
    """The score for scikit-learn agrees with the ledger."""
    from treecal.integrations.sklearn import calibration_error

    ledger = tc.Ledger(tc.Simplex(2))
    for k in range(8):
        ledger.record([0.25, 0.75], np.eye(2)[k % 2])
    error = float(calibration_error(np.arange(8) % 2, np.tile([0.25, 0.75], (8, 1)), resolution=None))
    _ensure(abs(error - ledger.error("l1")) < 1e-12, "the score is the ledger's error")
    return f"an ℓ1 error of {error:.3f}, in scikit-learn as in the ledger"


CHECKS: dict[str, Callable[[], str]] = {
    "forecasters": forecasters,
    "snapshots": snapshots,
    "correctors": correctors,
    "certificates": theory,
    "best regularizer": semidefinite,
    "games": equilibria,
    "pygambit": gambit,
    "OpenSpiel": openspiel,
    "real streams": data,
    "arena": race,
    "files": files,
    "audit": log,
    "replay": at_once,
    "bank of streams": bank,
    "report": report,
    "river": river,
    "scikit-learn": sklearn,
}
"""By part, the check."""
