"""The errors of the package: all are `TreeCalError`s.

A message says what was given and what was expected; where the fix is known, a hint follows on a line of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Self


class TreeCalError(ValueError):
    """Base of every error this package raises on purpose.

    Parameters
    ----------
    message
        What was given, where, and what was expected.
    hint
        How to fix it, if that is known.

    Attributes
    ----------
    message, hint
        The two parts; `str(error)` has both.

    Examples
    --------
    >>> error = TreeCalError("arity is 1, expected an integer of 2 or more.", hint="try arity=8.")
    >>> print(error)
    arity is 1, expected an integer of 2 or more.
    <BLANKLINE>
    Hint: try arity=8.
    >>> error.message, error.hint
    ('arity is 1, expected an integer of 2 or more.', 'try arity=8.')
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n\nHint: {hint}")
        self.message = message
        self.hint = hint


Reason = str | TreeCalError
"""Why a row is invalid: in words, or an error, which may have a hint."""


class _RoundError(TreeCalError):
    """Invalid input in one round: its (1-based) number, 0 if it is not about one round, and the problem."""

    what: ClassVar[str]
    round: int = 0
    problem: str = ""

    @classmethod
    def at(cls, round_: int, problem: str, *, hint: str | None = None, where: str = "at round") -> Self:
        """Name the round, or another place."""
        error = cls(f"{cls.what} {where} {round_} {problem}", hint=hint)
        error.round = round_
        error.problem = problem
        return error

    def of(self, id: Hashable) -> Self:  # noqa: A002
        """Return the same error with an id in place of the round."""
        if not self.problem:
            return self
        error = type(self)(f"{self.what} of id {id!r} {self.problem}", hint=self.hint)
        error.round = self.round
        error.problem = self.problem
        return error


class OutcomeError(_RoundError):
    """An invalid outcome: wrong shape, wrong type, not finite, or outside the set."""

    what = "outcome"


class LossError(TreeCalError):
    """An invalid loss: wrong shape, wrong kind, not finite, or not one that adds to the others."""


class ForecastError(_RoundError):
    """A forecast that is not a distribution over points of the set.

    `tolerance` is one with which it would be accepted, if it may have been rounded.
    """

    what = "forecast"
    tolerance: float | None = None

    def of(self, id: Hashable) -> Self:  # noqa: A002
        """Return the same error with an id in place of the round."""
        error = super().of(id)
        error.tolerance = self.tolerance
        return error


class IdError(TreeCalError):
    """An id that is not known, is in use for another forecast, is void, or has another outcome.

    `reason` is "unknown", "taken" (another forecast), "pending", "void" or "conflict" (another outcome).
    """

    id: Hashable = ""
    reason: str = ""

    @classmethod
    def of(cls, id: Hashable, reason: str, problem: str, *, hint: str | None = None) -> IdError:  # noqa: A002
        """Name the id, the reason and the problem."""
        error = cls(f"id {id!r} {problem}", hint=hint)
        error.id = id
        error.reason = reason
        return error


class RepairWarning(UserWarning):
    """A forecast that was repaired as it was read: quantiles that cross were sorted, missing members left out.

    Examples
    --------
    >>> import warnings, treecal as tc
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     tc.Ledger(tc.Cdf(0, 10)).record({0.1: 5, 0.9: 3}, 4)
    >>> print(caught[0].message)
    quantiles cross, and are sorted, at round 1.
    """


class GeometryError(TreeCalError):
    """An invalid set, norm or regularizer."""


class ParameterError(TreeCalError):
    """An invalid argument."""

    @classmethod
    def expected(cls, name: str, value: Any, what: str, *, hint: str | None = None) -> ParameterError:
        """Name the argument, its value, and what was expected."""
        return cls(f"{name} is {value!r}, expected {what}.", hint=hint)


class HorizonError(TreeCalError):
    """More rounds than a tree of fixed depth has leaves."""


class UnsupportedError(TreeCalError, NotImplementedError):
    """Something this set, norm or regularizer does not support, or a missing extra."""

    @classmethod
    def by(cls, thing: object, operation: str, why: str, *, hint: str | None = None) -> UnsupportedError:
        """Name the object, the operation, and the reason."""
        return cls(f"{thing!r} has no {operation}: {why}.", hint=hint)


class SnapshotError(TreeCalError):
    """A snapshot or state that cannot be written, is damaged, or that no object of its kind can have."""


class FileError(TreeCalError):
    """A file or table that cannot be read or written, or an invalid row in it."""

    @classmethod
    def at(cls, name: str, row: int, line: int | None, problem: Reason, *, hint: str | None = None) -> FileError:
        """Name the (1-based) row, and in a text file its line; the hint may be that of the problem."""
        where = f"row {row:,}" if line is None else f"line {line:,} (row {row:,})"
        if isinstance(problem, TreeCalError):
            return cls(f"{name}, {where}: {problem.message}", hint=problem.hint or hint)
        return cls(f"{name}, {where}: {problem}", hint=hint)


class ServerError(TreeCalError):
    """What a treecal server refused, or that it could not be reached in time.

    `code` is the server's, such as "conflict", "not_found" or "unauthorized", and "away" if there was no answer;
    `status` is that of HTTP, 0 if there was none; `at` is the place in what was sent, such as "outcomes[3].id".
    """

    code: str = ""
    status: int = 0
    at: str | None = None

    @classmethod
    def of(cls, code: str, status: int, message: str, *, hint: str | None = None, at: str | None = None) -> ServerError:
        """Name the code, the status, the problem and its place."""
        error = cls(message, hint=hint)
        error.code = code
        error.status = status
        error.at = at
        return error
