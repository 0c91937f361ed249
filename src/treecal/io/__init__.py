"""Files and tables: one way in for rows of any kind and size, and files that are written whole or not at all."""

from treecal._atomic import new_file
from treecal.io._columns import (
    Label as Label,
    Numbers as Numbers,
    given_classes as given_classes,
    in_order as in_order,
    valid_sql as valid_sql,
    valid_weight_sql as valid_weight_sql,
    valid_weights as valid_weights,
)
from treecal.io._csv import CSV, read_header as read_header, write_csv as write_csv
from treecal.io._decoder import (
    Decoder,
    check_columns as check_columns,
    class_labels as class_labels,
    listed as listed,
    one_spelling as one_spelling,
)
from treecal.io._duckdb import library as library
from treecal.io._formats import (
    FORMATS,
    Format,
    format_named as format_named,
    format_of as format_of,
    known_formats as known_formats,
    register,
)
from treecal.io._json import JSON_LINES, json_rows as json_rows
from treecal.io._learned import LearnedFiles as LearnedFiles
from treecal.io._names import NUMBER as NUMBER, Keys as Keys
from treecal.io._open import arrays_of as arrays_of, open_source, open_stream as open_stream
from treecal.io._outcomes import (
    Chunk,
    Outcomes,
    Reading as Reading,
    as_columns as as_columns,
    check_tolerance as check_tolerance,
    find_probabilities as find_probabilities,
    read_outcomes,
)
from treecal.io._output import NewTable as NewTable, new_table as new_table, plain as plain
from treecal.io._parquet import PARQUET
from treecal.io._paths import check_file as check_file
from treecal.io._problems import OnError, Problem, Problems
from treecal.io._scan import File, FileSource
from treecal.io._source import LOG as LOG, Piece as Piece, Source
from treecal.io._text import (
    Block as Block,
    Lines as Lines,
    Place,
    Row,
    in_blocks as in_blocks,
    open_lines as open_lines,
)

for _format in (CSV, JSON_LINES, PARQUET):
    register(_format)

# Imported `as` themselves are names that only other rooms of the package use.
__all__ = [
    "FORMATS",
    "Chunk",
    "Decoder",
    "File",
    "FileSource",
    "Format",
    "OnError",
    "Outcomes",
    "Place",
    "Problem",
    "Problems",
    "Row",
    "Source",
    "new_file",
    "open_source",
    "read_outcomes",
    "register",
]
