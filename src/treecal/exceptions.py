"""What can go wrong, said so that a person can act on it.

Every error of the package is a `TreeCalError`. Its message tells what came and what was expected; where there is an
obvious way out, a hint follows on a line of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class TreeCalError(ValueError):
    """Base of every error this package raises on purpose.

    Parameters
    ----------
    message
        What came, where, and what was expected.
    hint
        What would put it right, if that is known.

    Examples
    --------
    >>> print(TreeCalError("arity is 1, expected an integer of 2 or more.", hint="try arity=8."))
    arity is 1, expected an integer of 2 or more.
    <BLANKLINE>
    Hint: try arity=8.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n\nHint: {hint}")
        self.hint = hint


class _RoundError(TreeCalError):
    """Something that is invalid in a round.

    Attributes
    ----------
    round
        The (1-based) round; 0 if it is not about one round.
    problem
        What is wrong with it.
    """

    what: ClassVar[str]
    round: int = 0
    problem: str = ""

    @classmethod
    def at(cls, round_: int, problem: str, *, hint: str | None = None, where: str = "at round") -> Self:
        """Name the round, or another place."""
        error = cls(f"{cls.what} {where} {round_} {problem}", hint=hint)
        error.round, error.problem = round_, problem
        return error


class OutcomeError(_RoundError):
    """An outcome that cannot be taken: wrong shape, wrong type, not finite, or outside the set."""

    what = "outcome"


class LossError(TreeCalError):
    """A loss that cannot be taken: wrong shape, wrong kind, not finite, or not one that adds to the others."""


class ForecastError(_RoundError):
    """A forecast that is not a distribution over points of the set."""

    what = "forecast"


class GeometryError(TreeCalError):
    """A set, norm or regularizer that does not make sense."""


class ParameterError(TreeCalError):
    """An argument out of its range."""

    @classmethod
    def expected(cls, name: str, value: Any, what: str, *, hint: str | None = None) -> ParameterError:
        """Say which argument came with what value, and what it should have been."""
        return cls(f"{name} is {value!r}, expected {what}.", hint=hint)


class HorizonError(TreeCalError):
    """More rounds than a tree of fixed depth has leaves."""


class UnsupportedError(TreeCalError, NotImplementedError):
    """Something this set, norm or regularizer cannot do, and why."""

    @classmethod
    def by(cls, thing: object, operation: str, why: str, *, hint: str | None = None) -> UnsupportedError:
        """Say who cannot do what, and why."""
        return cls(f"{thing!r} has no {operation}: {why}.", hint=hint)


class SnapshotError(TreeCalError):
    """A snapshot that cannot be written, or should not be trusted."""


class FileError(TreeCalError):
    """A file or table that cannot be read, a row in it that makes no sense, or a file that cannot be written."""

    @classmethod
    def at(cls, name: str, row: int, line: int | None, problem: str, *, hint: str | None = None) -> FileError:
        """Name the (1-based) row, and in a text file its line."""
        where = f"row {row:,}" if line is None else f"line {line:,} (row {row:,})"
        return cls(f"{name}, {where}: {problem}", hint=hint)
