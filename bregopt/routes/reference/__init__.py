"""The route `cvxpy`: every problem, by a foreign solver. What the other routes are checked against."""

from bregopt.routes.reference.route import Reference, ReferenceSettings

__all__ = ["Reference", "ReferenceSettings"]
