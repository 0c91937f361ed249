"""The page: a template, filled in and written in one go."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treecal._optional import require
from treecal.exceptions import ParameterError
from treecal.geometry import Simplex
from treecal.io import new_file
from treecal.plots._style import class_names
from treecal.report import _figures as figures
from treecal.report._entries import Section
from treecal.report._verdict import CELL, Verdict, judge, norm_in_words, percent

MOST_GAPS = 8
"""Rows in the table of the largest gaps."""
_MOST_COLUMNS = 5  # of more classes only the three that differ most are told


class Gap(NamedTuple):
    """One forecast and what came of it: by class, what was said and what happened."""

    mass: float
    gap: float
    share: float
    classes: list[tuple[str, float, float]]


@dataclass(frozen=True)
class Chapter:
    """One entry as the page shows it."""

    verdict: Verdict
    gaps: list[Gap]
    pictures: list[figures.Picture]


@dataclass(frozen=True)
class Part:
    """One section as the page shows it."""

    section: Section
    summary: str
    curve: figures.Picture | None
    chapters: list[Chapter]


def render(
    sections: Sequence[Section],
    *,
    title: str,
    asked: Mapping[str, object] | None = None,
    command: str | None = None,
) -> str:
    """Return the report as HTML: the same text for the same input.

    Parameters
    ----------
    sections
        Streams, and who forecast them.
    title
        The headline.
    asked
        What was asked: names and values, files, parameters, seeds. They are shown as they are.
    command
        The command or code that makes this report again.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.report import Section, play
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> entry = play(tc.TreeCal(space), np.eye(2)[rng.integers(2, size=300)])
    >>> page = render([Section("Coins", [entry])], title="A coin, 300 times")
    >>> page.startswith("<!DOCTYPE html>"), "http" in page
    (True, False)
    """
    if not sections:
        raise ParameterError("there is nothing to report: expected one section or more.")
    page = _template().render(
        title=title,
        asked={name: str(value) for name, value in (asked or {}).items()},
        command=command,
        parts=[_part(section) for section in sections],
        versions={name: version(name) for name in ("treecal", "numpy", "scipy", "matplotlib")},
        python=platform.python_version(),
        cell=CELL,
    )
    return str(page)


def write(
    path: str | os.PathLike[str],
    sections: Sequence[Section],
    *,
    title: str,
    asked: Mapping[str, object] | None = None,
    command: str | None = None,
    force: bool = False,
) -> Path:
    """Write the report to one file, whole or not at all, and return its path.

    Parameters
    ----------
    path
        Where to; it must not be there yet, unless `force`.
    sections, title, asked, command
        As for `render`.
    force
        Replace a file that is there.

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
        unfinished.write_text(render(sections, title=title, asked=asked, command=command), encoding="utf-8")
    return Path(path)


def _part(section: Section) -> Part:
    verdicts, space = judge(section), section.entries[0].space
    if section.classes is None:
        numbered = [f"coordinate {k + 1}" for k in range(space.dim)]
        section = replace(section, classes=space.classes if isinstance(space, Simplex) else numbered)
    return Part(section, _summary(verdicts), figures.draw_curve(section), [_chapter(v, section) for v in verdicts])


def _summary(verdicts: list[Verdict]) -> str:
    """Say who was best."""
    known = sorted((v for v in verdicts if v.level != "cannot tell"), key=lambda v: v.error)
    if len(verdicts) == 1 or not known:
        return ""
    best, *others = known
    text = f"{best.entry.name} came closest, with an error of {best.error:.3f} ({best.level})"
    return f"{text}; {others[-1].entry.name} was farthest off, with {others[-1].error:.3f}." if others else f"{text}."


def _chapter(verdict: Verdict, section: Section) -> Chapter:
    entry, reading, classes = verdict.entry, verdict.reading, section.classes
    drawn = (
        figures.draw_reliability(entry, verdict.exact, classes),
        figures.draw_ternary(entry, reading, classes),
        figures.draw_intervals(entry, classes),
    )
    return Chapter(verdict, list(_gaps(verdict, classes)), [picture for picture in drawn if picture is not None])


def _gaps(verdict: Verdict, classes: Sequence[str] | None) -> Iterator[Gap]:
    """Go through the forecasts with the largest share of the error."""
    table = verdict.reading.table(verdict.entry.norm)
    names, total = class_names(classes, table.forecast.shape[1]), float(table.weight @ table.gap)
    for point, mass, outcome, gap in zip(*(column[:MOST_GAPS] for column in table), strict=True):
        if mass * gap == 0:
            return
        order = range(len(names))
        if len(names) > _MOST_COLUMNS:
            order = np.argsort(-np.abs(outcome - point), kind="stable")[:3].tolist()
        told = [(names[k], float(point[k]), float(outcome[k])) for k in order]
        yield Gap(float(mass), float(gap), float(mass * gap) / total, told)


def _template() -> Any:
    jinja2 = require("jinja2", extra="plots", what="a report")
    source = resources.files("treecal.report").joinpath("page.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": percent, "in_words": norm_in_words}
    return environment.from_string(source)
