"""Files and tables: one way in for rows of any kind and size, and files that are written whole or not at all."""

from treecal._atomic import new_file
from treecal.io._decoder import Decoder
from treecal.io._open import open_source
from treecal.io._outcomes import Chunk, Outcomes, read_outcomes
from treecal.io._problems import OnError, Problem, Problems
from treecal.io._source import Source
from treecal.io._text import Kind, Place, Row

__all__ = [
    "Chunk",
    "Decoder",
    "Kind",
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
]
