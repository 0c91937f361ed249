"""Faster and wider: whole arrays of outcomes at once, and many streams at once."""

from treecal.correctors import BankScores, StreamScores
from treecal.engine._bank import Bank
from treecal.engine._climb import KERNEL_DISTANCES, Above, Errors, Plan, TreeForecaster, climb_piece, new_treecal
from treecal.engine._guarded import GuardedRun
from treecal.engine._labels import Labels
from treecal.engine._object_streams import streams_of
from treecal.engine._outcomes import first_refused, read_outcomes
from treecal.engine._replay import can_replay, replay
from treecal.engine._run import Run

__all__ = ["Bank", "BankScores", "GuardedRun", "Labels", "Run", "StreamScores", "replay"]
