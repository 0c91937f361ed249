"""Rows in arrays: a `Schema` says what a kind keeps of each stream, `Columns` keeps it, `Streams` learn."""

from treecal.columns._columns import Columns
from treecal.columns._forecasts import Forecasts
from treecal.columns._forecasts import ListedForecasts as ListedForecasts
from treecal.columns._forecasts import TreeForecasts as TreeForecasts
from treecal.columns._packing import check_records as check_records
from treecal.columns._packing import pack, unpack
from treecal.columns._schema import ROUNDS as ROUNDS
from treecal.columns._schema import Field, Schema, check_state
from treecal.columns._streams import ColumnStreams
from treecal.columns._streams import RowError as RowError
from treecal.columns._streams import Streams as Streams
from treecal.columns._streams import add_outcome as add_outcome
from treecal.columns._streams import waves as waves

__all__ = ["ColumnStreams", "Columns", "Field", "Forecasts", "Schema", "check_state", "pack", "unpack"]
