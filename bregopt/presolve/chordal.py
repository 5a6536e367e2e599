"""Chordal sparsity: a large matrix of few entries in cost and rows is replaced by its clique submatrices.

The entries outside the aggregate pattern of cost and rows only have to make ``X`` psd. The pattern is
extended to a chordal one (:mod:`bregopt.presolve.cliques`). Then ``X`` has such entries if and only if its
clique submatrices are psd. Each of them becomes a matrix of its own, and equalities make them agree where
they overlap (Fukuda, Kojima, Murota, Nakata 2001, section 4). The other entries are completed afterwards
(:mod:`bregopt.presolve.clique_blocks`).

The multipliers ``y`` of the rows carry over: ``C - A*(y)`` is the sum of the cliques' psd matrices, as the
multipliers of the overlaps cancel.
"""

from __future__ import annotations

from typing import ClassVar

from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Block, Program

__all__ = ["Chordal"]

# Order from which a sparse pattern is looked for; below, a step takes less than the calls for cliques.
LEAST_CHORDAL_ORDER = 170
# Order above which none is looked for: the search and a program of so many cliques take ten seconds or more.
_LARGEST_CHORDAL_ORDER = 50_000


# Pays on: max-cut of a band, n = 800.
class Chordal:
    """Replace large sparse matrices by their clique submatrices, where that costs less."""

    name: ClassVar[str] = "chordal sparsity"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Reduced | None:
        candidates = [_may_be_decomposed(block) for block in program.blocks]
        if not any(candidates):
            return None
        from bregopt.presolve.clique_blocks import decomposed  # only large matrices wait

        return decomposed(program, candidates)


def _may_be_decomposed(block: Block) -> bool:
    """Whether a matrix is of such an order, linear and on no face."""
    on_face = block.face is not None and block.face.codimension > 0
    sized = LEAST_CHORDAL_ORDER <= block.n <= _LARGEST_CHORDAL_ORDER
    return sized and block.nearness is None and block.cap is None and not on_face
