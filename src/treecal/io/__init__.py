"""Files and tables: one way in for rows of any kind and size, and files that are written whole or not at all."""

from treecal._atomic import new_file
from treecal.io._arrays import as_array, read_arrays
from treecal.io._columns import Label, Numbers, given_classes, in_order, valid_sql, valid_weight_sql, valid_weights
from treecal.io._csv import CSV, read_header, write_csv
from treecal.io._decoder import NUMBER, Decoder, Keys, check_columns, class_labels, listed, one_spelling
from treecal.io._duckdb import library
from treecal.io._formats import FORMATS, Format, format_named, format_of, known_formats, register
from treecal.io._json import JSON_LINES, json_rows
from treecal.io._layouts import read_records
from treecal.io._learned import LearnedFiles
from treecal.io._open import arrays_of, open_source, open_stream
from treecal.io._outcomes import (
    Chunk,
    Outcomes,
    as_columns,
    check_tolerance,
    find_probabilities,
    read_outcomes,
)
from treecal.io._output import NewTable, new_table, plain
from treecal.io._parquet import PARQUET
from treecal.io._paths import check_file
from treecal.io._problems import OnError, Problem, Problems
from treecal.io._quantile_layouts import quantile_columns
from treecal.io._scan import File, FileSource
from treecal.io._source import LOG, Source
from treecal.io._text import Block, Lines, Place, Row, in_blocks, open_lines

for _format in (CSV, JSON_LINES, PARQUET):
    register(_format)

# Names that are imported and not listed are for the other rooms of the package.
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
    "quantile_columns",
    "read_outcomes",
    "register",
]
