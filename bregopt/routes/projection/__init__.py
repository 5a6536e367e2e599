"""Bregman projection: the route for nearness problems."""

from bregopt.routes.projection.route import Bregman, BregmanSettings, ProjectionTuning

__all__ = [
    "Bregman",
    "BregmanSettings",
    "ProjectionTuning",
]
