"""An audit in words: no library of tables is needed for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from treecal.auditing._calibration import Calibration
from treecal.auditing._groups import Key
from treecal.measures import Estimate, Payoff

if TYPE_CHECKING:
    from treecal.monitor import Alarm


class Watched(Protocol):
    """The windows of time of an audit."""

    @property
    def by(self) -> tuple[str, ...]: ...

    @property
    def groups(self) -> Mapping[Key, Calibration]: ...

    @property
    def alarm(self) -> Alarm | None: ...

    @property
    def in_order(self) -> bool: ...


def acted(payoff: Payoff) -> str:
    """Say what acting on the forecasts cost, and which actions should have been others."""
    saved = payoff.interval()
    luck = payoff.chance
    text = (
        f"Who acts on these forecasts pays {payoff.cost:.4g} a row. Recalibrated ones save {saved.value:.4g} of it or "
        f"more: what taking another action in place of each saves (90 % interval {saved.low:.4g} to "
        f"{saved.high:.4g}; by chance {luck.mean:.4g})."
    )
    if luck.p_value(saved.value) < 0.05:
        for each in payoff.actions:
            if each.better != each.action:
                text += (
                    f" Where {called(each.action)} was taken, {each.rows:,.0f} row{'s' * (each.rows != 1)}, "
                    f"{called(each.better)} would have cost less."
                )
    return text


def printable(name: object) -> str:
    """Return a name from the log, with nothing that a terminal would interpret."""
    words = "(missing)" if name is None else str(name)
    return words if words.isprintable() else repr(words)[1:-1]


def called(action: str | int) -> str:
    """Return what an action is called; one without a name by its number, from 1."""
    return action if isinstance(action, str) else f"action {action + 1}"


def watched(windows: Watched) -> str:
    """Say what a monitor of the rows found."""
    if (none := windows.groups.get((None,))) is not None:
        have = "row has" if none.rounds == 1 else "rows have"
        return f"{none.rounds:,} {have} no {windows.by[0]}, so no monitor watched the log."
    if not windows.in_order:
        return f"The rows are not in the order of {windows.by[0]}, so no monitor watched them."
    if windows.alarm is None:
        return "A monitor that looked after every row has raised no alarm."
    said = str(windows.alarm)
    return f"{said[0].upper()}{said[1:]}."


def labelled(estimates: Mapping[str, Estimate]) -> str:
    """Say of how many rows the outcome is known, and what further labels are worth."""
    each = estimates["accuracy"]
    more = each.labels
    return (
        f"{each.labels:,} of {each.rows:,} rows are labelled: the tables above are about these, by their weights. As "
        f"many labels again, {more:,}, would narrow the accuracy's interval from ± {each.half:.4f} to "
        f"± {each.after(more):.4f}."
    )
