"""Options that several commands share: what outcomes are, who forecasts them, and what errors are counted in."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from treecal.exceptions import ParameterError

if TYPE_CHECKING:
    from treecal.forecasters import Forecaster
    from treecal.geometry import ConvexSet, Norm

Name = Literal["treecal", "adaptive", "harmonic", "running-mean", "binary-grid", "sampled"]


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
        from treecal.geometry import Ball, Box, Simplex

        given = [f"--{name}" for name in ("classes", "box", "ball") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ParameterError(f"{' and '.join(given)} came together, expected one of them.")
        if self.names is not None:
            if self.dim not in (None, len(self.names)):
                raise ParameterError(f"--dim is {self.dim}, but --classes names {len(self.names)}.")
            return Simplex(classes=self.names)
        if self.dim is None:
            raise ParameterError(
                "it is not said what outcomes are.",
                hint="--classes rain,sun for classes; --dim 3 for classes 0, 1, 2; --dim 3 --box 0 1 for numbers.",
            )
        if self.box is not None:
            return Box(*self.box, dim=self.dim)
        return Simplex(self.dim) if self.ball is None else Ball(self.dim, radius=self.ball)


_TREE = ("arity", "depth", "mix")
_TAKES: dict[Name, tuple[str, ...]] = {
    "treecal": _TREE,
    "adaptive": _TREE,
    "harmonic": (),
    "running-mean": (),
    "binary-grid": ("bins",),
    "sampled": (*_TREE, "block"),
}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Method:
    """Who forecasts."""

    forecaster: Name = "adaptive"
    """Who forecasts; `adaptive` is the one to start with, `treecal` the paper's."""
    arity: int | None = None
    """Children of each interval (treecal, adaptive, sampled)."""
    depth: int | None = None
    """Heights of the tree, for at most arity to the power of depth rounds; without it the tree grows."""
    mix: float | None = None
    """Share of the centre that is mixed into every forecast, from 0 to 1: keeps logarithmic scores finite."""
    bins: int | None = None
    """Steps of the grid (binary-grid)."""
    block: int | None = None
    """Rounds that draw from the same distribution (sampled); 32 by default."""
    seed: int = 0
    """Where chance begins (sampled, and wherever points are drawn)."""

    def make(self, space: ConvexSet) -> Forecaster:
        """Return the forecaster.

        Examples
        --------
        >>> from treecal.geometry import Simplex
        >>> Method(forecaster="binary-grid", bins=20).make(Simplex(2))
        BinaryGrid(Simplex(2), bins=20)
        """
        import numpy as np

        from treecal import forecasters as f

        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("arity", "depth", "mix", "bins", "block")
            if getattr(self, name) is not None
        }
        if self.seed < 0:
            raise ParameterError.expected("--seed", self.seed, "an integer of 0 or more")
        takes = _TAKES[self.forecaster]
        if stray := [f"--{name}" for name in given if name not in takes]:
            raise ParameterError(
                f"the forecaster {self.forecaster} takes no {' and no '.join(stray)}.",
                hint=f"it takes {', '.join(f'--{name}' for name in takes)}." if takes else "it has no options.",
            )
        match self.forecaster:
            case "treecal":
                return f.TreeCal(space, **given)
            case "adaptive":
                return f.AdaptiveTreeCal(space, **given)
            case "harmonic":
                return f.Harmonic(space)
            case "running-mean":
                return f.RunningMean(space)
            case "binary-grid":
                return f.BinaryGrid(space, **given)
            case "sampled":
                return f.SampleTreeCal(space, rng=np.random.default_rng(self.seed), **{"block": 32, **given})


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
    from treecal.geometry import Lp
    from treecal.geometry import as_norm as by_name

    try:
        return by_name(text) if text in ("l1", "l2", "linf") else Lp(float(text.removeprefix("l")))
    except ValueError:  # not a number, or below 1
        raise ParameterError.expected("--norm", text, "l1, l2, linf, or l with a number from 1, as l1.5") from None
