"""Faster and wider: whole arrays of outcomes at once, and many streams at once."""

from treecal.engine._bank import Bank
from treecal.engine._column_streams import ColumnStreams
from treecal.engine._forecasts import Forecasts
from treecal.engine._guarded import GuardedRun
from treecal.engine._kinds import register_streams
from treecal.engine._replay import replay
from treecal.engine._run import Run
from treecal.engine._stream_scores import BankScores, StreamScores

__all__ = [
    "Bank",
    "BankScores",
    "ColumnStreams",
    "Forecasts",
    "GuardedRun",
    "Run",
    "StreamScores",
    "register_streams",
    "replay",
]
