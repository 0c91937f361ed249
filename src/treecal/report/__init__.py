"""A report for people: one HTML file with everything in it, pictures too, that needs nothing from the network.

It needs Jinja2 and matplotlib: `pip install "treecal[plots]"`.
"""

from treecal.report._entries import Curve, Entry, Section, audited, play
from treecal.report._page import render, write

__all__ = ["Curve", "Entry", "Section", "audited", "play", "render", "write"]
