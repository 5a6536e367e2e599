"""Bregman projection: the route for nearness problems."""

from bregopt.routes.projection.bregman_route import Bregman, BregmanSettings

__all__ = ["Bregman", "BregmanSettings"]
