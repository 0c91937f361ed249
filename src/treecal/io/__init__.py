"""Files and tables: one way in for rows of any kind and size, and files that are written whole or not at all."""

from treecal._atomic import new_file
from treecal.io._columns import Label as Label
from treecal.io._columns import Numbers as Numbers
from treecal.io._columns import given_classes as given_classes
from treecal.io._columns import in_order as in_order
from treecal.io._columns import valid_sql as valid_sql
from treecal.io._columns import valid_weight_sql as valid_weight_sql
from treecal.io._columns import valid_weights as valid_weights
from treecal.io._csv import CSV
from treecal.io._csv import read_header as read_header
from treecal.io._csv import write_csv as write_csv
from treecal.io._decoder import Decoder
from treecal.io._decoder import check_columns as check_columns
from treecal.io._decoder import class_labels as class_labels
from treecal.io._decoder import listed as listed
from treecal.io._decoder import one_spelling as one_spelling
from treecal.io._duckdb import library as library
from treecal.io._formats import FORMATS, Format, register
from treecal.io._formats import format_named as format_named
from treecal.io._formats import format_of as format_of
from treecal.io._formats import known_formats as known_formats
from treecal.io._json import JSON_LINES
from treecal.io._json import json_rows as json_rows
from treecal.io._learned import LearnedFiles as LearnedFiles
from treecal.io._names import NUMBER as NUMBER
from treecal.io._names import Keys as Keys
from treecal.io._open import arrays_of as arrays_of
from treecal.io._open import open_source
from treecal.io._open import open_stream as open_stream
from treecal.io._outcomes import Chunk, Outcomes, read_outcomes
from treecal.io._outcomes import Reading as Reading
from treecal.io._outcomes import as_columns as as_columns
from treecal.io._outcomes import check_tolerance as check_tolerance
from treecal.io._outcomes import find_probabilities as find_probabilities
from treecal.io._output import NewTable as NewTable
from treecal.io._output import new_table as new_table
from treecal.io._output import plain as plain
from treecal.io._parquet import PARQUET
from treecal.io._paths import check_file as check_file
from treecal.io._problems import OnError, Problem, Problems
from treecal.io._scan import File, FileSource
from treecal.io._source import LOG as LOG
from treecal.io._source import Piece as Piece
from treecal.io._source import Source
from treecal.io._text import Block as Block
from treecal.io._text import Lines as Lines
from treecal.io._text import Place, Row
from treecal.io._text import in_blocks as in_blocks
from treecal.io._text import open_lines as open_lines

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
