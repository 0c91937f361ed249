"""Options that several commands share: what outcomes are, who forecasts them, and what errors are counted in."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from inspect import getdoc, signature
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from cyclopts import Parameter

from treecal.exceptions import ParameterError
from treecal.forecasters import REGISTRY, Forecaster
from treecal.geometry import Ball, Box, ConvexSet, Lp, Norm, Simplex
from treecal.geometry import as_norm as by_name

T = TypeVar("T")


def split(option: str, text: str) -> tuple[str, ...]:
    """Return different names that have commas between them; one that holds a comma itself stands in quotes.

    Examples
    --------
    >>> split("--classes", 'rain, sun,"sun, then rain"')
    ('rain', 'sun', 'sun, then rain')
    """
    names = tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))
    if not names or "" in names or len(set(names)) < len(names) or not text.isprintable():
        raise ParameterError.expected(option, text, "different names with commas between them")
    return names


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What outcomes are: one of some classes, or points of a box or a ball."""

    classes: str | None = None
    """Names of the classes, with commas between them: each outcome is one of them."""
    dim: int | None = None
    """Number of coordinates. On its own: classes called 0, 1, …, dim - 1."""
    box: tuple[float, float] | None = None
    """Least and greatest value of every coordinate: outcomes are dim numbers between the two."""
    ball: float | None = None
    """Radius: outcomes are dim numbers whose squares sum to its square or less."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The classes as named, or None.

        Examples
        --------
        >>> Outcomes(classes="rain,sun").names, Outcomes(dim=2).names
        (('rain', 'sun'), None)
        """
        if self.classes is None:
            return None
        names = split("--classes", self.classes)
        if len(names) < 2:
            raise ParameterError.expected("--classes", self.classes, "two or more names")
        return names

    @property
    def given(self) -> bool:
        """Whether anything is said about outcomes."""
        return self != Outcomes()

    @property
    def vectors(self) -> bool:
        """Whether outcomes are vectors and not classes."""
        return self.box is not None or self.ball is not None

    def space(self) -> ConvexSet:
        """Return the set.

        Examples
        --------
        >>> Outcomes(classes="rain,sun").space(), Outcomes(dim=2, box=(0, 1)).space()
        (Simplex(classes=['rain', 'sun']), Box(low=[0.0, 0.0], high=[1.0, 1.0]))
        """
        given = [f"--{name}" for name in ("classes", "box", "ball") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ParameterError(f"{' and '.join(given)} came together, expected one of them.")
        if self.names is not None:
            if self.dim not in (None, len(self.names)):
                raise ParameterError(f"--dim is {self.dim}, but --classes names {len(self.names)}.")
            return Simplex(classes=self.names)
        if self.dim is None:
            raise ParameterError(
                "no outcome set is given.",
                hint="--classes rain,sun for classes; --dim 3 for classes 0, 1, 2; --dim 3 --box 0 1 for numbers.",
            )
        if self.box is not None:
            return Box(*self.box, dim=self.dim)
        return Simplex(self.dim) if self.ball is None else Ball(self.dim, radius=self.ball)


def _settings(kind: type[Forecaster]) -> dict[str, Any]:
    """Return the arguments of a forecaster that fit on a command line, with their types: what its constructor takes.

    Examples
    --------
    >>> _settings(REGISTRY["binary-grid"]), list(_settings(REGISTRY["treecal"]))
    ({'bins': <class 'int'>}, ['arity', 'depth', 'mix'])
    """
    hints, found = get_type_hints(kind.__init__), {}
    for name, parameter in signature(kind).parameters.items():
        hint = hints.get(name, type(parameter.default))
        if parameter.kind is parameter.KEYWORD_ONLY and _plain(hint):
            found[name] = hint
    return found


def _plain(hint: Any) -> bool:
    """Return whether a type is made of numbers, text and words to choose from."""
    if get_origin(hint) in (Union, UnionType):
        return all(map(_plain, get_args(hint)))
    return hint in (bool, int, float, str, NoneType) or get_origin(hint) is Literal


def _help(name: str, kinds: list[type[Forecaster]]) -> str:
    """Return what the first docstring says of an argument, and the forecasters that take it."""
    text = re.search(rf"^(?:\w+, )*{name}(?:, \w+)*\n((?:    .*\n?)+)", getdoc(kinds[0]) or "", re.M)
    return f"{' '.join(text[1].split()) if text else ''} ({', '.join(str(kind.name) for kind in kinds)})".strip()


def _with_settings(method: type[T]) -> type[T]:
    """Give a class of options one for each forecaster to choose from, and one for all that they can be set to."""
    takers: dict[str, list[type[Forecaster]]] = {}
    for kind in REGISTRY.values():
        for name in _settings(kind):
            takers.setdefault(name, []).append(kind)
    method.__annotations__["forecaster"] = Literal[tuple(REGISTRY)]
    for name, kinds in takers.items():
        hint = _settings(kinds[0])[name]
        method.__annotations__[name] = Annotated[hint | None, Parameter(help=_help(name, kinds))]
        setattr(method, name, None)
    return method


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@_with_settings
class Method:
    """Who forecasts: a name of the registry, as it is when this module is imported, and what it is set to."""

    forecaster: str = "adaptive"
    """Who forecasts; `adaptive` is the one to start with, `treecal` the paper's."""
    seed: int = 0
    """Random seed, wherever points are drawn."""

    def make(self, space: ConvexSet) -> Forecaster:
        """Return the forecaster.

        Examples
        --------
        >>> from treecal.geometry import Simplex
        >>> Method(forecaster="binary-grid", bins=20).make(Simplex(2))
        BinaryGrid(Simplex(2), bins=20)
        """
        if self.seed < 0:
            raise ParameterError.expected("--seed", self.seed, "an integer of 0 or more")
        kind: Any = REGISTRY[self.forecaster]
        takes = _settings(kind)
        given = {name: value for name, value in vars(self).items() if value is not None}
        given = {name: value for name, value in given.items() if name not in ("forecaster", "seed")}
        if stray := [f"--{name}" for name in given if name not in takes]:
            raise ParameterError(
                f"the forecaster {self.forecaster} takes no {' and no '.join(stray)}.",
                hint=f"it takes {', '.join(f'--{name}' for name in takes)}." if takes else "it has no options.",
            )
        if "rng" in signature(kind).parameters:
            given["rng"] = np.random.default_rng(self.seed)
        return kind(space, **given)  # type: ignore[no-any-return]


def described(keeper: Forecaster) -> str:
    """Return a forecaster in words, without what every round changes.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> described(Method(forecaster="treecal", arity=2).make(Simplex(3)))
    'TreeCal(space=Simplex(3), arity=2, depth=None, mix=0.0)'
    """
    arguments = {name: value for name, value in keeper.arguments().items() if name not in ("rng", "start")}
    return f"{type(keeper).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def as_norm(text: str) -> Norm:
    """Return the norm: l1, l2, linf, or l and any number from 1.

    Examples
    --------
    >>> as_norm("l1"), as_norm("l1.5")
    (l1, Lp(p=1.5))
    """
    try:
        return by_name(text) if text in ("l1", "l2", "linf") else Lp(float(text.removeprefix("l")))
    except ValueError:  # not a number, or below 1
        raise ParameterError.expected("--norm", text, "l1, l2, linf, or l with a number from 1, as l1.5") from None
