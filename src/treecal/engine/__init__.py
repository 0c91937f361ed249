"""Faster and wider: whole arrays of outcomes at once, and many streams at once."""

from treecal.engine._bank import Bank
from treecal.engine._forecasts import Forecasts
from treecal.engine._guarded import GuardedRun
from treecal.engine._replay import Run, replay
from treecal.engine._stream_scores import BankScores, StreamScores

__all__ = ["Bank", "BankScores", "Forecasts", "GuardedRun", "Run", "StreamScores", "replay"]
