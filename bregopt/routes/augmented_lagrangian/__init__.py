"""Augmented Lagrangian with semismooth Newton steps: linear programs with many rows for their order."""

from bregopt.routes.augmented_lagrangian.route import Lagrangian

__all__ = ["Lagrangian"]
