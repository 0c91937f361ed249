"""Guarded: the class, and many of them at once."""
