"""The algorithms of the route `bregman`, by method and by the features of divergences that they need."""

from __future__ import annotations

from functools import lru_cache
from pkgutil import resolve_name
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.divergences import Divergence
from bregopt.program import Answer, Block, Nearness, Program, Start
from bregopt.records import dataclass, replace
from bregopt.routes import base
from bregopt.routes.progress import Progress
from bregopt.routes.reductions import Method, behind

__all__ = [
    "DEMPSTER",
    "KULIS",
    "METHODS",
    "QI_SUN",
    "WHITENING",
    "Algorithm",
    "algorithm_of",
    "kind_of",
    "kinds_of",
    "method_of",
    "with_proximal_terms",
]

KULIS = "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10"
DEMPSTER = (
    "Dempster (1972), Covariance Selection, Biometrics 28; Dahl, Vandenberghe, Roychowdhury (2008), "
    "Covariance Selection for Nonchordal Graphs via Chordal Embedding, Optim. Methods Softw. 23"
)
DYKSTRA = (
    "Dykstra (1983), An Algorithm for Restricted Least Squares Regression, JASA 78; Higham (2002), Computing "
    "the Nearest Correlation Matrix: A Problem from Finance, IMA J. Numer. Anal. 22"
)
QI_SUN = (
    "Qi, Sun (2006), A Quadratically Convergent Newton Method for Computing the Nearest Correlation Matrix, "
    "SIAM J. Matrix Anal. Appl. 28"
)
QI_SUN_WEIGHTED = (
    "Qi, Sun (2010), An Augmented Lagrangian Dual Approach for the H-Weighted Nearest Correlation Matrix "
    "Problem, IMA J. Numer. Anal. 31; Nesterov, Todd (1997), Self-Scaled Barriers and Interior-Point Methods "
    "for Convex Programming, Math. Oper. Res. 22"
)
METHODS = ("auto", "newton", "cyclic")
_FEWER_ROWS = ("redundant equalities",)
WHITENING = (*_FEWER_ROWS, "whitening")  # of the program, or of each working set of its rows
_PACKAGE = "bregopt.routes.projection"


@dataclass(frozen=True)
class Algorithm:
    """A function, its method and citation, the features of divergences that it needs in each block.

    Parameters
    ----------
    method : str
    needs : tuple of str
    function : str
        Its module in this package, and its name. The module is imported on first use.
    citation : str
    several : bool
        Whether it takes more than one block.
    reductions : tuple of str
        Those behind which it runs.
    """

    method: str
    needs: tuple[str, ...]
    function: str
    citation: str
    several: bool = True
    reductions: tuple[str, ...] = ()

    @property
    def run(self) -> Method:
        """The function for a whole program."""
        function: Method = resolve_name(f"{_PACKAGE}.{self.function}")
        return behind(self.reductions, function) if self.reductions else function


# The first match is used.
_ALGORITHMS = (
    Algorithm("newton", ("barrier",), "algorithms:logdet_interior", KULIS, reductions=WHITENING),
    Algorithm("newton", ("weights",), "weighted:weighted_frobenius", QI_SUN_WEIGHTED, several=False),
    Algorithm("newton", ("spectrum", "quadratic"), "dual_newton:dual_newton", QI_SUN),
    Algorithm(
        "newton",
        ("spectrum", "exponential"),
        "dual_interior:exponential_newton",
        KULIS,
        reductions=_FEWER_ROWS,
    ),
    Algorithm("newton", ("spectrum",), "dual_newton:dual_newton", KULIS, reductions=_FEWER_ROWS),
    Algorithm("cyclic", ("spectrum", "quadratic"), "hildreth:dykstra_hildreth", DYKSTRA, several=False),
    Algorithm("cyclic", ("point",), "cyclic:cyclic_projection", KULIS, several=False),
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


def with_proximal_terms(program: Program, at: tuple[Array, ...] | None = None, mu: float = 1.0) -> Program:
    """Return the program with ``mu ||Z - Z_k||^2`` for matrices without a divergence; ``Z_k`` is in `at`."""
    if None not in program.divergences:
        return program

    def with_term(b: int, block: Block) -> Block:
        if block.nearness is not None:
            return block
        Z = np.zeros((block.n, block.n)) if at is None else at[b]
        return replace(block, nearness=Nearness("frobenius", Z, mu))

    return replace(program, blocks=tuple(with_term(b, block) for b, block in enumerate(program.blocks)))


def logdet_interior(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program whose divergences are LogDet by an interior point, with constants of its own."""
    from bregopt.routes.ipm.logdet_newton import logdet_newton

    own = base.Settings(
        tol=settings.tol,
        tol_X=settings.tol_X,
        max_iter=settings.max_iter,
        tuning=settings.tuning.interior,
    )
    return logdet_newton(program, own, start, progress)
