"""The groups of a program's blocks: a group is one array in the method.

Small blocks of equal order and weight form a stack. Every other block is a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.program import Face, LinearMap
from bregopt.routes.ipm.cones import Cone, FaceCone, StackCone
from bregopt.routes.ipm.row_action import RowAction
from bregopt.routes.ipm.tuning import InteriorPointTuning

if TYPE_CHECKING:
    from bregopt.routes.ipm.stack_rows import SchurValues, StackRows

__all__ = ["Group", "GroupRows", "groups_of", "rows_of_blocks", "split"]


class GroupRows(Protocol):
    """The rows of a program in one group: ``A``, ``A*`` and their part of the Schur matrix."""

    @property
    def formula(self) -> SchurValues:
        """The Schur matrix of the rows that meet the group, as numbers at places."""
        ...

    def adjoint(self, y: Array) -> Any:
        """Return ``A*(y)``, possibly sparse."""
        ...

    def apply(self, S: Array) -> Array:
        """Return ``A(S)`` for symmetric matrices, shape ``(m,)``."""
        ...

    def apply_sum(self, weight: float, X: Array, K: Array, R: Array | None) -> Array:
        """Return ``A(weight K - X + sym(K R))``; `R` of None stands for zero."""
        ...

    def apply_product(self, L: Array, R: Array) -> Array:
        """Return ``A(sym(L R'))``."""
        ...

    def schur(self, X: Array, K: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return the Schur matrix ``<A_k, sym(X A_l K)>`` of all rows, or of some in ascending order."""
        ...

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        ...


@dataclass(frozen=True, eq=False)
class Group:
    """The blocks of a program that are one array in the method.

    Parameters
    ----------
    blocks : tuple of int
    cone : Cone
    rows : GroupRows
    C : array of shape (n, n) or (B, n, n)
        The cost matrices of the blocks.
    weight : float
        Of the ``-logdet X`` of each block.
    """

    blocks: tuple[int, ...]
    cone: Cone
    rows: GroupRows
    C: Array
    weight: float = 0.0

    @cached_property
    def cost_norm(self) -> float:
        """The largest norm of a cost matrix."""
        C = self.C if self.C.ndim == 3 else self.C[None]
        return float(np.linalg.norm(C, axis=(1, 2)).max())

    @cached_property
    def identity(self) -> Array:
        """The identity of each block, on the whole cone."""
        return np.eye(self.C.shape[-1]) + np.zeros_like(self.C)

    def Z(self, y: Array) -> Array:
        """Return ``C - A*(y)``."""
        Z: Array = self.C - self.rows.adjoint(y)
        return Z

    def joined(self, matrices: Sequence[Any]) -> Array:
        """Return the array of the group, from matrices of all blocks of the program."""
        if isinstance(self.cone, StackCone):
            return np.stack([np.asarray(matrices[b]) for b in self.blocks])
        return np.asarray(matrices[self.blocks[0]])


def split(groups: Sequence[Group], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the matrices of all blocks, in their order, from the arrays of the groups."""
    matrices: dict[int, Array] = {}
    for group, array in zip(groups, arrays, strict=True):
        stack = array if isinstance(group.cone, StackCone) else [array]
        matrices.update(zip(group.blocks, stack, strict=True))
    return tuple(matrices[b] for b in range(len(matrices)))


def rows_of_blocks(A: LinearMap, tuning: InteriorPointTuning) -> list[GroupRows]:
    """Return the rows in groups of one block each."""
    return [RowAction(A, tuning, b) for b in range(len(A.orders))]


def groups_of(
    A: LinearMap,
    C: Sequence[Array],
    faces: Sequence[Face],
    tuning: InteriorPointTuning,
    stacked: bool,
    weights: Sequence[float] | None = None,
) -> tuple[Group, ...]:
    """Return the groups of a program.

    Parameters
    ----------
    A : LinearMap
    C : sequence of arrays of shape (n_b, n_b)
    faces : sequence of Face
    tuning : InteriorPointTuning
    stacked : bool
        Whether there are stacks; otherwise each block is a group.
    weights : sequence of float, optional
        Of the ``-logdet X`` of each block; zero by default.
    """
    weights = (0.0,) * len(faces) if weights is None else weights
    stacks = list(_stacks(A, faces, weights, tuning)) if stacked else []
    inside = {b for blocks, _ in stacks for b in blocks}
    groups = [
        Group((b,), FaceCone(face, tuning), RowAction(A, tuning, b), C[b], weights[b])
        for b, face in enumerate(faces)
        if b not in inside
    ]
    for blocks, rows in stacks:
        cone, own = StackCone(len(blocks), faces[blocks[0]].n), np.stack([C[b] for b in blocks])
        groups.append(Group(blocks, cone, rows, own, weights[blocks[0]]))
    return tuple(groups)


def _stacks(
    A: LinearMap, faces: Sequence[Face], weights: Sequence[float], tuning: InteriorPointTuning
) -> Iterator[tuple[tuple[int, ...], StackRows]]:
    """Yield the blocks of each stack, of equal order and weight, and their rows."""

    def kind(b: int) -> tuple[int, float]:
        return faces[b].n, weights[b]

    whole = [b for b, face in enumerate(faces) if not face.codimension and 0 < face.n <= tuning.stack_order]
    for _, blocks in groupby(sorted(whole, key=kind), key=kind):
        own = tuple(blocks)
        if len(own) > 1 and sum(t.rows.count() for b in own for t in A.terms_of(b)) <= tuning.stack_terms:
            from bregopt.routes.ipm.stack_rows import (
                StackRows,  # only several equal orders wait
                StackTerms,
            )

            terms = StackTerms.of(A, own)
            if StackRows.fits(terms, tuning):
                yield own, StackRows(terms, tuning)
