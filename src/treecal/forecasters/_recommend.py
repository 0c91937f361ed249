"""The forecaster with the least certified error for a set, a norm and a number of rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from treecal._validate import whole_number
from treecal.exceptions import TreeCalError, UnsupportedError
from treecal.forecasters._base import REGISTRY, Forecaster, checked_space
from treecal.geometry import ConvexSet, Norm, as_norm

ORDINARY = "Guarded's bound is a little above its safe part's; on ordinary streams its error is the least, or near it."


@dataclass(frozen=True)
class Choice:
    """One forecaster, and the bound it guarantees on the calibration error per round.

    Attributes
    ----------
    forecaster
        The expression that makes it.
    bound
        The certified error; None where no certificate covers the case.
    why
        What proves it, or why there is none.

    Examples
    --------
    >>> import treecal as tc
    >>> tc.recommend(tc.Simplex(2), "l1", rounds=2_000).best.why
    'grid certificate'
    """

    forecaster: str
    bound: float | None
    why: str


@dataclass(frozen=True)
class Recommendation:
    """The forecaster of least certified error, and the table it was chosen from.

    Attributes
    ----------
    best
        The choice.
    table
        All choices, the least bound first; those without a certificate last.
    trivial
        The bound for always forecasting the centre: a larger one says nothing.
    """

    best: Choice
    table: tuple[Choice, ...]
    trivial: float

    def __str__(self) -> str:
        width = max(len(choice.forecaster) for choice in self.table)
        bounds = ("" if choice.bound is None else f"{choice.bound:.3f}" for choice in self.table)
        rows = [f"{b:>6}  {c.forecaster:<{width}}  {c.why}" for b, c in zip(bounds, self.table, strict=True)]
        if self.best.bound is None or self.best.bound >= self.trivial:
            rows.append(
                f"No certificate beats always forecasting the centre ({self.trivial:.3f}): choose by measurement."
            )
        if any(choice.forecaster.startswith("Guarded(") for choice in self.table):
            rows.append(ORDINARY)
        return "\n".join(rows)


def recommend(space: ConvexSet, norm: Norm | str, *, rounds: int) -> Recommendation:
    """Return the forecaster with the least certified error, among all that have a certificate.

    Every forecaster of `REGISTRY` is compared, each with its best parameters. Certificates hold on the worst sequence.
    With two outcomes grids win by far; in many dimensions harmonic averaging and trees do.

    On ordinary streams errors are much lower, and the order is another. `Guarded` has more than the bound of its
    safe part, so it is never first here; yet on streams that no adversary chose its error is the least, or near it.
    Choose by the bound if the sequence may be hostile, and `Guarded` otherwise.

    Parameters
    ----------
    space, norm
        The set and the norm.
    rounds
        Number of rounds.

    Examples
    --------
    >>> import treecal as tc
    >>> tc.recommend(tc.Simplex(2), "l1", rounds=10**6).best.forecaster
    'SimplexGrid(space, resolution=63)'
    >>> tc.recommend(tc.Ball(50), "l2", rounds=1000).best.forecaster
    'Harmonic(space)'
    """
    norm = as_norm(norm, space)
    rounds = whole_number("rounds", rounds, least=1)
    checked_space(space)
    table = sorted(
        (_choice(kind, space, norm, rounds) for kind in REGISTRY.values()),
        key=lambda choice: math.inf if choice.bound is None else choice.bound,
    )
    if table[0].bound is None:
        raise UnsupportedError(
            f"no forecaster has a certificate on {space!r} in {norm!r}.",
            hint="ℓp and ellipsoidal norms, and polytopes given by their vertices, are covered.",
        )
    return Recommendation(table[0], tuple(table), float(space.radius(norm)))


def _choice(kind: type[Forecaster], space: ConvexSet, norm: Norm, rounds: int) -> Choice:
    made = f"{kind.__name__}(space)"
    try:
        forecaster = kind.tuned(space, norm, rounds=rounds)
        made = repr(forecaster).replace(repr(space), "space")
        found = forecaster.certificate(norm, rounds=rounds)
    except TreeCalError as error:  # not for this set or norm
        return Choice(made, None, error.message)
    return Choice(made, None, "no certificate is known") if found is None else Choice(made, found.bound, found.why)
