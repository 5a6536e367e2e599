"""The algorithms of the route `bregman`, by method and by the features of divergences that they need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any

from bregopt.divergences import Divergence
from bregopt.program import Block, Program
from bregopt.routes.projection.citations import DYKSTRA, KULIS, QI_SUN, QI_SUN_WEIGHTED
from bregopt.routes.reductions import Method, behind

__all__ = [
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
    Algorithm("newton", ("barrier",), "logdet_interior:logdet_interior", KULIS, reductions=WHITENING),
    Algorithm("newton", ("weights",), "weighted:weighted_frobenius", QI_SUN_WEIGHTED, several=False),
    Algorithm("newton", ("spectrum", "quadratic"), "dual_newton:dual_newton", QI_SUN),
    Algorithm(
        "newton",
        ("spectrum", "exponential"),
        "exponential_newton:exponential_newton",
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
