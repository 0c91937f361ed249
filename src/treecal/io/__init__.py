"""Files and tables: one way in for rows of any kind and size, and files that are written whole or not at all."""

from treecal._atomic import new_file
from treecal.io._columns import Label, Numbers
from treecal.io._csv import CSV, read_header, write_csv
from treecal.io._decoder import Decoder, check_columns, class_labels, listed
from treecal.io._duckdb import library
from treecal.io._formats import FORMATS, Format, format_named, format_of, known_formats, register
from treecal.io._json import JSON_LINES, json_rows
from treecal.io._learned import LearnedFiles
from treecal.io._names import NUMBER, Keys
from treecal.io._open import open_source, open_stream
from treecal.io._outcomes import Chunk, Outcomes, Reading, read_outcomes
from treecal.io._output import NewTable, new_table, plain
from treecal.io._parquet import PARQUET
from treecal.io._paths import check_file
from treecal.io._problems import OnError, Problem, Problems
from treecal.io._scan import File, FileSource
from treecal.io._source import LOG, Piece, Source
from treecal.io._text import Place, Row, open_lines, read_lines
from treecal.io._valid import valid_sql, valid_weight_sql

for _format in (CSV, JSON_LINES, PARQUET):
    register(_format)

__all__ = [
    "FORMATS",
    "LOG",
    "NUMBER",
    "Chunk",
    "Decoder",
    "File",
    "FileSource",
    "Format",
    "Keys",
    "Label",
    "LearnedFiles",
    "NewTable",
    "Numbers",
    "OnError",
    "Outcomes",
    "Piece",
    "Place",
    "Problem",
    "Problems",
    "Reading",
    "Row",
    "Source",
    "check_columns",
    "check_file",
    "class_labels",
    "format_named",
    "format_of",
    "json_rows",
    "known_formats",
    "library",
    "listed",
    "new_file",
    "new_table",
    "open_lines",
    "open_source",
    "open_stream",
    "plain",
    "read_header",
    "read_lines",
    "read_outcomes",
    "register",
    "valid_sql",
    "valid_weight_sql",
    "write_csv",
]
