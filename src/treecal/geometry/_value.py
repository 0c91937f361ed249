"""Objects that are equal when they were made with equal arguments."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np


def _plain(value: Any) -> Any:
    """Return a hashable equivalent of a field: equal exactly when the fields are."""
    if isinstance(value, np.ndarray):
        return value.shape, (value + 0.0).tobytes()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _brief(value: Any) -> str:
    """Return a field as it would be typed; a long array by its shape."""
    if isinstance(value, np.ndarray):
        return str(value.tolist()) if value.size <= 16 else f"<array of shape {value.shape}>"
    return f"({', '.join(map(_brief, value))})" if isinstance(value, tuple) else repr(value)


class Value:
    """Compared, hashed, shown and saved by its constructor's arguments, which `_fields` names.

    Sets, norms and regularizers are values: two `Simplex(3)` are equal. A class that does not name its fields, such as
    a user-defined set, is compared by identity and cannot be saved.
    """

    _fields: ClassVar[tuple[str, ...] | None] = None

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {name: getattr(self, name) for name in self._fields or ()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # never changed: what is copied with it still knows it by identity, which is fast to compare

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or self._fields is None or not isinstance(other, Value):
            return NotImplemented
        return bool(_plain([*self.arguments().values()]) == _plain([*other.arguments().values()]))

    def __hash__(self) -> int:
        return hash((type(self), id(self) if self._fields is None else _plain([*self.arguments().values()])))

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<{type(self).__name__}>"
        shown = (f"{name}={_brief(value)}" for name, value in self.arguments().items() if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"
