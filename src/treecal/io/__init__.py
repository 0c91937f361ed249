"""Files and tables: one way in for rows of any kind and size, and files that are written whole or not at all."""

from treecal.io._outcomes import Chunk, Outcomes, read_outcomes
from treecal.io._output import inert, new_file
from treecal.io._problems import OnError, Problem, Problems
from treecal.io._sources import Source, open_source

__all__ = [
    "Chunk",
    "OnError",
    "Outcomes",
    "Problem",
    "Problems",
    "Source",
    "inert",
    "new_file",
    "open_source",
    "read_outcomes",
]
