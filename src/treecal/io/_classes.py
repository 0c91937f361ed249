"""Which classes a column of labels has, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from treecal.exceptions import FileError, ParameterError
from treecal.geometry._tables import classes_of
from treecal.io._columns import Label
from treecal.io._decoder import listed
from treecal.io._naming import class_named
from treecal.io._source import LOG, Source

_MOST = 10_000


def given_classes(classes: Sequence[str | int], size: int | None) -> tuple[str, ...]:
    """Return the classes as text; they must be distinct, and `size` of them."""
    names = tuple(str(name) for name in classes)
    if isinstance(classes, str) or not names or len(set(names)) < len(names):
        raise ParameterError.expected("classes", classes, "one or more distinct names")
    if size is not None and len(names) != size:
        raise ParameterError(f"there are {len(names)} classes ({listed(names)}), expected {size}.")
    return names


def find_classes(source: Source, label: Label, columns: Sequence[str], size: int | None) -> tuple[str, ...]:
    """Return the classes among the labels, in order.

    Columns of probabilities named like the labels (`p_rain`, `p_sun`) set the order; integers from 0 to `size - 1`
    are in order; all others are sorted, as scikit-learn sorts them. A single column is of the second of two classes,
    and makes the one that it is named after the second.
    """
    found = _ordered(source, label, columns, size)
    if len(columns) == 1 and len(found) == 2 and class_named(columns[0], found) == found[0]:
        return found[::-1]
    return found


def _ordered(source: Source, label: Label, columns: Sequence[str], size: int | None) -> tuple[str, ...]:
    sql = f"SELECT DISTINCT label FROM (SELECT {label.sql} AS label FROM {LOG}) AS labels WHERE label IS NOT NULL"
    batches = source.batches(f"{sql} LIMIT {_MOST + 1}", rows=_MOST)
    found = [str(value) for batch in batches for value in batch.column(0).to_pylist()]
    if not found:
        raise FileError(f"column {label.name!r} of {source.name} holds no label.")
    if len(found) > _MOST:
        raise FileError(
            f"column {label.name!r} of {source.name} holds more than {_MOST:,} labels: too many to be classes."
        )
    if len(columns) > 1 and (named := classes_of(columns, found)):
        return named
    numeric = all(text.isdecimal() and text == str(int(text)) for text in found)
    if numeric and size is not None and max(map(int, found)) < size:
        return tuple(map(str, range(size)))
    classes = tuple(sorted(found, key=int if numeric else str))
    if size is not None and len(classes) != size:
        raise FileError(
            f"column {label.name!r} of {source.name} holds {len(classes)} labels ({listed(classes)}), expected {size}, "
            "one per probability.",
            hint="name the classes, in the order of the probabilities; rows with other labels are then invalid.",
        )
    return classes
