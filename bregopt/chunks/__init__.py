"""Rows and triplets that do not fit in memory, in chunks, and the problems over one matrix that they make."""

from bregopt.chunks.rows import RowChunks, TripletChunks

__all__ = ["RowChunks", "TripletChunks"]
