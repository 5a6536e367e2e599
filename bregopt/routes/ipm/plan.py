"""The plan of a program: what the method knows of its structure, computed once for all steps.

All matrices are one flat vector. Its parts are the groups: a block, or a stack of small blocks of equal order
and weight, which one call of LAPACK factorizes. The rows are one matrix on that vector where their entries are
few enough to be listed, so that ``A`` and ``A*`` are one product each for all blocks. Rows with fewer numbers
than entries (rank one, distances) keep their own formulas. The Schur matrix is a sum over the groups, by the
cheapest formula for each (:mod:`bregopt.routes.ipm.schur`, :mod:`bregopt.routes.ipm.stack_rows`).

Newton's system at a point of the method is stated here, too; :mod:`bregopt.routes.ipm.systems` solves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.linalg import dense, symmetrize
from bregopt.program import NO_CONES, Face, LinearMap, SecondOrderCones
from bregopt.routes.ipm.cones import Cone, FaceCone, StackCone
from bregopt.routes.ipm.row_action import RowAction
from bregopt.routes.ipm.tuning import InteriorPointTuning

if TYPE_CHECKING:
    from bregopt.routes.ipm.stack_rows import SchurValues, StackRows

__all__ = ["Group", "GroupRows", "Plan", "RightHandSide", "ScalingPoint", "Solve", "Step", "System"]

_SMALL_MAP = 50_000  # entries of a matrix of rows whose dense products take less time than sparse ones' calls
_LISTED = 2_000_000  # entries of the rows in a block up to which they are listed


class GroupRows(Protocol):
    """The rows of a program in one group: their part of the Schur matrix."""

    @property
    def formula(self) -> SchurValues:
        """The Schur matrix of the rows that meet the group, as numbers at places."""
        ...

    def schur(self, X: Array, K: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return the Schur matrix ``<A_k, sym(X A_l K)>`` of all rows, or of some in ascending order."""
        ...

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        ...


class Group:
    """The blocks of a program that are one array in the method.

    Parameters
    ----------
    blocks : tuple of int
    cone : Cone
    rows : GroupRows
    part : slice
        Its part of the flat vector.
    shape : tuple of int
        ``(n, n)`` of a block, ``(B, n, n)`` of a stack.
    weight : float
        Of the ``-logdet X`` of each block.
    """

    def __init__(
        self,
        blocks: tuple[int, ...],
        cone: Cone,
        rows: GroupRows,
        part: slice,
        shape: tuple[int, ...],
        weight: float,
    ) -> None:
        self.blocks, self.cone, self.rows, self.part = blocks, cone, rows, part
        self.shape, self.weight = shape, weight
        self.by_entry = isinstance(rows, RowAction) and rows.by_entry
        self._sparse = isinstance(rows, RowAction) and rows.sparse

    def of(self, v: Array) -> Array:
        """Return the matrices of the group in a flat vector, as a view."""
        return v[self.part].reshape(self.shape)

    def product(self, S: Array, X: Array) -> Array:
        """Return ``S X`` for ``S = A*(y)``, by the entries that the rows have if these are few."""
        if self._sparse:
            return np.asarray(self.rows.in_pattern(S) @ X)  # type: ignore[attr-defined]
        product: Array = S @ X
        return product


class Plan:
    """The groups of a program, and its rows on their flat vector.

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

    Attributes
    ----------
    groups : tuple of Group
    size : int
        The length of the flat vector.
    cost : array of shape (size,)
        The cost matrices.
    """

    def __init__(
        self,
        A: LinearMap,
        C: Sequence[Array],
        faces: Sequence[Face],
        tuning: InteriorPointTuning,
        stacked: bool = True,
        weights: Sequence[float] | None = None,
    ) -> None:
        weights = (0.0,) * len(faces) if weights is None else weights
        self.A, self.m, self._tuning = A, A.m, tuning
        stacks = list(_stacks(A, faces, weights, tuning)) if stacked else []
        inside = {b for blocks, _ in stacks for b in blocks}
        groups, start = [], 0

        def add(blocks: tuple[int, ...], cone: Cone, rows: GroupRows, shape: tuple[int, ...]) -> None:
            nonlocal start
            end = start + int(np.prod(shape))
            groups.append(Group(blocks, cone, rows, slice(start, end), shape, weights[blocks[0]]))
            start = end

        for b, face in enumerate(faces):
            if b not in inside:
                add((b,), FaceCone(face, tuning), RowAction(A, tuning, b), (face.n, face.n))
        for blocks, rows in stacks:
            n = faces[blocks[0]].n
            add(blocks, StackCone(len(blocks), n), rows, (len(blocks), n, n))
        self.groups, self.size = tuple(groups), start
        self.cost = self.joined(C)
        self._map, self._adjoint, self._by_formula = self._listed_rows()

    @property
    def order(self) -> int:
        """The sum of the orders of all matrices on their faces."""
        return self._order

    @cached_property
    def _order(self) -> int:
        return sum(group.cone.order for group in self.groups)

    @cached_property
    def largest_cost(self) -> float:
        """The largest norm of a cost matrix of a block."""
        return max(float(np.linalg.norm(C)) for C in self.matrices(self.cost))

    def views(self, v: Array) -> list[Array]:
        """Return the arrays of the groups in a flat vector, as views."""
        return [v[group.part].reshape(group.shape) for group in self.groups]

    def joined(self, matrices: Sequence[Any]) -> Array:
        """Return the flat vector of the matrices of all blocks."""
        if len(matrices) == 1:
            return np.asarray(matrices[0]).ravel()
        return np.concatenate(
            [np.asarray(matrices[b]).ravel() for group in self.groups for b in group.blocks]
        )

    def matrices(self, v: Array) -> tuple[Array, ...]:
        """Return the matrices of all blocks, in their order, from a flat vector."""
        found: dict[int, Array] = {}
        for group in self.groups:
            array = group.of(v)
            found.update(zip(group.blocks, array if array.ndim == 3 else [array], strict=True))
        return tuple(found[b] for b in range(len(found)))

    def spread(self, numbers: Sequence[float]) -> float | Array:
        """Return a number for each group, as one for each entry of the flat vector if they differ."""
        if all(number == numbers[0] for number in numbers):
            return numbers[0]
        return np.repeat(numbers, [group.part.stop - group.part.start for group in self.groups])

    def apply(self, S: Array) -> Array:
        """Return ``A(S)`` for symmetric matrices; of others in listed groups, for their symmetric parts."""
        activity: Array = np.zeros(self.m) if self._map is None else self._map @ S
        for group in self._by_formula:
            activity += group.rows.apply(group.of(S))  # type: ignore[attr-defined]
        return activity

    def adjoint(self, y: Array) -> Array:
        """Return ``A*(y)``."""
        S: Array = np.zeros(self.size) if self._adjoint is None else self._adjoint @ y
        for group in self._by_formula:
            group.of(S)[...] = dense(group.rows.adjoint(y))  # type: ignore[attr-defined]
        return S

    def apply_sum(self, weight: float | Array, X: Array, K: Array, R: Sequence[Array | None] | None) -> Array:
        """Return ``A(weight K - X + sym(K R))``; None stands for zero."""
        total = -X if isinstance(weight, float) and not weight else weight * K - X
        by_entry: list[tuple[Any, Array, Array]] = []
        for group, R_g in zip(self.groups, R or (), strict=R is not None):
            if R_g is None:
                continue
            if group.by_entry:
                by_entry.append((group.rows, group.of(K), R_g))
                continue
            product = group.of(K) @ R_g
            if group in self._by_formula:
                symmetrize(product)
            own = group.of(total)
            own += product
        activity = self.apply(total)
        for rows, K_g, R_g in by_entry:
            activity += rows.apply_product(K_g, R_g.T)  # K is its own transpose
        return activity

    def gram(self, P: Array, rows: IntArray) -> Array:
        """Return the Schur matrix ``<A_k, P A_l P>`` of some rows, in ascending order."""
        return self.schur(P, P, rows, [None] * len(self.groups))

    def schur(self, X: Array, K: Array, rows: IntArray, roots: Sequence[Array | None]) -> Array:
        """Return the Schur matrix ``<A_k, sym(X A_l K)>`` of some rows, in ascending order."""
        own = zip(self.groups, roots, strict=True)
        parts = (group.rows.schur(group.of(X), group.of(K), rows, root) for group, root in own)
        H = next(parts)
        for part in parts:
            H += part
        return H

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        largest = [group.rows.magnitudes(group.of(X)) for group in self.groups]
        return largest[0] if len(largest) == 1 else np.maximum.reduce(largest)

    def traces(self, X: Array) -> Array:
        """Return the trace of each block."""
        traces = np.zeros(len(self.A.orders))
        for group in self.groups:
            traces[list(group.blocks)] = group.cone.traces(group.of(X))
        return traces

    def inverses(self, roots: Sequence[Array]) -> Array:
        """Return the inverses of matrices from their roots."""
        K = np.empty(self.size)
        for group, root in zip(self.groups, roots, strict=True):
            group.of(K)[...] = group.cone.inverse(root)
        return K

    def roots(self, v: Array) -> list[Array] | None:
        """Return the roots of the matrices, None if one of them is not positive definite on its face."""
        roots = []
        for group in self.groups:
            root = group.cone.root(v[group.part].reshape(group.shape))
            if root is None:
                return None
            roots.append(root)
        return roots

    def _listed_rows(self) -> tuple[Any, Any, tuple[Group, ...]]:
        """Return the matrix of the rows that are listed, its transpose, and the groups whose rows are not."""
        A, m, tuning = self.A, self.m, self._tuning
        small = m * self.size <= _SMALL_MAP
        by_formula = () if small else tuple(group for group in self.groups if not self._is_listed(group))
        row, place, half = [], [], []
        for group in self.groups:
            if group in by_formula:
                continue
            n = group.shape[-1]
            for k, b in enumerate(group.blocks):
                first = group.part.start + k * n * n
                for term in A.terms_of(b):
                    t = term.rows.coordinates()
                    row += [term.at[t.row]] * 2
                    place += [first + t.i * n + t.j, first + t.j * n + t.i]
                    half += [t.value / 2] * 2
        if not row:
            return None, None, by_formula or ()
        entries = np.concatenate(half), (np.concatenate(row), np.concatenate(place))
        rows = sp.csr_array(entries, (m, self.size))
        if small or rows.nnz > tuning.dense_stack * m * self.size:
            rows = rows.toarray()
        return rows, rows.T, by_formula

    def _is_listed(self, group: Group) -> bool:
        """Whether the entries of the rows in a group are few, and none of its families has fewer numbers."""
        rows = [term.rows for b in group.blocks for term in self.A.terms_of(b)]
        short = any(own.rank is not None and own.count() > 2 * own.m * own.n for own in rows)
        return len(group.blocks) > 1 or not (short or sum(own.count() for own in rows) > _LISTED)


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


class ScalingPoint(NamedTuple):
    """The point at which Newton's system is formed.

    Parameters
    ----------
    X, K : array of shape (size,)
        Flat vectors of positive definite matrices, possibly on a face.
    roots : sequence of arrays
        Roots of ``X`` for each group (:class:`~bregopt.routes.ipm.cones.Cone`): the lower Cholesky factor of
        a block on its face, the inverse factors of a stack.
    D : array of shape (m,)
        Infinite for a row without finite bounds.
    D_u : array of shape (k,)
        Infinite for a free variable.
    cones : SecondOrderCones
        Of the variables.
    p_u : array of shape (cones.size,) or None
        ``D_u`` of the system is ``diag(D_u)`` plus ``p p'`` for the part ``p`` of each cone; None without
        cones.
    """

    X: Array
    K: Array
    roots: Sequence[Array]
    D: Array
    D_u: Array
    cones: SecondOrderCones = NO_CONES
    p_u: Array | None = None


class RightHandSide(NamedTuple):
    """Right-hand sides: of ``dX = w K - X + sym(K (A*(dy) X + R))`` and of the rows and variables.

    `weights` and `R` have one element for each group of blocks; an array of None, or None, stands for zero.
    """

    weights: Sequence[float]
    R: Sequence[Array | None] | None
    r: Array
    r_u: Array
    q: Array


class Step(NamedTuple):
    """The solution of the system: symmetric ``dX``, ``du``, ``dy``, and ``A*(dy)`` (`adjoint`), flat."""

    X: Array
    u: Array
    y: Array
    adjoint: Array


Solve = Callable[[RightHandSide], Step]


class System(Protocol):
    """Newton's system for one problem.

    Attributes
    ----------
    direct : bool
        Whether the system is factorized; otherwise conjugate gradients solve it.
    """

    @property
    def direct(self) -> bool: ...

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        """Return the solver of the system for any right-hand side."""
        ...
