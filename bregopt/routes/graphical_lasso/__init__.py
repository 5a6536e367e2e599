"""Sparse inverse covariance estimation (graphical lasso) by Newton's method with the penalty.

``solve`` separates the rows into connected parts and puts their answers together. ``point`` gives the start
of one of them, ``descent`` takes its Newton steps with a model on a ``face``, and splitting replaces
them where they make no progress (``part``). ``recognition`` finds the problem in a program.
"""
