"""Some of many parameters: `make heavy` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], every: int) -> list[Any]:
    """Return parameters of which the default tests run one of each so many, the first one too.

    >>> [getattr(value, "marks", None) is None for value in some("abcd", every=3)]
    [True, False, False, True]
    """
    return [value if k % every == 0 else _heavy(value) for k, value in enumerate(values)]


def _heavy(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.heavy)
