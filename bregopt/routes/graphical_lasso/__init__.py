"""Sparse inverse covariance estimation (graphical lasso) by Newton's method with the penalty.

``solve`` separates the rows into connected parts, solves each, and puts their answers together. ``point``
gives the start of one of them, ``descent`` takes its Newton steps. ``recognition`` finds the problem in a
program.
"""
