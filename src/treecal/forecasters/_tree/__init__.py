"""Forecasters on the tree: their path, how heights are weighted, and the two of them, alone and many at once."""
