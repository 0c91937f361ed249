"""`treecal doctor`: what is installed, and whether each part does its work here."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from treecal.cli._terminal import Exit, emit, page
from treecal.exceptions import UnsupportedError

_STYLES = {"works": "green", "not installed": "yellow", "broken": "bold red"}


@dataclass(frozen=True)
class Finding:
    """What was found when one part was tried."""

    part: str
    state: Literal["works", "not installed", "broken"]
    what: str


def doctor(*, json: bool = False) -> int:
    """List versions and optional packages, and try every part of treecal on a small job with a known answer.

        treecal doctor

    Exit codes: 0 when everything installed works, 1 when something is broken. Optional packages may be absent.

    Parameters
    ----------
    json
        Write one JSON document.
    """
    from treecal.cli import _checks as checks

    versions, extras = _versions(), _extras()
    with Console(stderr=True, quiet=not sys.stderr.isatty()).status("trying every part …"):
        findings = [_try(part, check) for part, check in checks.CHECKS.items()]
    broken = any(finding.state == "broken" for finding in findings)
    if json:
        emit({"versions": versions, "extras": extras, "parts": findings})
        return Exit.FLAWED if broken else Exit.FINE
    paper = page()
    paper.print(", ".join(f"{name} {version}" for name, version in versions.items()), soft_wrap=True)
    table = Table(title="Optional packages", title_justify="left")
    for name in ("extra", "package", "version"):
        table.add_column(name)
    for extra, packages in extras.items():
        for package, version in packages.items():
            table.add_row(extra, package, version or Text(f'pip install "treecal[{extra}]"', "yellow"))
    paper.print(table)
    table = Table(title="Every part, on a small job with a known answer", title_justify="left")
    for name in ("part", "", "what was found"):
        table.add_column(name)
    for finding in findings:
        table.add_row(finding.part, Text(finding.state, _STYLES[finding.state]), Text(finding.what))
    paper.print(table)
    paper.print("Something is broken: see above." if broken else "Everything installed works.")
    return Exit.FLAWED if broken else Exit.FINE


def _try(part: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(part, "works", check())
    except UnsupportedError as error:
        return Finding(part, "not installed", " ".join(str(error).split()))
    except Exception as error:  # any failure is what the doctor looks for
        return Finding(part, "broken", " ".join(f"{type(error).__name__}: {error}".split()))


def _versions() -> dict[str, str]:
    found = {"treecal": metadata.version("treecal"), "Python": platform.python_version(), "on": platform.platform()}
    return found | {name: _version(name) or "not installed" for name in _needed(None)}


def _extras() -> dict[str, dict[str, str | None]]:
    """Return, for each extra, its packages and their versions; None for those that are not installed."""
    extras = sorted(metadata.metadata("treecal").get_all("Provides-Extra") or [])
    return {extra: {name: _version(name) for name in _needed(extra)} for extra in extras}


def _needed(extra: str | None) -> list[str]:
    """Return the packages that treecal's own metadata asks for, always or for an extra."""
    names = []
    for line in metadata.requires("treecal") or []:
        wanted = re.search(r"""extra == ['"]([^'"]+)['"]""", line)
        if (wanted and wanted[1]) == extra and (name := re.match(r"[\w.-]+", line)):
            names.append(name[0])
    return names


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
