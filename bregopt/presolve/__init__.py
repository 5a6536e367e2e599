"""Reductions: a program becomes a simpler one, and the answer to that one an answer to the first."""
