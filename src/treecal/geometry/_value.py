"""Objects that are what they were made of."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np


def _plain(value: Any) -> Any:
    """Turn a field into something hashable that equals itself exactly when the field does."""
    if isinstance(value, np.ndarray):
        return value.shape, (value + 0.0).tobytes()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _brief(value: Any) -> str:
    """Show a field as it would be typed, or a long array by its shape."""
    if isinstance(value, np.ndarray):
        return str(value.tolist()) if value.size <= 16 else f"<array of shape {value.shape}>"
    return f"({', '.join(map(_brief, value))})" if isinstance(value, tuple) else repr(value)


class Value:
    """Compared, hashed, shown and saved by its constructor's arguments, which `_fields` names.

    Sets, norms and regularizers are values: two `Simplex(3)` are the same set wherever they were made. A class that
    does not name its fields, such as a user's own set, is compared by identity and cannot be saved by itself.
    """

    _fields: ClassVar[tuple[str, ...] | None] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make this object again, by name."""
        return {name: getattr(self, name) for name in self._fields or ()}

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
