"""Rows in arrays: a `Schema` says what a kind keeps of each stream, `Columns` keeps it, `Streams` learn."""

from treecal.columns._columns import ROUNDS, Columns, Field, Schema, check_state
from treecal.columns._forecasts import Forecasts, ListedForecasts, TreeForecasts
from treecal.columns._packing import check_records, pack, unpack
from treecal.columns._streams import ColumnStreams, RowError, Streams, add_outcome, waves

__all__ = ["ColumnStreams", "Columns", "Field", "Forecasts", "Schema", "check_state", "pack", "unpack"]
