"""The import of optional packages, and what installs them."""

from __future__ import annotations

import re
import sys
from importlib import import_module, metadata as installed
from typing import Any

from treecal.exceptions import UnsupportedError


def require(module: str, *, extra: str, what: str) -> Any:
    """Import a module of an optional package, or raise an error that says what needs it and which packages to install.

    A package that is installed but does not load raises its own error: it is broken, not missing.

    Examples
    --------
    >>> require("a_package_that_is_not_there", extra="files", what="reading files")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    treecal.exceptions.UnsupportedError: reading files needs a_package_that_is_not_there, which is not installed.
    <BLANKLINE>
    Hint: pip install ...
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
    except ModuleNotFoundError as error:  # the package itself, or one that it needs
        missing = error.name or package
        raise UnsupportedError(f"{what} needs {missing}, which is not installed.", hint=to_install(extra)) from None
    return import_module(module)


def requirements(extra: str | None) -> dict[str, str]:
    """Return what an extra needs on this system, or without one what treecal always needs: packages, with versions.

    Examples
    --------
    >>> requirements("theory")
    {'cvxpy': 'cvxpy>=1.6'}
    """
    found = {}
    try:
        lines = installed.requires("treecal") or []
    except installed.PackageNotFoundError:  # it is run from its sources
        lines = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        own = re.search(r"""extra == ['"]([^'"]+)""", marker)
        elsewhere = sys.platform == "win32" and "sys_platform" in marker
        if (own and own[1]) == extra and not elsewhere and (name := re.match(r"[\w.-]+", requirement)):
            found[name[0]] = requirement.strip()
    return found


def version_of(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return installed.version(package)
    except installed.PackageNotFoundError:
        return None


def to_install(extra: str) -> str:
    """Return the command that installs what is missing of an extra; the packages by name, as all indexes have them.

    Examples
    --------
    >>> to_install("theory")
    'pip install "cvxpy>=1.6" (the extra theory).'
    """
    wanted = requirements(extra)
    missing = [line for name, line in wanted.items() if version_of(name) is None] or list(wanted.values())
    if not missing:
        return f'install treecal with its extra "{extra}".'
    return f"pip install {' '.join(map(_quoted, missing))} (the extra {extra})."


def _quoted(requirement: str) -> str:
    return f'"{requirement}"' if re.search(r"[^\w.-]", requirement) else requirement
