"""Rows that do not fit in memory, in chunks, and the problems over one matrix that they make."""

from bregopt.chunks.rows import RowChunks

__all__ = ["RowChunks"]
