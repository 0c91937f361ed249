"""Which classes a column of labels has, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    if size is not None and (known := _known(source, label, columns, size)):
        return _named_second(known, columns)
    sql = f"SELECT DISTINCT label FROM (SELECT {label.sql} AS label FROM {LOG}) AS labels WHERE label IS NOT NULL"
    batches = source.batches(f"{sql} LIMIT {_MOST + 1}", rows=_MOST)
    found = (str(value) for batch in batches for value in batch.column(0).to_pylist())
    return in_order(found, columns, size, column=label.name, source=source.name)


def _named_second(found: tuple[str, ...], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the classes in an order in which the one that a single column is named after is the second of two."""
    if len(columns) == 1 and len(found) == 2 and class_named(columns[0], found) == found[0]:
        return found[::-1]
    return found


def _known(source: Source, label: Label, columns: Sequence[str], size: int) -> tuple[str, ...] | None:
    """Return the classes, where a file says which numbers its labels lie between: that saves reading all of them."""
    ends = source.ends(label.name) if label.integer and label.stored else None
    if ends is None or not 0 <= ends[0] <= ends[1] < size:
        return None
    names = tuple(map(str, range(size)))
    if len(columns) < 2:
        return names
    # What is true of the two, and of all that may lie between them, is true of the labels.
    few, all_ = classes_of(columns, {str(end) for end in ends}), classes_of(columns, names)
    return (few or names) if few == all_ else None


def in_order(
    labels: Iterable[str], columns: Sequence[str], size: int | None, *, column: str, source: str
) -> tuple[str, ...]:
    """Return the labels that were found in a column as classes, in the order that `find_classes` says."""
    found = list(labels)
    if not found:
        raise FileError(f"column {column!r} of {source} holds no label.")
    if len(found) > _MOST:
        raise FileError(f"column {column!r} of {source} holds more than {_MOST:,} labels: too many to be classes.")
    if len(columns) > 1 and (named := classes_of(columns, found)):
        return named
    numeric = all(text.isdecimal() and text == str(int(text)) for text in found)
    if numeric and size is not None and max(map(int, found)) < size:
        return _named_second(tuple(map(str, range(size))), columns)
    classes = tuple(sorted(found, key=int if numeric else str))
    if size is not None and len(classes) != size:
        raise FileError(
            f"column {column!r} of {source} holds {len(classes)} labels ({listed(classes)}), expected {size}, "
            "one per probability.",
            hint="name the classes, in the order of the probabilities; rows with other labels are then invalid.",
        )
    return _named_second(classes, columns)
