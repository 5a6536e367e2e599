"""A program in the clique submatrices of its matrices (:mod:`bregopt.presolve.chordal`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.certify.constants import LARGEST_FORMED
from bregopt.presolve.clique_rows import CliqueTerms, pattern_of
from bregopt.presolve.clique_work import core, fringe, is_cheaper, may_be_cheaper, sizes_of, work
from bregopt.presolve.cliques import CliqueTree, clique_tree, merged
from bregopt.presolve.completion import completion
from bregopt.presolve.constants import MOST_SEARCH, SEARCH_SHARE
from bregopt.presolve.reduction import Reduced
from bregopt.program import (
    Answer,
    Block,
    Bounds,
    LinearMap,
    LowRank,
    Matrix,
    Program,
    Start,
    StopReason,
    Term,
)

__all__ = ["Decomposed", "decomposed"]


@dataclass(frozen=True, eq=False)
class Decomposed(Reduced):
    """A program in the clique submatrices.

    Parameters
    ----------
    trees : tuple of CliqueTree or None
        The cliques of each block of `whole`; None for a block that stays as it is.
    """

    trees: tuple[CliqueTree | None, ...]

    @property
    def summary(self) -> str:
        blocks = zip(self.whole.blocks, self.trees, strict=True)
        parts = [
            f"{block.name} of order {block.n} as {len(tree.vertices)} cliques of order {tree.width} at most"
            for block, tree in blocks
            if tree is not None
        ]
        return f"{', '.join(parts)}, with {self.program.m - self.whole.m} equalities where they overlap"

    def shrink(self, start: Start) -> Start:
        y = np.pad(start.y, (0, self.program.m - self.whole.m))
        X: list[Matrix] = []
        for tree, X_b in zip(self.trees, start.X, strict=False):  # a start may have no matrices
            X += [X_b] if tree is None else [X_b[np.ix_(v, v)] for v in tree.vertices]
        return replace(start, X=tuple(X), y=y, S=None)

    def restore(self, answer: Answer) -> Answer:
        y = answer.y[: self.whole.m]
        if answer.stop is StopReason.INFEASIBLE:
            return Answer.without_point(self.whole, y, answer.stop, answer.iterations)
        X: list[Matrix] = []
        left = iter(answer.X)
        for tree in self.trees:
            own = [next(left) for _ in range(1 if tree is None else len(tree.vertices))]
            X += own if tree is None else [_completed(tree, own, answer.stop is StopReason.UNBOUNDED)]
        return replace(answer, X=tuple(X), y=y, S=None)


def _completed(tree: CliqueTree, X: Sequence[Array], formed: bool) -> Matrix:
    """Return the completion: an array if it is small or to be `formed`, its factor otherwise."""
    R = completion(tree, X)
    return R @ R.T if formed or tree.n <= LARGEST_FORMED else LowRank(R)


def decomposed(program: Program, candidates: Sequence[bool]) -> Decomposed | None:
    """Return the program in the clique submatrices of some blocks, None where none takes less time so."""
    cliques = [_clique_terms(program, b) if tried else None for b, tried in enumerate(candidates)]
    if all(found is None for found in cliques):
        return None
    trees = tuple(None if found is None else found.tree for found in cliques)
    return Decomposed(program, _decomposed(program, cliques), trees)


def _clique_terms(program: Program, b: int) -> CliqueTerms | None:
    """Return the cliques of a matrix with their terms, None where they take no less time."""
    pattern, n = pattern_of(program, b), program.blocks[b].n
    if pattern is None:
        return None
    for most, eliminated in ((min(SEARCH_SHARE * n**3, MOST_SEARCH), core), (10 * n, fringe)):
        tree = clique_tree(pattern.matrix, most, eliminated)
        if len(tree.vertices) < 2:
            continue
        tree = merged(tree, sizes_of(tree, pattern), work)
        if may_be_cheaper(tree, pattern):
            cliques = CliqueTerms.of(pattern, tree)
            if is_cheaper(cliques, pattern):
                return cliques
    return None


def _decomposed(program: Program, cliques: Sequence[CliqueTerms | None]) -> Program:
    """Return the program with cliques as blocks."""
    blocks: list[Block] = []
    terms: list[Term] = []
    m = program.m
    for b, found in enumerate(cliques):
        if found is None:
            terms += [replace(term, block=len(blocks)) for term in program.A.terms_of(b)]
            blocks.append(program.blocks[b])
            continue
        own, rows = found.blocks(program.blocks[b], m)
        terms += [Term(len(blocks) + c, at, family) for c, at, family in rows]
        blocks += own
        m += found.equalities
    more = m - program.m
    return replace(
        program,
        blocks=tuple(blocks),
        A=LinearMap(m, tuple(block.n for block in blocks), tuple(terms)),
        B=sp.csr_array(sp.vstack([program.B, sp.csr_array((more, program.k))], format="csr")),
        bounds=program.bounds.followed_by(Bounds.of_hard_rows(np.zeros(more), np.zeros(more))),
        labels=(),
        parameter_slopes=(),
    )
