"""Processes in which optional packages are not there, though they are installed."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib import metadata

from treecal._optional import requirements

EXTRAS = metadata.metadata("treecal").get_all("Provides-Extra") or []


def modules_of(*extras: str) -> set[str]:
    """Return the modules that are not there without these extras: of their packages, and of all that need these."""

    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", name)[0]).lower()

    gone = {plain(name) for extra in extras for name in requirements(extra)}
    needs = {
        plain(package.name): {plain(line) for line in package.requires or () if "extra ==" not in line}
        for package in metadata.distributions()
    }
    while more := {name for name in needs.keys() - gone if needs[name] & gone}:
        gone |= more
    return {module for module, owners in _owners().items() if gone & set(map(plain, owners))}


def run_without(modules: set[str], script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process that does not find these modules."""
    before = f"""
import sys
from importlib.machinery import PathFinder

class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {modules!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Others
"""
    return subprocess.run([sys.executable, "-c", before + script], capture_output=True, text=True, check=False)


@cache
def _owners() -> dict[str, list[str]]:
    """Return the packages that each module is of."""
    return {module: list(names) for module, names in metadata.packages_distributions().items()}
