"""Sparse inverse covariance estimation (graphical lasso) by Newton's method with the penalty.

``screening`` separates the rows into connected parts. ``neighborhoods`` gives the start of one of them
(``point``), ``descent`` takes its Newton steps with the ``model`` on a ``face``, and ``splitting`` replaces
them where they make no progress (``part``). ``solve`` puts the parts together, and ``recognition`` finds the
problem in a program.
"""
