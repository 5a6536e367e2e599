"""The algorithms of the route `bregman`, by method and by the features of divergences that they need."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from bregopt.divergences import Divergence
from bregopt.program import Answer, Block, Program, Start
from bregopt.routes import base
from bregopt.routes.progress import Progress
from bregopt.routes.projection.cold_newton import QI_SUN
from bregopt.routes.projection.cyclic import cyclic_projection
from bregopt.routes.projection.dual_interior import dual_interior, has_more_rows_than_unknowns
from bregopt.routes.projection.dual_newton import dual_newton
from bregopt.routes.projection.hildreth import dykstra_hildreth
from bregopt.routes.projection.weighted import weighted_frobenius
from bregopt.routes.reductions import Method, behind

__all__ = [
    "DEMPSTER",
    "KULIS",
    "METHODS",
    "WHITENING",
    "Algorithm",
    "algorithm_of",
    "kind_of",
    "kinds_of",
    "method_of",
]

METHODS = ("auto", "newton", "cyclic")
_FEWER_ROWS = ("redundant equalities",)
WHITENING = (*_FEWER_ROWS, "whitening")  # of the program, or of each working set of its rows
KULIS = "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10"
DEMPSTER = (
    "Dempster (1972), Covariance Selection, Biometrics 28; Dahl, Vandenberghe, Roychowdhury (2008), "
    "Covariance Selection for Nonchordal Graphs via Chordal Embedding, Optim. Methods Softw. 23"
)
_DYKSTRA = (
    "Dykstra (1983), An Algorithm for Restricted Least Squares Regression, JASA 78; Higham (2002), Computing "
    "the Nearest Correlation Matrix: A Problem from Finance, IMA J. Numer. Anal. 22"
)
_QI_SUN_WEIGHTED = (
    "Qi, Sun (2010), An Augmented Lagrangian Dual Approach for the H-Weighted Nearest Correlation Matrix "
    "Problem, IMA J. Numer. Anal. 31; Nesterov, Todd (1997), Self-Scaled Barriers and Interior-Point Methods "
    "for Convex Programming, Math. Oper. Res. 22"
)


def _logdet_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Run the interior-point method, with its own constants. Other divergences need not load it."""
    from bregopt.routes.ipm.logdet_newton import logdet_newton

    own = base.Settings(tol=settings.tol, max_iter=settings.max_iter, tuning=settings.tuning.interior)
    return logdet_newton(program, own, start, progress)


def _exponential_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Run Newton's method on the dual, with a barrier where multipliers may not be unique."""
    on_dual = dual_interior if has_more_rows_than_unknowns(program, settings.tuning) else dual_newton
    return on_dual(program, settings, start, progress)


class Algorithm(NamedTuple):
    """A function, its method and citation, the features of divergences that it needs in each block.

    `several` tells whether it takes more than one block.
    """

    method: str
    needs: frozenset[str]
    run: Method
    citation: str
    several: bool


# The first match is used.
_ALGORITHMS = (
    Algorithm("newton", frozenset({"barrier"}), behind(WHITENING, _logdet_newton), KULIS, True),
    Algorithm("newton", frozenset({"weights"}), weighted_frobenius, _QI_SUN_WEIGHTED, False),
    Algorithm("newton", frozenset({"spectrum", "quadratic"}), dual_newton, QI_SUN, True),
    Algorithm(
        "newton",
        frozenset({"spectrum", "exponential"}),
        behind(_FEWER_ROWS, _exponential_newton),
        KULIS,
        True,
    ),
    Algorithm("newton", frozenset({"spectrum"}), behind(_FEWER_ROWS, dual_newton), KULIS, True),
    Algorithm("cyclic", frozenset({"spectrum", "quadratic"}), dykstra_hildreth, _DYKSTRA, False),
    Algorithm("cyclic", frozenset({"point"}), cyclic_projection, KULIS, False),
)


def kind_of(block: Block) -> type[Divergence]:
    """Return the kind of the divergence of a block, which has one."""
    assert block.nearness is not None
    return block.nearness.kind


def kinds_of(program: Program) -> tuple[type[Divergence], ...]:
    """Return the kinds of divergences that occur, each once."""
    return tuple(dict.fromkeys(map(kind_of, program.blocks)))


@lru_cache
def algorithm_of(kinds: tuple[type[Divergence], ...], several: bool, method: str) -> Algorithm | None:
    """Return the algorithm of a method for blocks with these divergences; None if there is none."""
    for algorithm in _ALGORITHMS:
        takes = all(kind.offers(need) for kind in kinds for need in algorithm.needs)
        if algorithm.method == method and takes and (algorithm.several or not several):
            return algorithm
    return None


def method_of(program: Program, settings: Any) -> str:
    """Return the method: "auto" means "cyclic" for a single LogDet row, else "newton" if available."""
    if settings.method != "auto":
        return str(settings.method)
    kinds, several = kinds_of(program), len(program.blocks) > 1
    single = program.m == 1 and not several and kinds[0].barrier and program.blocks[0].cost is None
    return "cyclic" if single or algorithm_of(kinds, several, "newton") is None else "newton"
