"""Bregman projection: the route for nearness problems."""

from bregopt.routes.projection.route import Bregman, BregmanSettings
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = [
    "Bregman",
    "BregmanSettings",
    "ProjectionTuning",
]
