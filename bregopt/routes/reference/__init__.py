"""The route `cvxpy`: every problem, by a foreign solver; the reference for the other routes."""

from bregopt.routes.reference.route import Reference, ReferenceSettings, ReferenceTuning

__all__ = [
    "Reference",
    "ReferenceSettings",
    "ReferenceTuning",
]
