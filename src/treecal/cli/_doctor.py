"""`treecal doctor`: what is installed, and whether every part works; or whether the books of a server are sound."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Literal, NamedTuple

from rich.console import Console
from rich.text import Text

from treecal._optional import requirements, version_of
from treecal.cli._options import Json
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, counted, emit, page, table
from treecal.exceptions import UnsupportedError

_STYLES = {"works": "green", "loads": "green", "not installed": "yellow", "broken": "bold red"}


class Finding(NamedTuple):
    """The result of trying one part."""

    part: str
    state: Literal["works", "loads", "not installed", "broken"]
    result: str


def doctor(*, data: str | None = None, json: Json = False) -> int:
    """List versions and optional packages, and try the parts of treecal on small jobs with known answers.

    Optional packages may be absent. PostgreSQL and Spark are not started: of these it is said whether they load.

        treecal doctor

    With --data, play the log of a server's books again instead, from the first row, and compare every forecast and the
    state with what was announced and kept, bit for bit. The server may run meanwhile: what it had recorded when the
    check began is checked. Of a file of SQLite pages and indexes are checked too.

        treecal doctor --data books.sqlite

    Exit codes: 0 everything installed works, or the books are sound; 1 something is broken, or they are not.

    Parameters
    ----------
    data
        The books of a server: a file of SQLite, or the address of a PostgreSQL database.
    """
    if data is not None:
        return _check_books(data, json=json)
    from treecal.cli import _checks as checks

    extras = sorted(metadata.metadata("treecal").get_all("Provides-Extra") or [])
    packages = {extra: {name: version_of(name) for name in requirements(extra)} for extra in extras}
    versions = {"treecal": metadata.version("treecal"), "Python": platform.python_version(), "on": platform.platform()}
    versions |= {name: version_of(name) or "not installed" for name in requirements(None)}
    findings: list[Finding] = []
    with progress("parts", total=len(checks.CHECKS) + len(checks.LOADS), patience=3.0) as done:
        for part, check in (checks.CHECKS | checks.LOADS).items():
            findings.append(_try(part, check, "loads" if part in checks.LOADS else "works"))
            done(len(findings))
    code = Exit.FLAWED if any(finding.state == "broken" for finding in findings) else Exit.FINE
    if json:
        emit({"versions": versions, "extras": packages, "parts": [finding._asdict() for finding in findings]})
        return code
    paper = page()
    paper.print(", ".join(f"{name} {version}" for name, version in versions.items()), soft_wrap=True)
    optional = table("Optional packages", "extra", "package", "version")
    for extra, found in packages.items():
        for name, version in found.items():
            optional.add_row(extra, name, version or Text("not installed", "yellow"))
    parts = table("Parts, on small jobs with known answers; what only loads was not started", "part", "", "result")
    for part, state, result in findings:
        parts.add_row(part, Text(state, _STYLES[state]), Text(result))
    paper.print(optional, parts)
    loaded = [finding.part for finding in findings if finding.state == "loads"]
    well = "What is installed works" + (f"; {' and '.join(loaded)} only loaded." if loaded else ".")
    paper.print("Something is broken: see above." if code else well)
    return code


def _check_books(data: str, *, json: bool) -> int:
    from treecal.serve import check_books, open_reader

    reader = open_reader(data)
    try:
        with Console(stderr=True, quiet=not sys.stderr.isatty()).status("playing the log again …"):
            found = check_books(reader)
            damage = reader.damage()
    finally:
        reader.close()
    flawed = [each for each in found if each.problems]
    code = Exit.FLAWED if flawed or damage else Exit.FINE
    if json:
        emit({"sound": code == Exit.FINE, "damage": damage, "streams": [each._asdict() for each in found]})
        return code
    paper = page()
    listed = table("Streams", "stream", "forecasts", "arrivals", "hash of the log", "")
    for each in found:
        state = Text(counted(len(each.problems), "problem"), "bold red") if each.problems else Text("sound", "green")
        listed.add_row(each.name, f"{each.rounds:,}", f"{each.arrivals:,}", each.state, state)
    if found:
        paper.print(listed)
    for each in flawed:
        for problem in each.problems:
            paper.print(Text(f"{each.name}: {problem}"))
    for problem in damage:
        paper.print(Text(f"the file is damaged: {problem}."))
    if code:
        paper.print("The books are not sound: see above. Restore a backup, and keep this file.")
        return code
    rounds = counted(sum(each.rounds - each.deleted for each in found), "forecast")
    paper.print(f"The books are sound: {rounds}, each as it was announced, and the state as the log gives it.")
    if deleted := sum(each.deleted for each in found):
        paper.print(
            f"{counted(deleted, 'forecast')} deleted: in their streams, what precedes the last deletion was "
            "compared with the hashes of the log, and what follows it was played again."
        )
    return code


def _try(part: str, check: Callable[[], str], well: Literal["works", "loads"]) -> Finding:
    try:
        return Finding(part, well, check())
    except UnsupportedError as error:
        return Finding(part, "not installed", " ".join(str(error).split()))
    except Exception as error:  # any failure is what the doctor looks for
        return Finding(part, "broken", " ".join(f"{type(error).__name__}: {error}".split()))
