"""Why a request is refused: a code for programs, a sentence for people, and where in the request."""

from __future__ import annotations

from treecal.exceptions import TreeCalError

STATUS = {
    "bad_json": 400,
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method": 405,
    "timeout": 408,
    "conflict": 409,
    "archived": 409,
    "too_large": 413,
    "media_type": 415,
    "invalid": 422,
    "limited": 429,
    "internal": 500,
    "unavailable": 503,
}
"""The status of HTTP for each code."""


class Refusal(TreeCalError):  # noqa: N818 # what is refused is no mistake of ours
    """A request that is refused; nothing has changed.

    Parameters
    ----------
    code
        One of `STATUS`.
    message, hint
        As for every error of the package.
    at
        Where in the request, such as `outcomes[3].id`.

    Examples
    --------
    >>> Refusal("conflict", "id 'a' has another forecast.", at="id").status
    409
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None, at: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.at = at

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return STATUS[self.code]
