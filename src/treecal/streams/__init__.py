"""Streams of outcomes to forecast."""

from treecal.streams.real import ClassStream, seattle_weather

__all__ = ["ClassStream", "seattle_weather"]
