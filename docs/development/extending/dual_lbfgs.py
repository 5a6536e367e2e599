"""A route: the dual of a nearness problem by SciPy's L-BFGS-B."""

import numpy as np
from scipy.optimize import minimize

import bregopt as bo
from bregopt.program import Answer, StopReason, divergence_of
from bregopt.routes.base import Capabilities, Settings


@bo.register_solver
class DualLBFGS:
    """Maximize the dual function; its gradient is the residual of the rows."""

    name = "lbfgs"
    summary = "nearness in divergences with a spectrum, by a quasi-Newton method on the dual"
    citation = "Liu, Nocedal (1989), On the Limited Memory BFGS Method, Math. Program. 45"
    capabilities = Capabilities(
        objectives=frozenset({"spectrum"}), blocks=1, variables=False, penalties=frozenset(), matrices=8
    )
    Settings = Settings

    def refusal(self, program, settings):
        """Refuse a dual that is not finite everywhere, and rows between two bounds, whose dual has a kink."""
        if program.blocks[0].nearness.kind.barrier:
            return "it takes divergences whose dual is finite everywhere, not LogDet"
        bounds = program.bounds
        smooth = np.isinf(bounds.lo) | np.isinf(bounds.hi) | bounds.equal
        return None if program.m and smooth.all() else "it takes rows of one bound, and at least one"

    def choice(self, program, settings):
        return ""

    def solve(self, program, settings, start, progress):
        block, A, bounds = program.blocks[0], program.A, program.bounds
        D, mu = divergence_of(block.nearness), block.nearness.mu
        b = np.where(np.isfinite(bounds.lo), bounds.lo, bounds.hi)
        lower, upper = bounds.dual_range()

        def negative_dual(y):
            at = D.spectrum(block.C - A.adjoint(y), mu)
            if at is None:  # outside the domain of the dual
                return np.inf, np.zeros(len(y))
            return -(b @ y + at.term), A.apply((at.X,)) - b

        def end_if_infeasible(y):  # the multipliers diverge along a Farkas vector
            if progress.contradicts(program, y):
                raise StopIteration

        y = np.zeros(program.m) if start is None else bounds.clip(start.y)
        limit = settings.max_iter or 5_000
        asked = {"maxiter": limit, "maxfun": 10**6, "maxcor": 50, "ftol": 0, "gtol": 1e-14}
        box = np.column_stack([lower, upper])
        method = {"method": "L-BFGS-B", "callback": end_if_infeasible}
        found = minimize(negative_dual, y, jac=True, bounds=box, options=asked, **method)
        if progress.contradicts(program, found.x):
            return Answer.without_point(program, found.x, StopReason.INFEASIBLE, found.nit)
        X = D.spectrum(block.C - A.adjoint(found.x), mu).X
        stop = StopReason.MAX_ITER if found.nit >= limit else StopReason.CONVERGED
        return Answer((X,), np.zeros(0), found.x, stop, found.nit)
