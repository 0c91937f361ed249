"""The page: a template, filled in and written at once."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from treecal._optional import require
from treecal.auditing import NumberAudit
from treecal.exceptions import ParameterError
from treecal.io import new_file
from treecal.measures import NEARLY, SOMEWHAT, TELL, percent
from treecal.report import _figures as figures
from treecal.report._section import Section, in_words, key_in_words
from treecal.report._verdict import Verdict, norm_in_words

_MOST_GAPS = 8  # rows in the table of the largest gaps
_MOST_COLUMNS = 4  # of more classes only the three that differ most are shown
_MOST_ROWS = 2000  # groups in the table of all


def render(
    sections: Sequence[Section],
    *,
    title: str,
    details: Mapping[str, object] | None = None,
    command: str | None = None,
) -> str:
    """Return the report as HTML; the same input gives the same text.

    Parameters
    ----------
    sections
        The streams, with their forecasters.
    title
        The headline.
    details
        Names and values to show below the headline: files, parameters, random seeds.
    command
        The command or code that reproduces the report.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.report import Section, play
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> entry = play(tc.TreeCal(space), np.eye(2)[rng.integers(2, size=300)])
    >>> page = render([Section("Coins", [entry])], title="A coin, 300 times")
    >>> page.startswith("<!DOCTYPE html>"), "://" in page
    (True, False)
    """
    if not sections:
        raise ParameterError("sections is empty, so there is nothing to report.")
    parts = [_part(section) for section in sections]
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    page = _template("page.html").render(
        title=title,
        details={name: str(value) for name, value in (details or {}).items()},
        command=command,
        parts=parts,
        notes=_notes(sections),
        counted="rows" if all(section.is_audit for section in sections) else "rounds",
        of_classes=any(verdict.judged is not None for verdict in verdicts),
        without_classes=any(verdict.judged is None for verdict in verdicts),
        guaranteed=any(verdict.bound is not None for verdict in verdicts),
        **_made(),
    )
    return str(page)


def _made() -> dict[str, Any]:
    """Return what a report was made with, and the limits of the verdict."""
    return {
        "versions": {name: version(name) for name in ("treecal", "numpy", "scipy", "matplotlib")},
        "python": platform.python_version(),
        "limits": {"nearly": NEARLY, "somewhat": SOMEWHAT, "tell": TELL},
    }


def render_numbers(
    audit: NumberAudit,
    *,
    title: str,
    details: Mapping[str, object] | None = None,
    command: str | None = None,
) -> str:
    """Return the report on an audit of forecasts of a number as HTML; the same input gives the same text.

    Parameters
    ----------
    audit
        What `tc.audit` returned for quantiles, members, or means and standard deviations.
    title, details, command
        As for `render`.

    Examples
    --------
    >>> import treecal as tc
    >>> log = {"m": np.zeros(300), "s": np.ones(300), "y": np.random.default_rng(0).normal(size=300)}
    >>> page = render_numbers(tc.audit(log, mean="m", sd="s", outcome="y"), title="Noise")
    >>> page.startswith("<!DOCTYPE html>"), "://" in page
    (True, False)
    """
    tables = []
    for heading, part in (("Groups", audit), ("Windows of time", audit.windows)):
        if part is not None and part.groups:
            rows = [(key_in_words(key), each) for key, each in part.groups.items()]
            table = {"by": part.by, "rows": rows[:_MOST_ROWS], "more": max(len(rows) - _MOST_ROWS, 0)}
            tables.append((heading, table))
    page = _template("numbers.html").render(
        title=title,
        details={name: str(value) for name, value in (details or {}).items()},
        command=command,
        audit=audit,
        words=audit.sentences,
        pictures=figures.draw_numbers(audit),
        tables=tables,
        nan=math.nan,
        **_made(),
    )
    return str(page)


def write(
    path: str | os.PathLike[str],
    sections: Sequence[Section],
    *,
    title: str,
    details: Mapping[str, object] | None = None,
    command: str | None = None,
    force: bool = False,
) -> Path:
    """Write the report to one file, completely or not at all, and return its path.

    Parameters
    ----------
    path
        The file, which must not exist, unless `force`.
    sections, title, details, command
        As for `render`.
    force
        Overwrite an existing file.

    Examples
    --------
    >>> import tempfile, numpy as np, treecal as tc
    >>> from treecal.report import Section, play
    >>> coins = np.eye(2)[np.random.default_rng(0).integers(2, size=100)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     section = Section("Coins", [play(tc.TreeCal(tc.Simplex(2)), coins)], ["heads", "tails"])
    ...     write(f"{folder}/coins.html", [section], title="A hundred coins").name
    'coins.html'
    """
    with new_file(path, force=force) as unfinished:
        unfinished.write_text(render(sections, title=title, details=details, command=command), encoding="utf-8")
    return Path(path)


def _part(section: Section) -> dict[str, Any]:
    """Return one section as the template reads it."""
    chapters = [
        {
            "verdict": verdict,
            "gaps": list(_gaps(verdict, section.names)),
            "pictures": figures.draw(verdict, section.names),
        }
        for verdict in section.verdicts
    ]
    summary = section.summary
    if summary is None:
        summary = "" if section.is_audit else _summary(section.verdicts)
    corrections = [picture for entry in section.entries if (picture := figures.draw_correction(entry)) is not None]
    return {
        "section": section,
        "summary": summary,
        "corrections": corrections,
        "curve": figures.draw_curve(section),
        "windows": None if section.windows is None else figures.draw_windows(section.windows),
        "watched": "" if section.windows is None else section.windows.watched,
        "grouped": in_words(section.groups, section.off, section.by) if section.groups else "",
        "groups": sorted(section.groups, key=lambda row: -row.part.rounds)[:_MOST_ROWS],
        "chapters": chapters,
    }


def _notes(sections: Sequence[Section]) -> dict[str, str]:
    """Return the names of the entries with each note."""
    names: dict[str, dict[str, None]] = {}
    for entry in (entry for section in sections for entry in section.entries):
        if entry.note is not None:
            names.setdefault(entry.note, {})[entry.name] = None
    return {note: ", ".join(found) for note, found in names.items()}


def _summary(verdicts: list[Verdict]) -> str:
    """Name the entries with the least and the largest error."""
    known = sorted((v for v in verdicts if v.level != "cannot tell"), key=lambda v: v.error)
    if len(verdicts) == 1 or not known:
        return ""
    best, *others = known
    text = f"{best.entry.name} has the least error, {best.error:.3f} ({best.level})"
    return f"{text}; {others[-1].entry.name} the largest, {others[-1].error:.3f}." if others else f"{text}."


def _gaps(verdict: Verdict, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the forecasts with the largest share of the error, and (name, forecast, mean outcome) by class."""
    if verdict.entry.audited is not None:
        return
    table = verdict.reading.table(verdict.entry.norm)
    total = float(table.weight @ table.gap)
    for forecast, weight, outcome, gap in zip(*(column[:_MOST_GAPS] for column in table), strict=True):
        if weight * gap == 0:
            return
        order = list(range(len(names)))
        if len(names) > _MOST_COLUMNS:
            order = np.argsort(-np.abs(outcome - forecast), kind="stable")[:3].tolist()
        classes = [(names[k], float(forecast[k]), float(outcome[k])) for k in order]
        yield {"weight": float(weight), "gap": float(gap), "share": float(weight * gap) / total, "classes": classes}


def _figure(digits: int) -> Callable[[float], str]:
    """Return what writes a number with so many digits, and a dash for one that is not known."""
    return lambda value: "–" if math.isnan(value) else f"{value:.{digits}g}"


def _template(name: str) -> Any:
    jinja2 = require("jinja2", extra="plots", what="a report")
    folder = resources.files("treecal.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda part: folder.joinpath(part).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "in_words": norm_in_words, "figure3": _figure(3), "figure4": _figure(4)}
    return environment.get_template(name)
