"""The primal-dual interior-point method that routes share, and the route `path`, which is that method.

Each constant stands at the head of the chapter that uses it. Most are limits, round-off, and sizes from which
another formula costs less. Halved or doubled, or tolerances a tenth or ten times as large, these change the
steps of small problems of SDPLIB and of the special paths:

- steps: how near to the boundary they go (`LEAST_STEP_FRACTION`, `_LARGEST_STEP_FRACTION`), what shortens one
  out of the cone (`_STEP_DECREASE`), and the accuracy of their lengths (`_PREDICTOR_TOL`, `_CORRECTOR_TOL`);
- centering: `_LEAST_CENTERING`, `_CENTERING_EXPONENT` and `_FULL_STEP_EXPONENT`;
- the dual residual that counts as zero: `_DUAL_ROUND_OFF`;
- the first iterate: `_DUAL_SHIFT`, `_FIRST_PRIMAL_SCALE` and `_FIRST_DUAL_SCALE`;
- when the path begins again with a larger ``Z``: `_FIRST_STEPS`, `_LEFT` and `_LARGER_START`;
- when a ray is sought: `_PRIMAL_DIVERGENCE`.
"""
