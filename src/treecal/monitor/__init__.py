"""Monitors: an alarm when forecasts are provably off, with a known rate of false alarms however often one looks."""

from treecal.monitor._alarm import Alarm
from treecal.monitor._monitor import Monitor
from treecal.monitor._streams import StreamEvidence, WatchedStreams, discovered, discoveries
from treecal.monitor._watched import Watched

__all__ = ["Alarm", "Monitor", "StreamEvidence", "Watched", "discoveries"]
