"""A small job with a known answer for each part of treecal. Each returns what it found, or raises."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import numpy as np

import treecal as tc
from treecal import games, streams
from treecal._optional import require
from treecal.engine import replay
from treecal.exceptions import TreeCalError
from treecal.geometry import linf

_GAP = "a forecast of 0.75 with mean outcome 0.5 has ℓ1 error 0.5"


def _ensure(holds: object, claim: str) -> str:
    """Return what was claimed, if it holds."""
    if not holds:
        raise TreeCalError(f"expected that {claim}, which does not hold.")
    return claim


def forecasters() -> str:
    """TreeCal keeps its guarantee against an adversary."""
    space = tc.Simplex(3)
    f = tc.TreeCal(space, arity=4)
    ledger = tc.Ledger(space)
    adversary = streams.MeanAdversary(space)
    for _ in range(256):
        x = f.predict()
        y = adversary.outcome(f.mixture)
        ledger.record(x, y)
        f.update(y)
    error = ledger.error("l1", per_node=True)
    bound = tc.certificate(space, "l1", rounds=256, arity=4).bound
    _ensure(0 < error <= bound, f"an error of {error:.3f} is within the certified {bound:.3f}")
    return f"TreeCal's ℓ1 error against an adversary is {error:.3f}, guaranteed ≤ {bound:.3f}"


def snapshots() -> str:
    """A loaded forecaster resumes exactly."""
    f = tc.AdaptiveTreeCal(tc.Simplex(3))
    outcomes = streams.iid(f.space, 100, np.random.default_rng(0))
    for y in outcomes:
        f.update(y)
    with tempfile.TemporaryDirectory() as folder:
        tc.save(f, Path(folder, "f"))
        again = tc.load(Path(folder, "f"))
    for y in outcomes:
        _ensure(again.predict() == f.predict(), "a resumed forecaster makes the same forecasts")
        f.update(y)
        again.update(y)
    return "a forecaster saved after 100 rounds resumes bit for bit"


def semidefinite() -> str:
    """Cvxpy finds a better quadratic form than the closed-form ones."""
    from treecal.theory import jensen_gap, quadratic_form

    triangle = tc.Polytope(vertices=np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    closed = jensen_gap(triangle, linf).value
    solved = quadratic_form(triangle, linf)
    assert solved is not None, "the corners of a triangle are known"
    _ensure(solved.value < closed, f"the best regularizer's {solved.value:.3f} is less than {closed:.3f}")
    return f"Jensen gap of a triangle in ℓ∞: {closed:.3f} in closed form, {solved.value:.3f} by cvxpy"


def gambit() -> str:
    """A game survives the round trip through pygambit."""
    game = games.chicken()
    return _ensure(games.Game.from_gambit(game.to_gambit()) == game, "a game survives the round trip through pygambit")


def openspiel() -> str:
    """OpenSpiel's matching pennies equal ours."""
    pyspiel = require("pyspiel", extra="games", what="an OpenSpiel game")
    theirs = games.Game.from_openspiel(pyspiel.load_game("matrix_mp"))
    _ensure(theirs == games.matching_pennies(), "OpenSpiel's game is the same")
    return "OpenSpiel's matching pennies equal ours"


def data() -> str:
    """The streams that packages ship are complete."""
    days = streams.seattle_weather()
    storms = streams.atlantic_storms()
    _ensure((len(days), len(storms)) == (1461, 19537), "the streams have 1,461 and 19,537 rounds")
    return f"{days.title}, {len(days):,} rounds; {storms.title}, {len(storms):,} rounds"


def race() -> str:
    """The arena's table has a row for each checkpoint."""
    from treecal import arena

    table = arena.race({"mean": tc.RunningMean}, {"iid": streams.iid}, [tc.Simplex(2)], rounds=20, workers=1)
    _ensure(table.num_rows == 11, "a race of 20 rounds has 11 checkpoints")
    return "a race of 20 rounds, 11 checkpoints"


def files() -> str:
    """The rows of a Parquet file are read, and the invalid one is named."""
    from treecal.io import library, read_outcomes

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "days.parquet")
        library("pyarrow.parquet").write_table(library("pyarrow").table({"sky": ["rain", "sun", "hail"]}), path)
        rows = read_outcomes(path, outcome="sky", classes=["rain", "sun"], on_error="collect")
        _ensure([chunk.outcomes.tolist() for chunk in rows] == [[0, 1]], "a file is read as it was written")
        _ensure([problem.row for problem in rows.problems] == [3], "the third row is invalid")
    return "three rows of a Parquet file, the third invalid"


def at_once() -> str:
    """A compiled replay has the errors of a ledger."""
    outcomes = np.random.default_rng(0).integers(3, size=500)
    f = tc.TreeCal(tc.Simplex(3))
    ledger = tc.Ledger(f.space)
    run = replay(outcomes, f.space)
    for k in outcomes:
        ledger.record(f.predict(), np.eye(3)[k])
        f.update(np.eye(3)[k])
    error = ledger.error("l1")
    _ensure(abs(run.error("l1") - error) < 1e-12, f"the replay's error is the ledger's {error:.6f}")
    return f"500 compiled rounds: ℓ1 error {error:.3f}, as in a ledger"


def report() -> str:
    """A report is one complete page."""
    from treecal.report import Section, play, render

    entry = play(tc.TreeCal(tc.Simplex(3)), np.eye(3)[np.random.default_rng(0).integers(3, size=100)])
    html = render([Section("Dice", [entry])], title="Dice")
    _ensure(html.rstrip().endswith("</html>") and ("<svg" in html or "data:image" in html), "the page has plots")
    return f"a page of {len(html) // 1000:,} kB with plots"


def river() -> str:
    """The metric for river finds a known gap."""
    from treecal.integrations.river import CalibrationError

    metric = CalibrationError(norm="l1", resolution=None)
    for k in range(8):
        metric.update(k % 2, {0: 0.25, 1: 0.75})
    return _ensure(abs(metric.get() - 0.5) < 1e-12, _GAP)


def sklearn() -> str:
    """The score for scikit-learn finds a known gap."""
    from treecal.integrations.sklearn import calibration_error

    error = calibration_error(np.arange(8) % 2, np.tile([0.25, 0.75], (8, 1)), norm="l1", resolution=None)
    return _ensure(abs(error - 0.5) < 1e-12, _GAP)


def monitor() -> str:
    """A monitor finds a model that is off, and leaves one alone that is not."""
    rng = np.random.default_rng(0)
    p = rng.random(400)
    P = np.column_stack([1 - p, p])
    for shift, alarms in ((0.0, False), (0.3, True)):
        watch = tc.Monitor(tc.Simplex(2))
        watch.update_many(P, (rng.random(400) < np.minimum(p + shift, 1)).astype(int))
        _ensure((watch.alarm is not None) == alarms, f"there is {'an' if alarms else 'no'} alarm at a shift of {shift}")
    return "an alarm on a model that is off by 0.3, and none on a calibrated one"


def server() -> str:
    """A server on new books is ready."""
    for package in ("starlette", "uvicorn", "apsw"):
        require(package, extra="serve", what="the server")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "treecal", "serve", "--data", str(Path(folder, "books.sqlite")), "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8")
        try:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr if line.startswith("{"))
            address = next((line["address"] for line in lines if line["event"] == "started"), None)
            _ensure(address, "the server starts")
            with urlopen(f"{address}readyz", timeout=10) as answer:
                _ensure(answer.status == 200, "the server is ready")
        finally:
            process.terminate()
            process.communicate()
    return "a server on new books started, was ready, and stopped"


def client() -> str:
    """Without a server the model's own forecast is used, and kept."""
    from treecal.client import Client

    log = logging.getLogger("treecal.client")
    before = log.disabled
    log.disabled = True  # it warns that nobody listens
    try:
        with tempfile.TemporaryDirectory() as folder:
            sender = Client("http://127.0.0.1:9", spool=Path(folder, "spool"))
            answer = sender.forecast("rain", [0.3, 0.7], id="monday")
            sender.close()
    finally:
        log.disabled = before
    _ensure((answer.forecast, answer.corrected) == ([0.3, 0.7], False), "the model's own forecast is used")
    _ensure(answer.kept, "the forecast is kept")
    return "without a server, the model's own forecast, kept for later"


def torch() -> str:
    """The metric for torch finds a known gap."""
    from treecal.torch import CalibrationError

    tensor = require("torch", extra="torch", what="treecal.torch").tensor
    metric = CalibrationError(2)
    metric.update(tensor([[0.25, 0.75]] * 8).log(), tensor([0, 1] * 4))
    return _ensure(
        abs(metric.compute().top_label.ece - 0.25) < 1e-6, "a forecast of 0.75 with mean outcome 0.5 has ECE 0.25"
    )


def postgres() -> str:
    """Psycopg loads, with its library; no database is asked."""
    psycopg = require("psycopg", extra="postgres", what="books in PostgreSQL")
    return f"psycopg {psycopg.__version__}, libpq {psycopg.pq.version() // 10000}; no database was asked"


def spark() -> str:
    """PySpark loads; Spark takes a while to start."""
    pyspark = require("pyspark", extra="spark", what="running on Spark")
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    words = "Java is there" if java else "there is no Java, which it needs"
    return f"pyspark {pyspark.__version__}; {words}; not started"


CHECKS: dict[str, Callable[[], str]] = {
    "forecasters": forecasters,
    "snapshots": snapshots,
    "best regularizer": semidefinite,
    "pygambit": gambit,
    "OpenSpiel": openspiel,
    "real streams": data,
    "arena": race,
    "files": files,
    "monitor": monitor,
    "replay": at_once,
    "report": report,
    "river": river,
    "scikit-learn": sklearn,
    "server": server,
    "client": client,
    "torch": torch,
}
"""The check of each part, on a small job with a known answer."""

LOADS: dict[str, Callable[[], str]] = {"PostgreSQL": postgres, "Spark": spark}
"""Parts that need more than a small job: what is installed of each."""
