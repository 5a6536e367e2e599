"""Many problems, on any executor of ``concurrent.futures``."""

from bregopt.many.solve import solve_many

__all__ = ["solve_many"]
