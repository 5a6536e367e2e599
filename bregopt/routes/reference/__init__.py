"""The route `cvxpy`: every problem, by a foreign solver; the reference for the other routes."""

from bregopt.routes.reference.route import Reference, ReferenceSettings
from bregopt.routes.reference.tuning import ReferenceTuning

__all__ = [
    "Reference",
    "ReferenceSettings",
    "ReferenceTuning",
]
