"""The main job: forecast a real stream with several forecasters and say how calibrated each was."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import treecal as tc
from treecal.geometry import Distance
from treecal.streams import ClassStream, seattle_weather

DISTANCES: dict[str, Distance] = {
    "ℓ1": tc.l1,
    "ℓ2": tc.l2,
    "ℓ∞": tc.linf,
    "ℓ2²": tc.l2.squared,
    "KL": tc.NegativeEntropy(),
}


def demo() -> None:
    """Forecast four years of Seattle's weather, and print how calibrated each forecaster was."""
    stream, console = seattle_weather(), Console()
    forecasters = {
        "running mean": tc.RunningMean(stream.space),
        "TreeCal": tc.TreeCal(stream.space, arity=8),
        "TreeCal, 5 % mixed in": tc.TreeCal(stream.space, arity=8, mix=0.05),
    }
    console.print(f"[bold]{stream.title}[/]: {len(stream):,} rounds of {', '.join(stream.classes)}.\n")
    ledgers = run(stream, forecasters)
    console.print(table(ledgers))
    console.print(verdict(ledgers), highlight=False)


def run(stream: ClassStream, forecasters: dict[str, tc.Forecaster]) -> dict[str, tc.Ledger]:
    """Play the stream against each forecaster, and return what each one's ledger holds."""
    ledgers = {name: tc.Ledger(stream.space) for name in forecasters}
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    err = Console(stderr=True)
    with Progress(*columns, console=err, disable=not sys.stderr.isatty(), transient=True) as progress:
        for name, forecaster in forecasters.items():
            for outcome in progress.track(stream.outcomes, description=name):
                ledgers[name].record(forecaster.predict(), outcome)
                forecaster.update(outcome)
    return ledgers


def table(ledgers: dict[str, tc.Ledger]) -> Table:
    """Return the calibration errors per round: for each forecaster the plain error, then the labelled one."""
    shown = Table(title="Calibration error per round", title_justify="left")
    shown.add_column("forecaster")
    shown.add_column("forecasts", justify="right")
    for name in DISTANCES:
        shown.add_column(name, justify="right")
    for name, ledger in ledgers.items():
        for kind, reading in ((name, ledger.exact()), ("  labelled", ledger.exact(labelled=True))):
            cells = (f"{reading.error(distance):.3f}".replace("inf", "∞") for distance in DISTANCES.values())
            shown.add_row(kind, f"{len(reading):,}", *cells)
        shown.add_section()
    return shown


def verdict(ledgers: dict[str, tc.Ledger]) -> str:
    """Return what the table means, in a few sentences."""
    mean, tree = (ledgers[name].error("l1") for name in ("running mean", "TreeCal"))
    worst = ledgers["TreeCal"].table("l1")
    return (
        f"\nWhen TreeCal said p, what happened on average was {tree:.2f} away from p in ℓ1 "
        f"(0 is calibrated, 2 is as wrong as can be); for the running mean it was {mean:.2f}. The running mean hardly "
        "ever says the same thing twice, so each of its forecasts is judged by a single day. TreeCal says means over "
        "intervals, which come back, and each is judged by all the days it was said on.\n"
        f"Its largest share of error is one forecast, said with the weight of {worst.mass[0]:.0f} days and off by "
        f"{worst.gap[0]:.2f}. The labelled error, which the paper bounds, tells equal forecasts of different "
        "intervals apart.\n"
        "KL is infinite where a forecast ruled out what then happened; mixing in a little of the centre keeps it "
        "finite."
    )
