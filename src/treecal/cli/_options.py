"""Options that several commands share: the outcome set, the forecaster, the norm, input and output."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from inspect import getdoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from cyclopts import Parameter

from treecal import forecasters
from treecal.correctors import Corrector
from treecal.exceptions import FileError, ParameterError
from treecal.forecasters import REGISTRY, Forecaster
from treecal.geometry import Ball, Box, ConvexSet, Lp, Norm, Simplex, as_norm as by_name
from treecal.io import FORMATS, OnError
from treecal.monitor import Monitor

T = TypeVar("T")

_NORMS = "l1, l2, linf, or l followed by a number from 1, such as l1.5"
NormName = Annotated[str, Parameter(help=f"Norm of the error: {_NORMS}.")]
Rounds = Annotated[int, Parameter(help="Number of rounds.")]
FileKind = Annotated[
    str | None,
    Parameter(
        help=f"File format: {', '.join(FORMATS)}; by default from the file name, and JSON lines on standard input."
    ),
]
OnInvalid = Annotated[
    OnError, Parameter(help="At an invalid row: stop; skip it and report how many; or collect and report them all.")
]
Decimal = Annotated[Literal[".", ","], Parameter(help="The decimal mark of numbers in text.")]
Force = Annotated[bool, Parameter(help="Overwrite existing files.")]
Json = Annotated[bool, Parameter(help="Write one JSON document.")]


def check_limit(fail_above: float | None) -> None:
    """Raise unless it can be a limit of calibration errors."""
    if fail_above is not None and not fail_above >= 0:
        raise ParameterError.expected("--fail-above", fail_above, "a number of 0 or more")


def split(option: str, text: str | None) -> tuple[str, ...]:
    """Return distinct names separated by commas; a name that contains a comma is quoted. Without the option none.

    Examples
    --------
    >>> split("--classes", 'rain, sun,"sun, then rain"')
    ('rain', 'sun', 'sun, then rain')
    """
    if text is None:
        return ()
    names = tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))
    if not names or "" in names or len(set(names)) < len(names) or not text.isprintable():
        raise ParameterError.expected(option, text, "distinct names separated by commas")
    return names


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The outcome set: a simplex of classes, a box or a ball."""

    classes: str | None = None
    """Names of the classes, separated by commas."""
    dim: int | None = None
    """Number of coordinates; with --box by default 1. Without --box or --ball: number of classes, named 0, 1, …"""
    box: tuple[float, float] | None = None
    """Lower and upper bound of every coordinate, for outcomes that are numbers, or vectors of dim numbers."""
    ball: float | None = None
    """Radius of a Euclidean ball, for outcomes that are vectors of dim numbers."""

    def space(self) -> ConvexSet:
        """Return the set.

        Examples
        --------
        >>> Outcomes(classes="rain,sun").space(), Outcomes(dim=2, box=(0, 1)).space()
        (Simplex(classes=['rain', 'sun']), Box(low=[0.0, 0.0], high=[1.0, 1.0]))
        """
        given = [f"--{name}" for name in ("classes", "box", "ball") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ParameterError(f"{' and '.join(given)} exclude each other.")
        if self.classes is not None:
            names = split("--classes", self.classes)
            if len(names) < 2:
                raise ParameterError.expected("--classes", self.classes, "two or more names")
            if self.dim not in (None, len(names)):
                raise ParameterError(f"--dim is {self.dim}, but --classes names {len(names)}.")
            return Simplex(classes=names)
        if self.box is not None:
            return Box(*self.box, dim=self.dim)
        if self.dim is None:
            raise ParameterError(
                "no outcome set given.",
                hint="--classes rain,sun for classes; --dim 3 for classes 0, 1, 2; --box 0 500 for numbers.",
            )
        return Simplex(self.dim) if self.ball is None else Ball(self.dim, radius=self.ball)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Following:
    """How a stream of rows is followed: the ids and times in it, the snapshot to resume from, and invalid rows."""

    id: str | None = None
    """Column or key of the id of a forecast, whose outcome may come in a later row."""
    outcome_for: str | None = None
    """Column of the id of the forecast whose outcome a row brings; by default outcome_for."""
    limit: int | None = None
    """The most forecasts with ids that may await their outcomes: beyond it the oldest is void."""
    due: str | None = None
    """Column of the last moment at which the outcome of a forecast counts: afterwards it is void. Needs --now."""
    now: str | None = None
    """Column that tells what time it is: a number, or a time such as 2026-01-31T09:30, in UTC."""
    snapshot: Path | None = None
    """File to resume from, if it exists, and to save to: every --every rows, at the end, on Ctrl-C and on SIGTERM. No
    other run may use it meanwhile."""
    every: int = 1000
    """Number of rows between snapshots."""
    new_file: bool = False
    """Accept a file that the snapshot does not know, and learn it from its first row. (A file whose first rows were
    learned is known, and read on from there.)"""
    kind: FileKind = None
    on_error: OnInvalid = "stop"

    def check(self, path: str, output: Path | None = None, *, ids: bool = True) -> None:
        """Raise unless these options go together, with `ids` or without, and no file would be written over another."""
        if self.due is not None and self.now is None:
            raise ParameterError("--due needs the current time.", hint="--now names its column.")
        if not ids and (self.now is not None or self.limit is not None):
            raise ParameterError(
                "--due, --now and --limit are for forecasts with ids.", hint="--id names their column."
            )
        for option, number in (("--limit", self.limit), ("--every", self.every)):
            if number is not None and number < 1:
                raise ParameterError.expected(option, number, "an integer of 1 or more")
        if self.new_file and self.snapshot is None:
            problem = "--new-file is about what a snapshot has learned, and there is none."
            raise ParameterError(problem, hint="--snapshot.")
        met: dict[Path, str] = {}
        files = {"the input": None if path == "-" else Path(path), "--output": output, "--snapshot": self.snapshot}
        for name, file in files.items():
            if file is not None and (other := met.setdefault(file.resolve(), name)) != name:
                raise ParameterError(f"{name} is {file}, the same file as {other}.", hint="use another one.")

    def columns(self, id: str | None = None) -> dict[str, Any]:  # noqa: A002
        """Return the columns of ids and times, as a `Reader` takes them."""
        names = {"id": self.id or id, "outcome_for": self.outcome_for or "outcome_for"}
        return names | {"due": self.due, "now": self.now}

    @property
    def named(self) -> list[str]:
        """The columns that were named."""
        return [name for name in (self.id, self.outcome_for, self.due, self.now) if name is not None]


def _settings(kind: type[Forecaster]) -> dict[str, Any]:
    """Return the arguments of a forecaster's constructor that fit on a command line, with their types there.

    Examples
    --------
    >>> _settings(REGISTRY["binary-grid"]), list(_settings(REGISTRY["guarded"]))
    ({'bins': <class 'int'>}, ['budget', 'norm', 'error'])
    """
    hints = get_type_hints(kind.__init__)
    found = {}
    for name, parameter in signature(kind).parameters.items():
        hint = hints.get(name, type(parameter.default))
        if parameter.kind is parameter.KEYWORD_ONLY and _plain(hint):
            found[name] = str if hint is Norm or Norm in get_args(hint) else hint
    return found


def _plain(hint: Any) -> bool:
    """Return whether a type is made of numbers, text, words to choose from and norms, which have names."""
    if get_origin(hint) in (Union, UnionType):
        return all(map(_plain, get_args(hint)))
    return hint in (bool, int, float, str, NoneType, Norm) or get_origin(hint) is Literal


def _option(name: str) -> str:
    """Return the option for a setting; `--norm` is that of the command, in which it measures."""
    return "--forecaster-norm" if name == "norm" else f"--{name}"


def _help(name: str, kinds: list[type[Forecaster]]) -> str:
    """Return the first sentence that docstrings have for an argument, and the forecasters that take it."""
    takers: dict[str, list[str]] = {}
    for kind in kinds:
        text = _described(name, kind)
        if reference := re.match(r"As for `(\w+)`", text):
            text = _described(name, getattr(forecasters, reference[1]))
        first, *_ = re.split(r"(?<=[.])\s", text)
        takers.setdefault(first, []).append(str(kind.name))
    return " ".join(f"{text} ({', '.join(names)})".strip() for text, names in takers.items())


def _described(name: str, kind: type[Forecaster]) -> str:
    text = re.search(rf"^(?:\w+, )*{name}(?:, \w+)*\n((?:    .*\n?)+)", getdoc(kind) or "", re.M)
    return " ".join(text[1].split()) if text else ""


def _with_settings(method: type[T]) -> type[T]:
    """Add the choice of forecasters to a class of options, and an option for each of their settings."""
    takers: dict[str, list[type[Forecaster]]] = {}
    for kind in REGISTRY.values():
        for name in _settings(kind):
            takers.setdefault(name, []).append(kind)
    method.__annotations__["forecaster"] = Literal[tuple(REGISTRY)]
    for name, kinds in takers.items():
        hint = _settings(kinds[0])[name]
        no = f"--no-{name}" if hint is bool else ()
        option = Parameter(name=_option(name), negative=no, help=_help(name, kinds))
        method.__annotations__[name] = Annotated[hint | None, option]
        setattr(method, name, None)
    return method


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@_with_settings
class Method:
    """The forecaster, from the registry as it is when this module is imported, and its settings."""

    forecaster: str = "guarded"
    """The forecaster; `guarded` is the one to start with, `treecal` is the paper's algorithm."""
    seed: int = 0
    """Random seed."""

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
        given = {k: v for k, v in vars(self).items() if v is not None and k not in ("forecaster", "seed")}
        if stray := [name for name in given if name not in takes]:
            others = [other for other in sorted(REGISTRY) if stray[0] in _settings(REGISTRY[other])]
            raise ParameterError(
                f"the forecaster {self.forecaster} does not take {' or '.join(map(_option, stray))}.",
                hint=f"it takes {', '.join(map(_option, takes))}; " * bool(takes)
                + f"--forecaster {' or '.join(others)} takes {_option(stray[0])}.",
            )
        if "rng" in signature(kind).parameters:
            given["rng"] = np.random.default_rng(self.seed)
        if "norm" in given:
            given["norm"] = as_norm(given["norm"], option=_option("norm"))
        return kind(space, **given)  # type: ignore[no-any-return]


def described(forecaster: Forecaster | Corrector | Monitor) -> str:
    """Return a forecaster, corrector or monitor with all its arguments but those that change with every round.

    Examples
    --------
    >>> described(REGISTRY["guarded"](Simplex(2)))  # doctest: +ELLIPSIS
    'Guarded(space=Simplex(2), eager=Codebook(Tracker(space)), safe=BinaryGrid(space, bins=16), ...)'
    """
    arguments = {name: repr(value) for name, value in forecaster.arguments().items() if name not in ("rng", "start")}
    space = arguments.pop("space", repr(forecaster.space))
    parts = (f"{name}={text.replace(space, 'space')}" for name, text in arguments.items())
    return f"{type(forecaster).__name__}({', '.join([f'space={space}', *parts])})"


def as_norm(text: str, *, option: str = "--norm") -> Norm:
    """Return the norm of this name.

    Examples
    --------
    >>> as_norm("l1"), as_norm("l1.5")
    (l1, Lp(p=1.5))
    """
    try:
        return by_name(text) if text in ("l1", "l2", "linf") else Lp(float(text.removeprefix("l")))
    except ValueError:  # not a number, or below 1
        raise ParameterError.expected(option, text, _NORMS) from None


def read_losses(text: str) -> Any:
    """Return the costs of each action: a matrix, or of a CSV file rows by name.

    Examples
    --------
    >>> read_losses("0,4; 1,1")
    [[0.0, 4.0], [1.0, 1.0]]
    """
    if text.lower().endswith(".csv"):
        return _losses_of(Path(text))
    try:
        rows = [[float(cell) for cell in row.split(",")] for row in text.split(";")]
    except ValueError:
        rows = []
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise ParameterError.expected(
            "--loss", text, 'numbers such as "0,4; 1,1": a row per action, a number per class; or a CSV file'
        )
    return rows


def _losses_of(path: Path) -> dict[str, dict[str, float]]:
    """Return the costs in a CSV file: its first column names the actions, the others the classes."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            (_, *classes), *rows = (row for row in csv.reader(file) if row)
        return {name: dict(zip(classes, map(float, costs), strict=True)) for name, *costs in rows}
    except (ValueError, UnicodeDecodeError) as error:
        raise FileError(
            f"{path} holds no losses: {error}.",
            hint="a header, as action,fine,fraud, and a row for each action: block,5,0.",
        ) from None
