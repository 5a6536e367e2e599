"""Convex and concave atoms: each is one class with its value, curvature, monotonicity and epigraph."""
