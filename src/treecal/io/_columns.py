"""Columns as SQL for labels, numbers and lists of numbers, whatever their type; it accepts what `Decoder` does.

And which classes a column of labels has, in which order; and which rows are valid. The rule for probabilities is
`treecal.geometry.valid_forecasts`: NumPy and SQL add from left to right, so they agree about every row, and missing
numbers (NaN, NULL) satisfy neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array
from treecal._validate import HEAVIEST
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import paired, paired_single, rounding
from treecal.io._decoder import listed, one_spelling
from treecal.io._duckdb import identifier, quoted
from treecal.io._source import LOG, Source

_INTEGER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$")
_REAL = re.compile(r"FLOAT|DOUBLE|REAL|DECIMAL")
_TEXT = re.compile(r"VARCHAR|ENUM")
_MOST = 10_000  # classes
_MOST_NUMBERS = 50  # that are taken for classes, unless so many are expected
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.I)


class Numbers(NamedTuple):
    """A column of numbers or of lists: SQL for each number, NULL where it is invalid, and its name.

    It is `stored` if the column holds just that.
    """

    name: str
    entries: list[str]
    names: list[str]
    stored: bool


class Label(NamedTuple):
    """A class label: its name, SQL for it, NULL where it is missing, and whether it is an integer or text.

    A one-hot label has `hot` columns, and is the index of one of them. It is `stored` if the column holds just that.
    """

    name: str
    sql: str
    integer: bool
    hot: int = 0
    stored: bool = False

    def values(self, classes: Sequence[str]) -> tuple[str | int, ...]:
        """Return the labels of these classes, as the SQL gives them."""
        if self.hot:
            return tuple(range(self.hot))
        if not self.integer:
            return tuple(classes)
        if all(re.fullmatch(r"-?\d+", name) for name in classes):
            return tuple(map(int, classes))
        raise ParameterError.expected("classes", list(classes), f"integers, as {self.name!r} holds")


def column_type(source: Source, name: str) -> str:
    """Return the type of a column, which must exist."""
    source.check([name])
    return source.types[name]


def label(source: Source, name: str) -> Label:
    """Return a column of labels: text, or integers."""
    kind = column_type(source, name)
    column = source.cell(name)
    if _INTEGER.match(kind):
        return Label(name, f"TRY_CAST({column} AS BIGINT)", True, stored=True)
    if kind == "BOOLEAN":
        return Label(name, f"CAST({column} AS BIGINT)", True)
    if _REAL.match(kind):  # pandas turns integers into floats where one is missing
        whole = source.one(f"SELECT 1 FROM {LOG} WHERE {column} <> TRUNC({column}) LIMIT 1") is None
        return Label(name, f"TRY_CAST({column} AS BIGINT)" if whole else f"CAST({column} AS VARCHAR)", whole)
    if kind == "JSON":
        text = f"({column} ->> '$')"
        cases = (
            f"WHEN 'DOUBLE' THEN REGEXP_REPLACE({text}, '\\.0$', '')",
            f"WHEN 'BOOLEAN' THEN {text}::BOOLEAN::INT::VARCHAR",
            f"WHEN 'ARRAY' THEN NULL WHEN 'OBJECT' THEN NULL ELSE NULLIF({text}, '')",
        )
        return Label(name, f"CASE JSON_TYPE({column}) {' '.join(cases)} END", False)
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP")):
        raise FileError(f"column {name!r} of {source.name} holds {kind} values, expected labels.")
    return Label(name, f"NULLIF(CAST({column} AS VARCHAR), '')", False, stored=kind == "VARCHAR")


def hot_label(source: Source, names: Sequence[str]) -> Label:
    """Return one-hot columns as labels: the index of the column that holds 1."""
    hot = [number(source, name).entries[0] for name in names]
    total = " + ".join(f"ABS({entry})" for entry in hot)
    cases = " ".join(f"WHEN {entry} = 1 AND {total} = 1 THEN {k}" for k, entry in enumerate(hot))
    return Label(f"a 1 in {', '.join(names)}", f"CAST(CASE {cases} END AS BIGINT)", True, len(names))


def is_list(source: Source, name: str, *, labels: Sequence[str] | None = None) -> bool:
    """Return whether a column holds lists, or text that starts like one: `[0.2, 0.8]`.

    A column of `labels`, known or not, holds lists only if its first text is one of numbers: `[spam]` is a label.
    """
    kind = column_type(source, name)
    column = identifier(name)
    if kind.endswith("]"):
        return True
    if not (kind == "JSON" or _TEXT.match(kind)):
        return False
    first = source.one(f"SELECT CAST({column} AS VARCHAR) FROM {LOG} WHERE {column} IS NOT NULL LIMIT 1")
    text = "" if first is None else first[0].strip()
    if labels is None or not text.startswith("["):
        return text.startswith("[")
    return text not in labels and _is_numbers(text)


def _is_numbers(text: str) -> bool:
    """Return whether a text is a list of numbers."""
    try:
        return text.endswith("]") and len([float(entry.strip(" '\"")) for entry in text[1:-1].split(",")]) > 0
    except ValueError:
        return False


def _cast(text: str, kind: str, decimal: str = ".") -> str:
    """Return SQL for numbers in a text, NULL where there are none: `1_0` is 10 to DuckDB, and to no other reader."""
    stray = f"contains({text}, '_')"
    number = text
    if decimal == ",":
        stray = f"{stray} OR contains({text}, '.')"
        number = f"REPLACE({text}, ',', '.')"
    return f"CASE WHEN {stray} THEN NULL ELSE TRY_CAST({number} AS {kind}) END"


def number(source: Source, name: str) -> Numbers:
    """Return a column of numbers."""
    kind = column_type(source, name)
    column = identifier(name)
    if _INTEGER.match(kind) or _REAL.match(kind):
        sql = f"CAST({column} AS DOUBLE)"
    elif kind == "JSON":
        text = f"({column} ->> '$')"
        sql = _cast(text, "DOUBLE")
        if source.decimal != ".":  # in JSON numbers have points, and texts may have commas
            sql = f"CASE JSON_TYPE({column}) WHEN 'VARCHAR' THEN {_cast(text, 'DOUBLE', source.decimal)} ELSE {sql} END"
    elif _TEXT.match(kind):
        sql = _cast(column, "DOUBLE", source.decimal)
    else:
        raise FileError(f"column {name!r} of {source.name} holds {kind} values, expected numbers.")
    return Numbers(name, [sql], [name], stored=sql.startswith("CAST("))


def list_of_numbers(source: Source, name: str, size: int | None = None) -> Numbers:
    """Return a column of lists, by default of the length of the first."""
    kind = column_type(source, name)
    column = identifier(name)
    if kind.endswith("]"):
        lists = f"{'TRY_CAST' if 'VARCHAR' in kind or 'JSON' in kind else 'CAST'}({column} AS DOUBLE[])"
    else:
        lists = _cast(f"({column} ->> '$')" if kind == "JSON" else column, "DOUBLE[]")
    if size is None:
        first = source.one(f"SELECT LEN({lists}) FROM {LOG} WHERE {lists} IS NOT NULL LIMIT 1")
        if first is None or first[0] == 0:
            raise FileError(f"column {name!r} of {source.name} holds no list of numbers.")
        size = int(first[0])
    entries = [f"CASE WHEN LEN({lists}) = {size} THEN ({lists})[{k + 1}] END" for k in range(size)]
    return Numbers(name, entries, [f"{name}[{k}]" for k in range(size)], stored=False)


def numbers(source: Source, names: Sequence[str], size: int | None = None) -> list[Numbers]:
    """Return columns of numbers, or one column of lists."""
    if len(names) == 1 and is_list(source, names[0]):
        return [list_of_numbers(source, names[0], size)]
    for name in names:
        _refuse_objects(source, name)
    return [number(source, name) for name in names]


def _refuse_objects(source: Source, name: str) -> None:
    """Raise an error if a column of JSON begins with an object: SQL would find no number in any row."""
    if column_type(source, name) != "JSON":
        return
    column = identifier(name)
    first = source.one(f"SELECT JSON_TYPE({column}) FROM {LOG} WHERE {column} IS NOT NULL LIMIT 1")
    if first == ("OBJECT",):
        raise FileError(
            f"column {name!r} of {source.name} holds objects, expected numbers.",
            hint="write a list for each row, or a column for each class.",
        )


def in_one_spelling(label: Label, spelled: Mapping[str, str]) -> Label:
    """Return a label in which some texts are read as others."""
    if label.integer or not spelled:
        return label
    cases = " ".join(f"WHEN {quoted(text)} THEN {quoted(name)}" for text, name in spelled.items())
    return label._replace(sql=f"CASE {label.sql} {cases} ELSE {label.sql} END", stored=False)


def given_classes(classes: Sequence[str | int], size: int | None) -> tuple[str, ...]:
    """Return the classes as text; they must be distinct, and `size` of them."""
    names = tuple(str(name) for name in classes)
    if isinstance(classes, str) or not names or len(set(names)) < len(names):
        raise ParameterError.expected("classes", classes, "one or more distinct names")
    if size is not None and len(names) != size:
        raise ParameterError(f"there are {len(names)} classes ({listed(names)}), expected {size}.")
    return names


def find_classes(
    source: Source, label: Label, columns: Sequence[str], size: int | None
) -> tuple[tuple[str, ...], Label]:
    """Return the classes among the labels, in order, and the labels in one spelling.

    Columns of probabilities named after the labels (`p_rain`, `P(sun)`) set the order; integers from 0 to `size - 1`
    are in order; all others are sorted, as scikit-learn sorts them. A single column is of the second of two classes,
    and makes the one that it is named after the second.
    """
    sql = f"SELECT DISTINCT label FROM (SELECT {label.sql} AS label FROM {LOG}) AS labels WHERE label IS NOT NULL"
    batches = source.batches(f"{sql} LIMIT {_MOST + 1}", rows=_MOST)
    try:
        found = [str(value) for batch in batches for value in batch.column(0).to_pylist()]
    except UnicodeDecodeError:
        raise FileError(f"column {label.name!r} of {source.name} holds what is not text in UTF-8.") from None
    spelled = {} if label.integer else one_spelling(found)
    distinct = dict.fromkeys(spelled.get(text, text) for text in found)
    classes = in_order(distinct, columns, size, column=label.name, source=source.name)
    return classes, in_one_spelling(label, spelled)


def _named_second(found: tuple[str, ...], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the classes in an order in which the one that a single column is named after is the second of two."""
    if len(columns) == 1 and len(found) == 2 and paired_single(columns[0], found) == found[0]:
        return found[::-1]
    return found


def in_order(
    labels: Iterable[str], columns: Sequence[str], size: int | None, *, column: str, source: str
) -> tuple[str, ...]:
    """Return the labels that were found in a column as classes, in the order that `find_classes` says."""
    found = list(labels)
    if not found:
        raise FileError(f"column {column!r} of {source} holds no label.")
    if len(found) > _MOST:
        raise FileError(f"column {column!r} of {source} holds more than {_MOST:,} labels: too many to be classes.")
    if len(found) > max(_MOST_NUMBERS, size or 0) and all(map(_NUMBER.fullmatch, found)):
        raise FileError(
            f"column {column!r} of {source} holds {len(found):,} different numbers: are they classes or numbers?",
            hint="of numbers, forecasts are --quantiles, --members, or --mean and --sd, in Python quantiles=[...] "
            "and the like; outcomes alone lie in a --box 0 500, in Python tc.Box(0, 500) or tc.Cdf(0, 500); classes "
            "are named by --classes or --dim, in Python classes=[...].",
        )
    if len(columns) > 1 and (named := paired(columns, found)):
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


def valid_weights(w: Array) -> Any:
    """Return which of these are weights: 0, or neither too large nor too small to be added up.

    Examples
    --------
    >>> valid_weights(np.array([0.0, 0.5, -1.0, np.nan, np.inf]))
    array([ True,  True, False, False, False])
    """
    with np.errstate(invalid="ignore"):
        return (w == 0) | ((w >= 1 / HEAVIEST) & (w <= HEAVIEST))


def valid_weight_sql(*, positive: bool = False) -> str:
    """Return SQL for the same, on a column `w`; or for those above 0."""
    counted = f"w >= {1 / HEAVIEST!r} AND w <= {HEAVIEST!r}"
    return counted if positive else f"(w = 0 OR ({counted}))"


def valid_sql(*, classes: int, tolerance: float, weight: bool = False) -> str:
    """Return SQL for a valid row: columns `p0`, `p1`, … and perhaps `w`, and that there is a `label`.

    Examples
    --------
    >>> valid_sql(classes=2, tolerance=1e-6)
    'label IS NOT NULL AND p0 + p1 >= 0.999999e0 AND ABS(p0) + ABS(p1) <= 1.000001e0'
    """
    names = [f"p{k}" for k in range(classes)]
    within = rounding(tolerance, classes)
    least = f"{' + '.join(names)} >= {1 - within!r}e0"
    most = f"{' + '.join(f'ABS({name})' for name in names)} <= {1 + within!r}e0"  # of NaN this is false
    own = [valid_weight_sql()] if weight else []
    return " AND ".join(["label IS NOT NULL", least, most, *own])
