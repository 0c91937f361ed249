"""Faster and wider: whole arrays of outcomes at once, and many streams at once."""

from treecal.batch.bank import Bank, Forecasts
from treecal.batch.replay import Run, replay

__all__ = ["Bank", "Forecasts", "Run", "replay"]
