"""Rows in arrays: a `Schema` says what a kind keeps of each stream, and `Columns` keeps it for many."""

from treecal.columns._columns import Columns
from treecal.columns._packing import check_records as check_records
from treecal.columns._packing import pack, unpack
from treecal.columns._schema import ROUNDS as ROUNDS
from treecal.columns._schema import Field, Schema, check_state

__all__ = ["Columns", "Field", "Schema", "check_state", "pack", "unpack"]
