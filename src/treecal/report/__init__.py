"""HTML reports: one self-contained file, pictures included, that loads nothing from the network.

They need Jinja2 and matplotlib: the extra `plots`.
"""

from treecal.report._entries import Curve, Entry, play
from treecal.report._page import render, render_numbers, write
from treecal.report._section import MOST_CLASSES, Section, audited
from treecal.report._verdict import Verdict

__all__ = ["Curve", "Entry", "Section", "Verdict", "audited", "play", "render", "render_numbers", "write"]
