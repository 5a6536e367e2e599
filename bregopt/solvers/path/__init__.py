"""The route `path`: semidefinite programs by following their central path."""

from bregopt.solvers.path.route import Path, PathSettings

__all__ = ["Path", "PathSettings"]
