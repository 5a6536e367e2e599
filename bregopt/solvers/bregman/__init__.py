"""Bregman projection: the route for nearness problems."""

from bregopt.solvers.bregman.route import Bregman, BregmanSettings

__all__ = ["Bregman", "BregmanSettings"]
