"""Which classes a column of labels has, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from treecal.exceptions import FileError, ParameterError
from treecal.io._columns import Label
from treecal.io._decoder import listed
from treecal.io._sources import LOG, Source

_MOST = 10_000


def given_classes(classes: Sequence[str | int], size: int | None) -> tuple[str, ...]:
    """Return the classes as text, or say what is wrong with them."""
    names = tuple(str(name) for name in classes)
    if isinstance(classes, str) or not names or len(set(names)) < len(names):
        raise ParameterError.expected("classes", classes, "one or more different names")
    if size is not None and len(names) != size:
        raise ParameterError(f"there are {len(names)} classes ({listed(names)}), expected {size}.")
    return names


def find_classes(source: Source, label: Label, columns: Sequence[str], size: int | None) -> tuple[str, ...]:
    """Read through the labels and return the classes.

    When columns of probabilities are called like the labels (`p_rain`, `p_sun`), their order is the order; integers
    from 0 to `size - 1` are in order; all others are sorted, as scikit-learn sorts them.

    Parameters
    ----------
    source, label
        Where the labels are.
    columns
        Names of the columns of probabilities, if there is one for each class.
    size
        Number of classes, if that is known.
    """
    sql = f"SELECT DISTINCT label FROM (SELECT {label.sql} AS label FROM {LOG}) AS labels WHERE label IS NOT NULL"
    found = [value for batch in source.batches(f"{sql} LIMIT {_MOST + 1}", rows=_MOST) for value in _values(batch)]
    if not found:
        raise FileError(f"column {label.name!r} of {source.name} holds no label.")
    if len(found) > _MOST:
        raise FileError(
            f"column {label.name!r} of {source.name} holds more than {_MOST:,} labels: too many to be classes."
        )
    if named := _called_like(columns, found):
        return named
    numeric = all(text.isdecimal() and text == str(int(text)) for text in found)
    if numeric and size is not None and max(map(int, found)) < size:
        return tuple(map(str, range(size)))
    classes = tuple(sorted(found, key=int if numeric else str))
    if size is not None and len(classes) != size:
        raise FileError(
            f"column {label.name!r} of {source.name} holds {len(classes)} labels ({listed(classes)}), expected {size}, "
            "one for each probability.",
            hint="give the classes, in the order of the probabilities; rows with other labels are then invalid.",
        )
    return classes


def _values(batch: object) -> list[str]:
    return [str(value) for value in batch.column(0).to_pylist()]  # type: ignore[attr-defined] # an Arrow batch


def _called_like(columns: Sequence[str], labels: Sequence[str]) -> tuple[str, ...] | None:
    """Return what is left of the columns' names without what they all begin with, if every label is among it."""
    # Classes may begin alike, too: then only a part of the common beginning is to be taken off.
    for start in range(min(map(len, columns), default=0)):
        names = tuple(column[start:] for column in columns)
        if set(labels) <= set(names):
            return names
        if len({name[0] for name in names}) > 1:
            break
    return None
