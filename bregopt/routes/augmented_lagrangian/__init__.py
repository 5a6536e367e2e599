"""Alternating directions on an augmented Lagrangian: linear programs with many rows for their order."""

from bregopt.routes.augmented_lagrangian.route import Lagrangian

__all__ = ["Lagrangian"]
