"""Doors to the outside: spec files, matrix files, graphs, data frames."""
