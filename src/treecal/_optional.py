"""The import of optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from treecal.exceptions import UnsupportedError


def require(module: str, *, extra: str, what: str) -> Any:
    """Import a module of an optional package, or raise an error that says what needs it and which extra installs it.

    A package that is installed but does not load raises its own error: it is broken, not missing.

    Examples
    --------
    >>> require("a_package_that_is_not_there", extra="files", what="reading files")
    Traceback (most recent call last):
    treecal.exceptions.UnsupportedError: reading files needs a_package_that_is_not_there, which is not installed.
    <BLANKLINE>
    Hint: pip install "treecal[files]".
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
    except ModuleNotFoundError as error:  # the package itself, or one that it needs
        raise UnsupportedError(
            f"{what} needs {error.name or package}, which is not installed.", hint=f'pip install "treecal[{extra}]".'
        ) from None
    return import_module(module)
