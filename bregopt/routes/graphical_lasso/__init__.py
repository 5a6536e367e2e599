"""Sparse inverse covariance estimation (graphical lasso) by Newton's method with the penalty.

``problem`` has the data and certificates. ``solve`` separates the rows into connected parts, solves each, and
puts their answers together. ``start`` gives the start of one of them, ``descent`` takes its Newton steps.
``recognition`` finds the problem in a program.
"""
