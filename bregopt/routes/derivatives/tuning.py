"""Numerical constants of derivatives; all are relative."""

from __future__ import annotations

SMALLEST_MARGIN = 1e-8  # below it an answer counts as a point without a derivative
SMALL_MARGIN = 1e-5  # below it a warning is given
RESIDUAL = 1e-10  # of the optimality conditions at which Newton's method ends
LARGEST_RESIDUAL = 1e-7  # at which the answer can still be differentiated
STEPS = 8  # of Newton's method; two or three are usual
ROUNDS = 5  # trials for the set of acting rows
CG_TOL = 1e-11  # residual of the equation of a derivative
CG_STEPS = 2_000
SINGULAR = 1e-13  # reciprocal condition number at which a system counts as singular
NULL = 1e-10  # eigenvalue of a singular system that counts as zero
CONSISTENT = 1e-7  # residual of a singular system that has a solution
LARGEST_CHANGE = 0.05  # of an answer by its refinement, relative
