"""Sparse inverse covariance estimation (graphical lasso) by Newton's method with the penalty.

``problem`` has the data and certificates, and finds the problem in a program. ``solve`` separates the rows
into connected parts, gives each its start, and puts their answers together. ``descent`` takes Newton steps.
"""
