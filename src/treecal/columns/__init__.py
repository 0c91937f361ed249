"""Rows in arrays: a `Schema` says what a kind keeps of each stream, and `Columns` keeps it for many."""

from treecal.columns._columns import Columns
from treecal.columns._packing import check_records, pack, unpack
from treecal.columns._schema import ROUNDS, Field, Schema, check_state

__all__ = ["ROUNDS", "Columns", "Field", "Schema", "check_records", "check_state", "pack", "unpack"]
