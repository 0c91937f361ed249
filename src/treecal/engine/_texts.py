"""Names as bytes: lists, NumPy's arrays and columns of Arrow, pandas and polars, all as UTF-8 in one array."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal.exceptions import ParameterError

if TYPE_CHECKING:
    from treecal.engine._name_kernels import Text


def read_names(names: Any) -> Text:
    """Return names as UTF-8, or raise.

    Examples
    --------
    >>> data, ends = read_names(["Oslo", "Århus"])
    >>> bytes(data[ends[1] : ends[2]]).decode()
    'Århus'
    """
    if isinstance(names, str | bytes):
        raise ParameterError.expected("keys", names, "a list of names", hint=f"[{names!r}].")
    if isinstance(names, np.ndarray) and names.dtype.kind == "U":
        return _from_array(names)
    if _is_arrow(names):
        return _from_arrow(names)
    return _from_list(names)


def _is_arrow(names: Any) -> bool:
    """Return whether it is a column that pyarrow reads, if pyarrow is here."""
    column = type(names).__module__.partition(".")[0] in ("pyarrow", "pandas", "polars")
    return column and find_spec("pyarrow") is not None


def _from_arrow(names: Any) -> Text:
    import pyarrow as pa

    from treecal.engine._name_kernels import Text

    if not len(names):  # of any type
        return Text(np.empty(0, np.uint8), np.zeros(1, np.int64))
    try:
        column = names if isinstance(names, pa.Array | pa.ChunkedArray) else pa.array(names)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise _not_names(f"a column of {column.type}")
        column = column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _not_names(f"no column of text ({error})") from None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        at = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
        raise ParameterError(f"key {at} is missing, expected a name.")
    _, ends, data = column.buffers()
    own = np.frombuffer(ends, np.int64, len(column) + 1, column.offset * 8)
    return Text(np.frombuffer(data or b"", np.uint8), own)


def _from_array(names: Any) -> Text:
    from treecal.engine._name_kernels import Text, utf8

    if names.ndim != 1:
        raise _not_names(f"an array of shape {names.shape}")
    width = names.dtype.itemsize // 4
    native = names.astype(names.dtype.newbyteorder("="), order="C", copy=False)
    points = np.ascontiguousarray(native).view(np.uint32).reshape(len(names), width)
    text = Text(np.empty(4 * points.size, np.uint8), np.zeros(len(names) + 1, np.int64))
    if (bad := utf8(points, text)) >= 0:
        raise ParameterError.expected(f"key {bad}", str(names[bad]), "text that UTF-8 can hold")
    return text


def _from_list(names: Any) -> Text:
    from treecal.engine._name_kernels import Text

    try:
        listed = names.tolist() if isinstance(names, np.ndarray) else list(names)
        whole = "".join(listed)
    except TypeError:
        if not isinstance(names, np.ndarray | list | tuple):
            raise _not_names(f"a {type(names).__name__}") from None
        if len(found := [name for name in listed if not isinstance(name, str)]):
            at = next(i for i, name in enumerate(listed) if not isinstance(name, str))
            hint = "a bank without names= has integers as keys." if isinstance(found[0], int) else None
            raise ParameterError.expected(f"key {at}", found[0], "a name", hint=hint) from None
        raise
    try:
        if whole.isascii():
            sizes, data = map(len, listed), whole.encode()
        else:
            parts = [name.encode() for name in listed]
            sizes, data = map(len, parts), b"".join(parts)
    except UnicodeEncodeError:
        at = next(i for i, name in enumerate(listed) if not _encodes(name))
        raise ParameterError.expected(f"key {at}", listed[at], "text that UTF-8 can hold") from None
    ends = np.zeros(len(listed) + 1, np.int64)
    np.cumsum(np.fromiter(sizes, np.int64, len(listed)), out=ends[1:])
    return Text(np.frombuffer(data, np.uint8), ends)


def _encodes(name: str) -> bool:
    try:
        return bool(name.encode()) or True
    except UnicodeEncodeError:
        return False


def _not_names(what: str) -> ParameterError:
    return ParameterError(f"keys are {what}, expected names: text, one for each row.")
